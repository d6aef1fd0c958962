"""Keys from a terminal."""

from __future__ import annotations

import pytest

from adaptk.live.keys import keys


@pytest.mark.parametrize(
    ("read", "pressed"),
    [
        (b"", []),
        (b"q?p ", ["q", "?", "p", "space"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[6~", ["up", "down", "page up", "page down"]),
        (b"\x1b[H\x1b[4~\x1bOF", ["home", "end", "end"]),
        (b"\r\n\x7f\x1b", ["enter", "enter", "escape", "escape"]),
        (b"\x1b[1;5C", []),  # control and an arrow: no key of ours
        (b"\x1b[<35;10;20M", []),  # a mouse
        (b"\x1b[", []),
        (b"\x1b\x1b[A", ["escape", "up"]),
        (b"\xc3\xa9j", ["j"]),  # a letter beyond ASCII
        (b"\x00\xff", []),
    ],
)
def test_bytes_are_keys(read: bytes, pressed: list[str]) -> None:
    """Of all terminals that are met; what is no key of ours is none."""
    assert [key for key in keys(read) if key.isprintable()] == pressed
