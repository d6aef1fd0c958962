"""What a step costs: a Gaussian state around the table, corrected by every few steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from adaptk.grid import LEVEL, LEVEL_UNKNOWN, NODES, between, covariance, interpolate, node
from adaptk.prior import StepTimePrior
from adaptk.samples import Samples

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

FLOOR = 0.008  # misfit that no number of samples removes, log units
RETURN_STEPS = 10_000.0  # after about as many steps a variance is back at the prior
# Steps whose quickest cluster makes one observation: more where slow ones are common, and where a cell is well known.
GROUP, MOST_GROUP = 3, 8
CALM = 0.1  # a cell is well known when its variance is below this share of one step's
TRIP = 4.0  # standard deviations of one step that end the patience with a well-known cell
SURPRISE = 3.5  # standard deviations
AGREE = 5  # slow samples that must agree before they are believed
FAR, AGREE_FAR = math.log(5.0), 30  # far slower: compilation and stalls are likelier than a new cost
DOUBT = 0.12  # share of slow samples at which earlier beliefs are dropped, once
SLOW_MEMORY = 0.02  # weight of one group in the share of slow samples
_KEPT_DESIGNS = 256
LASTING = 0.05  # a surprise below this is booked without an alarm, log units


class LatencyPosterior:
    """Posterior of log step time over (batch, arm), a Kalman filter on the deviation from the prior.

    State: one deviation per (batch node, arm), shape ``(NODES * arms,)``, with a covariance made of a shared level, a
    slope in K, an on/off part, a smooth part per arm and a part per node. Between nodes it is linear in ln(batch),
    between arms linear in the drafts per request that were really verified.

    Stalls only lengthen: of ``GROUP`` samples the quickest cluster counts, shorter times are believed at once, longer
    ones when enough samples agree.

    Parameters
    ----------
    prior
        The table's view.

    References
    ----------
    West and Harrison, "Bayesian Forecasting and Dynamic Models", 1997, chapter 4.
    """

    def __init__(self, prior: StepTimePrior) -> None:
        self.prior = prior
        self.arms = prior.arms
        self.alarms = 0
        self.noise = 0.03  # of one step, log units
        self.level_known = prior.timed
        self._drifting = covariance(prior, LEVEL)
        self._cov = self._drifting.copy() if prior.timed else covariance(prior, LEVEL_UNKNOWN)
        self._scratch = np.empty_like(self._cov)
        self._rows: list[list[float]] = []
        self._set_mean(np.zeros(len(self._cov)))
        self._group = Samples()
        self._dry = Samples()
        self._slow = Samples()
        self._slow_share = 0.0
        self._excess = 0.0
        self._doubted = False
        self._group_size = GROUP
        self._designs: dict[tuple[float, float], tuple[Indices, Array]] = {}

    def add(self, arm: int, batch: int, width: float, elapsed_ms: float, context: float | None) -> bool:
        """Take the time of one step; whether a change was detected.

        ``arm`` is the index of the arm that was asked for, ``width`` the drafts per request really verified.
        """
        row = self.prior.row(batch, context)
        expected = row[arm] if width == self.arms[arm] else interpolate(row, *between(self.arms, width))
        y = math.log(elapsed_ms) - expected
        log_batch = math.log(batch)
        # A step for which the drafter had nothing costs what K=0 costs; it must not stand beside drafting ones.
        group, arm = (self._dry, 0) if width == 0.0 and arm > 0 else (self._group, arm)
        changed = False
        if not group.near(arm, log_batch) or (group.patient and abs(y - group.level) > TRIP * self.noise):
            changed = self._flush(group)
            group.patient = False
        if group.values:
            self._learn_noise(y, group.values[-1])
        group.take(arm, width, log_batch, y)
        enough = len(group.values) >= (MOST_GROUP if group.patient else self._group_size)
        return (self._flush(group) or changed) if enough else changed

    def flush(self) -> bool:
        """Book the samples at hand, if there are any; whether a change was detected."""
        changed = self._flush(self._dry)
        return self._flush(self._group) or changed

    def _flush(self, group: Samples) -> bool:
        if not group.values:
            return False
        y, n = group.quickest(3.3 * self.noise)
        self._learn_contamination(group, y, n)
        index, h = self._design(group)
        gain, spread = self._project(index, h)
        noise = self.noise**2 / n + FLOOR**2 + self._slow_share ** len(group) * self._excess**2
        deviation = y - float(h @ self._mean[index])
        limit = SURPRISE * math.sqrt(spread + noise)
        changed = False
        if not self.level_known or abs(deviation) <= limit:
            if self._slow.near(group.arm, group.log_batch):
                self._slow.clear()
            self._book(deviation, gain, spread + noise)
            group.patient, group.level = self.level_known and spread < CALM * self.noise**2, y
            self.level_known = True
        elif deviation < 0.0:
            changed = self._surprised(index, h, deviation, noise)
        else:
            changed = self._held_back(group, y, n, index, h, deviation, noise)
        group.clear()
        return changed

    def tick(self, steps: int) -> None:
        """Let ``steps`` steps of drift widen what is believed."""
        if self.level_known:
            self._cov += (1.0 - math.exp(-steps / RETURN_STEPS)) * (self._drifting - self._cov)

    def widen(self, share: float = 1.0) -> None:
        """Add ``share`` of the prior's uncertainty."""
        self._cov += share * self._drifting

    def log_times(self, batch: int, widths: Sequence[float], context: float | None) -> list[float]:
        """Believed log milliseconds per arm when arm i verifies ``widths[i]`` drafts per request, shape ``(arms,)``."""
        row = self.prior.row(batch, context)
        if not self._rows:
            self._rows = self._mean.reshape(NODES, -1).tolist()
        left, right = node(math.log(batch))
        lower, upper = self._rows[left], self._rows[left + 1]
        full = [p + (1.0 - right) * a + right * b for p, a, b in zip(row, lower, upper, strict=True)]
        return [interpolate(full, *self._place(i, width)) for i, width in enumerate(widths)]

    def covariance(self, batch: int, widths: Sequence[float]) -> Array:
        """Covariance of ``log_times``, shape ``(arms, arms)``."""
        n = len(self.arms)
        left, right = node(math.log(batch))
        design = np.zeros((n, 2 * n))
        for i, width in enumerate(widths):
            low, share = self._place(i, width)
            for arm, by_arm in ((low, 1.0 - share), (min(low + 1, n - 1), share)):
                design[i, arm] += by_arm * (1.0 - right)
                design[i, n + arm] += by_arm * right
        block = slice(left * n, (left + 2) * n)
        return np.asarray(design @ self._cov[block, block] @ design.T)

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "mean": self._mean.tolist(),
            "cov": self._cov.tolist(),
            "noise": self.noise,
            "level_known": self.level_known,
            "alarms": self.alarms,
            "contamination": [self._slow_share, self._excess, self._group_size, self._doubted],
            "group": self._group.snapshot(),
            "dry": self._dry.snapshot(),
            "slow": self._slow.snapshot(),
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot`` of a posterior over the same arms."""
        self._set_mean(np.array(data["mean"], dtype=np.float64))
        self._cov = np.array(data["cov"], dtype=np.float64)
        self.noise, self.level_known = data["noise"], data["level_known"]
        self.alarms = data["alarms"]
        self._slow_share, self._excess, self._group_size, self._doubted = data["contamination"]
        self._group.load(data["group"])
        self._dry.load(data["dry"])
        self._slow.load(data["slow"])

    def _place(self, arm: int, width: float) -> tuple[int, float]:
        """Where an arm stands that verifies ``width`` drafts per request: at itself unless drafts are missing."""
        return (arm, 0.0) if width > self.arms[arm] - 0.02 else between(self.arms, width)

    def _design(self, group: Samples) -> tuple[Indices, Array]:
        """The state's entries that a group saw and their shares."""
        place = group.log_batch, group.width
        design = self._designs.get(place)
        if design is None:
            if len(self._designs) >= _KEPT_DESIGNS:
                self._designs.clear()
            design = self._designs[place] = self._make_design(group)
        return design

    def _make_design(self, group: Samples) -> tuple[Indices, Array]:
        n = len(self.arms)
        left, right = node(group.log_batch)
        low, share = between(self.arms, group.width)
        seen = [(low, 1.0 - share)] + ([(low + 1, share)] if share > 0.0 else [])
        index = [(left + side) * n + arm for arm, _ in seen for side in (0, 1)]
        return np.array(index), np.array([a * b for _, a in seen for b in (1.0 - right, right)])

    def _project(self, index: Indices, h: Array) -> tuple[Array, float]:
        gain = h @ self._cov[index]
        return gain, float(gain[index] @ h)

    def _held_back(
        self, group: Samples, y: float, n: int, index: Indices, h: Array, deviation: float, noise: float
    ) -> bool:
        """Collect slow samples until enough agree; whether that was believed as a change."""
        slow = self._slow
        agree = len(slow) > 0 and slow.near(group.arm, group.log_batch)
        if not (agree and abs(slow.mean() - y) < max(4.0 * self.noise, 0.25 * deviation)):
            slow.clear()
        slow.take(group.arm, group.width, group.log_batch, y, times=n)
        if len(slow) < (AGREE_FAR if deviation > FAR else self._agree()):
            return False
        deviation += slow.mean() - y
        slow.clear()
        # Only part of a slowdown is believed: an arm left for it must stay unsure enough to be tried again.
        return self._surprised(index, h, deviation, max(noise, (0.2 * deviation) ** 2))

    def _agree(self) -> int:
        """Slow samples in a row that contamination, at the share seen, would bring once in 100,000 groups."""
        return max(AGREE, math.ceil(math.log(1e-5) / math.log(min(0.9, max(1e-3, self._slow_share)))))

    def _surprised(self, index: Indices, h: Array, deviation: float, noise: float) -> bool:
        """Widen along the prior until the deviation is within two standard deviations, then book it."""
        _, spread = self._project(index, h)
        room = float(h @ self._drifting[np.ix_(index, index)] @ h)
        self.widen(max(0.0, min(8.0, (deviation * deviation / 4.0 - spread - noise) / room)))
        gain, spread = self._project(index, h)
        self._book(deviation, gain, spread + noise)
        changed = abs(deviation) > LASTING
        self.alarms += changed
        return changed

    def _book(self, deviation: float, gain: Array, variance: float) -> None:
        self._set_mean(self._mean + gain * (deviation / variance))
        np.multiply.outer(gain, gain, out=self._scratch)
        self._scratch /= variance
        self._cov -= self._scratch

    def _set_mean(self, mean: Array) -> None:
        self._mean = mean
        self._rows = []  # made when asked for: most bookings are followed by another

    def _learn_contamination(self, group: Samples, y: float, n: int) -> None:
        """Track how many samples lie above the quickest cluster, and how far."""
        values = group.values
        slow = len(values) - n
        self._slow_share += SLOW_MEMORY * (slow / len(values) - self._slow_share)
        if slow:
            excess = min(FAR, (sum(values) - n * y) / slow - y)
            self._excess += 0.1 * (excess - self._excess)
        if self._slow_share > DOUBT and not self._doubted and self.prior.timed:
            # What was believed of slow arms before contamination was known to be this common may have been stalls.
            self._doubted = True
            self._set_mean(np.zeros_like(self._mean))
            self._cov = self._drifting.copy()
        share = min(0.6, max(1e-3, self._slow_share))
        self._group_size = max(GROUP, min(MOST_GROUP, math.ceil(math.log(0.01) / math.log(share))))

    def _learn_noise(self, y: float, last: float) -> None:
        """Track the median distance of neighbouring samples, which stalls cannot move far."""
        median = 0.954 * self.noise  # of the distance of two normals
        grow = 1.03 if abs(y - last) > median else 1.0 / 1.03
        noise = self.noise * grow
        self.noise = noise if 0.003 <= noise <= 0.3 else min(0.3, max(0.003, noise))
