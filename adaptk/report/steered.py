"""In which steps adaptk's own K were played: told from the steps themselves, for modes are switched within a trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from adaptk.report.columns import Bools, Columns, Ints

_STRAY = 0.02  # share of the decisions that were not played, which a steered engine may have: limits, steps in flight
_LEAST = 32  # steps in a row in which the K decided was played; fewer may agree by chance


def steered(columns: Columns, modes: Sequence[str | None]) -> Bools:
    """Whether each step's K was the controller's choice, shape ``(steps,)``.

    In shadow decided and played K may agree for long. A stretch in which they do counts where it plays what the
    operator's engine, which has one K for each batch size, does not. ``modes`` are those of the files' headers.
    """
    found = np.zeros(len(columns.k), dtype=bool)
    for source in range(len(modes)):
        at = np.flatnonzero(columns.source == source)
        found[at] = _of_one(columns.take(at), modes[source])
    return found


def told(steps: Bools, decided: Bools, mode: str | None) -> str | None:
    """The mode of one file in words, from its ``steered`` steps and its header."""
    known = steps[decided]
    if not known.any():
        return mode or ("shadow" if len(known) else None)
    edges = np.flatnonzero(np.diff(known.astype(int), prepend=0, append=0))
    apart = [(a, b) for a, b in zip(edges[1::2].tolist(), edges[2::2].tolist(), strict=False) if b - a >= _LEAST]
    before, after = int(edges[0]) >= _LEAST, len(known) - int(edges[-1]) >= _LEAST
    if len(apart) + before + after > 1:
        return "shadow and on in turns"
    return "shadow, then on" if before else "on, then shadow" if after else "on"


def _of_one(columns: Columns, mode: str | None) -> Bools:
    decided = columns.chosen >= 0
    same = decided & (columns.chosen == columns.k)
    differing = decided & ~same
    if not decided.any():
        return np.asarray(same)
    if differing.sum() <= _STRAY * decided.sum() and (mode not in ("shadow", "off") or not differing.any()):
        of_itself = mode in ("shadow", "off") and not _varies(columns.batch, columns.k)
        return np.asarray(same & (not of_itself))
    own = _mostly(columns.batch[differing], columns.k[differing])
    found = np.zeros_like(same)
    edges = np.flatnonzero(np.diff(same.astype(int), prepend=0, append=0))
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        batch, k = columns.batch[first:last], columns.k[first:last]
        others = any(own.get(size, played) != played for size, played in _pairs(batch, k))
        found[first:last] = last - first >= _LEAST and (others or _varies(batch, k))
    return np.asarray(found)


def _pairs(batch: Ints, k: Ints) -> list[tuple[int, int]]:
    """Each batch size with each K played at it."""
    return [(size, played) for size, played in np.unique(np.column_stack([batch, k]), axis=0).tolist()]


def _varies(batch: Ints, k: Ints) -> bool:
    """Whether one batch size had several K, which no schedule gives it."""
    pairs = _pairs(batch, k)
    return len({size for size, _ in pairs}) < len(pairs)


def _mostly(batch: Ints, k: Ints) -> dict[int, int]:
    """The K that each batch size had most often."""
    pairs, counts = np.unique(np.column_stack([batch, k]), axis=0, return_counts=True)
    order = np.argsort(counts, kind="stable")
    return {int(size): int(played) for size, played in pairs[order].tolist()}
