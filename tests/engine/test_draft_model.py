"""The real engine with the target as its own drafter: exactly K drafts, all of them accepted."""

from __future__ import annotations

from pathlib import Path

from tests.engine.driver import cycling
from tests.engine.engine import greedy, running, scheduler_of


def test_every_step_verifies_exactly_the_previous_decision(model: Path) -> None:
    """With a drafter that always finds K drafts, each width is the K decided one step before, no more and no less."""
    drafter = {"method": "draft_model", "model": str(model), "num_speculative_tokens": 3}
    with running(model, drafter, ADAPTK="on", ADAPTK_ARMS="0,1,3") as llm:
        steering = scheduler_of(llm).adaptk
        policy = steering.controller = cycling((3, 0, 1, 1, 3))
        # Few enough tokens that no request is cut at its end: the widths are then the decisions'.
        greedy(llm, ["hello hello", "one two three four"], 60)
        assert steering.faults == 0, steering.reason
        whole = [r for r in policy.records[1:] if r.batch_size == 2]
        for before, record in zip(policy.chosen, whole, strict=False):
            assert record.drafted == [before] * 2
            assert record.verified is None
        assert len(whole) > 15
        accepted = sum(map(sum, (r.accepted for r in policy.records)))
        drafted = sum(map(sum, (r.drafted for r in policy.records)))
        assert accepted > 0.95 * drafted > 0
