"""What a step takes: worked out by hand for either runner, and what disturbs it."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Compilation, Drift, Noise
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import simulate
from adaptk.replay.surface import CostSurface
from tests.replay.handmade import ALWAYS, NEVER, Plays, draft_ms, played, requests, surface, verify_ms, world

KS = (3, 1, 0, 2, 2)
BEFORE = (0, *KS)


def test_runner_1_verifies_the_drafts_of_the_choice_before_and_makes_those_of_the_new_one() -> None:
    run, seen = played(world(script(5, 2)), *KS)
    by_hand = [verify_ms(2, before) + draft_ms(2, k) for before, k in zip(BEFORE, KS, strict=False)]
    assert run.elapsed.tolist() == by_hand
    assert by_hand[:2] == [12.0 + 2.0, 24.0 + 1.0]  # nothing to verify in the first step
    assert [record.elapsed_ms for record in seen] == by_hand
    assert [record.drafted for record in seen] == [[k, k] for k in BEFORE[:5]]
    assert [record.draft_k for record in seen] == [None] * 5


def test_runner_2_makes_the_drafts_of_the_step_before() -> None:
    run, seen = played(world(script(5, 2), engine={"runner": 2}), *KS)
    made = [0.0, *(draft_ms(2, k) for k in KS)]
    assert run.elapsed.tolist() == [verify_ms(2, k) + made[i] for i, k in enumerate(BEFORE[:5])]
    assert [record.draft_k for record in seen] == [0, 3, 1, 0, 2]
    assert [record.k for record in seen] == list(KS)


def test_both_runners_take_the_same_time_in_all_where_k_stays() -> None:
    first, second = (played(world(script(50, 2), engine={"runner": r}), 3)[0] for r in (1, 2))
    assert first.clock[-1] - second.clock[-1] == pytest.approx(draft_ms(2, 3))  # the last step's drafts


def test_the_expected_step_time_is_what_a_steady_step_takes() -> None:
    for k in (0, 1, 3, 7):
        run, _ = played(world(script(6, [1, 1, 4, 4, 4, 4]), ALWAYS), k)
        assert run.elapsed[[1, 4, 5]] == pytest.approx(run.itl[[1, 4, 5], k])
        assert run.itl[5, k] == verify_ms(4, k) + draft_ms(4, k)


def test_prompt_tokens_cost_by_the_token_and_once_by_the_step() -> None:
    joined = script(4, 2, joining=lambda s: (1, 6) if s == 2 else (0, 0))
    run, seen = played(world(joined), 1)
    plain = verify_ms(2, 1) + draft_ms(2, 1)
    assert run.elapsed[1:].tolist() == [plain, plain + 2.0 + 3.0, plain]
    assert run.itl[2, 1] == plain  # prompt tokens apart
    assert (seen[2].batch_size, seen[2].decodes, seen[2].prefill_tokens, seen[2].drafted) == (3, 2, 6, [1, 1, 0])


def test_a_step_of_prompt_tokens_alone_is_a_step_of_batch_0() -> None:
    run, seen = played(world(requests([6], [5])), 3)
    assert run.elapsed[0] == verify_ms(0, 0) + draft_ms(1, 3) + 2.0 + 3.0  # it drafts behind the prompt's end
    assert run.elapsed[1] == verify_ms(1, 3) + draft_ms(1, 3)
    assert (seen[0].decodes, seen[0].emitted, seen[1].drafted) == (0, [1], [3])
    assert np.all(run.itl[0] == 0)
    assert np.all(run.length[0] == 0)


def test_drift_moves_the_whole_step_and_the_part_that_drafts_add() -> None:
    drift = Drift(steps=(0, 2, 4), level=(1.0, 2.0, 1.0), k_factor=(1.0, 1.0, 3.0))
    run, _ = played(world(script(6, 2), drift=drift), 3)
    idle, added = verify_ms(2, 0) + draft_ms(2, 0), 12.0 + 1.5
    assert run.elapsed[1:] == pytest.approx([idle + added, *[2 * (idle + added)] * 2, *[idle + 3 * added] * 2])
    assert run.itl[1:, 3] == pytest.approx(run.elapsed[1:])
    assert run.itl[:, 0] == pytest.approx([idle, idle, 2 * idle, 2 * idle, idle, idle])


def test_drafts_take_as_long_as_the_step_that_they_are_made_in() -> None:
    slower = Drift(steps=(0, 2), level=(1.0, 2.0), k_factor=(1.0, 1.0))
    run, _ = played(world(script(4, 2), drift=slower, engine={"runner": 2}), 3)
    plain = verify_ms(2, 3) + draft_ms(2, 3)
    assert run.elapsed[1:].tolist() == [plain, 2 * plain, 2 * plain]


def test_steps_are_padded_to_the_next_size_and_fall_off_a_cliff() -> None:
    at = surface().padded([1, 2, 4, 8, 16], eager=2.0)
    times = [played(world(script(3, batch), surface=at), 3)[0].elapsed[2] - draft_ms(batch, 3) for batch in (2, 3, 4)]
    assert times == [verify_ms(2, 3), verify_ms(4, 3), verify_ms(4, 3)]  # 8, 12 and 16 tokens
    over = played(world(script(3, 5), surface=at), 3)[0].elapsed[2] - draft_ms(5, 3)
    assert over == 2.0 * verify_ms(5, 3)


@pytest.mark.parametrize("slope", [0.001, -0.001])
def test_context_counts_by_the_mean_per_request_with_either_sign(slope: float) -> None:
    plain = surface()
    levels = np.array([100.0, 1100.0])
    verify = np.stack([plain.verify_ms[0], plain.verify_ms[0] + 1000.0 * slope])
    at = CostSurface("context", levels, verify, plain.draft_ms)
    contexts = [50.0, 100.0, 350.0, 1100.0, 4000.0]
    run, seen = played(world(script(5, 2, context=lambda s: contexts[s]), surface=at), 0)
    assert run.elapsed - run.elapsed[0] == pytest.approx([0.0, 0.0, 250 * slope, 1000 * slope, 1000 * slope])
    assert run.itl[:, 0] == pytest.approx(run.elapsed)
    assert [record.context_tokens for record in seen] == [100, 200, 700, 2200, 8000]


def test_context_that_a_script_leaves_out_is_told_to_nobody() -> None:
    policy = Plays(0)
    simulate(world(script(3, 2)), policy)
    assert policy.asked == [(2, None, 2)] * 3
    assert [record.context_tokens for record in policy.seen] == [None] * 3


def test_drafts_short_of_k_cost_in_proportion_to_how_many_there_are() -> None:
    scarce = Drafter(profiles([0.5]), supply=profiles([0.6]))
    run, seen = played(world(script(60, 4), scarce), 3)
    widths = [sum(record.drafted) / 4 for record in seen]
    assert run.elapsed == pytest.approx([verify_ms(4, width) + draft_ms(4, 3) for width in widths])
    assert any(width % 1 for width in widths)


def test_the_first_steps_of_each_pair_of_k_and_padded_size_are_compiled_once() -> None:
    sizes = [3, 3, 4, 4, 5, 5, 8, 3, 3, 3]
    run, seen = played(world(script(10, sizes), compilation=Compilation(100.0, 1)), *[1] * 8, 0)
    # Tokens: 3 (k=0, size 4), 6 (8), 8 (8), 8, 10 (16), 10, 16 (16), 6 (8), 6 (8), 3 (k=0, size 4: met in step 0)
    assert run.compiled.tolist() == [100.0, 100.0, 0, 0, 100.0, 0, 0, 0, 0, 0]
    assert [record.elapsed_ms for record in seen] == run.elapsed.tolist()
    plain, _ = played(world(script(10, sizes)), *[1] * 8, 0)
    assert run.elapsed - plain.elapsed == pytest.approx(run.compiled)


def test_padded_sizes_are_in_tokens_not_requests() -> None:
    """At K=3 batches of 5, 6 and 7 have 20, 24 and 28 tokens, padded to 24, 24 and 32."""
    run, _ = played(world(script(6, [5, 5, 6, 7, 7, 6]), compilation=Compilation(100.0, 1)), 3)
    assert run.compiled[1:].tolist() == [100.0, 0.0, 100.0, 0.0, 0.0]


def test_several_steps_are_compiled_where_it_says_so_and_none_without_decodes() -> None:
    run, _ = played(world(script(6, 2), compilation=Compilation(50.0, 3)), 1)
    assert run.compiled.tolist() == [50.0, 50.0, 50.0, 50.0, 0.0, 0.0]  # one of K=0, three of K=1
    prompts, _ = played(world(requests([100], [1]), engine={"max_tokens": 10}, compilation=Compilation(50.0, 3)), 1)
    assert not prompts.compiled.any()


def test_what_a_script_adds_is_added_after_noise_and_drift() -> None:
    extra = np.array([0.0, 500.0])
    noisy = {"noise": Noise(0.2), "drift": Drift(level=(3.0,)), "seed": 5}
    with_it, _ = played(world(script(4, 2, extra_ms=extra), **noisy), 1)
    without, _ = played(world(script(4, 2), **noisy), 1)
    assert with_it.elapsed - without.elapsed == pytest.approx([0.0, 500.0, 0.0, 0.0])


def test_noise_belongs_to_the_step_not_to_the_policy() -> None:
    noise = Noise(0.1, correlation=0.5, stalls=0.1)
    ratios = []
    for k in (0, 3):
        run, _ = played(world(script(200, 2), noise=noise, seed=3), k)
        ratios.append(run.elapsed[1:] / run.itl[1:, k])
    assert ratios[0] == pytest.approx(ratios[1])
    other, _ = played(world(script(200, 2), noise=noise, seed=4), 3)
    assert not np.allclose(ratios[1], other.elapsed[1:] / other.itl[1:, 3])


def test_the_clock_adds_up_and_is_told_at_the_end_of_each_step() -> None:
    run, seen = played(world(script(5, 2)), *KS)
    assert run.clock == pytest.approx(np.cumsum(run.elapsed))
    assert [record.t_ms for record in seen] == run.clock.tolist()


def test_an_idle_engine_waits_for_the_next_arrival_outside_any_step() -> None:
    late = requests([1, 1], [2, 2], arrival_ms=[5.0, 1000.0])
    run, seen = played(world(late, NEVER), 0)
    step = verify_ms(1, 0) + draft_ms(1, 0)
    assert run.elapsed[[1, 3]].tolist() == [verify_ms(1, 0) + draft_ms(0, 0)] * 2
    assert step == run.itl[1, 0]
    assert run.clock[0] == 5.0 + run.elapsed[0]
    assert run.clock[2] == 1000.0 + run.elapsed[2]
    assert [record.t_ms for record in seen] == run.clock.tolist()  # the end of the step, not of the wait behind it
    assert run.ended_ms.tolist() == [run.clock[1], run.clock[3]]
