"""What another policy would have reached on a recorded trace, by the propensities in it, without a simulation.

The main road is the replay of the trace (``adaptk replay --trace FILE``), which imitates the other policy step by step.
These estimators ask less of a model and more of the trace: its policy must have played, by chance and often enough,
what the target would play. adaptk is certain of most of its steps, so that they often refuse.

**Outcome.** The drafts that decision n asked for are verified in the next row, under async scheduling too (not in a
pipeline of several stages: where the next row says that other drafts were asked for, the step is left out): decision n
gets the tokens and the time of row n+1, the first row's outcome belongs to nobody. On runner V2 that row holds the
drafts of the same decision. On V1 it is the next decision's: the time is ``verify(k of n) + draft(k of n+1)``, which
flatters a deep arm that is left soon. Times are therefore taken from the *whole* rows alone, in which both are the same
K; the others keep their tokens, and get the mean time of the whole rows of their arm and octave of batch sizes. They
are not left out of the sample, but the effective steps count whole rows only, and what has none lacks support. That
assumes that within an octave, whether K changes does not go with the time of a step. What a change of K costs beyond
its drafts (a graph to be captured) is thus not in the estimate.

**Weights.** A step counts with the target's probability of what was played over the recorded propensity, which is the
marginal one of that step. The steps of a visit come from one draw: each weight is right on average, but the steps, and
the effective ones too, tell less than their number says; the interval therefore resamples blocks of steps. Load,
context and the drafter's state stay as recorded: what a step does is re-weighted, not what it leads to. On made-up
traces (600 and 2,000 steps, 140 and 460 of them effective, a load that changes, autocorrelated times, visits of 4) the
90 % intervals held the truth in 96 to 99 % (inverse propensity), 90 to 94 % (self-normalised, half as wide) and 85 to
94 % (doubly robust, a third as wide; 85 % with visits). On simulated engines (200 runs of 800 steps, K=3 played in 40 %
of the draws, a load of 16 and 48 requests) the self-normalised and doubly robust intervals held it in 96 to 97 % on V1
where K is drawn anew at each step, and in 90 to 91 % with visits of 4 and on V2; those of inverse propensity in 94 to
100 %. Bias was at most 0.15 % (0.2 % for inverse propensity); with the times of all rows it had been 10 % on V1 with K
drawn at each step and 2.5 % with visits of 4.

**Goodput** is a ratio of sums: tokens and milliseconds are estimated apart and divided, with a bias of the order of
1 / effective steps. Where the target's probability lacks support (at most ``MOST_MISSING`` of it), it falls out of both
sums, but for what a table given to :func:`doubly_robust` fills in.

References
----------
Swaminathan and Joachims, "The Self-Normalized Estimator for Counterfactual Learning", NeurIPS 2015.
Dudík, Langford and Li, "Doubly Robust Policy Evaluation and Learning", ICML 2011.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.evidence import LONGEST_MS, SHORTEST_MS
from adaptk.planner import VISIT
from adaptk.replay.intervals import block_length, resampled_sums, spread
from adaptk.replay.policies.base import decoding
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from adaptk.tracefile import TraceRow

Array = NDArray[np.float64]
Plan = Mapping[int, float]
Cell = tuple[int, int]  # arm; batch size, or octave of batch sizes
Target = Callable[[TraceRow], int | Plan]
"""The policy to value: for a row, whose ``decision`` is there, the arm it would play or the probability of each arm."""

LEAST_EFFECTIVE = 50.0  # steps
LEAST_PROPENSITY = 1e-9  # what is less likely is not played: a mistake, and a weight that would drown all others
MOST_MISSING = 0.05  # of the target's probability
MOST_LEFT_OUT = 0.2  # of the steps
DRAWS = 1000
_CERTAIN = 1.0 - 1e-9
_SIMULATE = "simulate the target on this trace instead: adaptk replay --trace FILE --policy NAME"


class SupportError(ValueError):
    """The trace cannot value the target; the message says what is missing and points to the simulation."""


class Estimate(NamedTuple):
    """Goodput of the target, with its 90 % interval: NaN where there are fewer than two effective blocks of steps.

    ``effective_steps`` is ``sum(w)**2 / sum(w**2)`` of the ``steps`` used, w being the weights with which their times
    count: 0 where a row's time holds the drafts of another K, whose place the others take. ``left_out`` had no
    decision, propensity or time, another K than decided, or a gap after them.
    """

    tokens_per_s: float
    low: float
    high: float
    effective_steps: float
    steps: int
    left_out: int


def inverse_propensity(
    rows: Sequence[TraceRow], target: Target, *, least_effective: float = LEAST_EFFECTIVE, seed: int = 0
) -> Estimate:
    """Weighted tokens over weighted milliseconds (IPS).

    Parameters
    ----------
    rows
        Consecutive rows of a trace, as recorded.
    target
        The policy to value.
    least_effective
        Effective steps below which the estimate is refused.
    seed
        Of the bootstrap.

    Raises
    ------
    SupportError
        If too many steps must be left out, too much of what the target would play was never or could not be played, or
        there are too few effective steps.
    ValueError
        If a propensity is above 1 or below ``LEAST_PROPENSITY``, or the target's probabilities are none.

    Examples
    --------
    Two arms by a fair coin, here in turn; with K=3 a step gives 3 tokens and takes 12 ms, else 1 and 10 ms.

    >>> from adaptk.decision import Decision, Reason
    >>> def row(n: int, k: int, played: int) -> TraceRow:
    ...     ms, accepted = 10.0 + played * 2 / 3, [played * 2 // 3]
    ...     step = StepRecord(batch_size=1, elapsed_ms=ms, k=k, draft_k=played, drafted=[played], accepted=accepted)
    ...     return TraceRow(step, Decision(seq=n, k=k, propensity=0.5, reason=Reason.EXPLORE, arms=(0, 3)))
    >>> rows = [row(n, k=3 * (n % 2), played=3 * (n % 2 == 0)) for n in range(201)]
    >>> inverse_propensity(rows, lambda row: 3).tokens_per_s
    250.0
    """
    sample = _sample(rows, target, least_effective)
    return _estimate(sample, np.zeros(2), sample.weights[:, None] * sample.outcomes, seed)


def self_normalised(
    rows: Sequence[TraceRow], target: Target, *, least_effective: float = LEAST_EFFECTIVE, seed: int = 0
) -> Estimate:
    """As :func:`inverse_propensity`, with weights that sum to the steps in each octave of batch sizes (SNIPS).

    So the trace's mix of loads is kept. Normalised over the whole trace, the constant would cancel in the ratio: where
    the batch stays within one octave, this equals inverse propensity.
    """
    sample = _sample(rows, target, least_effective)
    octaves = np.array(sample.octaves)
    total, columns = np.zeros(2), np.zeros_like(sample.outcomes)
    for octave in np.unique(octaves):
        inside = octaves == octave
        weights, outcomes = sample.weights[inside], sample.outcomes[inside]
        if weights.sum() > 0.0:
            mean = weights @ outcomes / weights.sum()
            total += len(weights) * mean
            columns[inside] = (len(weights) / weights.sum() * weights)[:, None] * (outcomes - mean)
    return _estimate(sample, total, columns, seed)


def doubly_robust(
    rows: Sequence[TraceRow],
    target: Target,
    *,
    table: GoodputTable | None = None,
    least_effective: float = LEAST_EFFECTIVE,
    seed: int = 0,
) -> Estimate:
    """A model's answer for every step, put right by its weighted errors where the target's arm was played (DR).

    The model is ``table``, which needs step times, else the trace's own means per arm and octave of batch sizes. The
    interval takes it as given. Other parameters and errors as in :func:`inverse_propensity`.
    """
    if table is not None and not table.has_times:
        raise ValueError(
            "table has a schedule and no step times: give one with rows, or none for the trace's own means"
        )
    sample = _sample(rows, target, least_effective)
    places = sample.octaves if table is None else sample.batches
    cells = list(zip(sample.ks, places, strict=True))
    wanted = {(arm, place) for plan, place in zip(sample.plans, places, strict=True) for arm in plan}
    model = _means(cells, sample) if table is None else _from_table(table, wanted | set(cells))
    direct = [
        [sum(share * model.get((arm, place), (0.0, 0.0))[part] for arm, share in plan.items()) for part in (0, 1)]
        for plan, place in zip(sample.plans, places, strict=True)
    ]
    errors = sample.outcomes - np.array([model.get(cell, (0.0, 0.0)) for cell in cells])
    return _estimate(sample, np.sum(direct, axis=0), sample.weights[:, None] * errors, seed)


def table_target(table: GoodputTable) -> Target:
    """The policy that plays the arm of the row which ``table`` thinks best for its decoding requests."""

    best_k = cache(lambda batch, arms: table.best_k(batch, arms=arms))

    def play(row: TraceRow) -> int:
        return best_k(_load(row.step), None if row.decision is None else row.decision.arms)

    return play


class _Sample(NamedTuple):
    """The usable steps; every field but the last has one entry per step."""

    numbers: list[int]  # of the row, from 0
    weights: Array  # 0 for an arm and octave without whole rows
    certain: list[bool]  # nothing else could have been played
    outcomes: Array  # (steps, 2): tokens, milliseconds
    shares: Array  # how many rows' times this row's stands for, 0 where it holds another arm's drafts
    ks: list[int]
    batches: list[int]  # decoding requests when the decision was made
    octaves: list[int]  # their octave
    plans: list[Plan]
    left_out: int

    @property
    def effective(self) -> float:
        counted = self.weights * self.shares
        squares = float(counted @ counted)
        return float(counted.sum()) ** 2 / squares if squares > 0.0 else 0.0

    @property
    def supported(self) -> set[Cell]:
        """Arms that were played, in whole rows, at each octave."""
        return {(k, at) for k, at, share in zip(self.ks, self.octaves, self.shares.tolist(), strict=True) if share > 0}


def _sample(rows: Sequence[TraceRow], target: Target, least_effective: float) -> _Sample:
    """Give each decision its outcome and weight, and refuse what cannot be estimated."""
    left_out: Counter[str] = Counter()
    numbers, weights, certain, outcomes, whole, ks, batches = [], [], [], [], [], [], []
    plans: list[Plan] = []
    for number, (row, following) in enumerate(pairwise(rows)):
        decision, ms = row.decision, ms_of(following.step)
        reason = _unusable(row, following)
        if reason is not None or decision is None or ms is None:
            left_out[reason or "no time"] += 1
            continue
        if not LEAST_PROPENSITY <= decision.propensity <= 1.0 + 1e-9:
            raise ValueError(
                f"propensity of row {number} is {decision.propensity}: it must be in (0, 1], at least "
                f"{LEAST_PROPENSITY:g}; correct it, or make it NaN to leave the step out"
            )
        plan = _plan(target(row), number)
        numbers.append(number)
        weights.append(plan.get(decision.k, 0.0) / decision.propensity)
        certain.append(decision.propensity >= _CERTAIN)
        outcomes.append((tokens_of(following.step), ms))
        whole.append(_made(following.step) == decision.k)
        ks.append(decision.k)
        batches.append(_load(row.step))
        plans.append(plan)
    if not numbers or left_out.total() > MOST_LEFT_OUT * (len(rows) - 1):
        why = ", ".join(f"{n} have {reason}" for reason, n in left_out.items()) or "the trace is too short"
        raise SupportError(f"{len(numbers)} of {max(len(rows) - 1, 0)} steps can be used ({why}): {_SIMULATE}")
    octaves = [batch.bit_length() for batch in batches]
    table = np.array(outcomes, dtype=np.float64)
    table[:, 1], shares = _whole_times(table[:, 1], list(zip(ks, octaves, strict=True)), np.array(whole))
    usable = np.array(weights) * np.isfinite(shares)
    shares = np.nan_to_num(shares)
    sample = _Sample(numbers, usable, certain, table, shares, ks, batches, octaves, plans, left_out.total())
    _check_support(sample, least_effective)
    return sample


def _whole_times(ms: Array, cells: Sequence[Cell], whole: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Times as if all rows were whole, and for how many rows each stands; shape ``(steps,)``, as ``ms`` and ``whole``.

    In a cell of n rows, m of them whole, a whole one stands for n / m and the others for 0. Each gets the mean of the
    whole ones and its own distance from it as many times as it stands for: the mean is theirs, and moves from sample to
    sample as theirs does. NaN where m is 0, with the time as it is.
    """
    times, shares = ms.copy(), np.ones_like(ms)
    members: dict[Cell, list[int]] = {}
    for i, cell in enumerate(cells):
        members.setdefault(cell, []).append(i)
    for rows in members.values():
        inside = whole[rows]
        if inside.all():
            continue
        if not inside.any():
            shares[rows] = np.nan
            continue
        share = np.where(inside, len(rows) / inside.sum(), 0.0)
        mean = ms[rows][inside].mean()
        times[rows], shares[rows] = mean + share * (ms[rows] - mean), share
    return times, shares


def _unusable(row: TraceRow, following: TraceRow) -> str | None:
    """What keeps a decision from having a weight and an outcome, if anything does."""
    decision = row.decision
    if decision is None or math.isnan(decision.propensity):
        return "no propensity"
    if decision.k != row.step.k:
        return "another K than decided"
    if following.decision is not None and following.decision.seq != decision.seq + 1:
        return "rows lost after them"
    if following.step.asked is not None and following.step.asked != decision.k:
        return "drafts of another decision after them"
    return None


def _check_support(sample: _Sample, least_effective: float) -> None:
    """Refuse a target that plays what the trace never did at that load, or could not have done in that step."""
    supported = sample.supported
    wanted: dict[int, float] = {}
    missing: dict[int, list[tuple[int, float]]] = {}
    for i, plan in enumerate(sample.plans):
        for arm, share in plan.items():
            wanted[arm] = wanted.get(arm, 0.0) + share
            elsewhere = sample.certain[i] and arm != sample.ks[i]
            if share > 0.0 and (elsewhere or (arm, sample.octaves[i]) not in supported):
                missing.setdefault(arm, []).append((i, share))
    lost = sum(share for steps in missing.values() for _, share in steps)
    steps = len(sample.plans)
    if lost <= MOST_MISSING * steps and sample.effective >= least_effective:
        return
    told = "; ".join(
        f"K={arm} in {sum(share for _, share in lacking):.0f} of {wanted[arm]:.0f} steps that the target gives it, "
        f"first in row {sample.numbers[lacking[0][0]]} at batch {sample.batches[lacking[0][0]]}"
        for arm, lacking in sorted(missing.items())
    )
    raise SupportError(
        f"the trace lacks support for this target: {sample.effective:.1f} effective steps of {steps}, at least "
        f"{least_effective:g} needed; without support: {told or 'none, the weights are too uneven'}; {_SIMULATE}"
    )


def _estimate(sample: _Sample, fixed: Array, columns: Array, seed: int) -> Estimate:
    """The ratio of ``fixed`` plus the sums of ``columns``, of which only the latter are resampled.

    ``fixed``, shape ``(2,)``, and ``columns``, shape ``(steps, 2)``, are tokens and milliseconds.
    """
    tokens, ms = (fixed + columns.sum(axis=0)).tolist()
    if ms <= 0.0:
        raise SupportError(f"the target's time is estimated as {ms:.3g} ms, which none can be: {_SIMULATE}")
    # Shorter blocks would cut visits, whose steps lean the same way.
    length = block_length(columns[:, 0] - tokens / ms * columns[:, 1], shortest=4 * VISIT)
    sums = fixed + resampled_sums(columns, length, DRAWS, seed)
    low, high = spread(sums[:, 0], sums[:, 1], sample.effective / length)
    return Estimate(
        1000.0 * tokens / ms, 1000.0 * low, 1000.0 * high, sample.effective, len(sample.plans), sample.left_out
    )


def _means(cells: Sequence[Cell], sample: _Sample) -> dict[Cell, tuple[float, float]]:
    """Mean tokens and milliseconds of each arm and octave that has support."""
    members: dict[Cell, list[int]] = {cell: [] for cell in sample.supported}
    for i, cell in enumerate(cells):
        if cell in members:
            members[cell].append(i)
    return {cell: tuple(sample.outcomes[steps].mean(axis=0).tolist()) for cell, steps in members.items()}


def _from_table(table: GoodputTable, cells: set[Cell]) -> dict[Cell, tuple[float, float]]:
    """Tokens and milliseconds of each arm and batch size, as the table has them."""
    times = {(k, batch): float(table.itl_grid([batch], [k])[0, 0]) for k, batch in cells}
    return {(k, batch): (batch * table.acceptance_length(k), ms) for (k, batch), ms in times.items()}


def _plan(answer: int | Plan, number: int) -> Plan:
    if not isinstance(answer, Mapping):
        return {int(answer): 1.0}
    if not abs(math.fsum(answer.values()) - 1.0) <= 1e-6 or min(answer.values()) < 0.0:
        raise ValueError(f"target gives {dict(answer)} for row {number}: give probabilities that sum to 1")
    return answer


def _load(step: StepRecord) -> int:
    return max(1, decoding(step.batch_size, step.decodes))


def tokens_of(step: StepRecord) -> int:
    """Tokens that counted, else one per decoding request and accepted draft."""
    if step.emitted is not None:
        return sum(step.emitted)
    return (step.batch_size if step.decodes is None else step.decodes) + sum(step.accepted)


def _made(step: StepRecord) -> int:
    """K of the drafts whose making is in the step's time."""
    return step.k if step.draft_k is None else step.draft_k


def ms_of(step: StepRecord) -> float | None:
    """The worker's own time where known, else the wall's; ``None`` for what is no time."""
    for ms in (step.device_ms, step.elapsed_ms):
        if ms is not None and SHORTEST_MS <= ms <= LONGEST_MS:
            return ms
    return None
