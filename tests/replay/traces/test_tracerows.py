"""Which rows of a trace can be replayed, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.replay.traces.tracerows import read_rows, time_ms
from adaptk.trace import TraceError
from tests.replay.recordings import decision, step, write


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
        assert (rows.skipped, rows.notes[0]) == (1, "1 row was skipped")

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
        (step([3], [1], emitted=[3]), "emitted has 3 for a request that accepted 1: give at most one token more"),
        (step([3, 3], [3, 1], emitted=[4, 9], verified=11), "emitted has 9 for a request that accepted 1"),
        (step([10**9] * 4, [10**9] * 4), "drafted has 1000000000: K is a whole number from 0 to 1024; mend"),
        (step([1025]), "drafted has 1025"),
        (step([0], emitted=[10**9]), "emitted has 1000000000"),
        (step([0], emitted=[10**9], verified=10**9), "emitted has 1000000000: give at most 1025"),
        (step([0], k=10**9), "k has 1000000000"),
        (step([0], draft_k=10**9), "draft_k has 1000000000"),
        ((step([0]), decision(10**9)), "decision.k has 1000000000"),
        ((step([0]), decision(-1)), "decision.k has -1"),
        ((step([0]), decision(3, (0, 3, 10**9))), "decision.arms has 1000000000"),
        ((step([0]), decision(3, (-1, 3))), "decision.arms has -1"),
        (step([0], prefill_tokens=10**9), "prefill_tokens is 1000000000: give at most 100000000"),
        (step([0], context_tokens=10**9), "context_tokens is 1000000000"),
        (step([0], verified=10**9), "verified is 1000000000"),
        *[((step([0]), decision(propensity=p)), f"decision.propensity is {p}: give a probability") for p in (7, -1, 0)],
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


def test_the_largest_numbers_that_are_taken(path: Path) -> None:
    """Drafts that did not count, which a grammar or a graph's shape brought in, may have been accepted too."""
    large = step([1024], [1024], prefill_tokens=10**8, context_tokens=10**8)
    uncounted = step([1], [1], emitted=[4], verified=3)
    write(path, [(large, decision(1024, (0, 1024), propensity=1.0)), uncounted])
    assert len(read_rows(path).steps) == 2


class TestNumbersOfDecisions:
    def test_steps_that_are_missing_are_told(self, path: Path) -> None:
        write(path, [(step([1]), decision(seq=seq)) for seq in (5, 6, 10, 11, 13)])
        rows = read_rows(path)
        assert len(rows.steps) == 5
        assert rows.notes == ["4 steps are missing from the trace, with what was emitted in them"]

    def test_rows_that_are_there_are_not_missing(self, path: Path) -> None:
        """One without its decision, one that cannot be read, one that was refused: each stands on a line."""
        write(path, [(step([1]), decision(seq=0)), step([1]), *[(step([1]), decision(seq=n)) for n in (2, 3, 4)]])
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines[:4], "nonsense\n", lines[5].replace('"accepted":[0]', '"accepted":[0,0]')]))
        write(path.with_name("b"), [(step([1]), decision(seq=n, propensity=p)) for n, p in ((0, 1), (1, 7), (2, 1))])
        assert read_rows(path, lenient=True).notes == ["2 rows were skipped"]
        assert read_rows(path.with_name("b"), lenient=True).notes == ["1 row was skipped"]

    def test_another_controller_may_begin_as_the_one_before_did(self, path: Path) -> None:
        """With the same first decision, in another step: the clock has gone on."""
        seqs = (0, 1, 2, 0, 1)
        write(path, [(step([1], t_ms=float(at)), decision(seq=seq)) for at, seq in enumerate(seqs)])
        rows = read_rows(path)
        assert (len(rows.steps), rows.notes) == (5, [])

    @pytest.mark.parametrize(
        ("number", "said"), [(8, "8 stands twice"), (7, "7 comes after 8"), (3, "3 comes after 8")]
    )
    def test_that_stand_twice_or_go_back_are_refused(self, path: Path, number: int, said: str) -> None:
        write(path, [(step([n], k=n), decision(n, seq=s)) for n, s in ((1, 7), (2, 8), (3, number), (0, 10))])
        with pytest.raises(TraceError, match=f"line 4: decision.seq {said}: remove the row.*, or read leniently"):
            read_rows(path)
        rows = read_rows(path, lenient=True)
        assert [s.k for s in rows.steps] == [1, 2, 0]
        assert rows.notes == [
            "1 row was skipped",
            "1 step is missing from the trace, with what was emitted in it",
        ]

    def test_every_row_twice(self, path: Path) -> None:
        write(path, [(step([1], t_ms=float(n)), decision(seq=n, t_ms=float(n))) for n in (0, 0, 1, 1, 2, 2)])
        with pytest.raises(TraceError, match=r"line 3: decision\.seq 0 stands twice"):
            read_rows(path)
        assert (len(read_rows(path, lenient=True).steps), read_rows(path, lenient=True).skipped) == (3, 3)

    def test_another_controller_begins_at_0(self, path: Path) -> None:
        write(path, [(step([1]), decision(k, seq=n)) for k, n in ((1, 0), (1, 1), (1, 2), (3, 0), (3, 1))])
        rows = read_rows(path)
        assert (len(rows.steps), [note for note in rows.notes if "missing" in note]) == (5, [])


def test_decisions_without_a_propensity_are_counted(path: Path) -> None:
    write(path, [(step([1]), decision(propensity=float("nan"))), (step([1]), decision())])
    assert read_rows(path).notes == ["1 decisions have no propensity: a replay does not need it"]


@pytest.mark.parametrize("ms", [float("nan"), float("inf"), None, 0.0, -5.0, 1e300, 1.1e8, 1e-300])
def test_steps_without_a_time_to_be_believed_are_counted(path: Path, ms: float | None) -> None:
    write(path, [step([1], elapsed_ms=ms), step([1])])
    assert read_rows(path).notes == ["1 steps have no time: their cost is taken from the others"]


def test_time_of_a_step() -> None:
    assert time_ms(step([1], elapsed_ms=1e9, device_ms=4.0)) == 4.0
    assert time_ms(step([1], elapsed_ms=5.0, device_ms=4.0)) == 5.0
    assert time_ms(step([1], elapsed_ms=float("nan"), device_ms=4.0)) == 4.0
    assert time_ms(step([1], elapsed_ms=0.0)) is None
