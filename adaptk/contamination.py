"""How much sound steps scatter, and how many steps are slowed for no visible reason."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

WINDOW, TIGHT = 32, 10  # residuals looked at together, and how many of them make the densest interval
# Width of the densest interval of TIGHT among n standard normal values, the median of 40,000 trials.
_COUNTS, _WIDTHS = (10, 12, 16, 20, 24, 28, 32), (3.02, 2.00, 1.28, 0.93, 0.72, 0.59, 0.495)
SOUND = 4.0  # standard deviations above what was expected from which a step counts as slowed
FIRST_NOISE, LEAST_NOISE, MOST_NOISE = 0.03, 0.003, 0.3
WEIGHT = 0.2  # of one window
MOST_EXCESS = math.log(5.0)
UNTRUSTED_SHARE, UNTRUSTED_NOISE = 0.6, 0.25
TRUSTED_SHARE, TRUSTED_NOISE = 0.5, 0.2


class Contamination:
    """Running estimates from windows of residuals of log step time at well-known places.

    Stalls, other work on the device and prefill of other ranks only lengthen a step, so the sound steps are those about
    as quick as expected or quicker, and their scatter is told from the densest part of them: both bear more than half
    of the steps slowed, where the median of the distances of neighbours, the usual robust scale, already fails.

    Attributes
    ----------
    noise
        Standard deviation of a sound step, log units.
    share, excess, excess_variance
        Share of the steps that are slowed; by how much, log units, mean and variance.
    trusted
        Whether enough steps are sound to tell arms apart by their time.
    distrusted
        How often it came to that too few steps were sound.
    """

    def __init__(self) -> None:
        self.noise = FIRST_NOISE
        self.share = 0.0
        self.excess = 0.7
        self.excess_variance = 0.25
        self.trusted = True
        self.distrusted = 0  # times that too few steps were sound
        self._residuals: list[float] = []
        self._windows = 0

    def take(self, values: Sequence[float], expected: float) -> None:
        """Add steps among which at least one was as quick as ``expected``: a run of slow ones may be a change."""
        residuals = self._residuals
        residuals.extend([value - expected for value in values])
        if len(residuals) >= WINDOW:
            self._learn(sorted(residuals[-WINDOW:]))
            residuals.clear()

    def all_slow(self, n: int) -> float:
        """Probability that ``n`` steps in a row are all slowed."""
        return float(self.share**n)

    def _learn(self, values: list[float]) -> None:
        weight = max(WEIGHT, 1.0 / (self._windows + 2.0))
        self._windows += 1
        sound = bisect_right(values, SOUND * self.noise)
        if sound >= TIGHT:
            densest = min(values[i + TIGHT - 1] - values[i] for i in range(sound - TIGHT + 1))
            scatter = min(MOST_NOISE, max(LEAST_NOISE, densest / _width(sound)))
            self.noise *= (scatter / self.noise) ** weight
        if self._windows > 1:  # the first one was judged by a noise that was only guessed
            self.share += weight * ((WINDOW - sound) / WINDOW - self.share)
        if self.trusted and (self.share > UNTRUSTED_SHARE or self.noise > UNTRUSTED_NOISE):
            self.trusted = False
            self.distrusted += 1
        elif self.share < TRUSTED_SHARE and self.noise < TRUSTED_NOISE:
            self.trusted = True
        for value in values[sound:]:
            excess = min(MOST_EXCESS, value)
            self.excess_variance += 0.05 * ((excess - self.excess) ** 2 - self.excess_variance)
            self.excess += 0.05 * (excess - self.excess)

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {name: getattr(self, name) for name in _FIELDS} | {"residuals": list(self._residuals)}

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        for name in _FIELDS:
            setattr(self, name, data[name])
        self._residuals = list(map(float, data["residuals"]))


_FIELDS = ("noise", "share", "excess", "excess_variance", "trusted", "distrusted", "_windows")


def _width(sound: int) -> float:
    above = next(i for i, count in enumerate(_COUNTS) if sound <= count)
    if above == 0:
        return _WIDTHS[0]
    share = (sound - _COUNTS[above - 1]) / (_COUNTS[above] - _COUNTS[above - 1])
    return _WIDTHS[above - 1] + share * (_WIDTHS[above] - _WIDTHS[above - 1])
