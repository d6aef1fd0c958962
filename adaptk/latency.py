"""What a step costs: a Gaussian state around the table, corrected by every few steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import sub
from typing import Any

import numpy as np
import numpy.typing as npt

from adaptk.arithmetic import vanishing_is_zero
from adaptk.cells import NEVER, Cells
from adaptk.contamination import Contamination
from adaptk.designs import Places, View, Views
from adaptk.grid import (
    LEVEL,
    LEVEL_SEED,
    LEVEL_UNKNOWN,
    NODES,
    between,
    context_covariate,
    covariance,
    interpolate,
)
from adaptk.mixture import mixture
from adaptk.prefill import LEAST_REST
from adaptk.prior import StepTimePrior
from adaptk.samples import Samples

Array = npt.NDArray[np.float64]

FLOOR = 0.005  # misfit that no number of samples removes, log units
RETURN_STEPS = 10_000.0  # after about as many steps a variance is back at the prior
# Steps whose quickest cluster makes one observation: more where slow ones are common, and where a cell is well known.
GROUP, MOST_GROUP = 3, 8
ALL_SLOW = 0.01  # chance of a group without a sound step that is put up with
CALM = 0.1  # a cell is well known when its variance is below this share of one step's
KNOWN = 4.0  # ... and known enough to tell sound steps from slowed ones below this multiple of it
TRIP = 4.0  # standard deviations of one step that end the patience with a well-known cell
TOGETHER = 4.5  # standard deviations that a group of sound steps may span
SURPRISE = 3.5  # standard deviations from which a group does not fit what is believed
AGREE, AGREE_NEW = 5, 2  # slow samples that must agree before they are believed, at a known place and at a new one
FAR, AGREE_FAR = math.log(5.0), 30  # far slower: compilation and stalls are likelier than a new cost
DOUBT = 0.12  # share of slow samples at which earlier beliefs are dropped, once
LASTING = 0.05  # a surprise below this is booked without an alarm, log units
SAME_CONTEXT = 0.1  # of its covariate, within which samples are put together
FRESH = 200  # steps: what was as expected so short ago at another batch size has not changed since
MISFIT_MEMORY = 0.02  # weight of one booking
# Of drift, relative to RETURN_STEPS, and how quickly it follows the residuals.
LEAST_PACE, MOST_PACE, PACE_RATE = 0.05, 3.0, 0.05
PRIOR_WEIGHT = 4.0  # places never seen before that the prior's own spread is worth
LEAST_MISFIT = 0.2  # of the prior's variance, at least, is kept however well the table fitted
ASKED = 0.02  # drafts per request that may be missing from what was asked for
MOST_WIDENING = 2.0  # times the prior's variance that a surprise may add to all of it
# Times the prior's uncertainty, to which any number of pauses may add up, and of surprises, which are evidence.
MOST_PAUSED, MOST_SURPRISED = 5.0, 20.0


class LatencyPosterior:
    """Posterior of log step time over (batch, arm, context), a Kalman filter on the deviation from the prior.

    Smooth part: one deviation per (batch node, arm) and one coefficient of context per arm, shape
    ``((NODES + 1) * arms,)``, with a covariance made of a shared level, a slope in K, an on/off part and a smooth part
    per arm. Between nodes it is linear in ln(batch), between arms linear in the drafts per request that were really
    verified. Beside it stands an offset per arm and range of tokens, which holds the stairs.

    Stalls only lengthen: of ``GROUP`` samples the quickest cluster counts, shorter times are believed at once, longer
    ones when enough samples agree. A group may still hold slowed steps alone; it is booked as the mixture that it is.

    Parameters
    ----------
    prior
        The table's view.

    References
    ----------
    West and Harrison, "Bayesian Forecasting and Dynamic Models", 1997, chapters 4 and 12 (mixtures).
    """

    def __init__(self, prior: StepTimePrior) -> None:
        self.prior = prior
        self.arms = prior.arms
        self.alarms = 0
        self.extra_ms = 0.0  # that a step takes on the whole beyond what is its arm's, milliseconds
        self.moved = 0.0  # log units by which bookings moved what is expected where they were made, since it was reset
        self.level_known = prior.timed
        self.contamination = Contamination()
        self.cells = Cells(prior.arms, RETURN_STEPS, prior.capture_sizes)
        self._drifting = covariance(prior, LEVEL)
        self._cov = covariance(prior, LEVEL_SEED if prior.timed else LEVEL_UNKNOWN)
        self._scratch = np.empty_like(self._cov)
        self._rows: list[list[float]] = []
        self._set_mean(np.zeros(len(self._cov)))
        self._groups: dict[int, Samples] = {}  # of the arm being played, by range of tokens
        self._grouped = -1  # the arm of these
        self._dry = Samples()
        self._slow = Samples()
        self._doubted = False
        self._group_size = GROUP
        self._reference: float | None = None  # context at which its coefficients do not matter
        self._misfit = 1.0
        self._pace = 1.0  # of drift
        self._prior_misfit, self._seen_first = 1.0, PRIOR_WEIGHT
        self._wobble = 0.0  # variance of the level to be added
        self._sound = [(NEVER, -1)] * len(self.arms)  # when and in which cell the arm was last as expected
        self._places = Places(prior, self.cells)
        self._views = Views(prior, self.cells)

    @property
    def noise(self) -> float:
        """Standard deviation of one sound step, log units."""
        return self.contamination.noise

    def add(self, arm: int, batch: int, width: float, elapsed_ms: float, context: float | None) -> bool:
        """Take the time of one step; whether a change was detected.

        ``arm`` is the index of the arm that was asked for, ``width`` the drafts per request really verified.
        """
        row = self.prior.row(batch, context)
        expected = row[arm] if width == self.arms[arm] else interpolate(row, *between(self.arms, width))
        y = math.log(elapsed_ms) - expected
        log_batch = math.log(batch)
        if self._reference is None:
            self._reference = context
        covariate = self._covariate(context)
        self.cells.now += 1
        # A step for which the drafter had nothing costs what K=0 costs; it must not stand beside drafting ones.
        dry = width == 0.0 and arm > 0
        arm = 0 if dry else arm
        cell = self.cells.at(arm, batch)
        changed = False
        if dry:
            group = self._dry
            if not group.near(arm, cell):
                changed = self._flush(group)
        else:
            if arm != self._grouped:
                changed = self._leave(arm)
            if cell not in self._groups:
                self._groups[cell] = Samples()
            group = self._groups[cell]
        if group.values and abs(covariate - group.covariate) > SAME_CONTEXT:
            changed = self._flush(group) or changed
        if group.patient and abs(y - group.level) > TRIP * self.noise:
            changed = self._flush(group) or changed
            group.patient = False
        group.take(arm, cell, width, log_batch, covariate, y)
        enough = len(group.values) >= (MOST_GROUP if group.patient else self._group_size)
        return (self._flush(group) or changed) if enough else changed

    def flush(self) -> bool:
        """Book the samples at hand, if there are any; whether a change was detected."""
        changed = self._flush(self._dry)
        return self._flush_groups() or changed

    def tick(self, steps: int) -> None:
        """Let ``steps`` steps of drift widen what is believed; the level by what lately was not explained, too."""
        if self.level_known:
            change = np.subtract(self._drifting, self._cov, out=self._scratch)
            change *= 1.0 - math.exp(-self._pace * steps / RETURN_STEPS)
            self._cov += change
            if self._wobble > 0.0:
                self._widen_level(self._wobble)
                self._wobble = 0.0

    def widen(self, share: float = 1.0, most: float = MOST_PAUSED) -> float:
        """Add ``share`` of the prior's uncertainty, as far as that leads to ``most`` times it; the share added.

        Wider still, no visit could be afforded that would narrow it again. The level all have in common does not count:
        the next step tells it.
        """
        spare = most - self._apart(self._cov) / self._apart(self._drifting)
        share = max(0.0, min(share, spare))
        self._cov += share * self._drifting
        return share

    def _apart(self, cov: Array) -> float:
        """By how much places may differ from each other: their variances about their mean, summed."""
        places = cov[: NODES * len(self.arms), : NODES * len(self.arms)]
        return float(places.trace() - places.sum() / len(places))

    def _widen_level(self, variance: float) -> None:
        """Add uncertainty that all arms and batch sizes have in common."""
        nodes = NODES * len(self.arms)
        self._cov[:nodes, :nodes] += variance

    def stair(self, batch: int) -> tuple[int, ...]:
        """Where a batch size stands between the edges at which step times may jump, the same for all without any."""
        return self._places[batch].stair

    def log_times(self, batch: int, widths: Sequence[float], context: float | None) -> list[float]:
        """Believed log milliseconds per arm when arm i verifies ``widths[i]`` drafts per request, shape ``(arms,)``.

        ``extra_ms`` is in them, which ``add`` is not to be given.
        """
        row = self.prior.row(batch, context)
        rows = self._rows or self._make_rows()
        place = self._places[batch]
        left, right = place.left, place.right
        covariate = self._covariate(context)
        parts = zip(row, rows[left], rows[left + 1], rows[NODES], self.cells.mean, place.cells, strict=True)
        full = [p + (1.0 - right) * a + right * b + covariate * c + cells[at] for p, a, b, c, cells, at in parts]
        times = [
            time if width > k - ASKED else interpolate(full, *between(self.arms, width))
            for time, width, k in zip(full, widths, self.arms, strict=True)
        ]
        if not self.extra_ms:
            return times
        own = [math.exp(time) for time in times]
        return [math.log(max(ms + self.extra_ms, LEAST_REST * ms)) for ms in own]

    def covariance(self, batch: int, widths: Sequence[float], context: float | None = None) -> Array:
        """Covariance of ``log_times``, shape ``(arms, arms)``."""
        place = self._places[batch]
        n = len(self.arms)
        place.weights.reshape(-1)[2 * n :: 3 * n + 1] = self._covariate(context)
        block = self._cov.take(place.entries, axis=0).take(place.entries, axis=1)
        total = place.weights @ block @ place.weights.T
        self._add_cells(total, place.cells)
        if min(map(sub, widths, self.arms)) > -ASKED:
            return np.asarray(total)
        design = np.zeros((n, n))
        for i, width in enumerate(widths):
            low, share = (i, 0.0) if width > self.arms[i] - ASKED else between(self.arms, width)
            design[i, low] += 1.0 - share
            design[i, min(low + 1, n - 1)] += share
        return np.asarray(design @ total @ design.T)

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {
            "mean": self._mean.tolist(),
            "cov": self._cov.tolist(),
            "contamination": self.contamination.snapshot(),
            "cells": self.cells.snapshot(),
            "groups": [[cell, group.snapshot()] for cell, group in self._groups.items()],
            "dry": self._dry.snapshot(),
            "slow": self._slow.snapshot(),
            "sound": [list(pair) for pair in self._sound],
            **{name: getattr(self, name) for name in _STATE},
        }

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot`` of a posterior over the same arms."""
        self._set_mean(np.array(data["mean"], dtype=np.float64))
        self._cov = np.array(data["cov"], dtype=np.float64)
        self.contamination.load(data["contamination"])
        self.cells.load(data["cells"])
        self._groups = {}
        for cell, group in data["groups"]:
            self._groups[cell] = Samples()
            self._groups[cell].load(group)
        self._dry.load(data["dry"])
        self._slow.load(data["slow"])
        self._sound = [(now, cell) for now, cell in data["sound"]]
        for name in _STATE:
            setattr(self, name, data[name])

    def _add_cells(self, total: Array, places: Sequence[int]) -> None:
        """Add the cells' variances, and scale what was little seen by what the prior's spread proved worth so far."""
        known = KNOWN * self.noise**2
        worth = max(LEAST_MISFIT, self._prior_misfit)
        scale = []
        for i, variance in enumerate(total.diagonal().tolist()):
            variance += self.cells.variance(i, places[i])
            total[i, i] = variance
            scale.append(worth ** (0.5 * variance / (variance + known)))
        factors = np.array(scale)
        total *= factors[:, None] * factors

    def _covariate(self, context: float | None) -> float:
        if context is None or self._reference is None:
            return 0.0
        return context_covariate(context, self._reference)

    def _leave(self, arm: int) -> bool:
        """Another arm is played now: book the samples of the one before; whether a change was detected."""
        changed = self._flush_groups()
        self._groups.clear()
        self._grouped = arm
        return changed

    def _flush_groups(self) -> bool:
        changed = False
        for group in self._groups.values():
            changed = self._flush(group) or changed
        return changed

    @vanishing_is_zero
    def _flush(self, group: Samples) -> bool:
        if not group.values:
            return False
        view = self._views.of(group)
        gain, spread = self._project(view)
        expected = self._expected(view)
        y, n = group.quickest(TOGETHER * self.noise)
        if n == 1 and self.level_known and expected - y > SURPRISE * math.sqrt(spread + self.noise**2):
            # One short interval may be the clock's: the update before it came late.
            group.values.remove(min(group.values))
            if not group.values:
                group.clear()
                return False
            y, n = group.quickest(TOGETHER * self.noise)
        noise = self.noise**2 / n + FLOOR**2
        deviation = y - expected
        limit = SURPRISE * math.sqrt(spread + noise)
        known = self.level_known and spread < KNOWN * self.noise**2
        changed = False
        all_slow = self.contamination.all_slow(len(group))
        if not self.level_known or abs(deviation) <= limit + (self.contamination.excess if all_slow > ALL_SLOW else 0):
            if self._slow.near(group.arm, group.cell):
                self._slow.clear()
            self._book_mixture(view, gain, spread, deviation, noise, all_slow)
            self._learn_misfit(deviation, spread, noise, known)
            if known:
                self._learn_contamination(group.values, expected)
            group.patient, group.level = self.level_known and spread < CALM * self.noise**2, y
            self.level_known = True
            self._sound[group.arm] = (self.cells.now, group.cell)
        elif deviation < 0.0:
            changed = self._surprised(group, view, deviation, noise)
        else:
            changed = self._held_back(group, y, n, view, deviation, noise, known)
        group.clear()
        return changed

    def _expected(self, view: View) -> float:
        means = self.cells.mean
        smooth = float(view.h.dot(self._mean.take(view.entries)))
        return smooth + sum([share * means[arm][at] for arm, at, share in view.cells])

    def _project(self, view: View) -> tuple[Array, float]:
        """The smooth part's gain without the division by the variance, and the variance of what is expected."""
        gain = view.h.dot(self._cov.take(view.entries, axis=0))
        cells = sum([share * share * self.cells.variance(arm, at) for arm, at, share in view.cells])
        return gain, float(gain.take(view.entries).dot(view.h)) + cells

    def _held_back(
        self, group: Samples, y: float, n: int, view: View, deviation: float, noise: float, known: bool
    ) -> bool:
        """Collect slow samples until enough agree; whether that was believed as a change."""
        slow = self._slow
        agree = len(slow) > 0 and slow.near(group.arm, group.cell)
        if not (agree and abs(slow.mean() - y) < max(4.0 * self.noise, 0.25 * deviation)):
            slow.clear()
        slow.take(group.arm, group.cell, group.width, group.log_batch, group.covariate, y, times=n)
        far = deviation > FAR and (known or self.prior.timed)
        if len(slow) < (AGREE_FAR if far else self._agree(known)):
            return False
        deviation += slow.mean() - y
        slow.clear()
        # Only part of a slowdown is believed: an arm left for it must stay unsure enough to be tried again.
        return self._surprised(group, view, deviation, max(noise, (0.2 * deviation) ** 2))

    def _agree(self, known: bool) -> int:
        """Slow samples in a row that contamination, at the share seen, would bring once in 100,000 groups.

        Of a place that nobody knows, slow is as likely as quick: once in 100 visits will do.
        """
        share = min(0.9, max(1e-3, self.contamination.share))
        fewest, rare = (AGREE, 1e-5) if known else (AGREE_NEW, ALL_SLOW)
        return max(fewest, math.ceil(math.log(rare) / math.log(share)))

    def _surprised(self, group: Samples, view: View, deviation: float, noise: float) -> bool:
        """Widen what may have changed until the deviation is within two standard deviations, then book it."""
        _, spread = self._project(view)
        missing = deviation * deviation / 4.0 - spread - noise
        arm, at = group.arm, group.cell
        then, there = self._sound[arm]
        now = self.cells.now
        if there != at and now - then < FRESH and now - self.cells.seen[arm][at] > FRESH:
            # The arm was as expected a moment ago at a neighbouring place: this is a stair, not the engine.
            self.cells.widen(arm, at, max(0.0, missing))
            lasting = False
        else:
            room = float(view.h @ self._drifting[np.ix_(view.entries, view.entries)] @ view.h)
            # As far as the table's own uncertainty goes any part of it may be the cause; beyond that it is the engine.
            share = max(0.0, min(MOST_WIDENING, missing / room))
            share = self.widen(share, MOST_SURPRISED)
            self._widen_level(max(0.0, missing - share * room))
            lasting = abs(deviation) > LASTING
        gain, spread = self._project(view)
        self._book(view, gain, spread, deviation / (spread + noise), 1.0 / (spread + noise))
        self._sound[arm] = (now, at)
        if lasting:
            self.alarms += 1
            self._pace = max(self._pace, 1.0)
        return lasting

    def _book_mixture(
        self, view: View, gain: Array, spread: float, deviation: float, noise: float, all_slow: float
    ) -> None:
        """Book a group that with probability ``all_slow`` holds no sound step, as one Gaussian of the same moments."""
        sound = spread + noise
        if all_slow < 1e-4:
            self._book(view, gain, spread, deviation / sound, 1.0 / sound)
            return
        slow = self.contamination
        self._book(view, gain, spread, *mixture(deviation, sound, all_slow, slow.excess, slow.excess_variance))

    def _book(self, view: View, gain: Array, spread: float, shift: float, narrowing: float) -> None:
        """Move the mean by ``shift`` and take ``narrowing`` off the covariance, both along the gain."""
        self.moved += spread * shift
        self._set_mean(self._mean + gain * shift)
        np.multiply.outer(gain, gain * narrowing, out=self._scratch)
        self._cov -= self._scratch
        for arm, at, share in view.cells:
            self.cells.book(arm, at, share, shift, narrowing)

    def _set_mean(self, mean: Array) -> None:
        self._mean = mean
        self._rows = []  # made when asked for: most bookings are followed by another

    def _make_rows(self) -> list[list[float]]:
        self._rows = self._mean.reshape(NODES + 1, -1).tolist()
        return self._rows

    def _learn_misfit(self, deviation: float, spread: float, noise: float, known: bool) -> None:
        """What the size of residuals says of the state's own uncertainty.

        At known places it is the pace of drift: in calm they are smaller than expected and forgetting slows down; where
        they are larger the whole engine drifts, so its level widens. At unknown ones it is how far off the prior is.
        """
        squared = min(9.0, deviation * deviation / (spread + noise))
        if known:
            self._pace = min(MOST_PACE, max(LEAST_PACE, self._pace * math.exp(PACE_RATE * (squared - 1.0))))
            self._misfit += MISFIT_MEMORY * (squared - self._misfit)
            if self._misfit > 1.0:
                self._wobble += 0.1 * (self._misfit - 1.0) * (spread + noise)
        elif self.prior.timed:
            self._seen_first += 1.0
            self._prior_misfit += (squared - self._prior_misfit) / self._seen_first

    def _learn_contamination(self, values: Sequence[float], expected: float) -> None:
        self.contamination.take(values, expected)
        share = self.contamination.share
        if share > DOUBT and not self._doubted and self.prior.timed:
            # What was believed of slow arms before contamination was known to be this common may have been stalls.
            self._doubted = True
            mean = np.zeros_like(self._mean)
            mean[: NODES * len(self.arms)] = expected  # the level was seen at sound steps
            self._set_mean(mean)
            self._cov = self._drifting.copy()
            self.cells.forget()
        likely = min(0.6, max(1e-3, share))
        self._group_size = max(GROUP, min(MOST_GROUP, math.ceil(math.log(ALL_SLOW) / math.log(likely))))


_STATE = (
    "alarms",
    "moved",
    "extra_ms",
    "level_known",
    "_doubted",
    "_group_size",
    "_grouped",
    "_reference",
    "_misfit",
    "_pace",
    "_prior_misfit",
    "_seen_first",
    "_wobble",
)
