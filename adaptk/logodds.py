"""Probabilities as log odds, kept away from 0 and 1."""

from __future__ import annotations

import math

LEAST = 0.0005


def logit(p: float) -> float:
    """Log odds of a probability, which counts as at least ``LEAST`` and at most ``1 - LEAST``."""
    p = LEAST if p < LEAST else 1.0 - LEAST if p > 1.0 - LEAST else p
    return math.log(p / (1.0 - p))


def expit(x: float) -> float:
    """The probability of log odds."""
    return 1.0 / (1.0 + math.exp(-x))
