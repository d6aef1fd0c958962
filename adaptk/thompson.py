"""One draw of everything uncertain, and which arm each draw would play."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from adaptk.acceptance import AcceptancePosterior
from adaptk.latency import LatencyPosterior

Array = npt.NDArray[np.float64]


class Outlook(NamedTuple):
    """What is believed of all arms at one batch size, entry by arm.

    ``lengths`` are mean acceptance lengths, tokens per request and step; ``log_times`` mean log milliseconds with
    ``covariance``, shape ``(arms, arms)``. ``batch`` is the batch size, ``None`` where no one in particular is meant.
    """

    lengths: list[float]
    log_times: list[float]
    covariance: Array
    batch: int | None = None

    def excess_ms(self, arm: int, base: int, pessimism: float) -> float:
        """Milliseconds per step by which ``arm`` takes longer than ``base`` would for the same tokens, at least 0.

        ``pessimism`` standard deviations are added to the arm's log step time.
        """
        late = math.sqrt(max(0.0, float(self.covariance[arm, arm]))) * pessimism
        return max(0.0, math.exp(self.log_times[arm] + late) - worth_ms(self.lengths, self.log_times, arm, base))


def worth_ms(lengths: Sequence[float], log_times: Sequence[float], arm: int, base: int) -> float:
    """Milliseconds that ``base`` would take for the tokens of one step of ``arm``."""
    return math.exp(log_times[base]) * lengths[arm] / lengths[base]


def outlook(acceptance: AcceptancePosterior, latency: LatencyPosterior, batch: int, context: float | None) -> Outlook:
    """The posteriors at one batch size, tokens per request and step and log milliseconds."""
    widths = acceptance.widths(latency.arms)
    return Outlook(
        acceptance.lengths(latency.arms, batch),
        latency.log_times(batch, widths, context),
        latency.covariance(batch, widths, context),
        batch,
    )


def goodput_draws(
    acceptance: AcceptancePosterior,
    arms: Sequence[int],
    view: Outlook,
    n: int,
    rng: np.random.Generator,
    visit: bool = False,
) -> tuple[Array, Array]:
    """Joint draws of acceptance length and step time of every arm.

    Goodput is a ratio of long-run sums, so reward and cost are drawn apart and divided, never averaged per step. Within
    a draw all arms share the acceptance of their common positions and the errors of the table that they have in common.
    ``visit`` is that of ``AcceptancePosterior.draws``.

    Returns
    -------
    lengths, log_times
        Tokens per request and step, and log milliseconds, each of shape ``(n, arms)``.

    References
    ----------
    Xia et al., "Thompson Sampling for Budgeted Multi-armed Bandits", IJCAI 2015.
    """
    lengths = acceptance.draws(arms, n, rng, view.batch, visit)
    log_times = rng.standard_normal((n, len(arms))) @ _root(view.covariance).T
    log_times += view.log_times
    return lengths, log_times


def winners(scores: Array, allowed: Sequence[int]) -> npt.NDArray[np.intp]:
    """Index of the arm that each draw would play among the ``allowed`` ones, shape ``(n,)``.

    ``scores`` are log goodputs, shape ``(n, arms)``.
    """
    if len(allowed) == scores.shape[1]:
        return np.asarray(scores.argmax(axis=1))
    columns = np.asarray(allowed)
    return np.asarray(columns[np.argmax(scores[:, columns], axis=1)])


def _root(covariance: Array) -> Array:
    """A matrix square root that bears rounding: where Cholesky fails, eigenvalues below zero count as zero."""
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
