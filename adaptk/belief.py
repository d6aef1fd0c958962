"""What the controller believes of each arm, for people to read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from adaptk.acceptance import AcceptancePosterior
from adaptk.latency import KNOWN, LatencyPosterior
from adaptk.table import GoodputTable
from adaptk.thompson import goodput_draws, outlook, winners

DRAWS = 1_000
# Of the standard deviation of a step time that was seen: smooth part and cell are booked as if they were independent,
# which leaves their sum too wide by about as much (tests/test_calibration.py).
CALIBRATED = 0.8
Z90 = 1.6449  # a normal lies within so many standard deviations with 90 %


class ArmBelief(msgspec.Struct, frozen=True, kw_only=True):
    """Belief about one arm at one batch size; intervals hold 90 %.

    ``al`` is the acceptance length, tokens per request and step; ``itl_ms`` the step time, milliseconds, ``None`` while
    no time was ever seen and the table has none; ``goodput`` tokens per request and second; ``p_best`` the probability
    that this arm is the best of those allowed; ``table_itl_ms`` what the table says and ``drift`` belief over table.
    """

    k: int
    al: float
    al_low: float
    al_high: float
    itl_ms: float | None
    itl_low: float | None
    itl_high: float | None
    goodput: float | None
    p_best: float
    table_itl_ms: float | None
    drift: float | None


def arm_beliefs(
    acceptance: AcceptancePosterior,
    latency: LatencyPosterior,
    table: GoodputTable | None,
    batch: int,
    context: float | None,
    allowed: Sequence[int],
) -> list[ArmBelief]:
    """One belief per arm; draws with a generator of its own, so that looking changes nothing."""
    arms = latency.arms
    view = outlook(acceptance, latency, batch, context)
    lengths, logs = goodput_draws(acceptance, arms, view, DRAWS, np.random.default_rng(0))
    best = winners(np.log(lengths) - logs, allowed)
    low, high = np.quantile(lengths, (0.05, 0.95), axis=0)
    variances = np.maximum(np.diag(view.covariance), 0.0)
    known = 1.0 / (1.0 + variances / (KNOWN * latency.noise**2))
    spread = Z90 * np.sqrt(variances) * (1.0 - (1.0 - CALIBRATED) * known)
    beliefs = []
    for i, (k, al) in enumerate(zip(arms, view.lengths, strict=True)):
        itl = math.exp(view.log_times[i]) if latency.level_known else None
        said = table.itl_ms(batch, k, context) if table is not None else None
        beliefs.append(
            ArmBelief(
                k=k,
                al=al,
                al_low=float(low[i]),
                al_high=float(high[i]),
                itl_ms=itl,
                itl_low=None if itl is None else itl * math.exp(-spread[i]),
                itl_high=None if itl is None else itl * math.exp(spread[i]),
                goodput=None if itl is None else 1000.0 * al / itl,
                p_best=float(np.mean(best == i)),
                table_itl_ms=said,
                drift=None if itl is None or said is None else itl / said,
            )
        )
    return beliefs
