"""Every policy by name: it can be made and run wherever a scenario can stand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.evaluate import Bench
from adaptk.replay.registry import GREEDY, NO_DRAFTER, POLICIES, USUAL, entry, expand
from adaptk.replay.scenarios import Scenario, script
from adaptk.replay.simulator import World
from adaptk.replay.workload import Script
from adaptk.table import GoodputTable
from tests.replay.handmade import requests, surface, world

NAMES = expand(["all"], (0,))
STARTUP = surface().to_table(range(8), [0.7, 0.6, 0.5])
TIMED = surface().stretched(1.5).to_table((0, 1, 3, 7), [0.6])
SCHEDULE = GoodputTable.from_schedule([[1, 2, 3], [3, 8, 1]])


def mixed() -> Script:
    """Batches that move, prompts among decodes, and steps of prompts alone."""
    decodes = [(3, 8, 1, 0, 5)[s // 10 % 5] for s in range(120)]
    return script(120, decodes, joining=lambda s: (2, 40) if s // 10 % 5 in (2, 3) else (0, 0))


def scenario(table: GoodputTable | None, arms: tuple[int, ...], at: World) -> Scenario:
    return Scenario("short", "a short world", lambda seed: replace(at, seed=seed), table, STARTUP, arms, ())


SCRIPTED = world(mixed(), Drafter(profiles([0.7, 0.5]), supply=profiles([0.9])), engine={"runner": 2, "delay": 1})
QUEUE = world(requests([30] * 25, [12] * 25), Drafter(profiles([0.7])), engine={"max_tokens": 40, "kv_tokens": 150})
BOOTH = [
    pytest.param(TIMED, (0, 1, 3, 7), SCRIPTED, id="timed-script"),
    pytest.param(None, (0, 1, 3, 7), QUEUE, id="none-queue"),
    pytest.param(SCHEDULE, (0, 1, 3, 7), SCRIPTED, id="schedule-script"),
    pytest.param(SCHEDULE, (1, 3), QUEUE, id="schedule-without-k0"),
    pytest.param(TIMED, (0, 2, 5), SCRIPTED, id="arms-that-the-table-lacks"),
    pytest.param(TIMED, (0,), QUEUE, id="k0-only"),
    pytest.param(None, (1, 3), SCRIPTED, id="none-without-k0"),
]


@pytest.mark.parametrize(("table", "arms", "at"), BOOTH)
def test_every_policy_runs_everywhere(table: GoodputTable | None, arms: tuple[int, ...], at: World) -> None:
    bench = Bench(scenario(table, arms, at), 1)
    for name in POLICIES:
        found = bench.run(name, record=True)
        run, row = found.run, found.row
        allowed = {0} if name == NO_DRAFTER else set(arms)
        assert set(found.policy.arms) <= allowed, name
        assert set(run.k.tolist()) <= allowed, name
        assert len(run.rows) == len(run.k) > 0, name
        assert row.tokens == run.tokens.sum() > 0, name
        for figure in (row.tokens_per_s, row.oracle_ratio, row.table_ratio):
            assert np.isfinite(figure), name
            assert figure > 0, name


def test_a_load_of_prompts_alone_is_survived_by_all() -> None:
    at = world(script(60, [0] * 60, joining=lambda s: (3, 50)))
    bench = Bench(scenario(TIMED, (0, 1, 3, 7), at), 0)
    for name in POLICIES:
        row = bench.run(name).row
        assert (row.tokens, row.steps) == (0, 60), name


def test_names_are_unique_and_say_what_they_are() -> None:
    assert len({one.about for one in POLICIES.values()}) == len(POLICIES)
    assert set(USUAL) <= set(POLICIES)
    ablations = [name for name in POLICIES if name.startswith("adaptk")]
    assert len(ablations) == 12  # what is learnt: both, acceptance, time; draws or greedy; ledger or none
    assert "as shipped" in POLICIES["adaptk"].about


def test_an_unknown_name_has_a_hint() -> None:
    with pytest.raises(ValueError, match=r"policy 'turbo-spec' is unknown: did you mean turbospec\?"):
        entry("turbo-spec")
    with pytest.raises(ValueError, match=r"'xyzzy' is unknown: adaptk replay --list"):
        entry("xyzzy")
    with pytest.raises(ValueError, match=r"fixed-1x"):
        entry("fixed-1x")


def test_fixed_k_is_known_at_every_k_and_must_be_an_arm() -> None:
    assert entry("fixed-12").about == "K=12 at every step"
    with pytest.raises(ValueError, match=r"k is 2: give one of the arms \(0, 1, 3, 7\)"):
        Bench(scenario(TIMED, (0, 1, 3, 7), SCRIPTED), 0).run("fixed-2")


def test_groups_of_names_are_spelt_out_in_order_and_once() -> None:
    assert expand(["fixed", "oracle", "fixed-1"], (0, 1)) == ["fixed-0", "fixed-1", "oracle"]
    assert expand(["adaptk"], (0, 1)) == ["adaptk", GREEDY]
    assert expand(["usual"], (1, 3)) == [*USUAL, "fixed-1", "fixed-3"]
    assert expand(["all"], (0, 1)) == [*POLICIES, "fixed-0", "fixed-1"]
    with pytest.raises(ValueError, match="nobody"):
        expand(["oracle", "nobody"], (0,))


def test_every_name_of_all_is_known() -> None:
    assert [entry(name).about for name in NAMES]
