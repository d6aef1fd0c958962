"""A visit, how far a session is, and what is said of it at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from adaptk.profile.alloc_value import SETTLED_LOSS, Doubt
from adaptk.profile.est_values import Group


class Visit(NamedTuple):
    """One stay at a group.

    Parameters
    ----------
    number
        Rising over the session, also after :meth:`Allocator.restore`; goes into ``Block.visit``.
    group
        Batch size and context level.
    order
        The arm of each block, in the order to be played: there and back again, so that drift hits all alike.
    steps
        Steps to keep in each block; those of the transition come on top.
    why
        ``"first look"``, ``"again"``, ``"decision"`` or ``"interval"``.
    """

    number: int
    group: Group
    order: tuple[int, ...]
    steps: int
    why: str

    @property
    def arms(self) -> tuple[int, ...]:
        """The K played, rising."""
        return tuple(sorted(set(self.order)))


class Progress(NamedTuple):
    """How far a session is: ``share`` of it done (0 to 1), seconds it may still take, and cells seen and settled."""

    share: float
    seconds_left: float
    seen: int
    settled: int
    cells: int


def summarised(
    progress: Progress, target: float, left_out: int, doubts: Mapping[Group, Doubt], reason: str | None
) -> str:
    """A sentence or two: what is known how well, and why it ended (``reason``, ``None`` while it goes on)."""
    parts = [f"{progress.seen} of {progress.cells} cells measured, {progress.settled} within {100 * target:g} %"]
    if left_out:
        parts.append(f"{left_out} could not be measured")
    open_ = [(group, judged) for group, judged in sorted(doubts.items(), key=_rising) if judged.loss >= SETTLED_LOSS]
    if open_:
        parts.append("the best K is in doubt at " + ", ".join(_told(group, judged) for group, judged in open_))
    text = "; ".join(parts) + "."
    return text if reason is None else f"{text} Ended: {reason}."


def _rising(item: tuple[Group, Doubt]) -> tuple[float, int]:
    return item[0].context or 0.0, item[0].batch


def _told(group: Group, judged: Doubt) -> str:
    where = f"batch {group.batch}" + ("" if group.context is None else f", context {group.context:g}")
    return f"{where} ({' or '.join(map(str, judged.contenders))})"
