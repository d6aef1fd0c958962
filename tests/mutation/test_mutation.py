from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from scipy import stats

from adaptk import guard
from tests.mutation import report, survey, trials
from tests.mutation.mutants import Mutant, Mutations, draw
from tests.mutation.targets import TARGETS, Target

PATH = Path(guard.__file__)
SOURCE = PATH.read_text()


def mutant(function: str, before: str, after: str, lines: range = range(1)) -> Mutant:
    assert SOURCE.count(before) == 1
    return Mutant("adaptk.guard", function, lines, SOURCE.replace(before, after), "")


class TestPlace:
    def test_a_fork_has_the_mutant_and_nobody_else(self) -> None:
        """A function that was imported by name before is mutated in the fork; here and in the file it is as it was."""
        place = guard.place

        def work() -> int:
            trials.put_in_place(mutant("place", "3 * batch // 2", "4 * batch // 2"), PATH)
            return place(1100, None)[0]

        assert trials.in_fork(work, 60.0) == (0, 12)
        assert place(1100, None)[0] == 11
        assert PATH.read_text() == SOURCE

    def test_methods_and_defaults_are_replaced_too(self) -> None:
        """Also of objects that exist already."""
        ledger = guard.Ledger(0.01)

        def work() -> list[float]:
            trials.put_in_place(mutant("Ledger.spend", "max(0.0, extra_ms)", "max(2.0, extra_ms)"), PATH)
            ledger.spend(1.0)
            changed = "def spend(self, extra_ms: float = 7.0)"
            trials.put_in_place(mutant("Ledger.spend", "def spend(self, extra_ms: float)", changed), PATH)
            ledger.spend()  # type: ignore[call-arg]
            return [ledger.spent_ms]

        assert trials.in_fork(work, 60.0) == (0, [9.0])
        assert ledger.spent_ms == 0.0

    def test_a_fork_that_does_not_end_is_ended(self) -> None:
        assert trials.in_fork(lambda: time.sleep(600.0), 0.3) == (trials.ENDLESS, None)


def test_tests_that_run_the_lines_are_chosen_the_modules_own_first() -> None:
    """Not those that run other lines, that take 10 s, that are of other files, nor what is beyond 20 s in all."""
    target = Target("adaptk/guard.py", ("own.py",), ("other.py",))

    def seen(seconds: float, *lines: int) -> survey.Seen:
        return survey.Seen(seconds, {"adaptk/guard.py": lines})

    tests = {
        "other.py::quick": seen(0.1, 7),
        "own.py::slow": seen(8.0, 6, 7),
        "own.py::quick": seen(1.0, 8),
        "own.py::elsewhere": seen(1.0, 9),
        "own.py::too slow": seen(10.0, 7),
        "other.py::slow": seen(9.0, 7),
        "other.py::too much": seen(9.5, 7),
        "third.py::foreign": seen(0.1, 7),
    }
    chosen = survey.chosen(mutant("place", "3 * batch", "4 * batch", range(7, 9)), target, tests)
    assert chosen == ["own.py::quick", "own.py::slow", "other.py::quick", "other.py::slow"]


class TestReport:
    @pytest.mark.parametrize(("k", "n"), [(0, 10), (7, 10), (255, 300), (300, 300)])
    def test_the_interval_is_wilsons(self, k: int, n: int) -> None:
        expected = stats.binomtest(k, n).proportion_ci(method="wilson")
        assert report.wilson(k, n) == pytest.approx((expected.low, expected.high), abs=1e-4)

    def test_what_never_ends_counts_as_killed(self) -> None:
        outcomes = (trials.KILLED, trials.KILLED, trials.TIMEOUT, trials.SURVIVED)
        results = [report.Result("", "adaptk.guard", "place", 3, "-a\n+b", o, "", 1.0) for o in outcomes]
        assert report.table(results).splitlines()[1].split()[:6] == ["adaptk.guard", "4", "2", "1", "1", "75.0%"]
        assert report.survivors(results) == "adaptk.guard:3 place\n-a\n+b"


class TestDraw:
    """With mutmut, which the suite does without."""

    def test_the_same_seed_draws_the_same_mutants(self) -> None:
        """By the modules' shares, each mutant once, and all of them compile."""
        pytest.importorskip("mutmut")
        root = PATH.parents[1]
        modules = {name: Mutations(TARGETS[name], root) for name in ("thompson", "guard")}
        drawn = [draw(modules, 28, seed) for seed in (0, 0, 1)]
        assert drawn[0] == drawn[1] != drawn[2]
        assert len({m.key for m in drawn[0]}) == 28
        share = sum(m.module == "adaptk.guard" for m in drawn[0]) / 28
        assert share == pytest.approx(len(modules["guard"]) / sum(map(len, modules.values())), abs=1 / 28)

    def test_annotations_docstrings_constants_and_strict_are_left_alone(self, tmp_path: Path) -> None:
        """Of all that could be changed there remain the sum, the call's two arguments, and its result."""
        pytest.importorskip("mutmut")
        code = '''LIMIT = 3


def add(a: int | None, b: list[int]) -> int:
    """Adds 1."""
    total: int = a + sum(x for x, _ in zip(b, b, strict=True))
    return total
'''
        (tmp_path / "module.py").write_text(code)
        mutations = Mutations(Target("module.py", ()), tmp_path)
        drawn = mutations.draw(100, random.Random(0))
        assert all(m.function == "add" and m.lines == range(6, 7) for m in drawn)
        changed = {m.source.splitlines()[5].strip() for m in drawn}
        inner = "sum(x for x, _ in zip(b, b, strict=True))"
        assert {"total: int = None", f"total: int = a - {inner}", "total: int = a + sum(None)"} <= changed
        assert "total: int = a + sum(x for x, _ in zip(b, b, strict=False))" not in changed
        assert "total: int = a + sum(x for x, _ in zip(b, b, ))" not in changed
