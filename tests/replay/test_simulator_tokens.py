"""Which drafts are accepted: by the token, as often as the profile says, alike for every policy."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from adaptk.replay.compiled.text import uniform
from adaptk.replay.drafter import COLD_AFTER, HIT, MISS, UNKNOWN, Drafter, lengths, profiles
from adaptk.replay.scenarios import script
from adaptk.replay.simulator import Run, simulate
from adaptk.step import StepRecord
from tests.replay.handmade import ALWAYS, NEVER, Plays, played, requests, surface, world

SIGMAS = 4.5  # of a binomial share: about one false alarm in 150,000
PROFILE = (0.8, 0.6, 0.5, 0.3, 0.9)


def reached(seen: list[StepRecord], positions: int) -> tuple[list[int], list[int]]:
    """How often each draft position was tried with all before it accepted, and how often it was accepted."""
    tried, hit = [0] * positions, [0] * positions
    for record in seen:
        for drafted, accepted in zip(record.drafted, record.accepted, strict=True):
            for j in range(min(accepted + 1, drafted)):
                tried[j] += 1
                hit[j] += accepted > j
    return tried, hit


def assert_share(hits: int, tries: int, p: float) -> None:
    assert tries > 300
    assert abs(hits / tries - p) < SIGMAS * math.sqrt(p * (1 - p) / tries)


def stream(record_list: list[StepRecord]) -> list[int]:
    """Tokens emitted per step by a batch of one."""
    return [(record.emitted or [0])[0] for record in record_list]


def test_positions_are_accepted_as_often_as_the_profile_says() -> None:
    _, seen = played(world(script(3000, 8), Drafter(profiles(PROFILE, k_max=5)), seed=1), 5)
    for j, (tries, hits) in enumerate(zip(*reached(seen, 5), strict=True)):
        assert_share(hits, tries, PROFILE[j])


@pytest.mark.parametrize("k", [0, 1, 3, 5])
def test_tokens_per_step_are_the_acceptance_length(k: int) -> None:
    run, _ = played(world(script(2000, 8), Drafter(profiles(PROFILE, k_max=5)), seed=2), k)
    expected = lengths(PROFILE)[k]
    assert run.length[:, k] == pytest.approx(expected)
    tokens = run.tokens[1:] / 8
    # The standard error of the mean from the run itself, plus nothing: 16,000 request steps.
    assert abs(tokens.mean() - expected) <= SIGMAS * tokens.std() / math.sqrt(len(tokens)) + 1e-12


def test_steps_are_independent_of_each_other_and_requests_too() -> None:
    """Autocorrelation over steps and correlation between two requests, bound ``SIGMAS``/√n."""
    _, seen = played(world(script(4000, 2), Drafter(profiles([0.6])), seed=3), 1)
    accepted = np.array([record.accepted for record in seen[1:]], dtype=float)
    bound = SIGMAS / math.sqrt(len(accepted))
    assert abs(np.corrcoef(accepted[:, 0], accepted[:, 1])[0, 1]) < bound
    for lag in (1, 2, 3):
        assert abs(np.corrcoef(accepted[lag:, 0], accepted[:-lag, 0])[0, 1]) < bound


def test_numbers_are_even_and_streams_requests_tokens_and_seeds_unrelated() -> None:
    """Chi-square over 64 cells (63 ± 11.2, bound 63 + 5·11.2) and correlations, bound ``SIGMAS``/√n."""
    at = range(4096)
    families = {
        "token": [uniform(0, 1, 5, i) for i in at],
        "next token": [uniform(0, 1, 5, i + 1) for i in at],
        "request": [uniform(0, 1, i, 5) for i in at],
        "swapped": [uniform(0, 1, i, 6) for i in at],
        "segment": [uniform(0, 2, 5, i) for i in at],
        "supply": [uniform(0, 3, 5, i) for i in at],
        "seed": [uniform(1, 1, 5, i) for i in at],
        "seeds": [uniform(i, 1, 5, 5) for i in at],
        "large": [uniform(2**40 + 1, 1, 2**33, i) for i in at],
    }
    for numbers in families.values():
        assert 0.0 <= min(numbers) < max(numbers) < 1.0
        counts = np.bincount((64 * np.array(numbers)).astype(int), minlength=64)
        assert float(np.sum((counts - 64.0) ** 2 / 64.0)) < 63 + 5 * 11.2
    off = np.corrcoef(list(families.values())) - np.eye(len(families))
    assert np.abs(off).max() < SIGMAS / math.sqrt(4096)


def test_a_token_has_the_same_fate_whatever_was_drafted_before_it() -> None:
    """With one profile for all depths a token is accepted or not: each policy's steps must agree on every token."""
    load = requests([1], [600])
    fates: dict[int, bool] = {}
    agreed = 0
    for ks in ((1,), (2,), (7,), (3, 1, 0, 5)):
        _, seen = played(world(load, Drafter(profiles([0.7])), seed=4), *ks * 200)
        cursor = 0
        for record in seen:
            for j in range(min(record.accepted[0] + 1, record.drafted[0])):
                fate = record.accepted[0] > j
                agreed += cursor + j in fates
                assert fates.setdefault(cursor + j, fate) is fate
            cursor += (record.emitted or [0])[0]
        assert cursor == 600
    assert agreed > 500
    assert 0.6 < np.mean(list(fates.values())) < 0.8


