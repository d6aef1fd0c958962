"""Which rows of a trace can be replayed, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.replay.tracerows import read_rows, time_ms
from adaptk.trace import TraceError
from tests.replay.traces import decision, step, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


class TestClock:
    STEPS = (step([1], t_ms=10.0), step([2], t_ms=20.0), step([3], t_ms=15.0), step([4], t_ms=16.0))

    def test_that_goes_back_is_refused_with_file_and_line(self, path: Path) -> None:
        write(path, self.STEPS)
        with pytest.raises(TraceError, match=r"trace\.jsonl, line 4: t_ms goes back from 20 to 15: split .*leniently"):
            read_rows(path)

    def test_only_the_row_where_it_goes_back_is_skipped(self, path: Path) -> None:
        write(path, self.STEPS)
        rows = read_rows(path, lenient=True)
        assert [s.drafted for s in rows.steps] == [[1], [2], [4]]
        assert (rows.skipped, rows.notes[0]) == (1, "1 rows were skipped")

    def test_the_line_is_that_of_the_file(self, path: Path) -> None:
        """Lines that a lenient reader skipped count too."""
        write(path, self.STEPS)
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([lines[0], lines[1], "nonsense\n", *lines[2:]]))
        assert read_rows(path, lenient=True).skipped == 2
        path.write_text("".join([*lines[:4], lines[1]]))
        with pytest.raises(TraceError, match="line 4"):
            read_rows(path)

    def test_may_stand_still_or_be_unknown(self, path: Path) -> None:
        write(path, [step([1], t_ms=10.0), step([1], t_ms=10.0), step([1]), step([1], t_ms=float("nan"))])
        assert len(read_rows(path).steps) == 4


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (step([1, 1], batch_size=3), "drafted has 2 entries, batch_size is 3: give one per request"),
        (step([1, 1], requests=[7, 7]), "requests names 7 twice"),
    ],
)
def test_a_row_that_contradicts_itself(path: Path, bad: object, message: str) -> None:
    write(path, [step([1]), bad, step([2])])  # type: ignore[list-item]
    with pytest.raises(TraceError, match=f"line 3: {message}.*or read leniently to skip and count the row"):
        read_rows(path)
    assert [s.drafted for s in read_rows(path, lenient=True).steps] == [[1], [2]]


def test_what_has_nothing_to_replay_is_left_out_with_a_note(path: Path) -> None:
    write(path, [step([]), step([1]), step([], batch_size=2), step([1], elapsed_ms=None)])
    rows = read_rows(path)
    assert (len(rows.steps), rows.skipped) == (2, 0)
    assert sorted(note.split(" ", 2)[2] for note in rows.notes) == [
        "are left out whose outcome never came; their tokens are missing",
        "had no requests and are left out",
        "have no time: their cost is taken from the others",
    ]


def test_a_trace_of_nothing(path: Path) -> None:
    write(path, [step([])])
    with pytest.raises(TraceError, match="has no step that can be replayed: record one with ADAPTK_TRACE"):
        read_rows(path)


def test_shadow_mode_is_taken_as_played(path: Path) -> None:
    """The engine's own K may be neither what was decided nor an arm; both are replayed."""
    write(path, [(step([1], k=2), decision(3)), (step([1], k=5), decision(5, (0, 7))), step([1], k=4)])
    rows = read_rows(path)
    assert [s.k for s in rows.steps] == [2, 5, 4]
    assert rows.arms == (0, 1, 2, 3, 4, 5, 7)
    assert rows.notes == [
        "1 steps played another K than was decided (shadow mode?): the K played is replayed",
        "1 steps played a K that is not among the decision's arms",
    ]


def test_time_of_a_step() -> None:
    assert time_ms(step([1], elapsed_ms=5.0, device_ms=4.0)) == 5.0
    assert time_ms(step([1], elapsed_ms=float("nan"), device_ms=4.0)) == 4.0
    assert time_ms(step([1], elapsed_ms=0.0)) is None
