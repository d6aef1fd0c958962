"""Every case: adaptk and the oracle pass it, something worse does not, and the same seed gives the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from adaptk.decision import Decision
from adaptk.replay.cases import CASES
from adaptk.replay.measures import Judged
from adaptk.replay.policies.adaptive import Adaptive
from adaptk.replay.policies.base import Policy, Setup
from adaptk.replay.policies.bounds import Oracle
from adaptk.replay.policies.static import FixedK, StaticTable
from adaptk.replay.scenarios import Scenario, find, script
from adaptk.replay.simulator import simulate
from adaptk.step import StepRecord
from adaptk.table import GoodputTable

ALL = {scenario.name: scenario for scenario in CASES()}

# Where adaptk does not always pass: how many of the seeds 0 to 9 may fail, and what was measured.
KNOWN_MISSES = {"C01": (2, "5 of seeds 0 to 59: 5 or 6 switches from step 50 on, 4 are allowed")}


def set_up(scenario: Scenario, seed: int = 0) -> Setup:
    return Setup(scenario.table, scenario.startup, scenario.arms, seed)


def failed(scenario: Scenario, policy: Policy, seed: int = 0) -> list[str]:
    """The checks that do not hold of a policy's run."""
    run = simulate(scenario.world(seed), policy)
    static = StaticTable(set_up(scenario))
    judged = Judged(run, policy, np.array([static.choose(int(b)) for b in run.batch]))
    return [check.what for check in scenario.checks if not check.holds(judged)]


@pytest.mark.parametrize("name", sorted(ALL.keys() - KNOWN_MISSES.keys()))
def test_adaptk_passes(name: str) -> None:
    for seed in range(3):
        assert failed(ALL[name], Adaptive(set_up(ALL[name], seed)), seed) == [], f"seed {seed}"


@pytest.mark.parametrize("name", sorted(KNOWN_MISSES))
def test_adaptk_misses_no_more_than_known(name: str) -> None:
    most, measured = KNOWN_MISSES[name]
    found = [failed(ALL[name], Adaptive(set_up(ALL[name], seed)), seed) for seed in range(10)]
    misses = [checks for checks in found if checks]
    assert len(misses) <= most, f"{misses}; was {measured}"


@pytest.mark.parametrize("name", sorted(ALL))
def test_oracle_passes(name: str) -> None:
    assert failed(ALL[name], Oracle(set_up(ALL[name]))) == []


WORSE: dict[str, Callable[[Setup], Policy]] = {
    "C01": StaticTable,
    "C02": StaticTable,
    "C03": lambda setup: StaticTable(setup, GoodputTable.from_schedule([[1, 32, 3], [33, 64, 1]])),
    "C04-boot": lambda setup: FixedK(setup, 1),
    "C04-shape": lambda setup: FixedK(setup, 1),
    "C05-async": lambda setup: FixedK(setup, 5),
    "C05-v2": lambda setup: FixedK(setup, 0),
    "C08": StaticTable,
    "C10": StaticTable,
    "C12a-context": StaticTable,
    "C12a-flat": StaticTable,
    "C13": lambda setup: FixedK(setup, 3),
    "C14": StaticTable,
    "C15": lambda setup: FixedK(setup, 3),
    "C19": lambda setup: FixedK(setup, 0),
    "C21": lambda setup: FixedK(setup._replace(arms=(0, 1, 2, 3)), 2),
    "C24": lambda setup: StaticTable(setup, GoodputTable.from_schedule([[1, 63, 3], [64, 256, 1]])),
    "C26": StaticTable,
    "C27": lambda setup: FixedK(setup, 1),
    "C29-1": lambda setup: FixedK(setup, 1),
    "C29-16": lambda setup: FixedK(setup, 1),
    "C34a": StaticTable,
    "C34b": lambda setup: FixedK(setup, 3),
    "P32374-1": lambda setup: FixedK(setup, 5),
    "P32374-4": lambda setup: FixedK(setup, 1),
    "P32374-16": lambda setup: FixedK(setup, 5),
    "P32374-64": lambda setup: FixedK(setup, 3),
    "P32374-256": lambda setup: FixedK(setup, 1),
}


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_worse_policy_does_not(name: str) -> None:
    assert failed(ALL[name], WORSE[name](set_up(ALL[name]))) != []


class Misled(Adaptive):
    """adaptk fed with records that say something else than what happened."""

    def __init__(self, setup: Setup, lie: Callable[[StepRecord], StepRecord]) -> None:
        super().__init__(setup)
        self._lie = lie

    def observe(self, record: StepRecord) -> Decision | None:
        return super().observe(self._lie(record))


