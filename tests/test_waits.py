"""Steps whose sampling waited for a grammar: their host latency is no arm's, and where all wait it must be learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import force_setattr

from adaptk import Controller, Decision, GoodputTable, StepRecord
from adaptk.replay.costs.p32374 import KS, public_surface
from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Noise
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import World, simulate
from adaptk.waits import FIRST, Waits
from tests.publicengine import PUBLIC
from tests.snapshots import through_json, used_snapshot

STEPS = 2000
SURFACE = public_surface()
WAIT = 0.3  # of the step at K=0


class Telling:
    """A controller that is told which steps waited."""

    def __init__(self, controller: Controller, waited: np.ndarray[Any, Any]) -> None:
        self.controller, self.arms, self.waited, self.step = controller, controller.arms, waited.tolist(), 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        return self.controller.choose(batch_size, context_tokens, decodes)

    def observe(self, record: StepRecord) -> Decision | None:
        force_setattr(record, "waited", self.waited[self.step])
        self.step += 1
        return self.controller.observe(record)


def share_waiting(waits: Waits) -> float:
    """Share of the steps of late that waited."""
    return 1.0 - waits.share if waits.home else waits.share


def alternating(run: int) -> np.ndarray[Any, Any]:
    return np.arange(STEPS) // run % 2 == 1


def by_chance(share: float) -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).random(STEPS) < share


PATTERNS = {
    "none": by_chance(0.0),
    "30 %": by_chance(0.3),
    "80 %": by_chance(0.8),
    "all": by_chance(1.0),
    "runs of 50": alternating(50),
    "runs of 300": alternating(300),
    "all from step 700 on": np.arange(STEPS) >= 700,
    "none from step 700 on": np.arange(STEPS) < 700,
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("batch", "accepted"), [(4, 0.7), (32, 0.7), (64, 0.62)])
@pytest.mark.parametrize("seeded", [True, False], ids=["table", "no table"])
def test_waiting_steps_neither_mislead_nor_starve(pattern: str, batch: int, accepted: float, seeded: bool) -> None:
    """A wait of 30 % of a step in no, some, most or all steps.

    The step time of the arm that is played is believed within 4 % of its mean of late, goodput is within 1.2 % of the
    best fixed K, and what is no change brings no more than two alarms.
    """
    waited = PATTERNS[pattern]
    wait = WAIT * SURFACE.itl_ms(batch, 0)
    load = script(STEPS, batch, extra_ms=np.where(waited, wait, 0.0))
    world = World(SURFACE, Drafter(profiles([accepted])), load, STEPS, noise=Noise(0.03), seed=1)
    controller = Controller(SURFACE.to_table(KS, [accepted]) if seeded else None, arms=KS, seed=1)
    run = simulate(world, Telling(controller, waited))
    length, itl = run.length[:, list(KS)], run.itl[:, list(KS)] + run.extra_ms[:, None]
    at = [KS.index(k) for k in run.k]
    steps = np.arange(STEPS)
    fixed = (length.sum(axis=0) / itl.sum(axis=0)).max()
    assert length[steps, at].sum() / itl[steps, at].sum() > 0.988 * fixed
    assert controller.counters["time_alarms"] <= 2
    now = max(range(len(KS)), key=lambda i: at[-300:].count(i))
    mean = SURFACE.itl_ms(batch, KS[now]) + wait * share_waiting(controller._waits)
    belief = controller.belief(batch)[now].itl_ms
    assert belief == pytest.approx(mean, rel=0.04)


def test_the_share_of_waiting_steps_is_that_of_late() -> None:
    """Whichever class came first."""
    for first in (True, False):
        waits = Waits()
        for step in range(600):
            waits.see(first if step < 200 else step % 4 == 0, 10.0)
        assert share_waiting(waits) == pytest.approx(0.25, abs=0.05)


def test_k_is_right_for_steps_that_wait() -> None:
    """A fixed latency in every step favours more drafts: at batch 64 three, where without it one is best."""
    rates = {}
    for wait in (0.0, WAIT * SURFACE.itl_ms(64, 0)):
        rates[wait] = [sum(0.62**j for j in range(k + 1)) / (SURFACE.itl_ms(64, k) + wait) for k in KS]
    right = {wait: KS[int(np.argmax(rate))] for wait, rate in rates.items()}
    assert list(right.values()) == [1, 3]
    for wait, best in right.items():
        waited = np.full(STEPS, wait > 0.0)
        load = script(STEPS, 64, extra_ms=np.where(waited, wait, 0.0))
        world = World(SURFACE, Drafter(profiles([0.62])), load, STEPS, noise=Noise(0.03), seed=2)
        run = simulate(world, Telling(Controller(SURFACE.to_table(KS, [0.62]), arms=KS, seed=2), waited))
        assert np.mean(run.k[500:] == best) > 0.9


def test_one_class_alone_has_no_offset() -> None:
    """Whether it waits or not: times are taken as they are."""
    for waited in (True, False):
        waits = Waits()
        for _ in range(50):
            assert waits.see(waited, 10.0) == 10.0
            assert waits.learn(waited, 1, 8, 0, 10.0, 7.0)
        assert (waits.extra_ms, waits.known) == (0.0, False)


def test_neighbours_teach_the_offset() -> None:
    """By hand: 10 ms, then 13 ms that waited, of one arm; other arms, batches and prompts teach nothing."""
    waits = Waits()
    for waited, ms in ((False, 10.0), (True, 13.0), (False, 10.0)):
        waits.see(waited, ms)
        waits.learn(waited, 1, 8, 0, ms, None)
    before = waits.snapshot()["offset"]
    assert waits.own_ms(True, 13.0) == 13.0 - before
    assert 0.9 < before <= 3.0  # one comparison moves it by a tenth of a step at most
    for arm, decodes, prompt in ((2, 8, 0), (1, 16, 0), (1, 8, 64)):
        waits.learn(True, arm, decodes, prompt, 30.0, None)
        waits.learn(False, 1, 8, 0, 10.0, None)
    assert waits.snapshot()["offset"] == before


def test_a_stall_is_no_wait() -> None:
    """One waiting step of 500 ms among many of 13 moves the offset by less than its own size."""
    waits = Waits()
    for step in range(200):
        waited = step % 2 == 1
        ms = 500.0 if step == 151 else 13.0 if waited else 10.0
        waits.see(waited, ms)
        waits.learn(waited, 1, 8, 0, ms, None)
    assert waits.own_ms(True, 13.0) == pytest.approx(10.0, abs=0.5)


def test_a_first_run_of_waiting_steps_is_held_against_what_is_believed() -> None:
    """After ``FIRST`` of them the median counts; until then their times are not used."""
    waits = Waits()
    usable = []
    for step in range(20):
        waited = step >= 10
        ms = (13.0, 90.0)[step == 12] if waited else 10.0
        waits.see(waited, ms)
        usable.append(waits.learn(waited, 1 if waited else 0, 8, 0, ms, 10.0))
    assert usable[10:].index(True) == FIRST  # the first one has no neighbour of its arm
    assert waits.own_ms(True, 13.0) == pytest.approx(10.0, abs=0.1)


def test_a_snapshot_holds_it_and_an_older_one_starts_fresh() -> None:
    """Also in the middle of the first comparisons."""
    waits = Waits()
    for step in range(14):
        waits.see(step >= 10, 10.0)
        waits.learn(step >= 10, 1, 8, 0, 13.0, 10.0)
    other = Waits()
    other.load(through_json(waits.snapshot()))
    assert other.snapshot() == waits.snapshot()
    assert vars(other) == vars(waits)
    snapshot = used_snapshot()
    older = {name: value for name, value in snapshot.items() if name != "waits"} | {"schema_version": 2}
    older["latency"] = {name: value for name, value in snapshot["latency"].items() if name != "extra_ms"}
    restored = Controller.restore(older, PUBLIC)
    assert [b.itl_ms for b in restored.belief(16)] == [
        b.itl_ms for b in Controller.restore(snapshot, PUBLIC).belief(16)
    ]
    assert restored.snapshot()["waits"] == Controller(PUBLIC).snapshot()["waits"]


def test_records_say_whether_they_waited() -> None:
    """As a truth value, NumPy's too; nothing else; by default they did not."""
    fields: dict[str, Any] = {"batch_size": 1, "elapsed_ms": 9.0, "k": 1, "drafted": [1], "accepted": [1]}
    assert StepRecord(**fields).waited is False
    assert StepRecord(**fields, waited=np.bool_(True)).waited is True
    for wrong in (1, "yes", None):
        with pytest.raises(ValueError, match=r"waited is .*: give True or False"):
            StepRecord(**fields, waited=wrong)


def test_the_controllers_table_is_unharmed_by_it() -> None:
    """The seed stays what it was."""
    table = GoodputTable.from_rows([{"batch": 8, "k": k, "itl_ms": 10.0 + k} for k in (0, 1)], [0.5])
    controller = Controller(table, seed=0)
    for step in range(60):
        k = controller.choose(8)
        controller.observe(
            StepRecord(
                batch_size=8, elapsed_ms=12.0 + step % 2, k=k, drafted=[k] * 8, accepted=[0] * 8, waited=step % 2 == 1
            )
        )
    assert table.itl_ms(8, 0) == 10.0