def test_a_deeper_position_accepts_no_token_that_a_more_likely_one_refuses() -> None:
    """The number of a token is compared with the acceptance of its depth: 0.9 at the first, 0.2 behind."""
    load, drafter = requests([1], [800]), Drafter(profiles([0.9, 0.2]))
    first: dict[int, bool] = {}
    deep: dict[int, bool] = {}
    for k in (1, 2):
        _, seen = played(world(load, drafter, seed=5), k)
        cursor = 0
        for record in seen:
            for j in range(min(record.accepted[0] + 1, record.drafted[0])):
                (first if j == 0 else deep)[cursor + j] = record.accepted[0] > j
            cursor += (record.emitted or [0])[0]
    both = first.keys() & deep.keys()
    assert len(both) > 50
    assert all(first[token] for token in both if deep[token])


def known(*outcomes: int) -> np.ndarray:
    return np.array(outcomes, dtype=np.int8)


# Token 0 comes with the prompt; the outcomes of tokens 1 to 6 are the ones drafted.
CHAIN = known(UNKNOWN, HIT, HIT, HIT, MISS, HIT, MISS, UNKNOWN)


@pytest.mark.parametrize(
    ("k", "steps"),
    [
        # (drafted, accepted, emitted) per step, by hand: a step at token c drafts tokens c to c + k - 1.
        (1, [(0, 0, 1), (1, 1, 2), (1, 1, 2), (1, 1, 2), (1, 0, 1)]),  # at 1, 3, 5, 7
        (2, [(0, 0, 1), (2, 2, 3), (2, 0, 1), (2, 1, 2), (2, 0, 1)]),  # at 1, 4, 5, 7
        (3, [(0, 0, 1), (3, 3, 4), (3, 1, 2), (3, 0, 1)]),  # at 1, 5, 7
        (5, [(0, 0, 1), (5, 3, 4), (5, 1, 2), (5, 0, 1)]),
    ],
)
def test_known_outcomes_replay_exactly_for_every_k(k: int, steps: list[tuple[int, int, int]]) -> None:
    # A drafter that accepts nothing: what is not known, the last token, is refused.
    _, seen = played(world(requests([3], [8], known=CHAIN), NEVER), k)
    assert [(r.drafted[0], r.accepted[0], (r.emitted or [0])[0]) for r in seen] == steps


def test_known_outcomes_of_several_requests_are_not_mixed_up() -> None:
    outcomes = known(-1, 1, 0, -1, 0, 0, -1, 1, 1, 1)
    _, seen = played(world(requests([1, 1, 1], [3, 3, 4], known=outcomes), NEVER), 3)
    assert [record.accepted for record in seen] == [[0, 0, 0], [1, 0, 3], [0]]


def test_unknown_outcomes_are_drawn_from_the_drafter() -> None:
    none = np.full(4000, UNKNOWN, dtype=np.int8)
    drafter = Drafter(profiles([0.6]))
    with_it, _ = played(world(requests([1], [4000], known=none), drafter), 3)
    without, _ = played(world(requests([1], [4000]), drafter), 3)
    assert with_it.tokens.tolist() == without.tokens.tolist()


