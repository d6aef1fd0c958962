"""How an engine that is profiled is stepped, and how its steps are read: with adaptk around its scheduler, or bare."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from adaptk.decision import Decision
from adaptk.step import StepRecord

_FILL = 0  # a token: any will do, as a draft that is wrong costs what a right one costs
_GOLDEN, _SILVER = (5**0.5 - 1) / 2, 2**0.5 - 1  # their multiples are spread evenly over [0, 1)


class Meter(Protocol):
    """Steps the engine and keeps the records of its steps."""

    k: int  # drafts per request for the steps scheduled from now on
    arms: tuple[int, ...]
    supply: tuple[float, ...]  # share of requests that are to get a draft at each position; empty: leave them alone
    records: list[StepRecord]  # in order, each one following the one before it without a gap

    def step(self) -> set[str]:
        """Run one step; the requests that finished in it."""
        ...

    def forget(self) -> None:
        """Forget the records, except the last, whose drafts belong to the next."""
        ...


def meter(scheduler: Any, client: Any) -> Meter:
    """The meter for an engine: steered where adaptk is active in its scheduler.

    Raises
    ------
    RuntimeError
        If adaptk is there and stood down.
    """
    steering = getattr(scheduler, "adaptk", None)
    if steering is None:
        return Bare(client)
    if not steering.active:
        raise RuntimeError(f"adaptk cannot steer this engine: {steering.reason}")
    return Steered(scheduler, client)


class Steered:
    """Takes the controller's place in adaptk's scheduler: plays ``k`` and keeps every record."""

    def __init__(self, scheduler: Any, client: Any) -> None:
        steering = scheduler.adaptk
        self.k = 0
        self.arms: tuple[int, ...] = tuple(steering.controller.arms)
        self.supply: tuple[float, ...] = ()
        self.records: list[StepRecord] = []
        self._steering = steering
        self._client = client
        self._asked = 0
        self._turn = 0
        self._take_drafts = scheduler.update_draft_token_ids
        scheduler.update_draft_token_ids = self._shape_drafts
        steering.controller, steering.at_once = self, True
        steering.collector.numbered = True  # which request is which: errors of acceptance count requests

    def choose(self, batch_size: int, context_tokens: int | None = None) -> int:
        """The K that is to be played."""
        self._asked = self.k
        return self.k

    def observe(self, record: StepRecord) -> Decision | None:
        """Keep the record."""
        self.records.append(record)
        return None

    def step(self) -> set[str]:
        """Run one step; see :class:`Meter`."""
        done = finished(self._client.get_output())
        if not self._steering.active:
            raise RuntimeError(f"adaptk stood down: {self._steering.reason}")
        return done

    def forget(self) -> None:
        """Forget all records but the last."""
        del self.records[:-1]

    def _shape_drafts(self, drafts: Any) -> None:
        """Give each request as many drafts as the drafter returns on natural text, where that is not all.

        How many it finds hangs on the text; a context that is made up, and goes on beyond every natural end, would
        put another number into a step than the answers did, and so another time. What is added is rejected.
        """
        if self.supply:
            self._turn += 1
            for i, found in enumerate(drafts.draft_token_ids):
                wanted = wanted_drafts(self.supply, self._asked, i, self._turn)
                drafts.draft_token_ids[i] = [*found[:wanted], *[_FILL] * (wanted - len(found))]
        self._take_drafts(drafts)


class Bare:
    """An engine without a drafter: a step is what passes between two outputs."""

    def __init__(self, client: Any) -> None:
        self.k = 0
        self.arms: tuple[int, ...] = (0,)
        self.supply: tuple[float, ...] = ()
        self._client = client
        self.records: list[StepRecord] = []
        self._left: float | None = None
        self._batch = 0

    def step(self) -> set[str]:
        """Run one step; see :class:`Meter`."""
        output = self._client.get_output()
        now = time.perf_counter()
        before, self._left = self._left, now
        batch, self._batch = self._batch, len(output.outputs)
        if not output.outputs:
            # Pieces of prompts alone give no token, and no batch that decodes.
            self.records.append(_prompts_alone())
        else:
            # A prompt's last piece gives a token too: only from one step to the next with equal batches all decode.
            same = batch == len(output.outputs)
            record = StepRecord(
                batch_size=len(output.outputs),
                elapsed_ms=None if before is None else 1e3 * (now - before),
                k=0,
                drafted=[0] * len(output.outputs),
                accepted=[0] * len(output.outputs),
                prefill_tokens=0 if same else 1,
            )
            self.records.append(record)
        return finished(output)

    def forget(self) -> None:
        """Forget all records but the last."""
        del self.records[:-1]


def _prompts_alone() -> StepRecord:
    return StepRecord(batch_size=1, elapsed_ms=None, k=0, drafted=[0], accepted=[0], prefill_tokens=1)


def wanted_drafts(supply: Sequence[float], asked: int, place: int, turn: int) -> int:
    """Drafts for one request so that, over requests and over steps, a share ``supply[i]`` gets more than ``i``.

    Not drawn but spread evenly, in two directions at once, so that steps are as alike as they can be.

    Examples
    --------
    >>> [sum(wanted_drafts((0.5, 0.25), 2, place, turn) for place in range(32)) for turn in range(4)]
    [25, 24, 24, 24]
    >>> round(sum(wanted_drafts((0.5, 0.25), 2, 0, turn) for turn in range(1000)) / 1000, 2)
    0.75
    """
    at = (place * _GOLDEN + turn * _SILVER) % 1.0
    return sum(share > at for share in supply[:asked])


def finished(output: Any) -> set[str]:
    """Requests that ended in a step's output."""
    return {part.request_id for part in output.outputs if part.finish_reason is not None}
