"""Durations as people write them."""

from __future__ import annotations

import argparse
import math
import re

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_WHOLE = re.compile(r"(\d+(?:\.\d+)?)([smh]?)", re.ASCII | re.IGNORECASE)
_PARTS = re.compile(r"(?:\d+h)?(?:\d+m)?(?:\d+s)?", re.ASCII | re.IGNORECASE)
_PART = re.compile(r"(\d+)([smh])", re.ASCII | re.IGNORECASE)


def duration(text: str) -> float:
    """Seconds of ``text``, more than 0: an option's type.

    Raises
    ------
    argparse.ArgumentTypeError
        If it is no duration.

    Examples
    --------
    >>> duration("90"), duration("90s"), duration("5m"), duration("1.5h"), duration("1h30m")
    (90.0, 90.0, 300.0, 5400.0, 5400.0)
    """
    given = text.strip()
    whole = _WHOLE.fullmatch(given)
    if whole is not None:
        seconds = float(whole[1]) * _UNITS[whole[2].lower()]
    elif given and _PARTS.fullmatch(given):
        seconds = sum(float(number) * _UNITS[unit.lower()] for number, unit in _PART.findall(given))
    else:
        seconds = 0.0
    if not 0.0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: give a time above 0, as 90, 90s, 2m, 1h or 1h30m")
    return seconds
