"""Drafts that were never asked for: what would have become of them, where a controller chose K by the text.

A controller that drafts much where drafts are accepted shows its acceptance at good texts only. The later positions of
the steps in which it drafted little are given what the first ones were worth at that time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adaptk.report.columns import Floats

_LASTS = 2.0  # blocks, over which texts are much alike
_OWN = 20.0  # drafts of a block from which its own acceptance counts for as much as what others say of it
_UNSURE, _OF_LIFT = 0.15, 1.5  # spread of what is filled in, log odds, and of how far it was shifted


class Filled(NamedTuple):
    """Accepted and possible drafts of one position with what was not asked for, shape ``(blocks, groups)``.

    ``unsure`` is the spread of the whole position's acceptance that stems from the guess, shape ``(groups,)``.
    """

    good: Floats
    tried: Floats
    unsure: Floats


class Unasked:
    """Fills in position by position, the first one first; ``able`` is what could have been drafted for."""

    def __init__(self, able: Floats) -> None:
        self._possible = able.astype(float)
        self._first: Floats | None = None  # log odds of the first position by block

    def fill(self, good: Floats, tried: Floats) -> Filled:
        """Put in what is lacking to ``good`` of ``tried`` drafts at the next position."""
        hits, trials = good.sum(axis=1), tried.sum(axis=1)
        rate = (hits.sum() + 0.5) / (trials.sum() + 1.0)
        usual = float(_log_odds(rate))
        lacking = np.maximum(self._possible - tried, 0.0)
        if self._first is None:
            apart = np.abs(np.subtract.outer(np.arange(len(hits)), np.arange(len(hits))))
            near = np.exp(-apart / _LASTS)
            said = (near @ hits + _OWN * rate) / (near @ trials + _OWN)
        else:
            here = float(self._first @ trials / trials.sum())
            said = 1.0 / (1.0 + np.exp(-(usual + self._first - here)))
        block = np.clip((hits + _OWN * said) / (trials + _OWN), 1e-3, 1.0 - 1e-3)
        if self._first is None:
            self._first = _log_odds(block)
        lift = np.abs(_log_odds(block) - usual)
        share = lacking.sum(axis=0) / np.maximum((tried + lacking).sum(axis=0), 1e-12)
        spread = _UNSURE + _OF_LIFT * (lift @ lacking) / np.maximum(lacking.sum(axis=0), 1e-12)
        filled = Filled(good + lacking * block[:, None], tried + lacking, share * rate * (1.0 - rate) * spread)
        self._possible = filled.good
        return filled


def _log_odds(share: Floats) -> Floats:
    inside = np.clip(share, 1e-3, 1.0 - 1e-3)
    return np.asarray(np.log(inside / (1.0 - inside)))
