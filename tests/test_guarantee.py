"""Never slower than what the user had: adaptk against the better of the static table and K=0, over 1,000 random worlds.

What is compared is expected time for the same tokens: at each step, the time that the arm played needs for the tokens
that the baseline's arm would have given there. The baseline is K=0 everywhere or the static table everywhere, whichever
is the better over the whole world, known in hindsight; without a table it is K=0. Its mean step is the unit below.

What is promised, at every step n of a world, with eps = 1 % (the budget of exploring):

    excess(n) = time - (1 + eps) * baseline  <=  FIRST + sigma * sqrt(n)

*FIRST* pays for what no table can be trusted with: an arm that is wrongly believed to be the best is played until
enough of its samples have come back, a visit of four steps and the one behind it, each at up to twice the baseline's
time. *sigma sqrt(n)* is what noise allows: two arms whose goodputs differ by a share d cannot be told
apart in fewer than (sigma / d)^2 steps, and mistaking them costs d in each, so that every rule loses of the order of
sigma sqrt(n) where d is about sigma / sqrt(n) (Lai and Robbins 1985; Auer et al. 2002). ``sigma`` is the standard
deviation of one step's log goodput, compared between two arms: twice the variance of step time, and the variance of
the tokens of one request over the batch.

The promise is one of probability. Each test names the share of worlds in which it need not hold and fails where there
are more of them than a controller with exactly that share would have with a probability of 1 in 100. The worlds are
fixed, so that it either always does or never. As this was written the promise was broken in 0.6 % of the worlds with
a table and in 0.8 % of those without: of worlds drawn anew, about 1 in 1,000 draws would fail the test for 1 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from adaptk import Controller
from adaptk.replay.simulator import Run, simulate
from tests.randomworlds import ARMS, RandomWorld, random_world

Array = npt.NDArray[np.float64]

STEPS = 500
WORLDS = 500  # with a table, right and wrong in turns, and as many without
EPS = 0.01
FIRST = 5.0  # baseline steps


@dataclass(frozen=True)
class Compared:
    """A run beside its baseline, both in expected milliseconds for the baseline's tokens, shape ``(steps,)``."""

    seed: int
    about: str
    time: Array
    baseline: Array
    noise: Array  # standard deviation of log goodput per step

    @property
    def ratio(self) -> float:
        """Time over the baseline's, whole world."""
        return float(self.time.sum() / self.baseline.sum())

    def excess(self) -> Array:
        """What was lost beyond the budget until each step, in mean steps of the baseline."""
        lost = np.cumsum(self.time - (1.0 + EPS) * self.baseline)
        return np.asarray(lost / self.baseline.mean())

    def within(self, first: float) -> bool:
        """Whether the promise held at every step."""
        return bool(np.all(self.excess() <= first + np.sqrt(np.cumsum(self.noise**2))))

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.ratio:.4f}, {self.excess().max():.1f} steps lost; {self.about}"


def spread_of_tokens(acceptance: Array) -> float:
    """Largest relative variance of one request's tokens over the arms: they are 1 plus the accepted drafts."""
    reached = np.concatenate(([1.0], np.cumprod(acceptance)))
    worst = 0.0
    for k in ARMS[1:]:
        share = np.append(reached[:k] - reached[1 : k + 1], reached[k])
        tokens = 1.0 + np.arange(k + 1)
        mean = float(share @ tokens)
        worst = max(worst, float(share @ tokens**2) / mean**2 - 1.0)
    return worst


def compare(seed: int, kind: str) -> Compared:
    """Run adaptk in a random world and price it against the baseline."""
    case = random_world(seed, STEPS, kind)
    run = simulate(case.world, Controller(case.table, arms=ARMS, seed=seed))
    per_token = run.itl / run.length  # ms per request's token, (steps, K)
    at, ks = np.arange(len(run.k)), _baseline(case, run, per_token)
    spread = spread_of_tokens(case.world.drafter.acceptance[0])
    noise = np.sqrt(2.0 * case.world.noise.sigma**2 + spread / run.decodes)
    return Compared(seed, case.about, run.length[at, ks] * per_token[at, run.k], run.itl[at, ks], noise)


def _baseline(case: RandomWorld, run: Run, per_token: Array) -> npt.NDArray[np.int64]:
    at, nothing = np.arange(len(run.k)), np.zeros(len(run.k), dtype=np.int64)
    if case.table is None:
        return nothing
    table = np.array([case.table.best_k(int(batch), arms=ARMS) for batch in run.decodes])
    return min((nothing, table), key=lambda ks: float((per_token[at, ks] * run.decodes).sum()))


