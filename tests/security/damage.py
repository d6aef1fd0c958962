"""Damage to the bytes of a valid file: what disks, transfers, editors, other programs and ill will do to it.

The draws come from a ``random.Random``, hypothesis's own or a seeded one, so that tests and long runs share them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

JUNK = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3\x28", b"\xed\xa0\x80", b"\r\n", b"\r", b"\n\n", b"\t", b'"', b"\\",
    b",", b"[" * 200_000, b"]" * 200, b'{"a":' * 100_000, b"{", b"}", b"9" * 5_000, b"1e400", b"-0", b"NaN",
    b"-Infinity", b"null", b"\\ud800", b"\\u0000", b"\x1b[2J", b"\x9b1m", "\u202e\u2028".encode(),
    b" " * 100_000, b"=1+1", b"'" * 3,
)  # fmt: skip
"""Bytes that go between others."""

NUMBERS = (
    b"0", b"-0.0", b"-1", b"0.5", b"1e9", b"1000000000", b"1e308", b"1e400", b"5e-324", b"2147483648", b"1e18",
    b"9007199254740993", b"18446744073709551616", b"1" + b"0" * 400, b"7" * 5_000, b"NaN", b"Infinity", b"true",
    b"null", b'"1"', b"[]", b"{}",
)  # fmt: skip
"""Tokens that take a number's place."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, -0.0, 0.1, 3, 1e308, 5e-324, math.nan, math.inf, -math.inf, 10**9, 10**12, 10**18,
    2**53 + 1, 2**63, 2**64, 10**400, "", "0", "1e5", "nan", "x" * 5_000, "\0", "\x1b[2J\x9b", "\ud800", "\u202e", "\n",
    [], {}, [[]], [None], [0] * 2_000, {"": None}, {"schema_version": 1}, [[1, 10**9, 3]], [[1, 2], [3, 4]],
)  # fmt: skip
"""Values that take another one's place, or come beside it."""

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_KEY = re.compile(rb'"[^"\\]*"\s*:')


def damage(data: bytes, random: Random) -> bytes:
    """``data`` after one to three kinds of damage."""
    for _ in range(random.randint(1, 3)):
        data = random.choice(_KINDS)(data, random)
    return data


def _span(data: bytes, random: Random) -> tuple[int, int]:
    begin = random.randint(0, len(data))
    return begin, min(len(data), begin + random.choice((1, 2, 8, 64, 1024)))


def _flip(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _behead(data: bytes, random: Random) -> bytes:
    return data[random.randint(0, len(data)) :]


def _remove(data: bytes, random: Random) -> bytes:
    begin, end = _span(data, random)
    return data[:begin] + data[end:]


def _repeat(data: bytes, random: Random) -> bytes:
    begin, end = _span(data, random)
    return data[:end] + data[begin:end] * random.choice((1, 2, 100)) + data[end:]


def _insert(data: bytes, random: Random) -> bytes:
    at = random.choice((0, len(data), random.randint(0, len(data))))
    return data[:at] + random.choice(JUNK) + data[at:]


def _number(data: bytes, random: Random) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    begin, end = random.choice(found).span()
    return data[:begin] + random.choice(NUMBERS) + data[end:]


def _key_again(data: bytes, random: Random) -> bytes:
    """The same key twice in an object, with another value first or last."""
    found = list(_KEY.finditer(data))
    if not found:
        return data
    at, again = random.choice(found).start(), random.choice(found)[0]
    return data[:at] + again + random.choice(NUMBERS) + b"," + data[at:]


def _lines(data: bytes, random: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    i, j = random.randrange(len(lines)), random.randrange(len(lines))
    kind = random.randrange(3)
    if kind == 0:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 1:
        lines.insert(i, lines[j])
    else:
        del lines[i]
    return b"".join(lines)


def _endings(data: bytes, random: Random) -> bytes:
    return data.replace(b"\n", random.choice((b"\r\n", b"\r", b"", b"\n\n", b"\0\n")))


def _graft(data: bytes, random: Random) -> bytes:
    """Another value in a place of the JSON, of the whole or of one of its lines."""
    lines = data.split(b"\n")
    places: list[tuple[int, int]] = [(0, len(lines)), *((i, i + 1) for i in range(len(lines)))]
    random.shuffle(places)
    for begin, end in places[:8]:
        try:
            document = json.loads(b"\n".join(lines[begin:end]))
        except (ValueError, RecursionError):
            continue
        grafted = json.dumps(with_another_value(document, random)).encode()
        return b"\n".join([*lines[:begin], grafted, *lines[end:]])
    return data


def with_another_value(document: Any, random: Random) -> Any:
    """A document of JSON with a value changed, left out, added or moved in one place; itself is not changed."""
    ways = list(_ways(document))
    value = random.choice(VALUES)
    if not ways:
        return value
    way = random.choice(ways)
    copy = json.loads(json.dumps(document))
    place = copy
    for key in way[:-1]:
        place = place[key]
    kind = random.randrange(5)
    if kind == 0:
        del place[way[-1]]
    elif kind == 1 and isinstance(place, dict):
        place[random.choice(("", "k", "rows", "\0", "__class__", "x" * 300))] = value
    elif kind == 2 and isinstance(place, list):
        place.insert(way[-1], value)
    elif kind == 3:
        other: Any = document
        for key in random.choice(ways):
            other = other[key]
        place[way[-1]] = other
    else:
        place[way[-1]] = value
    return copy


def _ways(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*way, key)
        yield from _ways(entry, (*way, key))


_KINDS: tuple[Callable[[bytes, Random], bytes], ...] = (
    _flip, _cut, _behead, _remove, _repeat, _insert, _number, _number, _key_again, _lines, _endings,
    _graft, _graft, _graft, _graft,
)  # fmt: skip
