"""Arms that are taken away, and K that others choose, while an engine runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Controller, Settings
from adaptk.vllm_plugin import adaptive
from tests.engine.driver import build_config, build_scheduler, cycling
from tests.faults.driven import K_MAX, Engine

BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


@BOTH
def test_graphs_are_lost_and_come_back(model: Path, asynchronous: bool) -> None:
    """Arms without a graph are played no more from the next step on, and may be again once they have one."""
    engine = Engine(model, asynchronous=asynchronous, settings=Settings(mode="on", arms=(3, 5, 7), budget=0.0))
    controller = engine.steering.controller
    engine.add(16, tokens=100)
    engine.serve(10)
    controller.limit_to_graphs(lambda batch, k: k > 3)
    before = len(engine.ks)
    engine.serve(20)
    assert set(engine.ks[before:]) == {5}
    controller.limit_to_graphs(lambda batch, k: k in (1, 3))
    before = len(engine.ks)
    engine.serve(10)
    assert set(engine.ks[before:]) == {3}
    controller.limit_to_graphs(lambda batch, k: False)  # without any graph all may be played
    engine.serve(10)
    controller.limit_to_graphs(None)
    engine.serve()
    engine.check()
    assert engine.steering.faults == 0


@BOTH
def test_the_engine_can_make_fewer_drafts(model: Path, asynchronous: bool) -> None:
    """Its num_spec_tokens is lowered in mid-work: no more are asked for from then on, and the choices are counted."""
    engine = Engine(model, controller=cycling((0, 3, 7)), asynchronous=asynchronous)
    engine.add(8, tokens=60)
    engine.serve(6)
    engine.scheduler.num_spec_tokens = 3
    before, clamped = len(engine.ks), engine.steering.clamped
    engine.serve(8)
    assert set(engine.ks[before:]) == {0, 3}
    assert engine.steering.clamped > clamped
    engine.scheduler.num_spec_tokens = K_MAX
    before = len(engine.ks)
    engine.serve()
    engine.check()
    assert 7 in engine.ks[before:]


def test_the_schedule_of_vllm_is_exchanged(model: Path) -> None:
    """What stands in dynamic_sd_lookup, or whether it is there at all, is vLLM's own K and not what is played."""
    engine = Engine(model, controller=cycling((1,)))
    engine.add(8, tokens=60)
    for lookup in ([5] * 300, None, [0] * 300, []):
        engine.scheduler.dynamic_sd_lookup = lookup
        before = len(engine.ks)
        try:
            engine.serve(3)
        except IndexError:  # vLLM's own, of a schedule that is too short for it
            assert lookup == []
            engine.scheduler.dynamic_sd_lookup = None
        assert set(engine.ks[before:]) <= {1}
    engine.serve()
    engine.check()
    assert engine.steering.faults == 0


class Deaf:
    """Before an adaptive class: the engine plays two drafts, whatever was asked for, while it is deaf."""

    deaf = False

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        super()._update_after_schedule(scheduler_output)  # type: ignore[misc]
        if self.deaf:
            scheduler_output.num_spec_tokens_to_schedule = 2


def test_an_engine_that_plays_another_k(model: Path) -> None:
    """For 2,000 steps: all is answered, each is counted, most of their times as no arm's; then it is steered."""
    controller = Controller(None, arms=(0, 1, 3, 7), seed=0)
    cls = type("DeafScheduler", (Deaf, adaptive(Scheduler, controller=controller)), {})
    config = build_config(model, k_max=K_MAX)
    engine = Engine(model, build_scheduler(cls, config, num_blocks=1000))
    engine.scheduler.deaf = True
    while len(engine.ks) < 2000:
        engine.add(8, tokens=40)
        engine.serve()
    assert controller.counters["steps"] == len(engine.ks)
    assert sum(controller.unlearnt.values()) > 1000
    engine.scheduler.deaf = False
    before = len(engine.ks)
    while len(engine.ks) < before + 500:
        engine.add(8, tokens=40)
        engine.serve()
    engine.check()
    assert engine.steering.faults == 0
    played = set(engine.ks[before:])
    assert played <= {0, 1, 3, 7}
    assert len(played) > 1
