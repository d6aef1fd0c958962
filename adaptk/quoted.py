"""Values and other people's errors as messages quote them: short, on one line, and without signs that steer."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from reprlib import Repr

MOST_SIGNS = 80
_MOST_SAID = 200
_UNSEEN = "�"


def shown(value: object) -> str:
    """A short ``repr``, so that an error stays readable whatever a file held, and costs little to write.

    Examples
    --------
    >>> shown([1, 2]), len(shown("x" * 10**6)), shown(10**5000)
    ('[1, 2]', 80, 'an int of 16610 bits')
    """
    try:
        text = _Short().repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits has none
        text = f"an int of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    if not text.isprintable():  # other people's types have a repr of many lines, as arrays do
        text = " ".join(text.split())
    return plain(text)


def said(error: Exception) -> str:
    """What an exception says of a file, which decoders quote as they find it."""
    return plain(str(error), _MOST_SAID)


def plain(text: str, most: int = MOST_SIGNS) -> str:
    """At most so many signs of a text, with a substitute for each that cannot be seen.

    Examples
    --------
    >>> plain("a\\x1b[2Jb"), plain("abcdef", 5)
    ('a�[2Jb', 'ab...')
    """
    text = text if len(text) <= most else text[: most - 3] + "..."
    return printable(text)


def printable(text: str) -> str:
    """A text as one line, with a substitute for each sign that cannot be seen."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _UNSEEN for sign in text)


def visible(text: str) -> str:
    """A text of any length and of many lines with a substitute for each sign that a terminal would not show but obey.

    Ends of lines and tabs stay.

    Examples
    --------
    >>> visible("a\\tb\\n\\x1b]0;c\\x07")
    'a\\tb\\n�]0;c�'
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else _UNSEEN for sign in text)


def listed(names: Collection[str], most: int = 4) -> str:
    """At most so many names, with commas between them.

    Examples
    --------
    >>> listed(["a", "b", "c"], 2)
    'a, b, ...'
    """
    return ", ".join([*map(plain, islice(names, most)), *(["..."] if len(names) > most else [])])


class _Short(Repr):
    """Looks at the first entries of what is long, and at no more entries in all than could be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = MOST_SIGNS
        self.maxstring = self.maxother = 10 * MOST_SIGNS
        self.maxlong = 5_000
        self._left = 2 * MOST_SIGNS

    def repr1(self, x: object, level: int) -> str:
        """Any value, as long as there is room."""
        self._left -= 1
        return super().repr1(x, level) if self._left >= 0 else "..."

    def repr_str(self, value: str, level: int) -> str:
        """The beginning, as ``repr`` cuts nothing out of the middle."""
        return repr(value[: self.maxstring])

    def repr_dict(self, value: dict[object, object], level: int) -> str:
        """In its own order, which ``Repr`` does not keep."""
        if level <= 0:
            return "{...}"
        entries: list[str] = []
        for key, entry in value.items():
            if len(entries) == self.maxdict:
                entries.append("...")
                break
            entries.append(f"{self.repr1(key, level - 1)}: {self.repr1(entry, level - 1)}")
        return f"{{{', '.join(entries)}}}"
