"""Whose snapshot it is: the same one's goes on, another one's is a weak prior at most."""

from __future__ import annotations

import math
from typing import Any

import pytest

from adaptk import Controller, GoodputTable, Settings
from adaptk.replay.casechecks import public_table
from adaptk.replay.measures import share
from adaptk.replay.simulator import simulate
from tests.publicengine import ARMS, PUBLIC, of_best, world
from tests.snapshots import HERE, OLD_BELIEFS, old_snapshot, used_snapshot


@pytest.fixture
def used() -> dict[str, Any]:
    return used_snapshot()


@pytest.fixture
def old() -> dict[str, Any]:
    return old_snapshot()


@pytest.mark.parametrize("identity", ["H100", {1: "H100"}, {"device": ["H100"]}, {"device": math.nan}, [("a", "b")]])
def test_an_identity_that_is_none_is_refused(identity: Any) -> None:
    """At construction and at restore, by name."""
    with pytest.raises(ValueError, match="identity"):
        Controller(PUBLIC, identity=identity)
    with pytest.raises(ValueError, match="identity"):
        Controller.restore(Controller(PUBLIC).snapshot(), PUBLIC, identity=identity)


def test_the_same_identity_goes_on_and_what_one_side_does_not_know_is_taken_over(used: dict[str, Any]) -> None:
    """``None`` and a part that is not named are unknown, which is no difference."""
    for known in (None, {}, HERE, {"device": "H100", "model": None}):
        assert Controller.restore(used, PUBLIC, identity=known).snapshot() == used
    assert Controller.restore(used, PUBLIC, identity={"host": "a"}).identity == HERE | {"host": "a"}
    bare = Controller(PUBLIC).snapshot()
    assert Controller.restore(bare, PUBLIC, identity=HERE).identity == HERE


def test_another_identity_or_table_is_refused_naming_what_differs(used: dict[str, Any]) -> None:
    """And the remedies."""
    with pytest.raises(ValueError, match=r"device 'H100' is now 'B200', ranks 2 is now 4.*as_prior=True"):
        Controller.restore(used, PUBLIC, identity=HERE | {"device": "B200", "ranks": 4})
    for other in (None, public_table(acceptance=[0.5]), GoodputTable.from_schedule([[1, 64, 5], [65, 512, 0]])):
        with pytest.raises(ValueError, match=r"another table.*as_prior=True"):
            Controller.restore(used, other)


def test_a_prior_on_another_device_keeps_the_means_and_is_less_sure(used: dict[str, Any]) -> None:
    """Same table: acceptance and step times as believed, each interval wider; nothing that was under way goes on."""
    exact = Controller.restore(used, PUBLIC)
    prior = Controller.restore(used, PUBLIC, identity=HERE | {"device": "B200"}, as_prior=True)
    for then, now in zip(exact.belief(16), prior.belief(16), strict=True):
        assert now.itl_ms == pytest.approx(then.itl_ms, rel=0.01)
        assert now.al == pytest.approx(then.al, rel=0.1)
        assert (then.itl_low or 0.0) > (now.itl_low or 0.0)
        assert (then.itl_high or 0.0) < (now.itl_high or 0.0)
        assert then.k == 0 or now.al_high - now.al_low > then.al_high - then.al_low
    snapshot, fresh = prior.snapshot(), Controller(PUBLIC, settings=Settings(budget=0.1), seed=0).snapshot()
    assert prior.identity["device"] == "B200"
    assert {name for name in snapshot if snapshot[name] != fresh[name]} <= {
        *("identity", "acceptance", "latency", "digest")
    }


def test_a_prior_around_another_table_carries_acceptance_alone(used: dict[str, Any]) -> None:
    """Step times are deviations from the old table: around the new one they begin at it."""
    other = GoodputTable.from_rows(
        [{"batch": b, "k": k, "itl_ms": 20.0 + b * (1 + k) / 8} for b in (1, 64, 256) for k in ARMS], [0.3] * 5
    )
    prior, fresh = Controller.restore(used, other, as_prior=True), Controller(other, arms=ARMS)
    old = Controller.restore(used, PUBLIC)
    for got, blank, then in zip(prior.belief(16), fresh.belief(16), old.belief(16), strict=True):
        assert got.itl_ms == pytest.approx(blank.itl_ms, rel=1e-9)
        assert got.al == pytest.approx(then.al, rel=0.1)
    assert prior.belief(16)[3].al > fresh.belief(16)[3].al + 0.5


def test_a_prior_without_a_table_climbs_again() -> None:
    """From the cheapest arms, whatever was believed; then it finds the best arm again."""
    controller = Controller(None, k_max=5, seed=0)
    simulate(world(800, 4, 0.9), controller)
    prior = Controller.restore(controller.snapshot(), None, identity={"device": "other"}, as_prior=True)
    run = simulate(world(800, 4, 0.9, level=2.0), prior)
    assert controller.choose(4) == 5
    assert run.k[:4].max() <= 1
    assert share(run, (5,), 500) > 0.8


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
def test_a_prior_from_a_slower_or_quicker_device_does_little_harm(factor: float) -> None:
    """All steps take ``factor`` times as long now: 0.97 of the best over the first 600 steps, three seeds."""
    for seed in range(3):
        controller = Controller(PUBLIC, seed=seed)
        simulate(world(600, 16, 0.7, seed=seed), controller)
        prior = Controller.restore(controller.snapshot(), PUBLIC, as_prior=True)
        run = simulate(world(600, 16, 0.7, level=factor, seed=10 + seed), prior)
        assert of_best(run) > 0.97


def test_a_prior_takes_a_snapshot_of_version_1(old: dict[str, Any]) -> None:
    """Widened, with the means it had."""
    prior = Controller.restore(old, PUBLIC, identity=HERE, as_prior=True)
    for b in prior.belief(16):
        al, itl = OLD_BELIEFS[16][b.k]
        assert b.itl_ms == pytest.approx(itl, rel=0.02)
        assert b.al == pytest.approx(al, rel=0.1)
    assert prior.identity == HERE
