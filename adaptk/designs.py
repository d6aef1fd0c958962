"""How a batch size, or an observation, hangs on the state of step times."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from adaptk.cells import Cells
from adaptk.grid import NODES, between, node
from adaptk.prior import StepTimePrior
from adaptk.samples import Samples

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

_KEPT_PLACES, _KEPT_VIEWS = 1024, 256


class Place(NamedTuple):
    """What a batch size is to the state.

    Each arm's log step time hangs on three entries of the smooth part: left node, right node, coefficient of context.
    """

    left: int  # node
    right: float  # share of the node that follows
    entries: Indices  # of all arms, shape (3 * arms,)
    weights: Array  # shape (arms, 3 * arms); those of the context, its third diagonal, are set before use
    cells: tuple[int, ...]  # of each arm
    stair: tuple[int, ...]  # where it stands between the edges at which step times may jump


class View(NamedTuple):
    """How an observation depends on the state: entries of the smooth part and their shares, and the cells."""

    entries: Indices
    h: Array
    cells: tuple[tuple[int, int, float], ...]  # arm, cell, share


class Places(dict[int, Place]):
    """The place of each batch size asked for, made at the first asking; emptied when full.

    A mapping, because places are asked for at every step: one that is known costs no call.
    """

    def __init__(self, prior: StepTimePrior, cells: Cells) -> None:
        super().__init__()
        self._prior = prior
        self._cells = cells

    def __missing__(self, batch: int) -> Place:
        if len(self) >= _KEPT_PLACES:
            self.clear()
        n = len(self._prior.arms)
        left, right = node(math.log(batch))
        entries = np.array([*range(left * n, (left + 2) * n), *range(NODES * n, (NODES + 1) * n)])
        weights = np.zeros((n, 3 * n))
        diagonals = weights.reshape(-1)
        diagonals[:: 3 * n + 1], diagonals[n :: 3 * n + 1] = 1.0 - right, right
        cells = tuple(self._cells.at(i, batch) for i in range(n))
        stair = (*cells, self._prior.stair(batch))
        place = self[batch] = Place(left, right, entries, weights, cells, stair)
        return place


class Views:
    """The view of each group of samples that is booked; emptied when full."""

    def __init__(self, prior: StepTimePrior, cells: Cells) -> None:
        self._arms = prior.arms
        self._cells = cells
        self._views: dict[tuple[float, float, float], View] = {}

    def __len__(self) -> int:
        return len(self._views)

    def of(self, group: Samples) -> View:
        """What of the state a group saw."""
        place = group.log_batch, group.width, group.covariate
        view = self._views.get(place)
        if view is None:
            if len(self._views) >= _KEPT_VIEWS:
                self._views.clear()
            view = self._views[place] = self._make(group)
        return view

    def _make(self, group: Samples) -> View:
        n = len(self._arms)
        left, right = node(group.log_batch)
        low, share = between(self._arms, group.width)
        seen = [(low, 1.0 - share)] + ([(low + 1, share)] if share > 0.0 else [])
        index = [row * n + arm for arm, _ in seen for row in (left, left + 1, NODES)]
        shares = [a * b for _, a in seen for b in (1.0 - right, right, group.covariate)]
        batch = math.exp(group.log_batch)
        cells = tuple((arm, group.cell if arm == group.arm else self._cells.at(arm, batch), a) for arm, a in seen)
        return View(np.array(index), np.array(shares), cells)
