"""Times that are none: the controller decides as well as its twin, whose clock is sound, and counts them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from adaptk import StepRecord
from adaptk.vllm_plugin.metrics.sums import Sums
from tests.faults.meddling import BEGIN, END, STEPS, Meddle, run, share, twins_share, while_it_lasts

BOTH = pytest.mark.parametrize("table", [True, False])
HOUR_MS = 3.6e6
RARE = np.random.default_rng(1).random(STEPS) < 0.01
# Times that no step can take.
NONE = {"nan": math.nan, "infinite": math.inf, "zero": 0.0, "negative": -9.0, "tiny": 1e-300, "huge": 1e300}


def elapsed(change: Callable[[float], float]) -> Callable[[StepRecord], StepRecord]:
    return lambda record: replace(record, elapsed_ms=change(record.elapsed_ms or 0.0))


def rarely(wrong: Callable[[StepRecord], StepRecord]) -> Meddle:
    """A fault in one step of a hundred."""
    return lambda step, record: wrong(record) if RARE[step] else record


def no_worse_than_its_twin(meddle: Meddle, table: bool, most_lost: float, start: int = 300) -> int:
    """Check two seeds; the times that were refused in the last run."""
    for seed in (0, 1):
        met, controller = run(meddle, table=table, seed=seed)
        assert len(met.k) == STEPS
        assert share(met, start) > twins_share(table, seed, start) - most_lost
    return controller.counters["times_refused"]


@BOTH
@pytest.mark.parametrize("value", NONE.values(), ids=NONE)
def test_one_time_in_a_hundred_is_none(value: float, table: bool) -> None:
    """NaN, infinite, zero, negative, 1e-300 and 1e300 ms cost under 1 % of goodput, and each is counted."""
    refused = no_worse_than_its_twin(rarely(elapsed(lambda _: value)), table, 0.01)
    assert refused == RARE.sum()


@pytest.mark.parametrize("value", NONE.values(), ids=NONE)
def test_the_workers_time_is_none(value: float) -> None:
    """In every step: the engine's clock stands in, and nothing is lost at all."""
    refused = no_worse_than_its_twin(lambda _, record: replace(record, device_ms=value), True, 1e-9)
    assert refused == STEPS


@BOTH
def test_the_clock_steps_backwards(table: bool) -> None:
    """By five seconds in one step of a hundred: those steps have no time."""
    assert no_worse_than_its_twin(rarely(elapsed(lambda ms: ms - 5000.0)), table, 0.01) == RARE.sum()


@BOTH
@pytest.mark.parametrize("ms", [HOUR_MS, 24 * HOUR_MS], ids=["hour", "day"])
def test_the_clock_jumps_ahead(ms: float, table: bool) -> None:
    """By an hour or a day within one step, as of a machine that was suspended: one slow step among many."""
    no_worse_than_its_twin(lambda step, record: elapsed(lambda _: ms)(record) if step == BEGIN else record, table, 0.01)


@BOTH
def test_a_stall_of_ten_seconds_every_hundred_steps(table: bool) -> None:
    """Steps of 12 ms, and one of 10 s now and then, are no reason to play another K."""
    stalls: Meddle = lambda step, record: elapsed(lambda _: 1e4)(record) if step % 100 == 99 else record  # noqa: E731
    no_worse_than_its_twin(stalls, table, 0.01)


@pytest.mark.parametrize(
    "change",
    [lambda _: 0.0, lambda _: math.nan, lambda ms: ms / 2, lambda ms: 5 * ms, lambda _: HOUR_MS],
    ids=["frozen", "unknown", "at half speed", "at five times its speed", "an hour a step"],
)
@BOTH
def test_a_clock_that_is_wrong_for_a_while(change: Callable[[float], float], table: bool) -> None:
    """For 200 steps: within 800 more what is played is worth what the twin has, but for 2 %."""
    no_worse_than_its_twin(while_it_lasts(elapsed(change)), table, 0.02, start=END + 800)


def test_a_clock_that_never_moves_leaves_the_table() -> None:
    """Without any time the table's own are believed, and what acceptance teaches; all times are counted."""
    met, controller = run(lambda _, record: replace(record, elapsed_ms=0.0), table=True, seed=0)
    assert controller.counters["times_refused"] == STEPS
    assert share(met, 300) > 0.97
    assert controller.ledger["allowed_ms"] == 0.0  # nobody may explore on no time


def test_a_time_of_thousands_of_years_is_in_no_metric() -> None:
    """The sums of step times hold only what the controller, too, takes for a time."""
    sums = Sums(k_max=3)
    plain = StepRecord(batch_size=1, elapsed_ms=9.0, k=0, drafted=[0], accepted=[0], emitted=[1])
    _, controller = run(lambda _, record: record, table=True, seed=0)
    for value in (9.0, *NONE.values()):
        sums.observe(controller, replace(plain, elapsed_ms=value), 0)
    (cell,) = sums.cells.values()
    assert cell[:3] == [7.0, 1.0, 9.0]
    assert sums.dropped["bad_time"] == 6
