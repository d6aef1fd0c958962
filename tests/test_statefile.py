"""The file that keeps a state: what it holds comes back, and whatever else stands there is told apart."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk import Controller
from adaptk.statefile import MAX_BYTES, ForeignError, State, StateError, read_state, scratch_of, state_bytes
from tests.publicengine import PUBLIC
from tests.snapshots import used_snapshot

KEY = {"model": "llama", "device": "H100", "capture_sizes": [1, 2, 4], "drafter": None}


def state(**changed: Any) -> State:
    fields: dict[str, Any] = {"adaptk": "0.1", "vllm": "0.32", "saved": 1e9, "key": KEY, "snapshot": used_snapshot()}
    return State(**(fields | changed))


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "state.json"
    path.write_bytes(data)
    return path


def test_what_is_written_comes_back_to_the_last_bit(tmp_path: Path) -> None:
    """A controller restored from the file is the one that was saved."""
    found = read_state(written(tmp_path, state_bytes(state())))
    assert found == state()
    assert Controller.restore(found.snapshot, PUBLIC).snapshot() == used_snapshot()


def test_a_reader_of_json_sees_what_it_is_from_the_first_bytes() -> None:
    """The form is fixed: kind first, and the fields by these names."""
    data = state_bytes(state(snapshot={}))
    assert data.startswith(b'{"kind":"adaptk-state","schema_version":1,')
    assert list(json.loads(data)) == ["kind", "schema_version", "adaptk", "vllm", "saved", "key", "snapshot"]


def test_a_file_that_somebody_made_readable_is_still_one(tmp_path: Path) -> None:
    """White space does not matter."""
    pretty = json.dumps(json.loads(state_bytes(state())), indent=2).encode()
    assert read_state(written(tmp_path, pretty)) == state()


def test_nothing_there_is_nothing(tmp_path: Path) -> None:
    """No file, a file without a folder, and an empty file."""
    assert read_state(tmp_path / "state.json") is None
    assert read_state(tmp_path / "folder" / "state.json") is None
    assert read_state(written(tmp_path, b"")) is None


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"hello",
        b"\0" * 100,
        b'{"schema_version":1,"rows":[]}',
        b'{"kind":"adaptk-trace","schema_version":1}\n',
        b'{"kind":"adaptk-states"}',
        b"\xff\xfe",
        b"[" * 10**6,
    ],
)
def test_what_is_no_state_is_told_to_be_foreign(tmp_path: Path, data: bytes) -> None:
    """A table, a trace, a text: the caller must not replace it."""
    with pytest.raises(ForeignError, match="is no state of adaptk's"):
        read_state(written(tmp_path, data))


def test_what_cannot_be_read_is_nothing_to_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a pipe, for which nobody waits, a device, a null byte, a disk that fails; no descriptor stays open."""
    os.mkfifo(tmp_path / "pipe")
    before = sorted(Path("/proc/self/fd").iterdir())
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(ForeignError, match="cannot be read"):
            read_state(path)
    path = written(tmp_path, state_bytes(state()))

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdopen", fail)
    with pytest.raises(ForeignError, match="Input/output error"):
        read_state(path)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_a_state_that_was_cut_anywhere_is_a_damaged_one(tmp_path: Path) -> None:
    """At every byte of a small one: never a state, never foreign, so that it is moved aside and not lost."""
    whole = state_bytes(state(snapshot={"arms": [0, 1]}))
    for length in range(1, len(whole) - 1):  # the last byte is the line's end
        with pytest.raises(StateError, match="cut off or damaged") as caught:
            read_state(written(tmp_path, whole[:length]))
        assert not isinstance(caught.value, ForeignError)


WHOLE = state_bytes(state())


@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 7))
def test_a_flipped_bit_is_never_another_state(tmp_path_factory: pytest.TempPathFactory, place: int, bit: int) -> None:
    """It is refused by the file's form or by the snapshot's digest, where it is not in what is only told."""
    data = bytearray(WHOLE)
    data[place] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flipped.json"
    path.write_bytes(bytes(data))
    try:
        found = read_state(path)
    except StateError:
        return
    assert found is not None
    try:
        restored = Controller.restore(found.snapshot, PUBLIC)
    except ValueError:
        return
    assert restored.snapshot() == used_snapshot()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"schema_version": 2}, "has schema_version 2, this adaptk reads 1"),
        ({"schema_version": True}, "has schema_version True"),
        ({"schema_version": None}, "has schema_version None"),
        ({"schema_version": "x" * 10**5}, "has schema_version 'xxx"),
        ({"saved": "now"}, "is damaged"),
        ({"snapshot": []}, "is damaged"),
        ({"key": None}, "is damaged"),
        ({"more\nlines": 1}, "is damaged .*more�lines"),
    ],
)
def test_a_state_of_another_form_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    """Named in one short line, whatever the file holds."""
    content = json.loads(state_bytes(state(snapshot={}))) | changed
    with pytest.raises(StateError, match=said) as caught:
        read_state(written(tmp_path, json.dumps(content).encode()))
    assert not isinstance(caught.value, ForeignError)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("inside", [b"[" * 10**6, b'{"a":' * 10**5, b"1e400", b"NaN", b'"\xff"', b"9" * 10**5])
def test_json_that_no_honest_state_holds_is_refused(tmp_path: Path, inside: bytes) -> None:
    """Nesting without end, numbers that are none or beyond all bounds, text that is none."""
    data = state_bytes(state(snapshot={})).replace(b'"saved":', b'"saved":' + inside + b',"x":')
    with pytest.raises(StateError):
        read_state(written(tmp_path, data))


def test_a_file_beyond_all_reason_is_refused_at_once(tmp_path: Path) -> None:
    """Of a gigabyte no more is read than shows it, in under a second."""
    path = written(tmp_path, state_bytes(state(snapshot={})))
    os.truncate(path, 2**30)
    began = time.process_time()
    tracemalloc.start()
    with pytest.raises(StateError, match="larger than any state"):
        read_state(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert time.process_time() - began < 1.0
    assert peak < 3 * MAX_BYTES


def test_a_state_that_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(StateError, match="too large"):
        state_bytes(state(snapshot={"x": "y" * MAX_BYTES}))


def test_a_key_named_twice_is_no_trick(tmp_path: Path) -> None:
    """Of two kinds the last one would count."""
    data = state_bytes(state(snapshot={})).replace(b'"key":', b'"kind":"other","key":')
    with pytest.raises(StateError, match="two kinds"):
        read_state(written(tmp_path, data))


def test_only_what_writers_of_this_file_left_is_scratch(tmp_path: Path) -> None:
    """By the exact form of the names that the writer gives."""
    names = ["s.json.0123abcd.tmp", "s.json.0123ABCD.tmp", "s.json.0123abcde.tmp", "s.json.tmp", "xs.json.0123abcd.tmp",
             "s.json.1", "s.json"]  # fmt: skip
    for name in names:
        (tmp_path / name).touch()
    assert scratch_of(tmp_path / "s.json") == [tmp_path / names[0]]
