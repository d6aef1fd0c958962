"""The batch sizes of a recording put into groups, and the K that the operator's engine uses at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from adaptk.prefill import RARE
from adaptk.report.columns import Bools, Columns, Floats, Ints, beyond
from adaptk.report.headers import Header
from adaptk.schedule import scheduled_k

ENOUGH = 40  # steps with a time that make a group
PER_OCTAVE = 4  # groups of batch sizes
LAST_BATCH = 512  # to which a schedule is written out, at least


class Baseline(NamedTuple):
    """The operator's K over batch sizes, where it is known from, and how a sentence about it begins."""

    schedule: list[list[int]]
    told: str
    subject: str

    def k(self, batch: float) -> int:
        """The K at a batch size, as vLLM looks it up."""
        return scheduled_k(tuple((a, b, k) for a, b, k in self.schedule), max(batch, 1))


@dataclass(frozen=True)
class Groups:
    """Batch sizes put together, as vLLM's lookup counts requests; every field has shape ``(groups,)``.

    ``of`` has each step's group instead, -1 for one that is in none, shape ``(steps,)``. ``decodes`` and ``context``
    are means over the steps, ``busy_ms`` all of their time.
    """

    first: Ints
    last: Ints
    k_now: Ints
    decodes: Floats
    context: Floats
    steps: Ints
    busy_ms: Floats
    of: Ints

    def __len__(self) -> int:
        return len(self.first)


def baseline(columns: Columns, steered: Bools, headers: Sequence[Header], arms: Sequence[int]) -> Baseline:
    """What the engine uses without adaptk: the schedule, else the K that it played by itself, else the most drafts."""
    top = LAST_BATCH if len(columns.k) == 0 else max(LAST_BATCH, int(columns.batch.max()))
    for header in headers:
        if header.schedule:
            return Baseline(header.schedule, "your num_speculative_tokens_per_batch_size", "Your schedule")
    most = next((header.k_max for header in headers if header.k_max is not None), None)
    if most is not None:
        return Baseline([[1, top, most]], f"your num_speculative_tokens, {most}, throughout", f"K={most} throughout")
    own = ~steered
    if own.any():
        ks, counts = np.unique(columns.k[own], return_counts=True)
        k = int(ks[counts.argmax()])
        if counts.max() >= 0.95 * counts.sum():
            return Baseline([[1, top, k]], f"K={k}, which was played throughout", f"K={k} throughout")
        return Baseline(_played(columns, own, top), "what was played at each batch size", "What was played")
    k = max(arms)
    return Baseline([[1, top, k]], f"K={k}, the largest there is, as the trace names no schedule", f"K={k} throughout")


def replaced(columns: Columns, steered: Bools, base: Baseline) -> bool:
    """Whether adaptk's K were played for a good part of the recording, in place of the operator's."""
    sizes, at = np.unique(columns.batch, return_inverse=True)
    own = np.array([base.k(size) for size in sizes.tolist()])[at]
    return bool(np.mean(steered & (columns.k != own)) > 0.05)


def groups(columns: Columns, base: Baseline) -> Groups:
    """Quarter octaves of batch sizes, none across an edge of the schedule; small ones join neighbours."""
    usable = ~np.isnan(columns.ms) & (columns.decodes > 0) & ~columns.lost & ~beyond(columns)
    sizes, counts = np.unique(columns.batch[usable], return_counts=True)
    runs: list[tuple[int, int, int, int]] = []  # first, last, K, steps
    place = None
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        k, here = base.k(size), int(PER_OCTAVE * np.log2(size) + 1e-9)
        if runs and runs[-1][2] == k and (here == place or runs[-1][3] < ENOUGH):
            first, _, _, so_far = runs.pop()
            runs.append((first, size, k, so_far + count))
        else:
            runs.append((size, size, k, count))
        place = here
    merged: list[tuple[int, int, int, int]] = []
    for first, last, k, count in runs:
        if merged and count < ENOUGH and merged[-1][2] == k:
            begin, _, _, so_far = merged.pop()
            merged.append((begin, last, k, so_far + count))
        else:
            merged.append((first, last, k, count))
    of = np.full(len(columns.k), -1, dtype=np.int64)
    for number, (first, last, _, _) in enumerate(merged):
        of[usable & (columns.batch >= first) & (columns.batch <= last)] = number
    return _summed(columns, merged, of)


def clean(columns: Columns) -> Bools:
    """Steps whose time is that of one K alone: verified and made the same, no prompt, no wait for a grammar."""
    same = columns.linked & (columns.asked == columns.made) & ~columns.lost & (columns.decodes > 0)
    sane = columns.verified <= (columns.asked + 0.01) * columns.decodes
    timed = ~np.isnan(columns.ms) & ~beyond(columns)
    wait = columns.waited & (np.mean(~columns.waited) >= RARE if len(columns.k) else True)
    return np.asarray(same & sane & timed & ~wait & (columns.prefill == 0))


def mixed(columns: Columns) -> Bools:
    """The same with prompt tokens beside the decoding requests."""
    return clean(columns._replace(prefill=np.zeros_like(columns.prefill))) & (columns.prefill > 0)


def _played(columns: Columns, own: Bools, top: int) -> list[list[int]]:
    """The K that was played most at each batch size, as a schedule."""
    sizes = columns.batch[own]
    runs: list[list[int]] = []
    for size in np.unique(sizes).tolist():
        ks, counts = np.unique(columns.k[own][sizes == size], return_counts=True)
        k = int(ks[counts.argmax()])
        if runs and runs[-1][2] == k:
            runs[-1][1] = size
        else:
            if runs:
                runs[-1][1] = size - 1
            runs.append([size if runs else 1, size, k])
    runs[-1][1] = max(top, runs[-1][1])
    return runs


def _summed(columns: Columns, runs: Sequence[tuple[int, int, int, int]], of: Ints) -> Groups:
    n = len(runs)
    inside = of >= 0
    at = of[inside]
    steps = np.bincount(at, minlength=n).astype(np.int64)
    known = inside & ~np.isnan(columns.context)
    contexts = np.bincount(of[known], weights=columns.context[known], minlength=n)
    with np.errstate(invalid="ignore", divide="ignore"):
        context = contexts / np.bincount(of[known], minlength=n)
    first, last, ks, _ = (
        (np.array(values, dtype=np.int64) for values in zip(*runs, strict=True))
        if runs
        else (np.zeros(0, dtype=np.int64) for _ in range(4))
    )
    decodes = np.bincount(at, weights=columns.decodes[inside], minlength=n) / np.maximum(steps, 1)
    busy = np.bincount(at, weights=columns.ms[inside], minlength=n).astype(np.float64)
    return Groups(first, last, ks, decodes, context, steps, busy, of)
