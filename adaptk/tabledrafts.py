"""What a table knows of drafts: how often each is accepted, on how many trials, and how often there is one at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adaptk.quoted import shown
from adaptk.tablerows import MAX_K, TableError, count, number

DEFAULT_ACCEPTANCE = 0.7
"""Conditional acceptance at every position where a table does not give it: a weak guess."""


class Drafts(NamedTuple):
    """Checked parts, each per draft position and ``None`` where unknown; later positions go on as the last one.

    Parameters
    ----------
    acceptance
        Probability that a draft is there and accepted, given that those before it were; shape ``(positions,)``.
    acceptance_counts
        ``(accepted, tried)`` behind it.
    supply
        Share of steps in which the drafter returned a draft at the position, of those that asked for so many; never
        rising. ``None``: it always does.
    """

    acceptance: tuple[float, ...] | None = None
    acceptance_counts: tuple[tuple[int, int], ...] | None = None
    supply: tuple[float, ...] | None = None

    @classmethod
    def read(cls, acceptance: Any, acceptance_counts: Any, supply: Any) -> Drafts:
        """Check the three.

        Raises
        ------
        TableError
            If a list is empty or too long, a share is outside [0, 1], a supply rises, or a count is impossible.
        """
        return cls(_acceptance(acceptance), _counts(acceptance_counts), _supply(supply))

    def lengths(self) -> NDArray[np.float64]:
        """Acceptance length of K = 0 to MAX_K, tokens per request and step, shape ``(MAX_K + 1,)``."""
        chances = np.multiply.accumulate(_held(self.acceptance or (DEFAULT_ACCEPTANCE,)))
        return 1.0 + _running_sum(chances)

    def widths(self) -> NDArray[np.float64]:
        """Drafts verified per request where K = 0 to MAX_K are asked for, shape ``(MAX_K + 1,)``."""
        return _running_sum(_held(self.supply or (1.0,)))


def _held(values: Sequence[float]) -> NDArray[np.float64]:
    """One value per position, the last one going on; shape ``(MAX_K,)``."""
    held = np.full(MAX_K, values[-1])
    held[: len(values)] = values
    return held


def _running_sum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate(([0.0], np.cumsum(values)))


def _acceptance(acceptance: Any) -> tuple[float, ...] | None:
    return None if acceptance is None else _shares("acceptance", acceptance)


def _supply(supply: Any) -> tuple[float, ...] | None:
    if supply is None:
        return None
    shares = _shares("supply", supply)
    for i, (before, after) in enumerate(pairwise(shares), start=1):
        if after > before:
            raise TableError(
                f"supply[{i}] is {after:g}, above the {before:g} before it: a draft follows the ones before"
            )
    return shares


def _counts(counts: Any) -> tuple[tuple[int, int], ...] | None:
    if counts is None:
        return None
    read = []
    for i, pair in enumerate(_entries("acceptance_counts", counts, "[accepted, tried]")):
        where = f"acceptance_counts[{i}]"
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TableError(f"{where} is {shown(pair)}: give [accepted, tried]")
        tried = count(f"{where} tried", pair[1], 0, 2**53)
        read.append((count(f"{where} accepted", pair[0], 0, tried), tried))
    return tuple(read)


def _shares(name: str, values: Any) -> tuple[float, ...]:
    entries = _entries(name, values, "probability")
    return tuple(number(f"{name}[{i}]", value, 0.0, 1.0) for i, value in enumerate(entries))


def _entries(name: str, values: Any, what: str) -> list[Any]:
    """One entry per draft position."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TableError(f"{name} is {shown(values)}: give one {what} per draft position, or leave it out")
    entries = list(islice(values, MAX_K + 1))
    if not 1 <= len(entries) <= MAX_K:
        many = f"more than {MAX_K}" if entries else "0"
        raise TableError(f"{name} has {many} entries: give 1 to {MAX_K}, or leave it out where unknown")
    return entries
