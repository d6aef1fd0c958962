"""What a run was worth: efficiency, regret, switches, recovery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from adaptk.replay.policies.base import Policy
from adaptk.replay.simulator import Run

Array = NDArray[np.float64]

NEVER = 10**6
"""Steps of a recovery that did not happen."""


def best_rate(run: Run) -> Array:
    """Expected goodput of the best arm at each step, tokens per request and ms, shape ``(steps,)``."""
    return np.asarray(_rates(run).max(axis=1))


def _rates(run: Run) -> Array:
    """Expected goodput of every arm at each step, 0 where no request decodes, shape ``(steps, arms)``."""
    arms = list(run.arms)
    length, itl = run.length[:, arms], run.itl[:, arms]
    rates: Array = np.divide(length, itl, out=np.zeros_like(itl), where=itl > 0)
    return rates


def rate_of(run: Run, ks: NDArray[np.int64] | int) -> Array:
    """Expected goodput of ``ks`` at each step, tokens per request and ms, shape ``(steps,)``."""
    at = np.arange(len(run.k))
    itl = run.itl[at, ks]
    rates: Array = np.divide(run.length[at, ks], itl, out=np.zeros(len(at)), where=itl > 0)
    return rates


def expected_length(run: Run) -> Array:
    """Expected acceptance length of what was played at each step, shape ``(steps,)``."""
    return np.asarray(run.length_now[np.arange(len(run.k)), run.k])


def efficiency(run: Run, reference: Array, start: int = 0, end: int | None = None, prompts: bool = False) -> float:
    """Time that goodput ``reference`` would have needed for the work of the steps, over the time expected of the run.

    The work of a step is the tokens expected of it: of what was played where requests make the load, since all policies
    serve the same; of the best arm in a script, where all have the same steps, so that nobody gains by lingering where
    all are fast. 1 for a policy that has the reference's goodput at every step; above 1 for a better one. NaN where no
    request decoded. ``prompts``: with their time on both sides.
    """
    rates = _rates(run)[start:end]
    steps = np.flatnonzero(rates.max(axis=1) > 0)
    if len(steps) == 0:
        return float("nan")
    at = steps + start
    played = work = expected_length(run)[at]
    if run.scripted:
        work = run.length[at, np.array(run.arms)[rates[steps].argmax(axis=1)]]
    taken = run.itl[at, run.k[at]] + run.compiled[at]
    apart = float(run.prompt_ms[start:end].sum()) if prompts else 0.0
    return float(((work / reference[at]).sum() + apart) / ((work / played * taken).sum() + apart))


def expected_ms(run: Run) -> Array:
    """Expected time of each step without noise and stalls, had it verified what it drafted, shape ``(steps,)``."""
    return np.asarray(run.itl[np.arange(len(run.k)), run.k] + run.compiled + run.prompt_ms)


def tokens_per_s(run: Run, work: Array | None = None) -> float:
    """Tokens per second of a run.

    Where requests make the load: tokens emitted over the time from the first step to the end of the last one. In a
    script all policies have the same steps, but not the same tokens: there ``work`` says with how many tokens each step
    counts, shape ``(steps,)``, and the time to draft and verify counts in proportion to the tokens expected of it.
    """
    if work is None:
        return 1000.0 * float(run.tokens.sum()) / float(run.clock[-1])
    mine = run.decodes * expected_length(run)
    pace = np.divide(work, mine, out=np.ones(len(mine)), where=mine > 0)
    own = run.itl[np.arange(len(run.k)), run.k] * run.noise + run.compiled
    rest = run.prompt_ms * run.noise + run.extra_ms
    return 1000.0 * float(work.sum()) / float((pace * own + rest).sum())


def regret_ms(run: Run) -> Array:
    """Expected milliseconds lost against the best arm at each step, shape ``(steps,)``."""
    at, best = np.arange(len(run.k)), best_rate(run)
    needed = np.divide(expected_length(run), best, out=np.zeros(len(at)), where=best > 0)
    return np.where(best > 0, run.itl[at, run.k] + run.compiled - needed, 0.0)


def share(run: Run, ks: Sequence[int], start: int = 0, end: int | None = None) -> float:
    """Share of the steps at one of ``ks``."""
    return float(np.mean(np.isin(run.k[start:end], list(ks))))


def switches(run: Run, start: int = 0, end: int | None = None) -> int:
    """Changes of K."""
    return int(np.sum(np.diff(run.k[start:end]) != 0))


def lasting_switches(run: Run, start: int = 0, end: int | None = None, visit: int = 8) -> int:
    """Changes of K from step ``start`` on, leaving out excursions of at most ``visit`` steps that return."""
    last = len(run.k) if end is None else end
    return sum(start < at < last for at in _lasting(run, visit)[0])


def time_in_visits(run: Run, visit: int = 8) -> float:
    """Share of the time in the excursions that :func:`lasting_switches` leaves out."""
    return float(run.elapsed[_lasting(run, visit)[1]].sum() / run.elapsed.sum())


def _lasting(run: Run, visit: int) -> tuple[list[int], NDArray[np.bool_]]:
    """Steps at which K changes and stays, and whether each step is of an excursion that returns, shape ``(steps,)``."""
    edges = [0, *(np.flatnonzero(np.diff(run.k)) + 1).tolist(), len(run.k)]
    stays = [(int(run.k[a]), a, b) for a, b in pairwise(edges)]
    left, visiting, home = [], np.zeros(len(run.k), dtype=bool), stays[0][0]
    for i, (k, at, end) in enumerate(stays[1:], start=1):
        if end - at <= visit and i + 1 < len(stays) and stays[i + 1][0] == home:
            visiting[at:end] = True
        elif k != home:
            left.append(at)
            home = k
    return left, visiting


def first(run: Run, ks: Sequence[int], start: int, hold: int = 10) -> int:
    """Steps after ``start`` until one of ``ks`` is played ``hold`` times in a row; ``NEVER`` where it is not."""
    good = np.isin(run.k[start:], list(ks))
    if len(good) < hold:
        return NEVER
    held = np.flatnonzero(np.convolve(good, np.ones(hold), "valid") >= hold - 0.5)
    return int(held[0]) if len(held) else NEVER


def over_k0(run: Run, end: int | None = None) -> float:
    """Time lost under in-engine K=0 before step ``end``, as a share of the time that K=0 would have taken.

    Lost is what steps took beyond K=0's time for the same tokens, as far as they took more; what others gained is not
    set against it. NaN where no request decoded.
    """
    at, k0 = np.arange(len(run.k)), run.itl[:, 0]
    needed = expected_length(run) / np.maximum(run.length[:, 0], 1.0) * k0
    taken = np.where(k0 > 0, run.itl[at, run.k] + run.compiled, 0.0)
    lost, whole = np.maximum(taken - needed, 0.0)[:end].sum(), needed[:end].sum()
    return float(lost / whole) if whole > 0 else float("nan")


def recovery(run: Run, change: int, good: float = 0.98, window: int = 20, end: int | None = None) -> int:
    """Steps after ``change`` until ``window`` steps, all before ``end``, reach ``good`` of the best; else ``NEVER``."""
    at, best = np.arange(len(run.k)), best_rate(run)
    needed = np.divide(expected_length(run), best, out=np.zeros(len(at)), where=best > 0)
    ratio = np.divide(needed, run.itl[at, run.k], out=np.ones(len(at)), where=best > 0)[change:end]
    if len(ratio) < window:
        return NEVER
    held = np.flatnonzero(np.convolve(ratio, np.full(window, 1.0 / window), "valid") >= good)
    return int(held[0]) if len(held) else NEVER


@dataclass(frozen=True)
class Judged:
    """A run with the policy as it ended and the references that it is judged by: what checks of scenarios ask.

    ``table_k`` is the K that the static table would have played at each step.
    """

    run: Run
    policy: Policy
    table_k: NDArray[np.int64]

    def of_oracle(self, start: int = 0, end: int | None = None) -> float:
        """Efficiency against the best arm of each step."""
        return efficiency(self.run, best_rate(self.run), start, end)

    def of_table(self, start: int = 0, end: int | None = None) -> float:
        """Efficiency against the static table."""
        return efficiency(self.run, rate_of(self.run, self.table_k), start, end)

    def of_fixed(self, k: int, start: int = 0, end: int | None = None) -> float:
        """Efficiency against a fixed K."""
        return efficiency(self.run, rate_of(self.run, k), start, end)
