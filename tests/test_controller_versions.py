"""A snapshot that an older adaptk wrote keeps what it believed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from adaptk import Controller, Settings
from adaptk.replay.simulator import simulate
from adaptk.snapshot import SCHEMA_VERSION
from tests.publicengine import PUBLIC, of_best, world
from tests.snapshots import OLD_BELIEFS, damaged, entry, old_snapshot, through_json


@pytest.fixture
def old() -> dict[str, Any]:
    return old_snapshot()


def test_a_snapshot_of_version_1_keeps_what_it_believed(old: dict[str, Any]) -> None:
    """Acceptance length and step time within 2 %; it explores on with the same account, and is of today's version."""
    restored = Controller.restore(old, PUBLIC)
    for batch, believed in OLD_BELIEFS.items():
        for b in restored.belief(batch):
            assert (b.al, b.itl_ms) == pytest.approx(believed[b.k], rel=0.02)
    assert restored.ledger == {name: old["planner"]["ledger"][name] for name in restored.ledger}
    assert restored.counters == old["counters"] | {"weights_changed": 0, "timing_untrusted": 0}
    assert (restored.identity, restored.settings.budget) == ({}, 0.2)
    snapshot = restored.snapshot()
    assert snapshot["schema_version"] == SCHEMA_VERSION
    assert Controller.restore(through_json(snapshot), PUBLIC).snapshot() == snapshot


def test_a_snapshot_of_version_1_begins_no_step_that_was_under_way(old: dict[str, Any]) -> None:
    """The visit is over and the open decision is gone: it was another process. Then it goes on well."""
    restored = Controller.restore(old, PUBLIC)
    assert restored.snapshot()["open"] == []
    assert not restored._planner.visit_scheduled
    assert of_best(simulate(world(300, 16, 0.37), restored)) > 0.97


def test_what_version_1_did_not_know_is_fresh_and_what_is_unknown_is_dropped(old: dict[str, Any]) -> None:
    """At any depth."""
    fresh = Controller(PUBLIC, arms=(0, 3)).snapshot()
    for path in [("load", "still"), ("planner", "ledger", "purse_ms"), ("acceptance", "alarms")]:
        restored = Controller.restore(damaged(old, path, ...), PUBLIC)
        assert entry(restored.snapshot(), path) == entry(fresh, path)
    more = damaged(damaged(old, ("gone",), 1), ("load", "gone"), [1])
    assert Controller.restore(more, PUBLIC).snapshot() == Controller.restore(old, PUBLIC).snapshot()


def test_a_snapshot_of_version_1_is_refused_where_it_must_be(old: dict[str, Any]) -> None:
    """Another table, other arms, no arms, numbers that are none."""
    for broken, table, config in [
        (old, None, None),
        (old, PUBLIC, Settings(arms=(0, 1))),
        (damaged(old, ("arms",), ...), PUBLIC, None),
        (damaged(old, ("arms",), [0, 10**9]), PUBLIC, None),
        (damaged(old, ("acceptance",), ...), PUBLIC, None),
        (damaged(old, ("acceptance", "beta", 0), math.nan), PUBLIC, None),
        (damaged(old, ("latency", "cov", 0, 0), math.inf), PUBLIC, None),
        (damaged(old, ("random", 1), "text"), PUBLIC, None),
    ]:
        with pytest.raises(ValueError, match=r"\w"):
            Controller.restore(broken, table, config)
