"""Mutation testing of the modules that learn, decide and read vLLM's steps.

    python -m tests.mutation
    python -m tests.mutation --module guard --mutants 50 --seed 3

Draws mutants of mutmut's from the modules in ``targets.py``, each by its share, and runs the tests named there against
each: those that pass, take less than 10 s and run the changed lines, the module's own first, then the fastest first, as
many as take 20 s together, until one fails. A mutant lives in the memory of a fork, never in a file. Seconds are those
of the processor, Hypothesis is derandomised. Per module it says how many were drawn, killed (a test failed), timed out
(a test took 10 times its time and 10 s more: killed, too) and survived, and shows the survivors as diffs.

Left out of the draw is what cannot change anything: annotations and docstrings, as mutmut leaves them out, and the
``strict`` of a ``zip``. Other mutants that change nothing a test could see stay in, as survivors.

It needs mutmut (``pip install '.[mutation]'``), and some twenty minutes on one core for 300 mutants; no part of the
suite runs it. Results are written as they come, and ``--resume`` goes on with them; another seed then takes over how
long the tests take and what they run, which is measured first.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutation import report, survey, trials
from tests.mutation.mutants import Mutant, Mutations, draw
from tests.mutation.targets import SLOWEST_S, TARGETS

ROOT = Path(__file__).parents[2]
# Neither doctests nor notebooks: the options of pyproject.toml are left out.
OPTIONS = ("-q", "-s", "--no-header", "--import-mode=importlib", "-p", "no:cacheprovider", "-o", "addopts=", "-m")
OPTIONS += ("not benchmark", "--benchmark-disable", "--hypothesis-profile=mutation")


class Run:
    """A plugin of pytest that takes the place of the run of the tests, once they are collected."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.targets = {name: TARGETS[name] for name in given.module or TARGETS}
        modules = "-".join(given.module or ["all"])
        self.results: list[report.Result] = []
        self._mutants, self._seed, self._resume = given.mutants, given.seed, given.resume
        self._measured = given.folder / f"{modules}.survey.json"
        self._file = given.folder / f"{modules}-{given.seed}.jsonl"

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Measure the tests, draw the mutants, try each."""
        if session.testsfailed:
            raise session.Interrupted("tests that cannot be collected")
        tests = self._survey(session.items)
        items = {item.nodeid: item for item in session.items}
        drawn = draw(
            {name: Mutations(target, ROOT) for name, target in self.targets.items()}, self._mutants, self._seed
        )
        kept = self._file.read_text().splitlines() if self._resume and self._file.exists() else []
        known = {result.key: result for result in (report.Result(*json.loads(line)) for line in kept)}
        with self._file.open("a" if kept else "w") as file:
            for i, mutant in enumerate(drawn, start=1):
                result = known.get(mutant.key)
                if result is None:
                    result = self._result(mutant, tests, items)
                    file.write(json.dumps(result) + "\n")
                    file.flush()
                    print(
                        f"{i:4} {result.outcome:9} {result.seconds:6.1f} s  {mutant.module}:{result.line}", flush=True
                    )
                self.results.append(result)
        return True

    def _survey(self, items: Sequence[pytest.Item]) -> dict[str, survey.Seen]:
        if self._resume and self._measured.exists():
            return {test: survey.Seen(*seen) for test, seen in json.loads(self._measured.read_text()).items()}
        print(f"measuring {len(items)} tests ...", flush=True)
        tests = survey.survey(items, ROOT, list(self.targets.values()))
        self._measured.write_text(json.dumps(tests))
        quick = [seen.seconds for seen in tests.values() if seen.seconds < SLOWEST_S]
        print(f"{len(tests)} pass, {len(quick)} in less than {SLOWEST_S:g} s, {sum(quick):.0f} s in all", flush=True)
        return tests

    def _result(self, mutant: Mutant, tests: dict[str, survey.Seen], items: dict[str, pytest.Item]) -> report.Result:
        target = self.targets[mutant.module.rpartition(".")[2]]
        against = [items[test] for test in survey.chosen(mutant, target, tests) if test in items]
        seconds = {item.nodeid: tests[item.nodeid].seconds for item in against}
        trial = trials.try_mutant(mutant, ROOT / target.path, against, seconds)
        return report.Result(mutant.key, mutant.module, mutant.function, mutant.lines.start, mutant.diff, *trial)


def main(argv: Sequence[str] | None = None) -> None:
    """Collect, run, report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--module", choices=TARGETS, action="append", help="of these alone")
    parser.add_argument(
        "--resume", action="store_true", help="take the measured tests, and results of this seed, from the folder"
    )
    folder = Path(tempfile.gettempdir(), "adaptk-mutation")
    parser.add_argument("--folder", type=Path, default=folder, help=f"where results are kept (default: {folder})")
    given = parser.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    _calm_hypothesis()
    run = Run(given)
    files = list(dict.fromkeys(file for target in run.targets.values() for file in target.tests))
    with tempfile.TemporaryDirectory() as scratch:
        status = pytest.main([*OPTIONS, f"--basetemp={scratch}/base", *files], plugins=[run])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(int(status))
    print(f"\n{report.survivors(run.results)}\n\n{report.table(run.results)}")


def _calm_hypothesis() -> None:
    """No chance, no database, and no search for the smallest example."""
    from hypothesis import Phase, settings

    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutation", derandomize=True, database=None, deadline=None, phases=phases)


if __name__ == "__main__":
    main()
