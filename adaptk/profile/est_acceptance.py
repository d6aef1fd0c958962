"""How often drafts were made and accepted, counted so that the counts of several runs can be added."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, pairwise, zip_longest

import msgspec
import numpy as np
from numpy.typing import NDArray

from adaptk.evidence import most_and_sum
from adaptk.step import StepRecord

_Floats = NDArray[np.float64]
_Request = tuple[tuple[int, ...], tuple[int, ...]]


class AcceptanceCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts per draft position, each of shape ``(positions,)``; plain data, safe for JSON (msgspec).

    A draft that was asked for and not returned counts as a failure, so that :meth:`acceptance_length` is what was
    measured, whatever the drafter found.

    Parameters
    ----------
    accepted, tried
        Drafts accepted at the position, of those tried: asked for, all positions before accepted.
    returned, asked
        Request-steps in which the drafter returned a draft at the position, of those that asked for so many.
    requests
        ``(accepted, tried)`` of each request, shape ``(requests, 2, positions)``; empty where requests are unknown.

    Examples
    --------
    >>> counts = AcceptanceCounts(accepted=(70, 40), tried=(100, 70), returned=(90, 80), asked=(100, 100))
    >>> counts.supply(), round(counts.width(2), 3)
    ([0.9, 0.8], 1.7)
    >>> [round(value, 3) for value in counts.acceptance_length(2)]
    [2.1, 0.083]
    """

    accepted: tuple[int, ...] = ()
    tried: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()
    requests: tuple[_Request, ...] = ()

    @classmethod
    def from_records(cls, records: Iterable[StepRecord], positions: int) -> AcceptanceCounts:
        """Count one run's consecutive steps: the drafts of a step were asked for by the step before, or as it says.

        Steps with prompt tokens, or with requests whose drafts do not count, and requests that gave no token are left
        out. Requests are told apart where every record numbers them (``StepRecord.requests``).

        Parameters
        ----------
        records
            Steps in order.
        positions
            Draft positions to count; further ones are ignored.
        """
        seen: dict[int | None, Counter[tuple[int, int, int]]] = {}
        for before, step in pairwise(records):
            decodes = step.batch_size if step.decodes is None else step.decodes
            if step.prefill_tokens or not 0 < step.batch_size <= decodes:
                continue
            asked = max(before.k if step.asked is None else step.asked, most_and_sum(step.drafted)[0])
            gave = step.emitted if step.emitted is not None else [1] * len(step.drafted)
            numbers = step.requests if step.requests is not None else [None] * len(step.drafted)
            for number, drafted, accepted, tokens in zip(numbers, step.drafted, step.accepted, gave, strict=True):
                if tokens:
                    seen.setdefault(number, Counter())[asked, drafted, accepted] += 1
        tallies = {number: _tally(triples, positions) for number, triples in seen.items()}
        total = np.sum(list(tallies.values()), axis=0) if tallies else np.zeros((4, positions), dtype=np.int64)
        apart = () if None in tallies else tuple((_plain(t[0]), _plain(t[1])) for t in tallies.values())
        accepted_, tried, returned, asked_ = map(_plain, total)
        return cls(accepted=accepted_, tried=tried, returned=returned, asked=asked_, requests=apart)

    def merge(self, other: AcceptanceCounts) -> AcceptanceCounts:
        """Both together; the requests of the two are taken for different ones.

        Where one of two that have counts does not tell requests apart, the sum does not either.
        """
        apart = (not any(self.tried) or self.clustered) and (not any(other.tried) or other.clustered)
        return AcceptanceCounts(
            accepted=_added(self.accepted, other.accepted),
            tried=_added(self.tried, other.tried),
            returned=_added(self.returned, other.returned),
            asked=_added(self.asked, other.asked),
            requests=self.requests + other.requests if apart else (),
        )

    @property
    def clustered(self) -> bool:
        """Whether errors count requests as the independent units; else steps are, and errors come out too small."""
        return len(self.requests) >= 2

    def conditional(self) -> list[float]:
        """Acceptance given that all before were accepted, shape ``(positions,)``; untried positions repeat the last."""
        return _shares(self.accepted, self.tried)

    def supply(self) -> list[float]:
        """Share of request-steps asking for so many in which a draft came, shape ``(positions,)``, never rising."""
        shares = _shares(self.returned, self.asked)
        return [float(value) for value in np.minimum.accumulate(shares)] if shares else []

    def width(self, k: int) -> float:
        """Mean drafts per request that are verified when ``k`` are asked for; the last position's share is held."""
        return float(np.sum(_first(self.supply(), k, 1.0)))

    def counts(self) -> list[list[int]]:
        """``[[accepted, tried], ...]`` per position, as a table keeps them."""
        return [[accepted, tried] for accepted, tried in zip(self.accepted, self.tried, strict=True)]

    def acceptance_length(self, k: int) -> tuple[float, float]:
        """Tokens per request and step with ``k`` drafts, the bonus token included, and the standard error.

        The last position that was counted is held for later ones; without any, acceptance is 0. The error is that of
        drawing other requests; where requests are not told apart (:attr:`clustered`), that of other steps, too small.
        """
        return self._length(k), self._error(self._influence(k), k)

    def log_length_ratio(self, k: int, other: int) -> tuple[float, float]:
        """``log(acceptance_length(k) / acceptance_length(other))`` and its standard error; infinite without counts."""
        long, short = self._length(k), self._length(other)
        mean = math.log(long / short)
        if k == other:
            return mean, 0.0
        return mean, self._error(self._influence(k) / long - self._influence(other) / short, max(k, other))

    def _length(self, k: int) -> float:
        return 1.0 + float(np.sum(np.cumprod(_first(self.conditional(), k, 0.0))))

    def _influence(self, k: int) -> _Floats:
        """What each unit moves ``acceptance_length(k)`` by, to first order.

        Shape ``(requests,)``; where they are not told apart, the standard error by position, shape ``(positions,)``.
        """
        rates = np.array(self.conditional())
        tried = np.array(self.tried, dtype=float)
        slopes = _slopes(rates, k)
        if not self.clustered:
            # One success and one failure more, so that a share of 0 or 1 is not taken for certain.
            smooth = (np.array(self.accepted) + 1.0) / (tried + 2.0)
            error: _Floats = slopes * np.sqrt(smooth * (1.0 - smooth) / np.maximum(tried, 1.0))
            return error
        totals = np.zeros((len(self.requests), 2, len(rates)))
        for i, pair in enumerate(self.requests):
            for j, values in enumerate(pair):
                totals[i, j, : len(values)] = values
        pulls: _Floats = (totals[:, 0] - rates * totals[:, 1]) / np.maximum(tried, 1.0) @ slopes
        return pulls

    def _error(self, influence: _Floats, k: int) -> float:
        if k > 0 and not (self.tried and all(self.tried[:k])):
            return math.inf
        units = len(influence)
        inflation = units / (units - 1) if self.clustered else 1.0
        return math.sqrt(inflation * float(np.sum(influence**2)))


