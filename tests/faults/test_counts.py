"""Counts that cannot be: the controller stays upright, and once they are over it plays what its twin plays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from adaptk import Controller, StepRecord
from adaptk.step import LARGEST_COUNT
from tests.faults.meddling import BATCH, END, STEPS, run, share, twins_share, while_it_lasts
from tests.publicengine import PUBLIC

AGAIN = 800  # steps after which a fault that lasted 200 is made good


def drafts(record: StepRecord, drafted: list[int], accepted: list[int]) -> StepRecord:
    return replace(record, drafted=drafted, accepted=accepted)


def ragged(record: StepRecord) -> StepRecord:
    """Whatever was asked for, each request has some number of drafts up to 8, of which some are accepted."""
    rng = np.random.default_rng(record.context_tokens)
    drafted = [int(d) for d in rng.integers(0, 9, record.batch_size)]
    return drafts(record, drafted, [int(rng.integers(0, d + 1)) for d in drafted])


def none(record: StepRecord) -> list[int]:
    return [0] * record.batch_size


WRONG: dict[str, Callable[[StepRecord], StepRecord]] = {
    "no tokens": lambda r: replace(drafts(r, none(r), none(r)), emitted=none(r)),
    "no entries": lambda r: replace(r, drafted=[], accepted=[], emitted=None, decodes=0, elapsed_ms=None),
    "a million requests": lambda r: replace(r, batch_size=10**6, decodes=None),
    "as many as a count holds": lambda r: replace(r, batch_size=LARGEST_COUNT - 1, decodes=None),
    "context beyond all memory": lambda r: replace(r, context_tokens=LARGEST_COUNT - 1),
    "a prompt beyond all memory": lambda r: replace(r, prefill_tokens=LARGEST_COUNT - 1),
    "drafts of other lengths": ragged,
    "drafts beyond every arm": lambda r: drafts(r, [40] * r.batch_size, none(r)),
    "no drafts": lambda r: drafts(r, none(r), none(r)),
    "no draft accepted": lambda r: drafts(r, list(r.drafted), none(r)),
    "every draft accepted": lambda r: drafts(r, list(r.drafted), list(r.drafted)),
    "a K that nobody chose": lambda r: replace(r, k=7),
}


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_records_that_are_wrong_for_a_while(wrong: Callable[[StepRecord], StepRecord], table: bool) -> None:
    """For 200 steps: within 800 more what is played is worth what the twin has, but for 2 %; every step is counted."""
    met, controller = run(while_it_lasts(wrong), table=table, seed=0)
    assert share(met, END + AGAIN) > twins_share(table, 0, END + AGAIN) - 0.02
    assert controller.counters["steps"] == STEPS


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("end", [END, 1000])
@pytest.mark.parametrize("batch", [BATCH, 64])
def test_answers_end_at_their_first_token_for_a_while(batch: int, end: int, table: bool) -> None:
    """So that no draft is worth anything, for 200 or 500 steps: 800 later the goodput is the twin's, but for 2 %.

    With K=0 meanwhile, no step shows whether outputs still end so soon.
    """
    met, _ = run(
        while_it_lasts(lambda r: replace(r, emitted=[1] * r.batch_size), end), table=table, seed=0, batch=batch
    )
    assert share(met, end + AGAIN) > twins_share(table, 0, end + AGAIN, batch) - 0.02


@pytest.mark.parametrize("batch", [BATCH * 1000, 10**6, 10**9, LARGEST_COUNT, 10**30])
def test_a_batch_beyond_everything(batch: int) -> None:
    """Far over max_num_seqs an arm is chosen, beliefs can be asked for, and steps of before are played as before."""
    (_, controller), (_, twin) = (run(lambda _, record: record, table=True, seed=0) for _ in range(2))
    assert controller.choose(batch, context_tokens=batch) in controller.arms
    seen = min(batch, LARGEST_COUNT - 1)
    controller.observe(StepRecord(batch_size=seen, elapsed_ms=None, k=0, drafted=[], accepted=[], decodes=0))
    assert all(0.0 < belief.goodput < float("inf") for belief in controller.belief(seen))
    assert played(controller, 100)[50:] == played(twin, 100)[50:]


def played(controller: Controller, steps: int) -> list[int]:
    """What is chosen for the usual batch, of which nothing is reported."""
    ks = []
    for _ in range(steps):
        ks.append(controller.choose(BATCH))
        controller.observe(StepRecord(batch_size=BATCH, elapsed_ms=None, k=0, drafted=[], accepted=[], decodes=0))
    return ks


def test_an_empty_batch_is_no_step() -> None:
    """Batch 0 gives K=0, is no decision and is not learnt from."""
    controller = Controller(PUBLIC, seed=0)
    before = controller.snapshot()
    assert controller.choose(0) == 0
    assert controller.observe(StepRecord(batch_size=0, elapsed_ms=9.0, k=3, drafted=[], accepted=[])) is None
    assert controller.snapshot() == before


@pytest.mark.parametrize(
    ("drafted", "accepted"), [([3], [4]), ([3], [-1]), ([0], [1]), ([3, 3], [3]), ([-2], [-3]), ([LARGEST_COUNT], [0])]
)
def test_acceptance_over_the_drafts_is_no_record(drafted: list[int], accepted: list[int]) -> None:
    """Nothing of the kind can reach a controller: the record is refused, by name and with its value."""
    with pytest.raises(ValueError, match=r"accepted|drafted"):
        StepRecord(batch_size=1, elapsed_ms=9.0, k=3, drafted=drafted, accepted=accepted)
