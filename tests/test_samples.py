from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.samples import Samples

deviations = st.floats(-5.0, 5.0)


def of(*values: float, arm: int = 1, cell: int = 8) -> Samples:
    samples = Samples()
    for y in values:
        samples.take(arm, cell, 3.0, 2.0, 0.25, y)
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
        samples.take(1, 8, at, 2.0 * at, -at, 0.0, times=times)
    mean = sum(at * times for at, times in taken) / sum(times for _, times in taken)
    assert len(samples) == sum(times for _, times in taken)
    assert samples.width == pytest.approx(mean, abs=1e-9)
    assert samples.log_batch == pytest.approx(2.0 * mean, abs=1e-9)
    assert samples.covariate == pytest.approx(-mean, abs=1e-9)


def test_an_empty_group_takes_any_sample() -> None:
    assert Samples().near(5, 9)


def test_only_one_arm_and_one_range_of_tokens_belong_together() -> None:
    group = of(0.1, arm=1, cell=8)
    assert group.near(1, 8)
    assert not group.near(1, 9)
    assert not group.near(2, 8)


def test_cleared_it_begins_elsewhere_but_remembers_that_the_place_was_quiet() -> None:
    group = of(0.1, 0.3, arm=1)
    group.patient, group.level = True, 0.2
    group.clear()
    assert len(group) == 0
    assert (group.patient, group.level) == (True, 0.2)
    group.take(2, 9, 1.0, 5.0, -0.5, 0.7)
    assert (group.arm, group.cell, group.width, group.log_batch, group.covariate) == (2, 9, 1.0, 5.0, -0.5)
    assert group.values == [0.7]


def test_it_survives_json() -> None:
    group, other = of(0.1, 0.3), Samples()
    group.patient, group.level = True, 0.2
    other.load(json.loads(json.dumps(group.snapshot())))
    for samples in (group, other):
        samples.take(1, 8, 2.0, 2.1, 0.5, 0.2)
    assert other.snapshot() == group.snapshot()
    assert other.mean() == group.mean() == pytest.approx(0.2)


def test_a_snapshot_is_no_longer_tied_to_the_group() -> None:
    group = of(0.1)
    then = group.snapshot()
    group.take(1, 8, 3.0, 2.0, 0.25, 0.5)
    assert then["values"] == [0.1]
