"""What controllers count for themselves, added up over those that took turns at one engine."""

from __future__ import annotations

from typing import Any

from adaptk.controller import Controller


class Carried:
    """Counts since an engine started, whoever its controller was; a controller may bring older ones along.

    The engine's thread calls ``meet`` and ``learning``, any thread ``totals``.

    Examples
    --------
    >>> first, second = (Controller(None, arms=(0, 1), seed=0) for _ in range(2))
    >>> first.counters["time_alarms"] = 5
    >>> carried = Carried()
    >>> carried.meet(first)
    >>> first.counters["time_alarms"] += 1
    >>> carried.meet(second)
    >>> carried.learning(second)
    >>> second.counters["time_alarms"] += 2
    >>> carried.totals()["time_alarms"]
    3.0
    """

    def __init__(self) -> None:
        # Replaced as a whole, so that no reader meets a half-made one: what is settled, and those whose steps may
        # still come back, with their counts when they were met.
        self._state: tuple[dict[str, float], tuple[tuple[Any, dict[str, float]], ...]] = ({}, ())

    def meet(self, controller: Any) -> None:
        """A controller takes charge."""
        settled, present = self._state
        if controller is not None and all(other is not controller for other, _ in present):
            self._state = settled, (*present, (controller, counts(controller)))

    def learning(self, controller: Any) -> None:
        """A step of this controller came back: those before it have had all of theirs."""
        settled, present = self._state
        places = [i for i, (other, _) in enumerate(present) if other is controller]
        if not places:
            self.meet(controller)
            return
        gone, left = present[: places[0]], present[places[0] :]
        if gone:
            self._state = _added(settled, gone), left

    def totals(self) -> dict[str, float]:
        """Counts by name: those of ``Controller.counters``, of the ledger, and of ``unlearnt`` after a dot."""
        return _added(*self._state)


def ours(controller: Any) -> Controller | None:
    """The controller if it is adaptk's; another policy's attributes of the same names may be anything."""
    return controller if isinstance(controller, Controller) else None


def counts(controller: Any) -> dict[str, float]:
    """Everything that a controller counts; nothing of one that is no Controller."""
    own = ours(controller)
    if own is None:
        return {}
    return {**own.counters, **own.ledger, **{f"unlearnt.{cause}": count for cause, count in own.unlearnt.items()}}


def _added(settled: dict[str, float], present: tuple[tuple[Any, dict[str, float]], ...]) -> dict[str, float]:
    total = dict(settled)
    for controller, before in present:
        for name, count in counts(controller).items():
            total[name] = total.get(name, 0.0) + count - before.get(name, 0.0)
    return total
