"""Made-up workloads: when requests arrive, how long they are, what text they bring.

A workload is put together from three parts, each a plain array or a small value: arrival times (:func:`poisson`,
:func:`bursts`, :func:`day_night`), lengths (:class:`Fixed`, :class:`Lognormal`, :class:`Pareto`) and kinds of text
(:func:`mixed`, :func:`changing`, :func:`bad_tenant`, also for the requests of a file). Arrival rates are requests per
second and spells are seconds; arrival times are milliseconds, as in :class:`~adaptk.replay.workload.Requests`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from adaptk.replay.workload import Floats, Ints, Requests


class Lengths(Protocol):
    """A distribution of tokens per prompt or answer."""

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """Tokens of ``n`` prompts or answers, each at least 1, shape ``(n,)``."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Always the same number of tokens, at least 1."""

    tokens: int

    def __post_init__(self) -> None:
        _at_least_one("tokens", self.tokens)

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """``tokens``, ``n`` times; draws nothing."""
        return np.full(n, self.tokens, dtype=np.int64)


@dataclass(frozen=True)
class Lognormal:
    """Lognormal lengths, rounded; longer ones stop at ``most``, as at an engine's ``max_tokens``.

    Parameters
    ----------
    mean
        Tokens in the mean before the cut, above 0.
    sigma
        Standard deviation of the logarithm, at least 0. The longest 5 % hold 26 % of the tokens at 1, 64 % at 2.
    most
        Most tokens, at least 1.
    """

    mean: float
    sigma: float
    most: int

    def __post_init__(self) -> None:
        _positive("mean", self.mean)
        if not 0.0 <= self.sigma < math.inf:
            raise ValueError(f"sigma is {self.sigma!r}: give a number of at least 0")
        _at_least_one("most", self.most)

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """Tokens of ``n`` prompts or answers, shape ``(n,)``."""
        return _whole(rng.lognormal(math.log(self.mean) - self.sigma**2 / 2.0, self.sigma, n), self.most)


@dataclass(frozen=True)
class Pareto:
    """Pareto lengths, rounded: a share ``(least / x) ** shape`` is longer than x; longer ones than ``most`` stop there.

    Parameters
    ----------
    least
        Fewest tokens, at least 1.
    shape
        Tail index, above 0; at 1 and below the mean is set by the cut alone.
    most
        Most tokens, at least ``least``.
    """

    least: int
    shape: float
    most: int

    def __post_init__(self) -> None:
        _at_least_one("least", self.least)
        _positive("shape", self.shape)
        if not self.most >= self.least:
            raise ValueError(f"most is {self.most!r}: give at least the fewest tokens, {self.least}")

    def draw(self, n: int, rng: np.random.Generator) -> Ints:
        """Tokens of ``n`` prompts or answers, shape ``(n,)``."""
        return _whole(self.least * (1.0 + rng.pareto(self.shape, n)), self.most)


def poisson(n: int, per_s: float, rng: np.random.Generator) -> Floats:
    """Arrival times of ``n`` requests at a steady rate, milliseconds, shape ``(n,)``."""
    _at_least_one("n", n)
    _positive("per_s", per_s)
    return np.cumsum(rng.exponential(1000.0 / per_s, n))


def bursts(
    n: int, calm_per_s: float, burst_per_s: float, calm_s: float, burst_s: float, rng: np.random.Generator
) -> Floats:
    """Arrival times of a Poisson process that switches between two rates, milliseconds, shape ``(n,)``.

    Parameters
    ----------
    calm_per_s, burst_per_s
        Requests per second in each state; ``calm_per_s`` may be 0: on and off.
    calm_s, burst_s
        Mean time spent in each state, exponential, seconds. The process starts calm.
    """
    _at_least_one("n", n)
    for name, value in (("burst_per_s", burst_per_s), ("calm_s", calm_s), ("burst_s", burst_s)):
        _positive(name, value)
    if not 0.0 <= calm_per_s < math.inf:
        raise ValueError(f"calm_per_s is {calm_per_s!r}: give requests per second, at least 0")
    rates, means = np.array([calm_per_s, burst_per_s]), np.array([calm_s, burst_s])
    # Where the expected number of arrivals so far passes the points of a unit-rate process, a request arrives.
    points = np.cumsum(rng.standard_exponential(n))
    spells = np.zeros((0, 2))
    while np.sum(spells * rates) <= points[-1]:
        spells = np.vstack((spells, rng.exponential(means, (1 + int(n / (rates @ means)), 2))))
    expected = np.concatenate(([0.0], np.cumsum(spells * rates)))
    arrival_s: Floats = np.interp(points, expected, np.concatenate(([0.0], np.cumsum(spells))))
    return 1000.0 * arrival_s


def day_night(n: int, mean_per_s: float, swing: float, day_s: float, rng: np.random.Generator) -> Floats:
    """Arrival times at a rate that follows a sine, milliseconds, shape ``(n,)``; the first day starts at its lowest.

    Parameters
    ----------
    mean_per_s
        Requests per second over whole days.
    swing
        The rate lies between ``1 - swing`` and ``1 + swing`` of its mean, from 0 to 1.
    day_s
        Seconds of a day: a shorter one than the sun's shows all of it in a short replay.

    References
    ----------
    Lewis, Shedler, "Simulation of Nonhomogeneous Poisson Processes by Thinning", 1979.
    """
    _at_least_one("n", n)
    _positive("mean_per_s", mean_per_s)
    _positive("day_s", day_s)
    _share("swing", swing)
    times, clock, peak_per_s = np.zeros(0), 0.0, mean_per_s * (1.0 + swing)
    while len(times) < n:
        candidates = clock + np.cumsum(rng.exponential(1.0 / peak_per_s, 2 * n))
        clock = float(candidates[-1])
        rate = mean_per_s * (1.0 - swing * np.cos(2.0 * np.pi * candidates / day_s))
        times = np.concatenate((times, candidates[rng.random(2 * n) * peak_per_s < rate]))
    return 1000.0 * times[:n]