@pytest.fixture(scope="module")
def with_table() -> list[Compared]:
    return [compare(seed, ("right", "wrong")[seed % 2]) for seed in range(WORLDS)]


@pytest.fixture(scope="module")
def without_table() -> list[Compared]:
    return [compare(10_000 + seed, "absent") for seed in range(WORLDS)]


def most(share: float, of: int) -> int:
    """The number of worlds that a true share passes with a probability of at most 1 in 100."""
    return int(stats.binom.isf(0.01, of, share))


def report(worlds: list[Compared], shown: int = 5) -> str:
    """The worst worlds in words."""
    return "\n".join(map(str, sorted(worlds, key=lambda world: -world.ratio)[:shown]))


def test_the_yardstick_knows_a_fixed_arm() -> None:
    """The pricing itself: the baseline against itself is 1 at every step, and a world's oracle is not above it."""
    case = random_world(3, 100, "right")
    controller = Controller(case.table, arms=(0,), seed=0)
    run = simulate(case.world, controller, arms=ARMS)
    assert run.itl.shape[1] == ARMS[-1] + 1
    per_token = run.itl / run.length
    ks = _baseline(case, run, per_token)
    at = np.arange(len(run.k))
    same = run.length[at, ks] * per_token[at, ks]
    assert same == pytest.approx(run.itl[at, ks])
    assert np.all(run.length[at, ks] * per_token[:, list(ARMS)].min(axis=1) <= same * (1.0 + 1e-12))
    played = run.length[at, ks] * per_token[at, run.k]  # K=0 throughout
    assert played == pytest.approx(run.length[at, ks] * run.itl[:, 0])


def test_relative_spread_of_tokens_by_hand() -> None:
    """Acceptance 0.5 throughout, K=1: 1 or 2 tokens alike, mean 1.5, variance 0.25; deeper arms spread more."""
    one = spread_of_tokens(np.array([0.5, 0.0, 0.0, 0.0, 0.0]))
    assert one == pytest.approx(0.25 / 1.5**2)
    assert spread_of_tokens(np.full(5, 0.5)) > one


def test_with_a_table_it_is_not_slower_than_the_better_of_table_and_k0(with_table: list[Compared]) -> None:
    """Right, and wrong up to twofold in level, draft cost and log acceptance. Promised for 99 % of the worlds."""
    broken = [world for world in with_table if not world.within(FIRST)]
    assert len(broken) <= most(0.01, len(with_table)), report(broken)


def test_with_a_table_the_whole_world_stays_within_the_budget(with_table: list[Compared]) -> None:
    """500 steps, first learning included: 97 % of the worlds within 1 + eps, 99.5 % within 1.05, half within 1.002."""
    above = [world for world in with_table if world.ratio > 1.0 + EPS]
    assert len(above) <= most(0.03, len(with_table)), report(above)
    far = [world for world in with_table if world.ratio > 1.05]
    assert len(far) <= most(0.005, len(with_table)), report(far)
    assert np.median([world.ratio for world in with_table]) < 1.002


def test_without_a_table_climbing_is_not_slower_than_k0(without_table: list[Compared]) -> None:
    """Nothing is known of the engine; K=0 is the baseline, every step of the climb counts. For 99 % of the worlds."""
    broken = [world for world in without_table if not world.within(FIRST)]
    assert len(broken) <= most(0.01, len(without_table)), report(broken)
    above = [world for world in without_table if world.ratio > 1.0 + EPS]
    assert len(above) <= most(0.01, len(without_table)), report(above)


def test_without_a_table_the_first_steps_cost_little(without_table: list[Compared]) -> None:
    """Lost against K=0 in the first 50 steps, budget not deducted: half of the worlds gain, 99 % lose under 5 steps."""
    lost = [float((world.time - world.baseline)[:50].sum() / world.baseline.mean()) for world in without_table]
    assert np.median(lost) < 0.0
    assert sum(steps > 5.0 for steps in lost) <= most(0.01, len(lost))


def test_without_a_table_it_is_far_quicker_where_drafts_pay(without_table: list[Compared]) -> None:
    """So that the promise is not kept by staying at K=0: over all worlds at least a quarter of the time is saved."""
    assert np.exp(np.mean([np.log(world.ratio) for world in without_table])) < 0.75
