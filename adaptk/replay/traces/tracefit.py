"""The cost of steps, fitted to the times of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.prior import StepTimePrior
from adaptk.replay.noise import Noise
from adaptk.replay.surface import CostSurface
from adaptk.replay.traces.nonnegative import nonnegative_least_squares
from adaptk.replay.traces.tokenruns import Runs, drafts_late
from adaptk.replay.traces.tracerows import time_ms
from adaptk.roofline import relative_cost
from adaptk.step import StepRecord
from adaptk.table import GoodputTable

Array = NDArray[np.float64]

ENOUGH = 8  # steps that make a K, or a stretch of batch sizes, known
ROUNDS = 8  # of refitting with new weights
STALL = 2.0  # times what is expected, at least, for a step to count as stalled
EXTREME = 20.0  # times what is expected: reported
LEAST = 0.01  # of a usual step: none is believed quicker


class Samples(NamedTuple):
    """What the steps did and how long they took, one entry per step, shape ``(steps,)``."""

    ms: Array
    decodes: Array  # requests that decode
    width: Array  # drafts verified per decoding request
    drafting: Array  # requests for which drafts were made
    k: Array  # drafts made for each of them
    prompt: Array  # prompt tokens
    context: Array  # mean tokens per request in the KV cache, 0 where unknown

    def take(self, which: NDArray[np.bool_]) -> Samples:
        """Some of the steps."""
        return Samples(*(values[which] for values in self))


def samples_of(steps: Sequence[StepRecord], runs: Runs) -> Samples:
    """The steps that have a time."""
    late = drafts_late(steps)
    lines = []
    for i, step in enumerate(steps):
        time = time_ms(step)
        if time is None:
            continue
        decodes = int(runs.decodes[i])
        verified = sum(step.drafted) if step.verified is None else step.verified
        context = 0 if step.context_tokens is None else step.context_tokens
        drafting = runs.drafting[i] if not late else runs.drafting[i - 1] if i else 0
        made = step.k if step.draft_k is None else step.draft_k
        width = verified / decodes if decodes else 0.0
        lines.append((time, decodes, width, drafting, made, step.prefill_tokens, context / step.batch_size))
    return Samples(*np.array(lines, dtype=float).reshape(-1, len(Samples._fields)).T)


def played(samples: Samples) -> list[int]:
    """The K for which drafts were made in enough steps to tell their cost, rising."""
    ks, counts = np.unique(samples.k[samples.drafting > 0].astype(int), return_counts=True)
    return [int(k) for k in ks[counts >= ENOUGH]]


class CostFit(NamedTuple):
    """Step time as a sum of terms, each at least 0 and none falling.

    Verifying: a constant, a line in pieces over the batch, one over the drafts per request both for each step and for
    each request, and the context read. Drafting: a line in pieces over K, for each step and for each request. Prompt
    tokens: each, and once per step that has any.
    """

    batches: tuple[float, ...]  # where the line over the batch may bend
    ks: tuple[float, ...]  # where those over K may
    terms: Array
    noise: Noise
    level: float  # of all times, so that they add up to those measured, noise included

    def expected(self, samples: Samples) -> Array:
        """Mean time of each step, milliseconds, noise included."""
        return np.asarray(
            self.level * mean_factor(self.noise) * (_columns(samples, self.batches, self.ks) @ self.terms)
        )

    def surface(self, name: str, max_batch: int, k_max: int, longest: float) -> CostSurface:
        """The cost over batch, K and context up to ``longest`` tokens, noise left out."""
        batch, k = (grid.ravel().astype(float) for grid in np.mgrid[0 : max_batch + 1, 0 : k_max + 1])
        none = np.zeros_like(batch)
        shape = (max_batch + 1, k_max + 1)
        contexts = np.array([0.0, longest]) if longest > 0 else np.zeros(1)
        levels = []
        for context in contexts.tolist():
            verifying = Samples(none, batch, np.where(batch > 0, k, 0.0), none, none, none, none + context)
            levels.append(self._ms(verifying).reshape(shape))
        drafting = self._ms(Samples(none, none, none, batch, k, none, none)) - self._ms(Samples(*[none] * 7))
        verify = np.stack(levels)
        least = LEAST * float(verify[verify > 0].min(initial=1.0))
        prompt = self.level * self.terms[-2:]
        return CostSurface(
            name, contexts, np.maximum(verify, least), drafting.reshape(shape), float(prompt[0]), float(prompt[1])
        )

    def _ms(self, samples: Samples) -> Array:
        return np.asarray(self.level * (_columns(samples, self.batches, self.ks) @ self.terms))


def fit_cost(samples: Samples, ks: Sequence[int]) -> CostFit:
    """Fit the cost of steps.

    The weights make the expected times add up to the measured ones: stalls are left out of the terms' fit, and enter
    through the noise.

    Parameters
    ----------
    samples
        Steps with a time, at least one.
    ks
        K that were played often enough to be told apart, rising.
    """
    batches = _bends(samples.decodes)
    knots = tuple(float(k) for k in ks if k > 0)[:-1]
    columns = _columns(samples, batches, (0.0, *knots))
    ms, fitted = samples.ms.copy(), np.full_like(samples.ms, np.median(samples.ms))
    stalled = np.zeros(len(ms), dtype=bool)
    terms = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        # Weights of 1 / expected: then the residuals of the terms in use add up to 0.
        terms = nonnegative_least_squares(columns, ms, 1.0 / fitted)
        fitted = np.maximum(columns @ terms, LEAST * np.median(samples.ms))
        ratio = np.log(samples.ms / fitted)
        spread = 1.4826 * float(np.median(np.abs(ratio - np.median(ratio))))
        stalled = ratio > max(np.log(STALL), 5.0 * spread)
        ms = np.where(stalled, fitted, samples.ms)
    noise = _noise(samples.ms / fitted, stalled)
    level = float(samples.ms.sum() / (mean_factor(noise) * fitted.sum()))
    return CostFit(batches, (0.0, *knots), terms, noise, level)


def mean_factor(noise: Noise) -> float:
    """Mean of the factors that a noise draws."""
    return float(np.exp(noise.sigma**2 / 2.0) * (1.0 + noise.stalls * (noise.stall_factor - 1.0)))


def all_drafted(table: GoodputTable, batches: Array, ks: Sequence[int], context: float) -> Array:
    """Step times of steps that verify all the drafts that are asked for, shape ``(len(batches), len(ks))``.

    Rows of a table hold the drafts that its drafter returned, be they fewer, and a surface is of those that are there.
    """
    at = context if table.contexts else None
    if table.supply is None:
        return table.itl_grid(batches, ks, at)
    prior = StepTimePrior(table, sorted(ks))
    order = [sorted(ks).index(k) for k in ks]
    return np.exp([[prior.row(int(batch), at)[i] for i in order] for batch in batches])


def with_table(surface: CostSurface, table: GoodputTable, unknown: Sequence[int], known: Sequence[int]) -> CostSurface:
    """The surface where each unknown K costs as many times the nearest known K as it does in the table."""
    verify = surface.verify_ms.copy()
    batches = np.arange(1, surface.max_batch + 1, dtype=np.float64)
    for k in unknown:
        near = min(known, key=lambda other: (abs(other - k), other))
        for level, context in enumerate(surface.contexts.tolist()):
            times = all_drafted(table, batches, [near, k], context)
            whole = (verify[level, 1:, near] + surface.draft_ms[1:, near]) * times[:, 1] / times[:, 0]
            verify[level, 1:, k] = np.maximum(whole - surface.draft_ms[1:, k], LEAST * whole)
    return replace(surface, verify_ms=verify)


def with_shape(surface: CostSurface, unknown: Sequence[int], known: Sequence[int]) -> CostSurface:
    """The surface where each unknown K costs as many times the nearest known K as it does on a roofline.

    That is for the few steps in which it was recorded, not to judge it by.
    """
    verify = surface.verify_ms.copy()
    batches = np.arange(1, surface.max_batch + 1, dtype=np.float64)
    for k in unknown:
        near = min(known, key=lambda other: (abs(other - k), other))
        ratio = np.array([relative_cost(batch, k) / relative_cost(batch, near) for batch in batches.tolist()])
        whole = (verify[:, 1:, near] + surface.draft_ms[1:, near]) * ratio
        verify[:, 1:, k] = np.maximum(whole - surface.draft_ms[1:, k], LEAST * whole)
    return replace(surface, verify_ms=verify)


def table_over_trace(surface: CostSurface, table: GoodputTable, samples: Samples, known: Sequence[int]) -> float:
    """Step time in the table over that of the trace's surface, the median of the steps that decode at a known K."""
    counted = samples.take((samples.decodes > 0) & np.isin(samples.k, known))
    if len(counted.ms) == 0:
        return 1.0
    batches, ks = counted.decodes.astype(int), counted.k.astype(int)
    context = float(np.median(counted.context))
    column = {k: i for i, k in enumerate(known)}
    times = all_drafted(table, np.arange(1, surface.max_batch + 1, dtype=np.float64), known, context)
    theirs = times[batches - 1, [column[k] for k in ks.tolist()]]
    return float(np.median(theirs / surface.itl_grid(context)[batches, ks]))