def open_loop(
    arrival_ms: Floats, prompt: Lengths, output: Lengths, rng: np.random.Generator, kind: Ints | int = 0
) -> Requests:
    """Requests that arrive by the clock, whatever the engine does.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> requests = open_loop(poisson(100, 4.0, rng), Fixed(512), Lognormal(200.0, 0.8, most=2048), rng)
    >>> len(requests), requests.open_loop
    (100, True)
    """
    n = len(arrival_ms)
    kinds = np.asarray(kind, dtype=np.int64)
    if kinds.ndim and kinds.shape != (n,):
        raise ValueError(f"kind has {kinds.size} entries: give one number, or one per request, {n}")
    return Requests(arrival_ms, prompt.draw(n, rng), output.draw(n, rng), np.full(n, kinds))


def closed_loop(n: int, prompt: Lengths, output: Lengths, rng: np.random.Generator, kind: Ints | int = 0) -> Requests:
    """``n`` requests that all wait from the start: the engine's ``max_requests`` is the concurrency."""
    _at_least_one("n", n)
    return open_loop(np.zeros(n), prompt, output, rng, kind)


def rollouts(rounds: int, n: int, prompt: Lengths, output: Lengths, rng: np.random.Generator) -> Requests:
    """Rollouts of reinforcement learning: ``rounds`` times ``n`` requests, the next when the last answer has ended.

    The weights are updated after each round, so each round's text is a kind of its own, the round's index: let the
    drafter's acceptance fall from kind to kind. Heavy-tailed answers leave a few requests that hold up the batch.

    Examples
    --------
    >>> requests = rollouts(2, 3, Fixed(100), Pareto(64, 1.2, most=4096), np.random.default_rng(0))
    >>> requests.round.tolist(), requests.kind.tolist()
    ([0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 1])
    """
    _at_least_one("rounds", rounds)
    _at_least_one("n", n)
    index = np.repeat(np.arange(rounds, dtype=np.int64), n)
    total = len(index)
    return Requests(np.zeros(total), prompt.draw(total, rng), output.draw(total, rng), index, round=index)


def mixed(n: int, weights: Sequence[float], rng: np.random.Generator) -> Ints:
    """Kinds of text drawn apart for each request, kind i with a chance in proportion to ``weights[i]``, ``(n,)``."""
    chances = np.asarray(weights, dtype=float)
    if chances.ndim != 1 or not np.all((chances >= 0.0) & (chances < math.inf)) or not chances.sum() > 0.0:
        raise ValueError(f"weights is {weights!r}: give one number of at least 0 per kind, not all 0")
    return rng.choice(len(chances), size=n, p=chances / chances.sum()).astype(np.int64)


def changing(position: Floats | Ints, changes: Sequence[tuple[float, int]]) -> Ints:
    """Kinds of text that change by schedule, shape of ``position``.

    Parameters
    ----------
    position
        Where each request stands: its index (``np.arange(n)``) or its arrival, milliseconds.
    changes
        Pairs (position from which on, kind), rising; before the first the kind is 0.

    Examples
    --------
    >>> changing(np.arange(6), [(2, 1), (4, 0)]).tolist()
    [0, 0, 1, 1, 0, 0]
    """
    starts = np.array([start for start, _ in changes], dtype=float)
    if not np.all(np.diff(starts) > 0.0) or np.any(np.isnan(starts)):
        raise ValueError(f"changes is {changes!r}: give pairs (position, kind) with rising positions")
    kinds = np.array([0, *(kind for _, kind in changes)], dtype=np.int64)
    return kinds[np.searchsorted(starts, position, side="right")]


def bad_tenant(
    kind: Ints,
    position: Floats | Ints,
    share: float,
    text: int,
    rng: np.random.Generator,
    start: float = -math.inf,
    stop: float = math.inf,
) -> Ints:
    """The kinds of text once one tenant sends some of the requests, all of them of one kind, shape of ``kind``.

    Parameters
    ----------
    kind
        Kinds of the requests without that tenant.
    position
        Where each request stands: its index or its arrival, milliseconds, shape of ``kind``.
    share
        The chance that a request is his, from 0 to 1.
    text
        His kind of text.
    start, stop
        He sends from position ``start`` on and before ``stop``.
    """
    _share("share", share)
    if not start < stop:
        raise ValueError(f"start is {start!r} and stop is {stop!r}: give a start before the stop")
    his = (rng.random(len(kind)) < share) & (position >= start) & (position < stop)
    return np.where(his, text, kind).astype(np.int64)


def _whole(tokens: Floats, most: int) -> Ints:
    return np.rint(np.clip(tokens, 1.0, most)).astype(np.int64)


def _positive(name: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ValueError(f"{name} is {value!r}: give a number above 0")


def _share(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value!r}: give a share from 0 to 1")


def _at_least_one(name: str, value: int) -> None:
    if not value >= 1:
        raise ValueError(f"{name} is {value!r}: give at least 1")
