"""The brief profile: which steps count for a cell."""

from __future__ import annotations

from adaptk.demo import profile
from adaptk.demo.load import Phase
from adaptk.demo.measure import Run
from adaptk.demo.policies import ARMS, Policy
from adaptk.step import StepRecord


def _step(k: int, ms: float | None, drafted: list[int], accepted: list[int], prefill: int = 0) -> StepRecord:
    return StepRecord(
        batch_size=len(drafted), elapsed_ms=ms, k=k, drafted=drafted, accepted=accepted, prefill_tokens=prefill
    )


def test_cells_leave_out_changes_of_k_prefills_and_other_batches() -> None:
    """Of seven steps three are pure: two at K=1, with a median of 21 ms, and one at K=3."""
    records = [
        _step(1, 99.0, [0, 0], [0, 0], prefill=50),
        _step(1, 98.0, [1, 1], [0, 0]),  # the step before computed prompts
        _step(1, 20.0, [1, 1], [1, 0]),
        _step(1, 22.0, [1, 0], [1, 0]),
        _step(3, 97.0, [1, 1], [1, 1]),  # still verifies the drafts of K=1
        _step(3, 30.0, [3, 3], [3, 0]),
        _step(3, 96.0, [3], [3]),  # one request has finished
    ]
    assert profile.cells(records, 2) == [
        {"batch": 2, "k": 1, "itl_ms": 21.0, "context": None, "n": 2},
        {"batch": 2, "k": 3, "itl_ms": 30.0, "context": None, "n": 1},
    ]


class _Engine:
    """Step time 10 + K ms, and each draft accepted."""

    def run(self, phase: Phase, policy: Policy | None = None, max_steps: int | None = None) -> Run:
        assert policy is not None
        assert max_steps is not None
        batch = len(phase.requests)
        before = 0
        for step in range(max_steps):
            k = policy.choose(batch, None, batch)
            drafts = [before] * batch
            policy.observe(_step(k, 10.0 + before, drafts, drafts, prefill=100 if step == 0 else 0))
            before = k
        return Run([], "")

    def close(self) -> None: ...


def test_profile_measures_every_cell() -> None:
    """All arms at all batches, with the times and the acceptance of the engine."""
    seen: list[int] = []
    table = profile.profile(_Engine(), (1, 4), 2, seen.append)
    assert seen == [1, 4]
    assert {(row.batch, row.k): row.itl_ms for row in table.rows} == {(b, k): 10.0 + k for b in (1, 4) for k in ARMS}
    assert table.acceptance == (1.0,) * 7
    assert all(row.n is not None and row.n >= 2 * (profile.BLOCK - 1) - 1 for row in table.rows)
