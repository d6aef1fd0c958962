"""One draw of everything uncertain, and which arm each draw would play."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from adaptk.acceptance import AcceptancePosterior
from adaptk.latency import LatencyPosterior

Array = npt.NDArray[np.float64]


def goodput_draws(
    acceptance: AcceptancePosterior,
    latency: LatencyPosterior,
    batch: int,
    context: float | None,
    n: int,
    rng: np.random.Generator,
) -> tuple[Array, Array]:
    """Joint draws of acceptance length and step time of every arm.

    Goodput is a ratio of long-run sums, so reward and cost are drawn apart and divided, never averaged per step. Within a
    draw all arms share the acceptance of their common positions and the errors of the table that they have in common.

    Returns
    -------
    lengths, log_times
        Tokens per request and step, and log milliseconds, each of shape ``(n, arms)``.

    References
    ----------
    Xia et al., "Thompson Sampling for Budgeted Multi-armed Bandits", IJCAI 2015.
    """
    arms = latency.arms
    widths = acceptance.widths(arms)
    lengths = acceptance.draws(arms, n, rng)
    mean = np.array(latency.log_times(batch, widths, context))
    root = _root(latency.covariance(batch, widths))
    return lengths, mean + rng.standard_normal((n, len(arms))) @ root.T


def winners(lengths: Array, log_times: Array, allowed: Sequence[int]) -> npt.NDArray[np.intp]:
    """Index of the arm that each draw would play among the ``allowed`` ones, shape ``(n,)``."""
    columns = np.asarray(allowed)
    return np.asarray(columns[np.argmax(np.log(lengths[:, columns]) - log_times[:, columns], axis=1)])


def _root(covariance: Array) -> Array:
    """A matrix square root that bears rounding: eigenvalues below zero count as zero."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2.0)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
