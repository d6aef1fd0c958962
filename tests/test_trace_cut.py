"""A trace that was cut at any byte is read up to there, by everything that reads traces."""

from __future__ import annotations

import gzip
import shutil
import zlib
from pathlib import Path

import pytest

from adaptk.cli.main import main
from adaptk.replay.traces.tracerows import read_rows
from adaptk.report import reading
from adaptk.trace import TraceError, TraceRow, TraceWriter, read_trace
from tests.faults.disks import row

ROWS = 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small trace."""
    path = tmp_path_factory.mktemp("whole") / "t.jsonl"
    writer = TraceWriter(path, {"mode": "on", "arms": [0, 1, 3], "k_max": 3})
    for seq in range(ROWS):
        writer.write(*row(seq, batch=1))
    writer.close()
    return path.read_bytes()


def rows_before(data: bytes, cut: int) -> int:
    """Rows of which nothing but the end of the line may be missing."""
    ends = [i for i in range(len(data)) if data[i : i + 1] == b"\n"][1:]
    return sum(end <= cut for end in ends)


def test_plain(whole: bytes, tmp_path: Path) -> None:
    """Every row before the cut is given, and at most one counts as cut off; lenient or not, nothing is refused."""
    path = tmp_path / "t.jsonl"
    header = whole.index(b"\n")
    expected = []
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        if cut < header:
            with pytest.raises(TraceError, match=r"no header of an adaptk trace|is empty"):
                read_trace(path)
            continue
        trace = read_trace(path)
        assert len(trace.rows) == rows_before(whole, cut)
        assert trace.cut == (0 if whole[:cut].endswith((b"\n", b"}}")) or cut == header else 1)
        assert read_trace(path, lenient=True) == trace
        expected = trace.rows
    assert len(expected) == ROWS


def test_compressed(whole: bytes, tmp_path: Path) -> None:
    """As many rows as its bytes can be unpacked to."""
    path = tmp_path / "t.jsonl.gz"
    packed = gzip.compress(whole)
    counts = set()
    for cut in range(len(packed) + 1):
        path.write_bytes(packed[:cut])
        there = zlib.decompressobj(31).decompress(packed[:cut])
        if b"\n" not in there:
            with pytest.raises(TraceError):
                read_trace(path)
            continue
        trace = read_trace(path)
        assert len(trace.rows) == there.count(b"\n") - 1
        assert trace.cut == (cut < len(packed))
        assert read_trace(path, lenient=True) == trace
        counts.add(len(trace.rows))
    assert counts == set(range(ROWS + 1))


@pytest.mark.parametrize("packed", [False, True])
def test_report_and_replay(whole: bytes, tmp_path: Path, packed: bool) -> None:
    """The same rows, without an option, at every seventh byte and at each of the last hundred."""
    path = tmp_path / "t.jsonl"
    data = gzip.compress(whole) if packed else whole
    seen = set()
    for cut in [*range(0, len(data) - 100, 7), *range(len(data) - 100, len(data) + 1)]:
        path.write_bytes(data[:cut])
        try:
            rows: list[TraceRow] = read_trace(path).rows
        except TraceError:
            continue
        if not rows:
            continue
        assert len(reading.read([path], None, False, lambda _: None).columns.k) == len(rows)
        assert len(read_rows(path).steps) == len(rows)
        seen.add(len(rows))
    assert seen == set(range(1, ROWS + 1))


def test_the_commands_say_it(
    whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an option, with status 0."""
    monkeypatch.chdir(tmp_path)
    data = Path(__file__).parent / "replay" / "data" / "demo.jsonl"
    shutil.copy(data, "t.jsonl")
    with Path("t.jsonl").open("r+b") as file:
        file.truncate(data.stat().st_size - 30)
    assert main(["report", "t.jsonl", "--json", "--no-simulation"]) == 0
    assert "1 row is cut off at the end of a file, and left out" in capsys.readouterr().out
    assert main(["replay", "--trace", "t.jsonl", "--policy", "recorded", "--seeds", "1", "--jobs", "1"]) == 0
    assert "1 row is cut off at the end of a file, and left out" in " ".join(capsys.readouterr().out.split())