def test_a_recorded_run_at_the_largest_k_replays_itself() -> None:
    """What a run at K=7 shows of its tokens, given as known outcomes, gives that run again under another drafter."""
    load, truth = requests([1], [300]), Drafter(profiles([0.75, 0.6]))
    _, recorded = played(world(load, truth, seed=6), 7)
    outcomes = np.full(300, UNKNOWN, dtype=np.int8)
    cursor = 0
    for record in recorded:
        for j in range(min(record.accepted[0] + 1, record.drafted[0])):
            if cursor + j < 300:
                outcomes[cursor + j] = HIT if record.accepted[0] > j else MISS
        cursor += (record.emitted or [0])[0]
    _, again = played(world(requests([1], [300], known=outcomes), NEVER, seed=99), 7)
    assert stream(again) == stream(recorded)


def test_a_spell_without_drafts_leaves_the_drafter_cold_and_it_warms_up() -> None:
    cold = Drafter(profiles([1.0]), cold=0.5, cold_steps=4.0)
    ks = [3] * 4 + [0] * COLD_AFTER + [3] * 30
    run, _ = played(world(script(len(ks), 4), cold), *ks)
    assert np.all(run.length_now[: 4 + COLD_AFTER, 1] == 2.0)
    warm = 1.0 - 0.5 * np.exp(-np.arange(30) / 4.0)
    assert run.length_now[4 + COLD_AFTER :, 1] - 1.0 == pytest.approx(warm)
    assert np.all(run.length[:, 1] == 2.0)


def test_a_short_spell_without_drafts_leaves_no_trace() -> None:
    ks = ([0] * (COLD_AFTER - 1) + [3]) * 5
    run, _ = played(world(script(len(ks), 4), Drafter(profiles([1.0]), cold=0.9)), *ks)
    assert np.all(run.length_now == run.length)


def test_a_cold_drafter_is_accepted_less_by_that_share() -> None:
    """Cold for good (it warms over 10^9 steps): 0.8 becomes 0.4."""
    cold = Drafter(profiles([0.8]), cold=0.5, cold_steps=1e9)
    _, seen = played(world(script(500, 8), cold, seed=7), *[0] * COLD_AFTER, 1)
    tried, hit = reached(seen, 1)
    assert_share(hit[0], tried[0], 0.4)


def test_a_scarce_drafter_returns_what_its_supply_says_and_the_rest_is_accepted_as_ever() -> None:
    supply = (0.9, 0.7, 0.5)
    scarce = Drafter(profiles(PROFILE, k_max=5), supply=profiles(supply, k_max=5))
    run, seen = played(world(script(2000, 8), scarce, seed=8), 3)
    counts = np.bincount([d for record in seen[1:] for d in record.drafted], minlength=4)
    left = counts[::-1].cumsum()[::-1]
    for j in range(3):
        assert_share(int(left[j + 1]), int(left[j]), supply[j])
    for j, (tries, hits) in enumerate(zip(*reached(seen, 3), strict=True)):
        assert_share(hits, tries, PROFILE[j])
    together = [a * s for a, s in zip(PROFILE, supply, strict=False)]
    assert run.length[5, :4] == pytest.approx(lengths(together))


def test_supply_of_nothing_drafts_nothing() -> None:
    none = Drafter(profiles([0.9]), supply=profiles([0.0]))
    run, seen = played(world(script(5, 2), none), 3)
    assert [record.drafted for record in seen] == [[0, 0]] * 5
    assert np.all(run.length == 1.0)
    assert np.all(run.itl[:, 3] == run.itl[:, 0] + 0.75 + 0.75)  # nothing to verify, the drafter runs all the same


def test_kinds_of_text_have_their_own_acceptance() -> None:
    two = Drafter(profiles([1.0], [0.0]))
    _, seen = played(world(requests([1, 1], [20, 20], kind=[0, 1]), two), 3)
    assert [record.accepted for record in seen[1:5]] == [[3, 0]] * 4
    run, seen = played(world(script(4, 3, others=lambda s: 1, other_kind=1), two), 3)
    assert [record.accepted for record in seen[1:]] == [[0, 3, 3]] * 3
    assert run.length[0].tolist() == pytest.approx([(1 + 2 * (k + 1)) / 3 for k in range(8)])


