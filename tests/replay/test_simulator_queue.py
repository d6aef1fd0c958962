"""Continuous batching: who runs when, what is conserved, and that it always ends."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.simulator import Engine, World, simulate
from adaptk.replay.workload import Requests
from adaptk.step import StepRecord
from tests.replay.handmade import ALWAYS, NEVER, QUIET, Plays, played, requests, surface, world

HALF = Drafter(profiles([0.5]))


def test_every_request_emits_its_answer_and_ends_once() -> None:
    outputs = [3, 9, 1, 17, 4, 8, 2, 11, 6, 5, 5, 30]
    run, seen = played(world(requests([7] * 12, outputs), HALF, engine={"max_requests": 4}), 3)
    assert run.tokens.sum() == sum(outputs)
    assert np.all(np.isfinite(run.ended_ms))
    assert set(run.ended_ms) <= set(run.clock)
    assert run.batch.max() == 4
    assert sum(sum(record.emitted or []) for record in seen) == sum(outputs)


def test_requests_are_served_in_order_as_places_become_free() -> None:
    run, seen = played(world(requests([1] * 4, [2, 4, 3, 2]), engine={"max_requests": 2}), 0)
    # Without drafts each step gives one token: 0 ends in step 1, 1 and 3 in step 3 and 6, 2 in step 4.
    assert run.batch.tolist() == [2, 2, 2, 2, 2, 1]
    assert run.prefill.tolist() == [2, 0, 1, 0, 1, 0]
    assert run.ended_ms.tolist() == [run.clock[1], run.clock[3], run.clock[4], run.clock[5]]
    assert [record.decodes for record in seen] == [0, 2, 1, 2, 1, 1]


def test_drafts_behind_an_answers_end_emit_nothing() -> None:
    run, seen = played(world(requests([1], [6]), ALWAYS), 3)
    assert [record.emitted for record in seen] == [[1], [4], [1]]
    assert [record.accepted for record in seen] == [[0], [3], [3]]
    assert run.length[1:, 3].tolist() == [4.0, 1.0]  # five left, then one


def test_a_long_prompt_is_computed_in_chunks_while_others_decode() -> None:
    run, seen = played(world(requests([1, 50], [20, 2]), NEVER, engine={"max_tokens": 16}), 3)
    # Step 0: 1 + 15 prompt tokens; then a decode with 3 drafts leaves 12 of the 16.
    assert run.prefill[:5].tolist() == [16, 12, 12, 11, 0]
    assert [record.emitted for record in seen[:6]] == [[1, 0], [1, 0], [1, 0], [1, 1], [1, 1], [1]]
    assert [record.drafted for record in seen[:5]] == [[0, 0], [3, 0], [3, 0], [3, 0], [3, 3]]
    assert [record.decodes for record in seen[:5]] == [0, 1, 1, 1, 2]
    assert [record.context_tokens for record in seen[:6]] == [0, 1 + 15, 2 + 27, 3 + 39, 4 + 50, 5]


def test_a_prompt_that_gets_no_token_of_a_step_is_not_in_its_batch() -> None:
    engine = {"max_tokens": 8, "max_requests": 4}
    policy = Plays(0, 7)
    run = simulate(world(requests([4, 12], [12, 1]), NEVER, engine=engine), policy)
    # The decode and its seven drafts fill the step; the second prompt has begun and waits.
    assert run.batch.tolist()[:4] == [2, 2, 1, 1]
    assert run.prefill.tolist()[:4] == [8, 7, 0, 0]
    assert [asked for asked, _, _ in policy.asked][:4] == [2, 2, 1, 1]
    assert np.all(np.isfinite(run.ended_ms))


def test_more_drafts_leave_less_room_for_prompts() -> None:
    load = requests([10] * 6, [10] * 6)
    for k in (0, 3, 7):
        run, seen = played(world(load, HALF, engine={"max_tokens": 48}), k)
        used = [sum(r.drafted) + (r.decodes or 0) + r.prefill_tokens for r in seen]
        assert max(used) <= 48
        assert run.prefill.sum() == 60


def test_a_full_kv_cache_sends_the_newest_back_and_its_tokens_are_computed_again() -> None:
    # Places: prompt + tokens so far + the room for eight drafts at most that vLLM reserves.
    load = requests([10, 10], [20, 20])
    run, seen = played(world(load, NEVER, engine={"kv_tokens": 44}), 0)
    # Before step n each holds 10 + n - 1 and eight: 44 in all before step 5, 46 before step 6.
    assert run.preempted == 1
    assert run.batch.tolist() == [2] * 6 + [1] * 28
    again = np.flatnonzero(run.prefill)
    assert run.prefill[again].tolist() == [20, 10 + 6]
    assert again[1] == 20  # when the first one has ended
    assert run.tokens.sum() == 40
    assert run.ended_ms[0] < run.ended_ms[1] == run.clock[-1]
    assert seen[again[1]].emitted == [1]
    assert seen[again[1] + 1].context_tokens == 16


def test_a_prompt_holds_its_whole_place_while_it_is_computed() -> None:
    load = requests([4, 20], [10, 1])
    run, _ = played(world(load, NEVER, engine={"kv_tokens": 40, "max_tokens": 8}), 0)
    # 4 + 8 and 20 + 8 fill the cache; a token more and the second goes back, with 11 of its prompt computed.
    assert run.batch.tolist()[:3] == [2, 2, 1]
    assert run.prefill.tolist()[:3] == [8, 7, 0]
    assert run.prefill.sum() == 4 + 11 + 20
    assert run.preempted == 1


def test_several_are_sent_back_newest_first_and_return_in_order() -> None:
    run, seen = played(world(requests([4, 4, 4], [30, 30, 30]), NEVER, engine={"kv_tokens": 60}), 0)
    # 3·(11 + n) > 60 before step 10, 2·(11 + n) > 60 before step 20; the first has ended with step 29.
    assert run.batch.tolist()[:32] == [3] * 10 + [2] * 10 + [1] * 10 + [2, 2]
    assert (run.prefill[30], seen[30].emitted) == (4 + 20 + 4 + 10, [1, 1])
    assert run.tokens.sum() == 90
    assert run.ended_ms[0] < run.ended_ms[1] < run.ended_ms[2]


def test_a_request_beyond_the_whole_kv_cache_runs_alone() -> None:
    run, _ = played(world(requests([5, 500, 5], [3, 3, 3]), engine={"kv_tokens": 64}), 0)
    assert np.all(np.isfinite(run.ended_ms))
    assert run.tokens.sum() == 9
    big = np.flatnonzero(run.prefill == 500)
    assert run.batch[big].tolist() == [1]


def test_rounds_wait_for_each_other() -> None:
    load = requests([1] * 5, [2, 9, 2, 3, 2], round=[0, 0, 1, 1, 4])
    run, _ = played(world(load), 0)
    assert run.batch.tolist() == [2, 2, *[1] * 7, 2, 2, 1, 1, 1]
    assert max(run.ended_ms[:2]) < min(run.ended_ms[2:4])
    assert max(run.ended_ms[2:4]) < run.ended_ms[4]


def test_a_request_may_wait_for_tokens_of_the_others() -> None:
    load = requests([1, 1, 1], [10, 5, 5], after_tokens=[0, 3, 12])
    run, _ = played(world(load), 0)
    # Emitted before each step: 0, 1, 2, 3 (the second comes), 5, 7, 9, 11, 13 (the third comes).
    assert run.batch.tolist()[:10] == [1, 1, 1, 2, 2, 2, 2, 2, 2, 2]
    assert np.flatnonzero(run.prefill).tolist() == [0, 3, 8]


def test_tokens_that_never_come_are_not_waited_for() -> None:
    run, _ = played(world(requests([1, 1, 1], [2, 2, 2], after_tokens=[0, 10**9, 10**9])), 0)
    assert run.batch.tolist() == [1] * 6
    assert np.all(np.isfinite(run.ended_ms))


def test_arrivals_are_admitted_at_the_first_step_behind_them() -> None:
    load = requests([1, 1, 1], [5, 5, 5], arrival_ms=[0.0, 15.0, 15.5])
    run, _ = played(world(load), 0)
    assert run.clock[:2] == pytest.approx([10.0 + 0.5 + 2.0 + 0.5, 13.0 + 11.5])
    assert run.batch.tolist()[:3] == [1, 1, 3]
    assert run.decodes.tolist()[:3] == [0, 1, 1]


def test_idle_time_is_in_no_step() -> None:
    load = requests([1] * 30, [2] * 30, arrival_ms=np.arange(30) * 500.0)
    run, seen = played(world(load), 0)
    assert run.elapsed.max() < 20.0
    assert run.clock[-1] > 29 * 500.0
    assert run.batch.tolist() == [1] * 60
    assert all(record.batch_size > 0 for record in seen)


def test_the_number_of_steps_is_a_limit_and_what_did_not_end_says_so() -> None:
    run, seen = played(world(requests([1, 1], [3, 50]), steps=10), 0)
    assert (len(run.k), len(seen)) == (10, 10)
    assert run.tokens.sum() == 3 + 10
    assert np.isnan(run.ended_ms).tolist() == [False, True]


@st.composite
def loads(draw: st.DrawFn) -> Requests:
    """Small loads with every rule of waiting."""
    entries = draw(st.integers(1, 10))

    def numbers(low: int, high: int) -> np.ndarray:
        return np.array(draw(st.lists(st.integers(low, high), min_size=entries, max_size=entries)))

    more: dict[str, Any] = {}
    if draw(st.booleans()):
        more["arrival_ms"] = np.sort(numbers(0, 600)).astype(float)
    if draw(st.booleans()):
        more["round"] = np.sort(numbers(0, 3))
    if draw(st.booleans()):
        more["after_tokens"] = np.sort(numbers(0, 60))
    if draw(st.booleans()):
        outputs = numbers(1, 20)
        known = draw(st.lists(st.integers(-1, 1), min_size=int(outputs.sum()), max_size=int(outputs.sum())))
        more["known"] = np.array(known, dtype=np.int8)
        return requests(numbers(1, 40), outputs, **more)
    return requests(numbers(1, 40), numbers(1, 20), **more)


engines = st.builds(
    Engine,
    max_requests=st.integers(1, 8),
    max_tokens=st.integers(1, 80),
    kv_tokens=st.integers(1, 200),
    runner=st.sampled_from([1, 2]),
    delay=st.integers(0, 2),
)
choices = st.lists(st.integers(0, 7), min_size=1, max_size=12)


@settings(max_examples=150)
@given(loads(), engines, choices, st.booleans(), st.integers(0, 99))
def test_any_load_ends_with_all_its_tokens_emitted(
    load: Requests, engine: Engine, ks: list[int], supply: bool, seed: int
) -> None:
    """The oldest request is never preempted, so that each step computes a token of its prompt or emits one."""
    drafter = Drafter(profiles([0.7]), supply=profiles([0.6]) if supply else None, cold=0.5)
    bound = int(np.sum(load.prompt + 2 * load.output))
    policy = Plays(*ks, *ks[::-1])
    run = simulate(World(surface(), drafter, load, bound, engine, QUIET, seed=seed), policy)
    assert np.all(np.isfinite(run.ended_ms))
    assert run.tokens.sum() == load.output.sum()
    assert np.all(run.ended_ms >= load.arrival_ms)
    assert run.prefill.sum() >= load.prompt.sum()
    assert (run.prefill.sum() > load.prompt.sum()) <= (run.preempted > 0)
    assert run.batch.min() >= 1
    assert run.batch.max() <= engine.max_requests
    decoded = [(record.decodes or 0) + sum(record.drafted) for record in policy.seen]
    assert all(p == 0 or p + d <= engine.max_tokens for p, d in zip(run.prefill.tolist(), decoded, strict=True))
    assert np.all(run.elapsed > 0)
    assert np.all(np.diff(run.clock) >= run.elapsed[1:] - 1e-6)
    if load.round is not None:
        for later in np.unique(load.round)[1:]:
            assert run.ended_ms[load.round < later].max() < run.ended_ms[load.round >= later].min()


@settings(max_examples=100)
@given(loads(), engines, choices, st.integers(0, 99))
def test_records_say_what_happened(load: Requests, engine: Engine, ks: list[int], seed: int) -> None:
    policy = Plays(*ks)
    drafter = Drafter(profiles([0.7]), supply=profiles([0.8]))
    run = simulate(World(surface(), drafter, load, 400, engine, QUIET, seed=seed), policy)
    assert len(policy.seen) == len(policy.asked) == len(run.k)
    before = 0
    for i, record in enumerate(policy.seen):
        assert record.batch_size == run.batch[i] == len(record.drafted) == policy.asked[i][0]
        assert record.decodes == run.decodes[i]
        assert record.decodes <= record.batch_size
        assert (record.decodes < record.batch_size) == (record.prefill_tokens > 0)
        emitted = record.emitted or []
        assert sum(emitted) == run.tokens[i]
        assert all(e <= a + 1 for e, a in zip(emitted, record.accepted, strict=True))
        assert sum(e > 0 for e in emitted) >= record.decodes
        assert max(record.drafted) <= before
        assert sum(d > 0 for d in record.drafted) <= record.decodes
        assert record.draft_k == (before if engine.runner == 2 else None)
        assert (record.k, record.elapsed_ms, record.t_ms) == (run.k[i], run.elapsed[i], run.clock[i])
        assert record.context_tokens == run.context[i] == policy.asked[i][1]
        # The simulator makes records without their checks: they must stand them, and hold plain numbers.
        assert StepRecord(**msgspec.structs.asdict(record)) == record
        assert msgspec.json.decode(msgspec.json.encode(record), type=StepRecord) == record
        before = record.k
