"""A controller plays no arm without a graph where the engine has captured one for another arm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adaptk import Controller, GoodputTable, Reason, Settings, StepRecord
from tests.publicengine import PUBLIC

ARMS = (0, 1, 3, 5)


def within(tokens: int) -> Callable[[int, int], bool]:
    """Graphs for all steps of up to so many tokens."""
    return lambda batch, k: batch * (k + 1) <= tokens


def with_holes(batch: int, k: int) -> bool:
    """An operator's own capture sizes can leave an arm with graphs at some batch sizes only."""
    return batch <= 40 and (batch // 2 + k) % 3 != 2


def play(controller: Controller, batches: list[int], seed: int = 0) -> list[tuple[int, int, Any]]:
    """Batch, K and decision of each step; drafts are accepted at 0.8 and at 0.3, for 300 steps in turn."""
    rng = np.random.default_rng(seed)
    seen, before = [], 0
    for i, batch in enumerate(batches):
        rate = 0.3 if i // 300 % 2 else 0.8
        k = controller.choose(batch)
        accepted = [int((rng.random(before) < rate).cumprod().sum()) for _ in range(batch)]
        elapsed = (9.0 + 0.02 * batch + 0.8 * k) * float(rng.lognormal(0.0, 0.02))
        record = StepRecord(
            batch_size=batch, elapsed_ms=elapsed, k=k, drafted=[before] * batch, accepted=accepted, draft_k=k
        )
        seen.append((batch, k, controller.observe(record)))
        before = k
    return seen


def loads(steps: int) -> list[int]:
    """Batch sizes that creep over every ceiling, jump, and flicker by one."""
    rng = np.random.default_rng(5)
    creep = [int(20 + 15 * np.sin(i / 90) + rng.integers(-1, 2)) for i in range(steps)]
    return [batch if i // 200 % 3 else int(rng.choice([4, 17, 33, 90])) for i, batch in enumerate(creep)]


@pytest.mark.parametrize("table", [PUBLIC, None], ids=["table", "no table"])
@pytest.mark.parametrize("covered", [within(100), within(64), with_holes], ids=["100", "64", "holes"])
@pytest.mark.parametrize("settings", [Settings(budget=0.2), Settings(min_k=1, max_itl_ms=12.5, budget=0.1)])
def test_no_arm_without_a_graph_where_another_has_one(
    table: GoodputTable | None, covered: Callable[[int, int], bool], settings: Settings
) -> None:
    """Whatever the plan, a visit or a smoothed batch size says."""
    controller = Controller(table, arms=ARMS, k_max=5, settings=settings, seed=2)
    controller.limit_to_graphs(covered)
    seen = play(controller, loads(2400))
    permitted = [k for k in ARMS if k >= settings.min_k]
    for batch, k, decision in seen:
        assert covered(batch, k) or not any(covered(batch, other) for other in permitted), (batch, k)
        assert decision.k == k
    assert len({k for _, k, _ in seen}) > 1


@pytest.mark.parametrize("table", [PUBLIC, None], ids=["table", "no table"])
def test_visits_go_on_after_one_was_broken_off(table: GoodputTable | None) -> None:
    """A visit that the batch grows out of is over, and the next one can begin."""
    controller = Controller(table, arms=ARMS, k_max=5, settings=Settings(budget=0.2), seed=2)
    controller.limit_to_graphs(within(100))
    play(controller, [17] * 40)
    planner, broken = controller._planner, 0
    for _ in range(40):
        planner._visit(ARMS.index(5), 4, 0.5)
        play(controller, [16, 17, 16, 16])  # 17 requests with K=5 have no graph
        broken += planner.visiting < 0
    assert broken == 40
    assert any(decision.reason is Reason.EXPLORE for *_, decision in play(controller, [14] * 1200))


def test_where_no_arm_has_a_graph_all_compete() -> None:
    """Beyond every ceiling the best arm is played, as without a limit."""
    limited, free = (Controller(PUBLIC, arms=ARMS, seed=0) for _ in range(2))
    limited.limit_to_graphs(within(100))
    assert play(limited, [120] * 200) == play(free, [120] * 200)


def test_what_it_was_kept_from_is_said() -> None:
    """The better arm without a graph is named as refused, and what is believed of it stays visible."""
    controller = Controller(PUBLIC, arms=ARMS, seed=0)
    play(controller, [16] * 100)
    controller.limit_to_graphs(within(64))
    seen = play(controller, [30] * 60)
    assert {k for _, k, _ in seen} <= {0, 1}
    assert Reason.GUARD in {decision.reason for *_, decision in seen}
    assert [arm.k for arm in controller.belief(30)] == list(ARMS)


def test_the_limit_is_lifted_and_is_not_in_a_snapshot() -> None:
    """It is the engine's at hand; another engine may have captured other sizes."""
    controller = Controller(PUBLIC, arms=ARMS, seed=0)
    play(controller, [16] * 200)
    best = play(controller, [16] * 40)[-1][1]
    assert best > 1
    controller.limit_to_graphs(within(32))
    assert play(controller, [16] * 40)[-1][1] <= 1
    again = Controller.restore(controller.snapshot(), PUBLIC)
    assert play(again, [16] * 60)[-1][1] == best
    controller.limit_to_graphs(None)
    assert play(controller, [16] * 60)[-1][1] == best
