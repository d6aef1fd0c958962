from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.samples import SAME_BATCH, Samples

deviations = st.floats(-5.0, 5.0)


def of(*values: float, arm: int = 1, log_batch: float = 2.0) -> Samples:
    samples = Samples()
    for y in values:
        samples.take(arm, 3.0, log_batch, y)
    return samples


def test_the_quickest_cluster_leaves_stalls_out() -> None:
    value, n = of(0.05, 4.6, 0.01, 4.7).quickest(tolerance=0.1)
    assert value == pytest.approx(0.03)
    assert n == 2


@given(st.lists(deviations, min_size=1, max_size=8), st.lists(st.floats(0.2, 5.0), max_size=4))
def test_slower_samples_never_change_the_quickest_cluster(values: list[float], later: list[float]) -> None:
    stalls = [min(values) + late for late in later]
    assert of(*values, *stalls).quickest(0.1) == of(*values).quickest(0.1)


@given(st.lists(st.tuples(deviations, st.integers(1, 4)), min_size=1, max_size=6))
def test_the_place_is_the_mean_of_the_samples_places(taken: list[tuple[float, int]]) -> None:
    samples = Samples()
    for at, times in taken:
        samples.take(1, at, 2.0 * at, 0.0, times=times)
    mean = sum(at * times for at, times in taken) / sum(times for _, times in taken)
    assert len(samples) == sum(times for _, times in taken)
    assert samples.width == pytest.approx(mean, abs=1e-9)
    assert samples.log_batch == pytest.approx(2.0 * mean, abs=1e-9)


def test_an_empty_group_takes_any_sample() -> None:
    assert Samples().near(5, 9.0)


def test_only_one_arm_and_nearby_batches_belong_together() -> None:
    group = of(0.1, arm=1, log_batch=2.0)
    assert group.near(1, 2.0 + 0.9 * SAME_BATCH)
    assert not group.near(1, 2.0 + 1.1 * SAME_BATCH)
    assert not group.near(2, 2.0)


def test_cleared_it_is_as_new() -> None:
    group = of(0.1, 0.3, arm=1, log_batch=2.0)
    group.clear()
    assert len(group) == 0
    group.take(2, 1.0, 5.0, 0.7)
    assert (group.arm, group.width, group.log_batch, group.values) == (2, 1.0, 5.0, [0.7])


def test_it_survives_json() -> None:
    group, other = of(0.1, 0.3), Samples()
    other.load(json.loads(json.dumps(group.snapshot())))
    for samples in (group, other):
        samples.take(1, 2.0, 2.1, 0.2)
    assert other.snapshot() == group.snapshot()
    assert other.mean() == group.mean() == pytest.approx(0.2)
