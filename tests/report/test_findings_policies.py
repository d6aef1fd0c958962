"""What other policies would have done: valued where the recording allows it, simulated where their cost is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.decision import Reason
from adaptk.report import policies
from adaptk.report.analysis import analyse
from adaptk.report.findings import Findings, PolicyValue
from tests.replay.recordings import decision, record, step, write
from tests.replay.traces.test_traced import InTurn, requests, world
from tests.report.worlds import shadow


def by_name(values: list[PolicyValue]) -> dict[str, PolicyValue]:
    return {value.policy: value for value in values}


class TestOffPolicy:
    def test_shadow_has_no_propensity(self, tmp_path: Path) -> None:
        """Decided and played differ: every estimate is refused with that reason."""
        rows = [(step([3], [1]), decision(1, seq=n)) for n in range(100)]
        values = analyse([write(tmp_path / "t.jsonl", rows)], simulate=False).off_policy
        assert values
        assert all(value.tokens_per_s is None and "in shadow the engine's own K" in value.reason for value in values)

    def test_a_trace_without_decisions(self, tmp_path: Path) -> None:
        values = analyse([shadow(tmp_path / "t.jsonl", steps=100).path], simulate=False).off_policy
        assert {value.reason for value in values} == {"the trace holds no decisions"}

    def test_a_fair_coin_values_both_arms(self, tmp_path: Path) -> None:
        """K=3 gives 3 tokens in 12 ms, K=0 one in 10 ms: 250 and 100 tokens per second; of K=1 it says nothing."""
        rows = []
        for n in range(800):
            k, before = 3 * (n % 2), 3 * ((n + 1) % 2)
            # Drafts of the decision before, made and verified within the step (runner V2): each time is one arm's.
            row = step([before], [before * 2 // 3], k=k, draft_k=before, elapsed_ms=10.0 + 2.0 * before / 3)
            rows.append((row, decision(k, (0, 1, 3), seq=n, propensity=0.5, reason=Reason.EXPLORE)))
        values = by_name(analyse([write(tmp_path / "t.jsonl", rows)], simulate=False).off_policy)
        for name, speed in (("fixed-3", 250.0), ("fixed-0", 100.0)):
            found = values[name].tokens_per_s
            assert found is not None
            assert found.value == pytest.approx(speed, rel=0.01)
            assert found.low <= found.value <= found.high
        assert values["fixed-1"].reason == "K=1 could not have been played in 799 of 799 steps"


class TestSimulation:
    @pytest.fixture(scope="class")
    def findings(self, tmp_path_factory: pytest.TempPathFactory) -> Findings:
        path = tmp_path_factory.mktemp("trace") / "t.jsonl"
        record(path, world(requests(40), 8), InTurn())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(policies, "SEEDS", 2)
            return analyse([path])

    def test_it_tries_what_can_be_played(self, findings: Findings) -> None:
        simulation = findings.simulation
        assert simulation is not None
        names = [value.policy for value in simulation.policies]
        assert names[:2] == ["recorded", "schedule"]
        assert names[-2:] == ["adaptk", "oracle"]
        assert {"fixed-0", "fixed-1", "fixed-2", "fixed-3"} <= set(names)
        assert simulation.seeds == 2
        assert all(not note[0].islower() and note.endswith(".") for note in simulation.notes)

    def test_the_recorded_policy_is_as_quick_as_measured(self, findings: Findings) -> None:
        assert findings.simulation is not None
        recorded = by_name(findings.simulation.policies)["recorded"]
        assert recorded.tokens_per_s is not None
        assert recorded.tokens_per_s.value == pytest.approx(findings.simulation.measured_tokens_per_s, rel=0.06)
        assert recorded.over_recorded is not None
        assert recorded.over_recorded.value == 1.0

    def test_what_cannot_be_simulated_says_why_and_what_to_do(self, tmp_path: Path) -> None:
        """One K alone, no table: no simulation at all."""
        recorded = shadow(tmp_path / "t.jsonl", steps=200)
        simulation = analyse([recorded.path]).simulation
        assert simulation is not None
        assert simulation.policies == []
        assert simulation.reason.startswith("Only K=3 was played, which does not tell what another K costs")
        assert "give one with --table" in simulation.reason
        assert simulation.reason.endswith(".")

    def test_a_k_that_was_hardly_played_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(policies, "SEEDS", 1)
        steps = [step([1], [1], k=1)] * 60 + [step([3], [1], k=3)] * 60
        rows = [(row, decision(row.k, (0, 1, 3), seq=n)) for n, row in enumerate(steps)]
        simulation = analyse([write(tmp_path / "t.jsonl", rows)]).simulation
        assert simulation is not None
        missing = by_name(simulation.policies)["fixed-0"]
        assert missing.tokens_per_s is None
        assert missing.reason == "K=0 was never played: it is not simulated; give one with --table."

    def test_an_interrupt_keeps_the_rest(self, tmp_path: Path) -> None:
        """Stopped while simulating: the findings are there, and say that they were cut short."""
        path = tmp_path / "t.jsonl"
        record(path, world(requests(20), 8), InTurn())

        def stop(stage: str, share: float) -> None:
            if stage == "simulating":
                raise KeyboardInterrupt

        findings = analyse([path], progress=lambda stage, share: stop(stage, share))
        assert findings.cut_short
        assert findings.simulation is None
        assert findings.overview.steps > 0
