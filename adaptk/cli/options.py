"""What options of the commands may hold, read and checked."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def count(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number of at least 1")
    return value


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 with commas between them, rising."""
    return tuple(sorted({count(part) for part in text.split(",")}))


def arms(text: str) -> tuple[int, ...]:
    """Numbers of drafts with commas between them, rising."""
    try:
        ks = {int(k) for k in text.split(",")}
    except ValueError:
        ks = {-1}
    if min(ks) < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: give whole numbers with commas, none below 0, as 0,1,3,7")
    return tuple(sorted(ks))


def acceptance(text: str) -> tuple[float, ...]:
    """Conditional acceptance per position with commas between them."""
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        shares = ()
    if not shares or not all(0.0 <= share <= 1.0 for share in shares):
        raise argparse.ArgumentTypeError(f"{text!r}: give shares from 0 to 1 with commas, as 0.8,0.7,0.6")
    return shares


def number(holds: Callable[[float], bool], what: str) -> Callable[[str], float]:
    """An option's type: a number for which ``holds``; the refusal says to give ``what``."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan  # nothing holds for it
        if not holds(value):
            raise argparse.ArgumentTypeError(f"{text!r}: give {what}")
        return value

    return read
