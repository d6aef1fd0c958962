"""The two engines in turns, around engines that are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from adaptk.profile.orders import EngineDiedError, EngineOrder, Stayed, StayOrder
from adaptk.profile.plan import Plan
from adaptk.profile.takingturns import FEWEST_ROUNDS, TakingTurns
from tests.profile.fakeengine import PROMPTS, FakeEngine, Silent

ORDER = EngineOrder(("fake", "--port", "1"), None, PROMPTS)
PLAN = Plan(len(PROMPTS), 60.0, 0.02, 64, (1, 4, 16))
Log = list[tuple[bool, int, int]]


class Noting(FakeEngine):
    """Notes each stay in a list that both engines share: whether it has a drafter, its batch size, its visit."""

    def __init__(self, order: EngineOrder, log: Log, **changes: Any) -> None:
        super().__init__(order, **changes)
        self._log = log

    def stay(self, order: StayOrder) -> Stayed:
        self._log.append((self.order.drafter, order.batch, order.visit))
        return super().stay(order)


def turns(
    plan: Plan = PLAN, start: Callable[[EngineOrder], FakeEngine] | None = None, **changes: Any
) -> tuple[TakingTurns, Log, list[FakeEngine]]:
    log: Log = []
    engines: list[FakeEngine] = []

    def noting(order: EngineOrder) -> FakeEngine:
        engines.append((start or (lambda order: Noting(order, log, **changes)))(order))
        return engines[-1]

    return TakingTurns(ORDER, plan, noting, Silent()), log, engines


def test_the_price_of_the_fakes_drafter_is_found() -> None:
    """It is a tenth quicker without one; every interval of a ratio holds the truth at K=0."""
    measured, _, engines = turns()
    measured.run()
    idle = [row for row in measured.rows() if row.k == 0]
    assert [row.batch for row in idle] == [1, 4, 16]
    for row in idle:
        assert row.ratio is not None
        assert row.ratio.value == pytest.approx(1 / 0.9, rel=0.01)
        assert row.relative_width < PLAN.target
    assert all(engine.closed for engine in engines)
    assert measured.side_by_side
    assert measured.key["model"] == "fake"


def test_both_live_together_and_alternate() -> None:
    """Turn by turn one right after the other at the same batch size, the second beginning where the first ended."""
    measured, log, engines = turns()
    measured.run()
    assert [engine.order.drafter for engine in engines] == [True, False]
    assert log[:12] == [
        (True, 1, 0), (False, 1, 0), (True, 4, 0), (False, 4, 0), (True, 16, 0), (False, 16, 0),
        (False, 1, 1), (True, 1, 1), (False, 4, 1), (True, 4, 1), (False, 16, 1), (True, 16, 1),
    ]  # fmt: skip
    for engine in engines:
        assert engine.order.arguments == (*ORDER.arguments, "--gpu-memory-utilization", "0.4")
    assert {stay.order for stay in engines[1].stays} == {(0, 0, 0, 0)}
    assert len({stay.order for stay in engines[0].stays}) > 1  # each round begins with another K
    assert engines[1].answers == []


def test_it_ends_when_all_is_known_or_the_time_is_up() -> None:
    """Never before the fewest rounds, never with a turn that would not fit."""
    known, _, _ = turns(PLAN._replace(target=1.0))
    known.run()
    assert known.rounds == FEWEST_ROUNDS
    short, log, _ = turns(PLAN._replace(budget_s=12.0, target=1e-6))
    short.run()
    assert 8.0 < short.seconds <= 12.0
    assert {batch for _, batch, _ in log} == {1, 4, 16}
    tiny, log, _ = turns(PLAN._replace(budget_s=0.01))
    tiny.run()
    assert tiny.rounds <= 1


def test_an_engine_that_finds_no_room_beside_the_other_runs_after_it() -> None:
    """Each for half of the time, compared as strangers, and said so."""
    log: Log = []
    engines: list[FakeEngine] = []

    def start(order: EngineOrder) -> FakeEngine:
        if any(not engine.closed for engine in engines):
            raise EngineDiedError("no memory left\nand a page of log")
        engines.append(Noting(order, log))
        return engines[-1]

    measured, _, _ = turns(PLAN._replace(target=1e-6, budget_s=30.0), start)
    measured.run()
    drafters = [drafter for drafter, _, _ in log]
    assert drafters == sorted(drafters, reverse=True)
    assert not measured.side_by_side
    assert "one after the other" in measured.notes[0]
    assert "(no memory left)" in measured.notes[0]
    assert 25.0 < measured.seconds <= 30.0
    taken = [sum(1 for drafter in drafters if drafter is which) for which in (True, False)]
    assert min(taken) > 5
    idle = next(row for row in measured.rows() if row.k == 0)
    assert idle.ratio is not None
    assert idle.ratio.value == pytest.approx(1 / 0.9, rel=0.02)
    assert all(engine.closed for engine in engines)


def test_an_engine_that_needs_all_the_memory_gets_it() -> None:
    """It starts as it was asked for, alone, and so does the one without a drafter."""
    tried: list[tuple[str, ...]] = []

    def start(order: EngineOrder) -> FakeEngine:
        tried.append(order.arguments)
        if "0.4" in order.arguments:
            raise EngineDiedError("No available memory for the cache blocks")
        return FakeEngine(order)

    measured, _, engines = turns(PLAN._replace(budget_s=20.0), start)
    measured.run()
    assert tried == [(*ORDER.arguments, "--gpu-memory-utilization", "0.4"), ORDER.arguments, ORDER.arguments]
    assert [engine.order.drafter for engine in engines] == [True, False]
    assert not measured.side_by_side
    assert next(row for row in measured.rows() if row.k == 0).ratio is not None


def test_an_engine_that_does_not_start_at_all() -> None:
    """Tried once where the user said how much memory it gets; its own reason comes out."""
    tried: list[tuple[str, ...]] = []

    def start(order: EngineOrder) -> FakeEngine:
        tried.append(order.arguments)
        raise EngineDiedError("no such model")

    for arguments, times in ((("m",), 2), (("m", "--gpu-memory-utilization=0.5"), 1)):
        tried.clear()
        measured = TakingTurns(ORDER._replace(arguments=arguments), PLAN, start, Silent())
        with pytest.raises(EngineDiedError, match="no such model"):
            measured.run()
        assert len(tried) == times
        assert measured.rows() == []


def test_what_was_measured_outlives_an_engine() -> None:
    """Both are closed, and the rows are there."""
    measured, _, engines = turns(dies_after=7)
    with pytest.raises(EngineDiedError):
        measured.run()
    assert all(engine.closed for engine in engines)
    assert [row.batch for row in measured.rows() if row.k == 0] == [1, 4, 16]


def test_a_batch_size_that_one_engine_cannot_hold_is_left_out() -> None:
    """Of both, with a note; it is not tried again."""

    class Small(Noting):
        def stay(self, order: StayOrder) -> Stayed:
            if order.batch == 16 and not self.order.drafter:
                self._log.append((False, 16, order.visit))
                return Stayed((), 0.1, "of 16 requests at most 9 ran at once: the KV cache is too small")
            return super().stay(order)

    log: Log = []
    measured, _, _ = turns(start=lambda order: Small(order, log))
    measured.run()
    assert measured.notes == [
        "batch 16 is left out, without the drafter of 16 requests at most 9 ran at once: the KV cache is too small"
    ]
    assert sum(batch == 16 for _, batch, _ in log) == 2
    assert {row.batch for row in measured.rows() if row.ratio is not None} == {1, 4}


@pytest.mark.parametrize(
    ("plan", "engine", "message"),
    [
        (PLAN, {"arms": (0,)}, "no drafter: name one"),
        (PLAN._replace(batches=(99,)), {}, "nothing that was asked for fits this engine: batch 99"),
    ],
)
def test_what_cannot_be_measured_is_refused(plan: Plan, engine: dict[str, Any], message: str) -> None:
    """With both engines closed."""
    measured, _, engines = turns(plan, **engine)
    with pytest.raises(ValueError, match=message):
        measured.run()
    assert all(engine.closed for engine in engines)
    assert measured.rows() == []


def test_default_batches_are_few() -> None:
    """Powers of four up to the engine's limit, and that; one context."""
    measured, log, _ = turns(PLAN._replace(batches=None, target=1.0))
    measured.run()
    assert sorted({batch for _, batch, _ in log}) == [1, 4, 16]
    assert {row.context for row in measured.rows()} == {measured.context}


def test_an_engine_killed_by_an_interrupt_is_closed() -> None:
    """Ctrl-C comes out as it is, after both engines were stopped."""

    def interrupt(stays: int) -> None:
        if stays == 3:
            raise KeyboardInterrupt

    measured, _, engines = turns(after=interrupt)
    with pytest.raises(KeyboardInterrupt):
        measured.run()
    assert [engine.closed for engine in engines] == [True, True]
    assert measured.rows()
