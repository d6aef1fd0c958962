"""What users send that nobody else may read, and the search for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

WORD = "Zxqvarkus"
"""The beginning of all that is secret here."""


def secret(what: str) -> str:
    """A text of ``what`` that stands nowhere else."""
    return f"{WORD}-{what}"


def leaks(text: str, tokens: Iterable[Sequence[int]] = (), run: int = 4) -> list[str]:
    """The secrets that ``text`` holds: words whatever their case and escapes, and ``run`` tokens in a row.

    Examples
    --------
    >>> leaks("nothing"), leaks("a zxqvARKUS-x"), leaks("[1,2, 33,44,5]", [(2, 33, 44, 5, 6)])
    ([], ['zxqvARKUS-x'], ['2,33,44,5'])
    """
    found = re.findall(rf"(?i){WORD}[\w-]*", text)
    numbers = "," + re.sub(r"[^0-9]+", ",", text) + ","
    for each in tokens:
        parts = (",".join(map(str, each[at : at + run])) for at in range(len(each) - run + 1))
        found += [part for part in parts if f",{part}," in numbers]
    return found