def prompts_smeared(record: StepRecord) -> StepRecord:
    """What prompt tokens take is spread over all steps."""
    return msgspec.structs.replace(record, elapsed_ms=1.6 * (record.elapsed_ms or 0.0), prefill_tokens=0)


def absent_as_rejected(record: StepRecord) -> StepRecord:
    return msgspec.structs.replace(record, drafted=[max(record.drafted)] * len(record.drafted))


def unacknowledged(record: StepRecord) -> StepRecord:
    return msgspec.structs.replace(record, accepted=[min(1, d) for d in record.drafted])


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("C02", prompts_smeared),
        ("C03", prompts_smeared),
        ("C04-boot", prompts_smeared),
        ("C24", prompts_smeared),
        ("C19", absent_as_rejected),
        ("C26", unacknowledged),
        ("C27", absent_as_rejected),
    ],
)
def test_wrong_records_are_seen_in_what_is_believed(name: str, lie: Callable[[StepRecord], StepRecord]) -> None:
    """Checks on beliefs can fail: with records in which a step's time or drafts are booked wrongly they do."""
    said = failed(ALL[name], Misled(set_up(ALL[name]), lie))
    assert any("believed" in what or "counter" in what for what in said), said


class Alternating(Adaptive):
    """adaptk whose decisions are overruled: 5, 0, 5, 0, ..."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._next = 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        super().choose(batch_size, context_tokens, decodes)
        self._next = 5 - self._next
        return self._next


def five_everywhere(record: StepRecord) -> StepRecord:
    """A step is credited with five drafts even where the decision before was K=0."""
    return msgspec.structs.replace(record, drafted=[5] * len(record.drafted), k=5)


class MisledAlternating(Misled, Alternating):
    """Both."""


@pytest.mark.parametrize("name", ["C05-async", "C05-v2"])
def test_acceptance_is_learnt_where_k_alternates_at_every_step(name: str) -> None:
    said = failed(ALL[name], Alternating(set_up(ALL[name])))
    assert not any("believed" in what for what in said), said
    assert said, "K is not the right one, as the decisions were overruled"
    said = failed(ALL[name], MisledAlternating(set_up(ALL[name]), five_everywhere))
    assert any("believed" in what for what in said), said


@pytest.mark.parametrize("name", sorted(ALL))
def test_same_seed_same_run(name: str) -> None:
    scenario, steps = ALL[name], 300
    runs = [simulate(replace(scenario.world(4), steps=steps), Adaptive(set_up(scenario, 4))) for _ in range(2)]
    assert len(runs[0].k) == steps
    assert runs[0].k.tolist() == runs[1].k.tolist()
    assert runs[0].elapsed.tolist() == runs[1].elapsed.tolist()
    other = simulate(replace(scenario.world(5), steps=steps), Adaptive(set_up(scenario, 5)))
    assert other.elapsed.tolist() != runs[0].elapsed.tolist()


def test_oracle_at_the_printed_batch_sizes() -> None:
    found = []
    for batch in (1, 4, 16, 64, 256):
        scenario = ALL[f"P32374-{batch}"]
        run = simulate(scenario.world(0), Oracle(set_up(scenario)))
        found.append(set(run.k.tolist()))
    assert found == [{3}, {3}, {3}, {1}, {0}]


def test_every_report_about_the_controller_has_its_case() -> None:
    reports = {name.partition("-")[0] for name in ALL}
    assert reports == {
        *("C01", "C02", "C03", "C04", "C05", "C08", "C10", "C12a", "C13", "C14", "C15", "C19"),
        *("C21", "C24", "C26", "C27", "C29", "C34a", "C34b", "P32374"),
    }
    assert len(ALL) == len(CASES())
    assert find("c04-BOOT").name == "C04-boot"


def test_a_schedule_is_looked_up_as_vllm_does() -> None:
    """C31: a gap belongs to the range before it, and the last K is carried beyond the end."""
    scenario = ALL["P32374-1"]
    table = GoodputTable.from_schedule([[1, 16, 3], [32, 128, 1]])
    world = replace(scenario.world(0), load=script(256, lambda s: s + 1), steps=256)
    run = simulate(world, StaticTable(set_up(scenario), table))
    assert run.batch.tolist() == list(range(1, 257))
    assert run.k.tolist() == [3] * 31 + [1] * 225