def _columns(samples: Samples, batches: Sequence[float], ks: Sequence[float]) -> Array:
    """The terms' columns, shape ``(steps, terms)``; the last two are those of prompt tokens."""
    decodes, drafting = samples.decodes[:, None], samples.drafting[:, None]
    widths, made = _ramps(samples.width, ks), _ramps(np.where(samples.drafting > 0, samples.k, 0.0), ks)
    return np.hstack(
        [
            np.ones_like(decodes),
            _ramps(samples.decodes, batches),
            widths,
            decodes * widths,
            decodes * samples.context[:, None],
            made,
            drafting * made,
            samples.prompt[:, None],
            (samples.prompt > 0)[:, None],
        ]
    ).astype(float)


def _ramps(x: Array, bends: Sequence[float]) -> Array:
    """How far x has come in each of the stretches that begin at ``bends``, shape ``(len(x), len(bends))``."""
    ends = np.append(np.asarray(bends[1:], dtype=float), np.inf)
    starts = np.asarray(bends, dtype=float)
    return np.asarray(np.minimum(np.maximum(x[:, None] - starts, 0.0), ends - starts))


def _bends(decodes: Array) -> tuple[float, ...]:
    """0 and the powers of two on both sides of which there are enough steps."""
    bends = [0.0]
    for power in (2.0**i for i in range(20)):
        inside = np.sum((decodes > bends[-1]) & (decodes <= power))
        if inside >= ENOUGH and np.sum(decodes > power) >= ENOUGH:
            bends.append(power)
    return tuple(bends)


def _noise(ratio: Array, stalled: NDArray[np.bool_]) -> Noise:
    logs = np.log(ratio[~stalled])
    if len(logs) < 2:
        return Noise(sigma=0.0)
    logs -= logs.mean()
    sigma = float(logs.std())
    both = ~stalled[1:] & ~stalled[:-1]
    steps = np.log(ratio) - np.log(ratio[~stalled]).mean()
    product = float(np.mean(steps[1:][both] * steps[:-1][both])) if both.any() else 0.0
    correlation = min(max(product / sigma**2, 0.0), 0.95) if sigma > 0 else 0.0
    if not stalled.any():
        return Noise(sigma, correlation)
    begun = int(stalled[0]) + int(np.sum(stalled[1:] & ~stalled[:-1]))
    return Noise(sigma, correlation, float(stalled.mean()), float(ratio[stalled].mean()), float(stalled.sum() / begun))