def _tally(triples: Counter[tuple[int, int, int]], positions: int) -> NDArray[np.int64]:
    """``accepted``, ``tried``, ``returned``, ``asked`` per position, shape ``(4, positions)``."""
    total = np.zeros((4, positions), dtype=np.int64)
    for (asked, drafted, accepted), times in triples.items():
        for row, until in enumerate((accepted, min(accepted + 1, asked), drafted, asked)):
            total[row, :until] += times
    return total


def _slopes(rates: _Floats, k: int) -> _Floats:
    """Derivative of the acceptance length of ``k`` drafts by each position's rate, shape ``(positions,)``.

    Drafts beyond the last position share its rate.
    """
    slopes = np.zeros(len(rates))
    if not len(rates):
        return slopes
    at = np.minimum(np.arange(k), len(rates) - 1)
    for i in range(k):
        others = rates[at]
        others[i] = 1.0
        slopes[at[i]] += np.cumprod(others)[i:].sum()
    return slopes


def _first(values: Sequence[float], k: int, missing: float) -> _Floats:
    """The first ``k`` of ``values``, the last one held, shape ``(k,)``."""
    held = [values[-1] if values else missing] * max(k - len(values), 0)
    return np.array([*chain(values[:k], held)], dtype=float)


def _shares(hits: Sequence[int], trials: Sequence[int]) -> list[float]:
    values: list[float] = []
    for hit, trial in zip(hits, trials, strict=True):
        values.append(hit / trial if trial else (values[-1] if values else 0.0))
    return values


def _added(some: Sequence[int], more: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip_longest(some, more, fillvalue=0))


def _plain(values: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)
