"""Which K where, worked out by hand: draws in, a schedule out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from adaptk.report.loads import Baseline, Groups
from adaptk.report.schedules import plan, written_out

ARMS = (0, 1, 3)
BASE = Baseline([[1, 64, 3], [65, 512, 1]], "your schedule", "Your schedule")


def load(edges: list[tuple[int, int]], ks: list[int]) -> Groups:
    """Groups of 100 steps of 10 ms each."""
    n = len(edges)
    first, last = (np.array(values) for values in zip(*edges, strict=True))
    return Groups(
        first, last, np.array(ks), first.astype(float), np.full(n, np.nan), np.full(n, 100), np.full(n, 1000.0),
        np.zeros(0, dtype=int),
    )  # fmt: skip


def by_own(groups: Groups) -> Any:
    """All steps played with the operator's K."""
    return groups.steps[:, None] * (groups.k_now[:, None] == np.array(ARMS))


def planned(speeds: list[list[float]], groups: Groups, grounds: Any = None, spread: float = 0.01) -> Any:
    """The plan where each group's arms have these goodputs at a step of 10 ms, known to ``spread``."""
    goodput = np.array(speeds)[None] * np.exp(np.random.default_rng(0).normal(0.0, spread, (1000, *np.shape(speeds))))
    logs = np.full(goodput.shape, np.log(10.0))
    grounds = grounds or [["measured"] * len(ARMS)] * len(groups)
    return plan(10.0 * goodput, logs, groups, by_own(groups), grounds, ARMS, 1000.0 * len(groups))


class TestPlan:
    def test_one_batch_size_apart_from_all_others_needs_strong_evidence(self) -> None:
        """Of 3 % at batch 4 alone the 95 % are sure, not the 99; where the neighbours agree, so much is enough."""
        alone = [[1.0, 1.0, 1.0], [1.0, 1.03, 1.0], [1.0, 1.0, 1.0]]
        groups = load([(1, 3), (4, 4), (5, 16)], [3, 3, 3])
        assert planned(alone, groups, spread=0.011).new.tolist() == [2, 2, 2]
        assert planned(alone, groups, spread=0.006).new.tolist() == [2, 1, 2]
        assert planned([[1.0, 1.03, 1.0]] * 3, groups, spread=0.011).new.tolist() == [1, 1, 1]

    def test_the_best_known_arm_replaces_the_operators(self) -> None:
        groups = load([(1, 8), (9, 16)], [3, 3])
        assert planned([[1.0, 1.0, 1.2], [1.0, 1.1, 1.0]], groups).new.tolist() == [2, 1]

    def test_what_is_saved_is_the_share_of_the_time(self) -> None:
        """From 1.0 to 1.25 per unit of time a fifth of the time is saved."""
        found = planned([[1.0, 1.25, 1.0]], load([(1, 8)], [3]), spread=1e-6)
        assert found.saved[:, 0, 1].mean() == pytest.approx(0.2, abs=1e-4)

    def test_prompts_take_their_time_whatever_is_played(self) -> None:
        """Half of the group's time are prompts: only the other half becomes shorter."""
        groups = replace(load([(1, 8)], [3]), busy_ms=np.array([2000.0]))
        found = planned([[1.0, 1.25, 1.0]], groups, spread=1e-6)
        assert found.saved[:, 0, 1].mean() == pytest.approx(0.1, abs=1e-4)

    def test_an_arm_that_rests_on_a_shape_is_not_advised(self) -> None:
        grounds = [["measured", "shape", "measured"]]
        assert planned([[1.0, 2.0, 1.0]], load([(1, 8)], [3]), grounds).new.tolist() == [2]

    def test_nothing_is_advised_where_the_operators_k_is_unknown(self) -> None:
        grounds = [["measured", "measured", "shape"]]
        assert planned([[1.0, 2.0, 1.0]], load([(1, 8)], [3]), grounds).new.tolist() == [2]

    def test_an_interval_that_holds_nothing_is_no_advice(self) -> None:
        """4 % better, known to 5 %."""
        assert planned([[1.0, 1.04, 1.0]], load([(1, 8)], [3]), spread=0.05).new.tolist() == [2]

    def test_neighbours_that_agree_are_sure_together(self) -> None:
        """Each alone is unsure; four together are not."""
        groups = load([(1, 8), (9, 16), (17, 32), (33, 48)], [3, 3, 3, 3])
        assert planned([[1.0, 1.05, 1.0]], load([(1, 8)], [3]), spread=0.03).new.tolist() == [2]
        assert planned([[1.0, 1.05, 1.0]] * 4, groups, spread=0.03).new.tolist() == [1, 1, 1, 1]

    def test_a_change_must_be_worth_a_range_of_its_own(self) -> None:
        """K=1 is best on both sides; the sliver between, where K=0 is hardly better, goes along."""
        groups = replace(load([(1, 8), (9, 9), (10, 32)], [3, 3, 3]), busy_ms=np.array([1500.0, 3.0, 1500.0]))
        speeds = [[1.0, 1.2, 1.0], [1.21, 1.2, 1.0], [1.0, 1.2, 1.0]]
        assert planned(speeds, groups).new.tolist() == [1, 1, 1]

    def test_no_load(self) -> None:
        empty = Groups(*(np.zeros(0, dtype=int),) * 3, *(np.zeros(0),) * 2, np.zeros(0, dtype=int), np.zeros(0),
                       np.zeros(0, dtype=int))  # fmt: skip
        assert plan(np.ones((5, 0, 3)), np.zeros((5, 0, 3)), empty, by_own(empty), [], ARMS, 0.0).new.tolist() == []


def nowhere(group: int, size: int) -> bool:
    """A table that speaks for no change."""
    return False


def everywhere(group: int, size: int) -> bool:
    """One that speaks for all."""
    return True


class TestWrittenOut:
    def test_far_from_what_was_recorded_the_operators_k_stays(self) -> None:
        """Nothing is known of batch 1-24, nor whether the best K falls or rises there."""
        groups = load([(40, 60)], [3])
        assert written_out(groups, np.array([0]), BASE, ARMS, nowhere) == [[1, 24, 3], [25, 64, 0], [65, 512, 1]]

    def test_what_was_not_recorded_follows_its_neighbours_up_to_the_operators_edge(self) -> None:
        """Batches 40-60 want K=1: so do those up to 64, and down to half-way to 8-16, which keep K=3."""
        groups = load([(8, 16), (40, 60)], [3, 3])
        assert written_out(groups, np.array([2, 1]), BASE, ARMS, nowhere) == [[1, 28, 3], [29, 512, 1]]

    def test_beyond_the_edge_the_operators_k_stays(self) -> None:
        groups = load([(40, 60)], [3])
        assert written_out(groups, np.array([0]), BASE, ARMS, everywhere) == [[1, 64, 0], [65, 512, 1]]

    def test_without_a_change_it_is_the_operators_own(self) -> None:
        groups = load([(40, 60), (80, 100)], [3, 1])
        assert written_out(groups, np.array([2, 1]), BASE, ARMS, everywhere) == [[1, 64, 3], [65, 512, 1]]
