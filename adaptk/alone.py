"""One call at a time: what one thread alone may use refuses a second call, which would ruin it, and says so.

No lock: a step would wait for whoever looks on, a child forked in the middle of a call would wait for ever, and a lock
cannot be copied. Looked at and set without a call between, the flag is safe under the interpreter's own lock. In such a
child the first call stays under way, and its copy, which is half of two states, is never believed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class OneAtATime(Protocol):
    """What is refused a second call while ``_busy``."""

    _busy: bool


_Self = TypeVar("_Self", bound=OneAtATime)
_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def one_at_a_time(
    method: Callable[Concatenate[_Self, _Parameters], _Result],
) -> Callable[Concatenate[_Self, _Parameters], _Result]:
    """A method that is refused with a ``RuntimeError`` while another such one of the same object is under way."""

    @wraps(method)
    def alone(self: _Self, /, *args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        if self._busy:
            raise under_way(method.__name__)
        self._busy = True
        try:
            return method(self, *args, **kwargs)
        finally:
            self._busy = False

    return alone


def under_way(name: str) -> RuntimeError:
    """What a call is refused with; nothing was changed by it."""
    return RuntimeError(
        f"{name} was called while another call of the same controller was under way: use it from one thread at a time, "
        "guarded by a lock of your own"
    )
