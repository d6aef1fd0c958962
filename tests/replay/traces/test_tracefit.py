"""The cost fitted to times of steps, held against surfaces that are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adaptk.replay.drafter import Drafter, profiles
from adaptk.replay.noise import Noise
from adaptk.replay.simulator import Engine, World
from adaptk.replay.traces.tokenruns import token_runs
from adaptk.replay.traces.tracefit import (
    CostFit,
    Samples,
    all_drafted,
    fit_cost,
    mean_factor,
    played,
    samples_of,
    table_over_trace,
    with_table,
)
from adaptk.replay.workload import Requests
from adaptk.table import GoodputTable
from adaptk.trace import read_trace
from tests.replay.recordings import ARMS, PRESET, InTurn, record, step

QUIET = Noise(sigma=0.0)


def draw(rng: np.random.Generator, steps: int, ks: tuple[int, ...] = ARMS) -> Samples:
    """Steps of all kinds: K kept for ten steps, every fifth with prompt tokens."""
    k = np.repeat(rng.choice(ks, steps // 10), 10).astype(float)
    decodes = rng.integers(1, 17, steps).astype(float)
    prompt = np.where(np.arange(steps) % 5 == 0, rng.integers(1, 200, steps), 0).astype(float)
    width = np.append(0.0, k[:-1])
    return Samples(np.zeros(steps), decodes, width, decodes, k, prompt, rng.uniform(0.0, 500.0, steps))


def cost(s: Samples) -> np.ndarray:
    verify = 5.0 + 0.1 * s.decodes + (0.4 + 0.05 * s.decodes) * s.width + 2e-4 * s.decodes * s.context
    return verify + s.k * (0.5 + 0.01 * s.drafting) + 0.02 * s.prompt + 1.0 * (s.prompt > 0)


def timed(samples: Samples, factors: np.ndarray | float = 1.0) -> Samples:
    return samples._replace(ms=cost(samples) * factors)


class TestFit:
    def test_without_noise_every_part_is_found(self) -> None:
        """Verifying and drafting apart, within 1 %: K changes, so that they can be told apart."""
        samples = timed(draw(np.random.default_rng(1), 400))
        surface = fit_cost(samples, ARMS).surface("x", 16, 3, 500.0)
        for batch in (1, 8, 16):
            for k in ARMS:
                verify = 5.0 + 0.1 * batch + (0.4 + 0.05 * batch) * k
                assert surface.verify_ms[0, batch, k] == pytest.approx(verify, rel=0.01)
                assert surface.verify_ms[1, batch, k] == pytest.approx(verify + 0.1 * batch, rel=0.01)
                assert surface.draft_ms[batch, k] == pytest.approx(k * (0.5 + 0.01 * batch), abs=0.03)
        assert surface.prefill_ms == pytest.approx(0.02, rel=0.02)
        assert surface.mixed_ms == pytest.approx(1.0, rel=0.03)

    @pytest.mark.parametrize("noise", [Noise(0.1), Noise(0.05, 0.6, 0.02, 8.0)])
    def test_times_add_up_to_those_measured(self, noise: Noise) -> None:
        rng = np.random.default_rng(2)
        samples = timed(draw(rng, 600), noise.factors(600, rng))
        fit = fit_cost(samples, ARMS)
        assert fit.expected(samples).sum() == pytest.approx(samples.ms.sum(), rel=1e-9)

    def test_times_add_up_for_each_k(self) -> None:
        """Per K drafted and K verified, within 2 %: noise of 10 % over 50 steps or more has a deviation of 1.4 %."""
        rng = np.random.default_rng(3)
        samples = timed(draw(rng, 1200), Noise(0.1).factors(1200, rng))
        expected = fit_cost(samples, ARMS).expected(samples)
        for values in (samples.k, samples.width):
            for k in ARMS:
                which = values == k
                assert expected[which].sum() == pytest.approx(samples.ms[which].sum(), rel=0.02)

    def test_stalls_do_not_bend_the_surface(self) -> None:
        """A step of 100 times its length at batch 1 with K=3 changes no cell by more than 3 %."""
        rng = np.random.default_rng(4)
        samples = timed(draw(rng, 600), Noise(0.03).factors(600, rng))
        ms = samples.ms.copy()
        ms[np.flatnonzero((samples.decodes == 1) & (samples.k == 3))[0]] *= 100.0
        calm, stalled = (fit_cost(s, ARMS).surface("x", 16, 3, 0.0) for s in (samples, samples._replace(ms=ms)))
        np.testing.assert_allclose(stalled.itl_grid()[1:], calm.itl_grid()[1:], rtol=0.03)

    def test_noise_is_that_of_the_trace(self) -> None:
        rng = np.random.default_rng(5)
        noise = Noise(0.06, 0.5, 0.02, 6.0)
        fitted = fit_cost(timed(draw(rng, 4000), noise.factors(4000, rng)), ARMS).noise
        assert fitted.sigma == pytest.approx(0.06, rel=0.1)
        assert fitted.correlation == pytest.approx(0.5, abs=0.07)
        assert fitted.stalls == pytest.approx(0.02, rel=0.35)
        assert mean_factor(fitted) == pytest.approx(mean_factor(noise), rel=0.03)

    def test_predicts_steps_that_it_has_not_seen(self) -> None:
        """Fitted on the first half of the steps, the time of the second within 2 %."""
        rng = np.random.default_rng(6)
        samples = timed(draw(rng, 800), Noise(0.1).factors(800, rng))
        first = np.arange(800) < 400
        fit = fit_cost(samples.take(first), ARMS)
        assert fit.expected(samples.take(~first)).sum() == pytest.approx(samples.ms[~first].sum(), rel=0.02)

    def test_an_arm_never_played_lies_on_the_line_of_the_last_two(self) -> None:
        surface = fit_cost(timed(draw(np.random.default_rng(7), 400, (0, 1, 2))), (0, 1, 2)).surface("x", 8, 5, 0.0)
        rise = np.diff(surface.itl_grid()[8])
        np.testing.assert_allclose(rise[2:], rise[1], rtol=1e-9)

    @pytest.mark.parametrize("steps", [1, 2])
    def test_hardly_any_steps(self, steps: int) -> None:
        samples = timed(draw(np.random.default_rng(8), 10)).take(np.arange(10) < steps)
        fit = fit_cost(samples, ())
        assert fit.expected(samples).sum() == pytest.approx(samples.ms.sum())
        assert fit.surface("x", 4, 3, 0.0).verify_ms.min() > 0


def test_a_table_shapes_the_arms_that_are_not_known() -> None:
    table = PRESET.surface.to_table((0, 1, 2, 3), None, batches=range(1, 17))
    fit = fit_cost(timed(draw(np.random.default_rng(9), 400, (0, 1))), (0, 1))
    before = fit.surface("x", 16, 3, 500.0)
    after = with_table(before, table, [2, 3], [0, 1])
    np.testing.assert_array_equal(after.itl_grid()[:, :2], before.itl_grid()[:, :2])
    for k in (2, 3):
        wanted = table.itl_grid([8], [k])[0, 0] / table.itl_grid([8], [1])[0, 0]
        assert after.itl_ms(8, k) / before.itl_ms(8, 1) == pytest.approx(wanted)


def test_a_table_is_held_against_the_trace_at_the_steps_that_were_run() -> None:
    """The median over them; steps at a K that is not known do not count."""
    samples = timed(draw(np.random.default_rng(11), 400, (0, 1)))
    surface = fit_cost(samples, (0, 1)).surface("x", 16, 3, 500.0)
    table = surface.stretched(level=2.5).to_table((0, 1), None, range(1, 17), context=float(np.median(samples.context)))
    assert table_over_trace(surface, table, samples, (0, 1)) == pytest.approx(2.5)
    assert table_over_trace(surface, table, samples, (3,)) == 1.0


class TestSamples:
    def test_what_steps_did(self) -> None:
        steps = [
            step([0, 0], k=3, prefill_tokens=20, decodes=0, context_tokens=0, elapsed_ms=50.0),
            step([3, 1], [1, 1], k=1, context_tokens=20),
            step([1, 1], k=0, elapsed_ms=None, context_tokens=26),
            step([0], k=2, verified=2, context_tokens=15),
        ]
        samples = samples_of(steps, token_runs(steps))
        assert samples.ms.tolist() == [50.0, 10.0, 10.0]
        assert samples.decodes.tolist() == [0.0, 2.0, 1.0]
        assert samples.width.tolist() == [0.0, 2.0, 2.0]
        assert samples.drafting.tolist() == [2.0, 2.0, 0.0]
        assert samples.k.tolist() == [3.0, 1.0, 2.0]
        assert samples.prompt.tolist() == [20.0, 0.0, 0.0]
        assert samples.context.tolist() == [0.0, 10.0, 15.0]

    def test_drafts_in_the_next_steps_time(self) -> None:
        """They were made for the requests of the step before."""
        steps = [step([0, 0], k=3, draft_k=0), step([3, 3], k=1, draft_k=3), step([1], k=0, draft_k=1)]
        samples = samples_of(steps, token_runs(steps))
        assert samples.drafting.tolist() == [0.0, 2.0, 1.0]
        assert samples.k.tolist() == [0.0, 3.0, 1.0]

    def test_an_arm_counts_as_played_after_eight_steps(self) -> None:
        steps = [step([0], k=1)] * 9 + [step([1], k=2)] * 7 + [step([2], k=0)]
        assert played(samples_of(steps, token_runs(steps))) == [1]


@pytest.mark.parametrize("runner", [1, 2])
def test_fits_a_simulated_engine(tmp_path: Path, runner: int) -> None:
    """A trace of every arm in turn gives back the engine's cost within 4 % for each batch and K that it was run at."""
    rng = np.random.default_rng(10)
    n = 40
    load = Requests(np.zeros(n), rng.integers(20, 200, n), rng.integers(20, 120, n), np.zeros(n, dtype=np.int64))
    surface = replace(PRESET.surface, prefill_ms=0.05)
    world = World(surface, Drafter(profiles([0.7], k_max=3)), load, 5000, Engine(8, runner=runner), Noise(0.03), seed=1)
    record(tmp_path / "t.jsonl", world, InTurn())
    steps = [row.step for row in read_trace(tmp_path / "t.jsonl").rows]
    samples = samples_of(steps, token_runs(steps))
    fitted: CostFit = fit_cost(samples, played(samples))
    grid = fitted.surface("x", 8, 3, 400.0).itl_grid(200.0)
    np.testing.assert_allclose(grid[2:9, :4], surface.itl_grid()[2:9, :4], rtol=0.04)


def test_a_table_of_missing_drafts_is_read_at_full_width() -> None:
    """With a draft in half the steps, a row at K=2 holds one draft: all of them cost twice as much beyond K=0."""
    rows = [{"batch": b, "k": k, "itl_ms": 10.0 + 0.5 * k} for b in (1, 4) for k in (0, 2)]
    whole = all_drafted(GoodputTable.from_rows(rows, [0.5]), np.array([1.0, 4.0]), [2, 0], 100.0)
    assert whole.tolist() == [[11.0, 10.0]] * 2
    half = all_drafted(GoodputTable.from_rows(rows, [0.5], supply=[0.5]), np.array([1.0, 4.0]), [2, 0], 100.0)
    assert half == pytest.approx(np.array([[12.0, 10.0]] * 2), rel=0.01)
