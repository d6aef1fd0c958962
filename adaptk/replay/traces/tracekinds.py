"""Kinds of text in a trace: stretches of it, each with its own acceptance and supply of drafts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptk.cascade import cascade_counts
from adaptk.replay.drafter import Drafter
from adaptk.replay.traces.tokenruns import Stream

Array = NDArray[np.float64]

TRIALS = 300  # times that drafts were asked for a request, which make a stretch long enough
FEWEST = 50  # of them, where the engine ran empty and a new load begins
WEIGHT = 8.0  # drafts that the neighbours' acceptance counts for
GUESS = 0.7  # acceptance where nothing was ever drafted


def kinds(streams: Sequence[Stream], k_max: int) -> tuple[NDArray[np.int64], Drafter]:
    """The kind of each request, shape ``(requests,)``, and the drafter that has their acceptance.

    A stretch holds requests that joined one after the other, until drafts were asked for ``TRIALS`` times, or
    ``FEWEST`` where the next request found the engine empty. Its acceptance and supply per position come from its own
    counts, shrunk to those of its neighbours and of the whole trace; a position that nobody drafted has that of the one
    before.
    """
    kind = _stretches(streams)
    counts = np.zeros((int(kind[-1]) + 1, 4, max(k_max, 1)))
    for stream, at in zip(streams, kind.tolist(), strict=True):
        counts[at] += _counts(stream, max(k_max, 1))
    succeeded, failed, given, denied = counts.transpose(1, 0, 2)
    acceptance = _shares(succeeded, failed, GUESS)
    supply = None if not denied.any() else _shares(given, denied, 1.0)
    return kind, Drafter(acceptance, supply=supply)


def _stretches(streams: Sequence[Stream]) -> NDArray[np.int64]:
    kind = np.zeros(len(streams), dtype=np.int64)
    at = trials = ended = 0
    for i, stream in enumerate(streams):
        joined_later = i > 0 and stream.first > streams[i - 1].first
        if joined_later and (trials >= TRIALS or (trials >= FEWEST and stream.first > ended)):
            at, trials = at + 1, 0
        kind[i] = at
        trials += sum(asked > 0 for asked, _, _ in stream.drafts)
        ended = max(ended, stream.last)
    return kind


def _counts(stream: Stream, k_max: int) -> Array:
    """Accepted, rejected, returned and not returned per position, shape ``(4, k_max)``."""
    counts = np.zeros((4, k_max))
    if stream.drafts:
        asked, drafted, accepted = zip(*stream.drafts, strict=True)
        counts[:3] = cascade_counts(drafted, accepted, k_max)
        for wanted, got in zip(asked, drafted, strict=True):
            if got < min(wanted, k_max):
                counts[3, got] += 1
    return counts


def _shares(good: Array, bad: Array, guess: float) -> Array:
    """Share of good ones per stretch and position, shape ``(kinds, k_max)``."""
    everywhere = _beta(good.sum(axis=0), bad.sum(axis=0), _held(good.sum(axis=0), bad.sum(axis=0), guess))
    shares = np.empty_like(good)
    for i in range(len(good)):
        near = [j for j in (i - 1, i + 1) if 0 <= j < len(good)]
        around = _beta(good[near].sum(axis=0), bad[near].sum(axis=0), everywhere)
        shares[i] = _beta(good[i], bad[i], around)
    return shares


def _beta(good: Array, bad: Array, prior: Array) -> Array:
    return np.asarray((good + WEIGHT * prior) / (good + bad + WEIGHT))


def _held(good: Array, bad: Array, guess: float) -> Array:
    """Share per position, where there is no sample that of the position before."""
    held = np.empty_like(good)
    for j in range(len(good)):
        guess = good[j] / (good[j] + bad[j]) if good[j] + bad[j] > 0 else guess
        held[j] = guess
    return held
