"""What bounds every policy: the clairvoyant oracle, and the best static table in hindsight."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from adaptk.replay.policies.base import Rival, Setup
from adaptk.replay.simulator import Run
from adaptk.step import StepRecord

Array = NDArray[np.float64]


class Oracle(Rival):
    """Plays the arm with the highest true goodput of the step, which the simulator tells it beforehand.

    True are the chances: it knows what kind of text each request has at the moment and how long answers of the load
    are, not which draft is accepted nor which token ends an answer. Kinds that requests keep for life a policy could
    find out, those that change within an answer hardly: there the best table in hindsight shows what can be reached.

    It looks one step ahead only: where a drafter goes cold at K=0 or shapes must be compiled, a policy with foresight
    could do better.
    """

    learns = False

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self._index = np.array(setup.arms)
        self._k = setup.arms[0]

    def foresee(self, length: Array, itl: Array) -> None:
        """Take the expected acceptance length and step time of every K, each of shape ``(k_max + 1,)``."""
        if itl[0] > 0:
            self._k = int(self._index[np.argmax(length[self._index] / itl[self._index])])

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The arm foreseen as best; the last one in a step without decoding requests."""
        return self._k

    def observe(self, record: StepRecord) -> None:
        """Learn nothing."""


class Hindsight(Rival):
    """The static table that would have been best for a world.

    Per number of scheduled requests it has the arm with the highest ratio of expected tokens to expected time, summed
    over the steps of a run. Between the sizes of that run the next smaller one counts.
    """

    learns = False

    def __init__(self, setup: Setup, run: Run) -> None:
        super().__init__(setup.arms)
        arms = list(setup.arms)
        sizes, at = np.unique(run.batch, return_inverse=True)
        tokens, time = np.zeros((len(sizes), len(arms))), np.zeros((len(sizes), len(arms)))
        np.add.at(tokens, at, run.length[:, arms])
        np.add.at(time, at, run.itl[:, arms])
        rates = np.divide(tokens, time, out=np.zeros_like(tokens), where=time > 0)
        self._sizes: list[int] = sizes.tolist()
        self._ks: Sequence[int] = [arms[i] for i in rates.argmax(axis=1)]

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The arm of the size at or below."""
        return self._ks[max(bisect.bisect_right(self._sizes, batch_size) - 1, 0)]

    def observe(self, record: StepRecord) -> None:
        """Learn nothing."""
