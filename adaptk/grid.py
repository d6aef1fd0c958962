"""The (batch, arm) grid on which errors of the table are described, and how they hang together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adaptk.prior import StepTimePrior

Array = npt.NDArray[np.float64]

NODES = 11  # batch sizes 1, 2, 4, ... 1024
# Prior standard deviations of the table's error, log units.
LEVEL = 0.12  # the whole engine, as it drifts while it runs
LEVEL_SEED = 0.5  # ... and at the start: another host, other clocks, another version
LEVEL_UNKNOWN = 4.0  # without times in the table only the shape is known
SLOPE = 0.30  # steepness in K: at the largest arm
ON_OFF = 0.12  # between K=0 and K>0
ARM = 0.06  # one arm, smooth in batch
ARM_UNKNOWN = 0.15  # an arm the table lacks
BATCH_UNKNOWN = 0.3  # all arms at one batch size, where no table says how steps grow with it
NODE = 0.02  # one node alone
KERNEL = 1.5  # correlation length, ln(batch)
# Of the coefficients of context, per unit of its covariate: all arms alike, with steepness in K, one arm alone.
CONTEXT, CONTEXT_SLOPE, CONTEXT_ARM = 0.3, 0.15, 0.03
CONTEXT_SCALE = 1000.0  # tokens per request; below it the covariate is about linear, above about logarithmic


def node(log_batch: float) -> tuple[int, float]:
    """Left node of a batch size and the share of the right one, in [0, 1]."""
    place = min(max(log_batch / math.log(2.0), 0.0), NODES - 1.0)
    left = min(int(place), NODES - 2)
    return left, place - left


def between(arms: Sequence[int], width: float) -> tuple[int, float]:
    """Index of the arm at or below a width (drafts per request) and the share of the next one, in [0, 1).

    Examples
    --------
    >>> between((0, 1, 3), 2.0)
    (1, 0.5)
    >>> between((0, 1, 3), 3.0)
    (2, 0.0)
    """
    last = len(arms) - 1
    if last == 0 or width >= arms[last]:
        return last, 0.0
    low = 0
    while low < last - 1 and width >= arms[low + 1]:
        low += 1
    share = (width - arms[low]) / (arms[low + 1] - arms[low])
    return low, min(1.0, max(0.0, share))


def interpolate(values: Sequence[float], low: int, share: float) -> float:
    """The value at a place that ``between`` gave."""
    return values[low] if share == 0.0 else values[low] * (1.0 - share) + values[low + 1] * share


def context_covariate(context: float, reference: float) -> float:
    """What the coefficients of context are multiplied with; 0 at the reference, tokens per request."""
    return math.log((CONTEXT_SCALE + context) / (CONTEXT_SCALE + reference))


def covariance(prior: StepTimePrior, level: float) -> Array:
    """Covariance of the table's log error, shape ``((NODES + 1) * arms, (NODES + 1) * arms)``, node-major.

    The rows behind the nodes are each arm's coefficient of context, of either sign.
    """
    arms = np.array(prior.arms, dtype=np.float64)
    steep = np.log1p(arms) / math.log1p(max(prior.arms[-1], 1))
    drafting = (arms > 0).astype(np.float64)
    alone = np.array([ARM if prior.known(k) or not prior.timed else ARM_UNKNOWN for k in prior.arms])
    distance = math.log(2.0) * np.subtract.outer(np.arange(NODES), np.arange(NODES))
    near = np.exp(-0.5 * (distance / KERNEL) ** 2)
    shape, batch = (1.0, ARM) if prior.timed else (1.5, BATCH_UNKNOWN)  # a roofline is a worse table
    if prior.shaped:  # the mean of two guesses: another engine's table and the roofline
        shape, batch = shape / math.sqrt(2.0), batch / math.sqrt(2.0)
    smooth = 0.5 + 0.5 * near
    total = np.full((NODES * len(arms), NODES * len(arms)), level**2)
    total += np.kron(smooth, (shape * SLOPE) ** 2 * np.outer(steep, steep))
    total += np.kron(smooth, (shape * ON_OFF) ** 2 * np.outer(drafting, drafting))
    total += np.kron(near, np.diag(alone**2))
    # One batch size, all arms: a roofline knows less than a table of how steps grow with the batch.
    total += np.kron(near, np.full((len(arms), len(arms)), batch**2))
    total += NODE**2 * np.eye(len(total))
    told = 0.5 if prior.has_contexts and prior.timed else 1.0
    context = np.full((len(arms), len(arms)), CONTEXT**2) + CONTEXT_SLOPE**2 * np.outer(steep, steep)
    context += CONTEXT_ARM**2 * np.eye(len(arms))
    both = np.zeros((len(total) + len(arms),) * 2)
    both[: len(total), : len(total)], both[len(total) :, len(total) :] = total, told**2 * context
    return both
