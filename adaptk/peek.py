"""A copy of what a controller believes at one moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from adaptk.controller import Controller


class Peek(NamedTuple):
    """What beliefs are made of, copied; ``source`` is the controller, of which only what never changes may be read."""

    source: Controller
    acceptance: dict[str, Any]
    latency: dict[str, Any]
    context: float | None
    covered: Callable[[int, int], bool] | None
    taken_s: float  # unix time
