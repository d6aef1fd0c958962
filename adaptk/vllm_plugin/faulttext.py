"""A fault in words that anybody may read: where it was and of what kind, and nothing of what users sent.

The message of an exception may quote what it stumbled over, and beside vLLM's objects that may be somebody's prompt. It
is told only where it can hold none: raised by adaptk's core, which sees numbers and never a request, or by the
interpreter about a line of the plugin's own.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path

from adaptk.quoted import plain

_PLUGIN = Path(__file__).parent
_CORE = _PLUGIN.parent
# What the interpreter says of these names attributes, types and variables of the program, never their values.
_OF_THE_CODE = (AttributeError, IndexError, NameError, TypeError, UnboundLocalError, ZeroDivisionError)
_MOST_FRAMES = 40
_MOST_CHAINED = 8
_MOST_SIGNS = 200


def short(error: BaseException) -> str:
    """Kind and place in one line, the place being adaptk's own where the fault came through it.

    Examples
    --------
    >>> short(ValueError("secret"))
    'ValueError'
    """
    kind = plain(type(error).__name__)
    frames = traceback.extract_tb(error.__traceback__, limit=-_MOST_FRAMES)
    own = [frame for frame in frames if _within(frame.filename, _CORE)]
    place = (own or frames)[-1:]
    return f"{kind} in {_name(place[0].filename)}:{place[0].lineno}" if place else kind


def full(error: BaseException) -> str:
    """The traceback, with messages only where they can hold nothing of a user's."""
    parts = []
    for each, leads_on in _chained(error):
        frames = traceback.extract_tb(each.__traceback__, limit=-_MOST_FRAMES)
        parts.append("Traceback (most recent call last):\n" + "".join(frames.format()) + _last_line(each) + leads_on)
    return "\n".join(reversed(parts))


def _chained(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """The exception and those that led to it, each with the words between it and the next."""
    at: BaseException | None = error
    leads_on = ""
    for _ in range(_MOST_CHAINED):
        if at is None:
            return
        yield at, leads_on
        cause, context = at.__cause__, None if at.__suppress_context__ else at.__context__
        leads_on = "\n\nThe above led to the following:\n"
        at = cause if cause is not None else context


def _last_line(error: BaseException) -> str:
    kind, name = type(error), plain(type(error).__qualname__)
    frames = traceback.extract_tb(error.__traceback__, limit=-1)
    place = frames[-1].filename if frames else ""
    in_core = _within(place, _CORE) and not _within(place, _PLUGIN)
    if in_core or (kind in _OF_THE_CODE and _within(place, _PLUGIN)):
        return f"{name}: {plain(str(error), _MOST_SIGNS)}"
    return f"{name} (its message may hold what users sent, and is not shown)"


def _within(file: str, folder: Path) -> bool:
    return folder in Path(file).parents


def _name(file: str) -> str:
    """A file of adaptk by its place in the package, another one by its own name."""
    path = Path(file)
    return str(path.relative_to(_CORE.parent)) if _CORE in path.parents else path.name
