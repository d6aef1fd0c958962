"""Files that are read in one go: what an editor puts before a text does not make it another one."""

from __future__ import annotations

import gzip
import json
from codecs import BOM_UTF8
from collections.abc import Callable
from pathlib import Path

import pytest

from adaptk import GoodputTable
from adaptk.inputs import read_whole
from adaptk.profile.prompts import read_prompts
from adaptk.replay.requestfiles import read_requests
from adaptk.surface.configs import read_config
from adaptk.tabletools.imported import read_source
from adaptk.trace import read_trace
from adaptk.tracefile import header_line
from adaptk.tracepieces import is_trace
from adaptk.vllm_plugin import control

ROW = b'{"step":{"batch_size":1,"elapsed_ms":5.0,"k":0,"drafted":[0],"accepted":[0]}}\n'
TRACE = header_line({"note": "a"}) + ROW
CONFIG = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100}
READERS: dict[str, tuple[bytes, Callable[[Path], object]]] = {
    "table": (b'{"schema_version": 1, "rows": [{"batch": 1, "k": 0, "itl_ms": 5.0}]}', GoodputTable.load),
    "CSV": (b"batch,k,itl_ms\n1,0,5\n", lambda path: read_source(path).table.rows),
    "schedule": (b"[[1, 4, 3]]", lambda path: read_source(path).table.schedule),
    "trace": (TRACE, read_trace),
    "prompts": (b'{"prompt": "a"}\n', read_prompts),
    "request log": (
        b'{"timestamp": 1, "input_length": 4, "output_length": 2}\n',
        lambda path: [array.tolist() for array in read_requests(path).requests.__dict__.values() if array is not None],
    ),
    "configuration": (json.dumps({**CONFIG, "num_hidden_layers": 2}).encode(), read_config),
    "control file": (b"shadow\n", control.read),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_byte_order_mark_changes_nothing(kind: str, tmp_path: Path) -> None:
    """Some editors put it before UTF-8."""
    content, read = READERS[kind]
    path = tmp_path / "file"
    path.write_bytes(content)
    plain = read(path)
    path.write_bytes(BOM_UTF8 + content)
    assert read(path) == plain


def test_nothing_else_is_left_out(tmp_path: Path) -> None:
    """One mark, at the beginning; a second one is text."""
    path = tmp_path / "file"
    path.write_bytes(2 * BOM_UTF8 + b"a" + BOM_UTF8)
    assert read_whole(path, 100) == BOM_UTF8 + b"a" + BOM_UTF8


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_pieces_of_a_trace_may_have_a_mark_each(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """They are still pieces of one run, and what has a mark is still a trace where one is to be written."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(BOM_UTF8 + header_line({}, "run", 1) + ROW)
    (tmp_path / "trace.jsonl.1").write_bytes(pack(BOM_UTF8 + header_line({}, "run", 0) + 2 * ROW))
    assert len(read_trace(path).rows) == 3
    assert is_trace(BOM_UTF8 + TRACE)
    assert not is_trace(BOM_UTF8 + ROW)
