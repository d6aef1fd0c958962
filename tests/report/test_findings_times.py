"""Step times: measured without stalls, whole for drafters that skip, inferred as surely as the table proved right."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptk.report.analysis import analyse
from adaptk.report.findings import Cell, Findings
from adaptk.table import GoodputTable
from adaptk.trace import TraceWriter
from tests.replay.recordings import step, write


def cells(findings: Findings) -> dict[int, Cell]:
    """The cells of a trace of one batch size, by K."""
    return {cell.k: cell for cell in findings.cells}


def found(path: Path, rows: list[Any], table: GoodputTable | None = None) -> Findings:
    return analyse([write(path / "t.jsonl", rows)], table, simulate=False)


def table(scale: float = 1.0) -> GoodputTable:
    """10, 12 and 16 ms for K = 0, 1 and 3 at batch 4."""
    rows = [{"batch": 4, "k": k, "itl_ms": scale * ms} for k, ms in ((0, 10.0), (1, 12.0), (3, 16.0))]
    return GoodputTable.from_rows(rows, [0.7, 0.6, 0.5])


def noisy(ms: float, n: int = 400, seed: int = 0) -> list[Any]:
    """Steps of K=3 at batch 4 that take about ``ms``."""
    rng = np.random.default_rng(seed)
    return [step([3] * 4, [1, 2, 3, 0], elapsed_ms=ms * math.exp(rng.normal(0.0, 0.02))) for _ in range(n)]


class TestMeasured:
    def test_stalls_are_not_the_steps_time(self, tmp_path: Path) -> None:
        """One of twenty steps takes ten times as long: the believed time stays what the others take."""
        rows = noisy(16.0)
        rows[::20] = [step([3] * 4, [1, 2, 3, 0], elapsed_ms=160.0)] * 20
        itl = cells(found(tmp_path, rows))[3].itl_ms
        assert itl is not None
        assert itl.value == pytest.approx(16.0, rel=0.02)
        assert itl.low <= itl.value <= itl.high

    def test_a_drafter_that_skips_makes_two_kinds_of_steps_that_both_count(self, tmp_path: Path) -> None:
        """Half of the steps have no draft and take 10 ms, half have three and take 30: K=3 takes 20."""
        rows = [step([3] * 4, [1] * 4, elapsed_ms=30.0), step([0] * 4, elapsed_ms=10.0)] * 200
        itl = cells(found(tmp_path, rows))[3].itl_ms
        assert itl is not None
        assert itl.value == pytest.approx(20.0, rel=0.02)

    def test_steps_that_mix_two_k_are_nobodys(self, tmp_path: Path) -> None:
        """A step in which K changes takes 99 ms."""
        rows = []
        for _ in range(50):
            rows += [*[step([3] * 4, [1] * 4, k=3, elapsed_ms=16.0)] * 4, step([3] * 4, [1] * 4, k=1, elapsed_ms=99.0)]
            rows += [*[step([1] * 4, [1] * 4, k=1, elapsed_ms=12.0)] * 4, step([1] * 4, [1] * 4, k=3, elapsed_ms=99.0)]
        here = cells(found(tmp_path, rows))
        assert here[1].measured_ms == pytest.approx(12.0)
        assert here[3].measured_ms == pytest.approx(16.0)
        assert next(each for each in found(tmp_path, rows).dropped if each.what == "K changed").number == 100

    def test_times_without_any_noise(self, tmp_path: Path) -> None:
        """A clock too coarse to show differences: what was measured is believed, at every batch size."""
        rows = [step([3] * n, [1] * n, k=3, elapsed_ms=10.0) for n in (4, 8, 4, 16, 8, 32) for _ in range(60)]
        for cell in found(tmp_path, rows, table()).cells:
            if cell.k == 3:
                assert cell.itl_ms is not None
                assert cell.itl_ms.value == pytest.approx(10.0, rel=0.1)


class TestInferred:
    def test_a_table_that_is_right_where_it_was_tried_is_believed_elsewhere(self, tmp_path: Path) -> None:
        """The same table 30 % off is believed far less, around what its error makes likely."""
        right = cells(found(tmp_path, noisy(16.0), table()))
        off = cells(found(tmp_path, noisy(16.0), table(1.3)))
        for k, ms in ((0, 10.0), (1, 12.0)):
            close, wide = right[k].itl_ms, off[k].itl_ms
            assert close is not None
            assert wide is not None
            assert close.low < ms < close.high
            assert wide.low < ms < wide.high
            assert wide.high / wide.low > 1.2 * (close.high / close.low)
            assert right[k].basis == "table"
        assert right[3].basis == "measured"
        assert right[3].ratio is not None
        assert right[3].ratio.value == pytest.approx(1.0, abs=0.02)

    def test_without_a_table_nothing_is_said_of_other_k(self, tmp_path: Path) -> None:
        rows = [*noisy(16.0), step([3] * 4, [0] * 4, k=0), step([0] * 4, k=0)]
        here = cells(found(tmp_path, rows))
        assert here[0].itl_ms is None
        assert here[0].basis == "shape"
        assert here[0].best_probability is None

    @pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
    def test_more_drafts_are_never_less_work(self, tmp_path: Path, scale: float) -> None:
        """However wrong the table is, what was not measured lies below a larger K that was."""
        here = cells(found(tmp_path, noisy(16.0), table(scale)))
        for k in (0, 1):
            itl, measured = here[k].itl_ms, here[3].itl_ms
            assert itl is not None
            assert measured is not None
            assert itl.value < measured.value

    def test_a_k_beyond_those_that_were_drafted_takes_the_tables_acceptance(self, tmp_path: Path) -> None:
        """K=1 was played, K=3 needs the acceptance of two more positions: the table's, as far off as at the first."""
        writer = TraceWriter(tmp_path / "t.jsonl", {"arms": [0, 1, 3], "k_max": 3})
        for _ in range(400):
            writer.write(step([1] * 4, [1, 1, 1, 0], k=1, elapsed_ms=12.0))
        writer.close(10.0)
        advice = analyse([tmp_path / "t.jsonl"], table(), simulate=False).advice
        assert any("Acceptance of the later drafts of K=3 is the table's." in each for each in advice.rests_on)

    def test_acceptance_is_less_sure_where_nothing_was_drafted(self, tmp_path: Path) -> None:
        """Texts change every 40 steps at batch 4; at batch 64, where K=0 was played, nobody knows what they were."""
        rows = []
        for stretch in range(20):
            good = [3, 2, 3, 3] if stretch % 2 else [0, 1, 0, 0]
            rows += [step([3] * 4, good)] * 39 + [step([3] * 4, good, k=0)] + [step([0] * 64, [0] * 64, k=0)] * 5
        here = {(cell.first, cell.k): cell.acceptance_length for cell in found(tmp_path, rows, table()).cells}
        drafted, not_drafted = here[4, 3], here[64, 3]
        assert not_drafted.high - not_drafted.low > 1.3 * (drafted.high - drafted.low)