def test_segments_are_mixed_as_often_as_they_should_and_hold_their_length() -> None:
    mixed = Drafter(profiles([1.0], [0.0]), mix=np.array([[0.7, 0.3], [0.0, 1.0]]), segment=10)
    _, seen = played(world(script(20_000, 1), mixed, seed=9), 1)
    # Two tokens a step in text of kind 0, one in kind 1: read the kind of every token that was drafted.
    kinds: dict[int, bool] = {}
    cursor = 0
    for record in seen[1:]:
        cursor += 1 if record is seen[1] else 0
        kinds[cursor] = record.accepted[0] == 1
        cursor += (record.emitted or [0])[0]
    segments: dict[int, set[bool]] = {}
    for token, hit in kinds.items():
        segments.setdefault(token // 10, set()).add(hit)
    assert all(len(found) == 1 for found in segments.values())
    assert_share(sum(True in found for found in segments.values()), len(segments), 0.7)


def test_requests_of_a_kind_that_is_not_mixed_keep_it() -> None:
    mixed = Drafter(profiles([1.0], [0.0]), mix=np.array([[0.5, 0.5], [0.0, 1.0]]), segment=10)
    _, seen = played(world(requests([1], [300], kind=[1]), mixed), 1)
    assert not any(record.accepted[0] for record in seen)


def test_seeds_differ_and_the_same_seed_does_not() -> None:
    def at(seed: int) -> Run:
        return played(world(script(50, 8), Drafter(profiles([0.6])), seed=seed), 3)[0]

    runs = [at(seed).tokens.tolist() for seed in range(8)]
    assert at(3).tokens.tolist() == runs[3]
    assert all(a != b for a, b in pairwise(runs))


def test_short_answers_have_their_mean_length_and_are_replaced() -> None:
    """Geometric with mean 6: a step at K=7 gives the lesser of 8 and what is left, 6·(1 - (5/6)^8) in the mean.

    Its deviation is below 2.7: bound ``SIGMAS``·2.7 / √steps. The truth does not say which answers are about to end.
    """
    run, _ = played(world(script(12_000, 1, output=6.0), Drafter(profiles([1.0]))), 7)
    expected = 6.0 * (1.0 - (5.0 / 6.0) ** 8)
    assert run.length[:, 7] == pytest.approx(expected)
    assert abs(run.tokens[1:].mean() - expected) < SIGMAS * 2.7 / math.sqrt(len(run.k))
    assert {1, 2, 7, 8} <= set(run.tokens.tolist())
    assert played(world(script(100, 1, output=6.0), Drafter(profiles([1.0]))), 0)[0].tokens.tolist() == [1] * 100


def test_where_answers_end_is_foreseen_only_from_how_long_answers_are() -> None:
    """Answers of 2 and 5 tokens, all drafts accepted: after its first token one in two goes on."""
    run, _ = played(world(requests([1, 1], [2, 5]), ALWAYS), 0)
    first = np.flatnonzero(run.decodes == 2)[0]  # both have emitted one token, with their prompts
    # One token is sure; a second, third and fourth come with probability 1/2: 1, 1.5, 2, 2.5 tokens, then no more.
    assert run.length[first].tolist() == [1.0, 1.5, 2.0, 2.5, 2.5, 2.5, 2.5, 2.5]
    assert run.length[first + 1].tolist() == [1.0, 2.0] + [3.0] * 6  # the longer one alone: 3 of 5 are left for sure


def test_what_is_expected_of_short_answers_is_what_comes() -> None:
    run, _ = played(world(script(4000, 8, output=6.0), Drafter(profiles([0.9])), seed=1), 3)
    assert run.elapsed[1:] == pytest.approx(run.itl[1:, 3])  # drafts of an answer that begins are paid for as well
    gap = run.tokens[1:] / 8 - run.length[1:, 3]
    assert abs(gap.mean()) < SIGMAS * gap.std() / math.sqrt(len(gap))


def test_drafts_of_one_world_do_not_depend_on_how_the_policy_is_asked() -> None:
    """A delay of feedback changes what a policy knows, never what happens under the same choices."""
    ks = [3, 1, 0, 7] * 20
    runs = [
        simulate(world(script(80, 8), Drafter(profiles([0.6])), engine={"delay": d}), Plays(*ks)) for d in (0, 1, 2)
    ]
    assert all(run.tokens.tolist() == runs[0].tokens.tolist() for run in runs)
    assert all(run.elapsed.tolist() == runs[0].elapsed.tolist() for run in runs)


def test_a_smaller_k_max_leaves_the_same_world() -> None:
    """What a policy could have drafted at most decides nothing but the room kept in the KV cache."""
    at = world(script(200, 4), Drafter(profiles(PROFILE, k_max=5)), surface=surface(k_max=7), seed=11)
    assert played(at, 3, k_max=3)[0].tokens.tolist() == played(at, 3, k_max=7)[0].tokens.tolist()
