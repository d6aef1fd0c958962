"""vLLM's batch-size schedules: ``[[first batch, last batch, K], ...]``, both ends included."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from adaptk.quoted import shown
from adaptk.tablerows import MAX_K, TableError, count

Schedule = tuple[tuple[int, int, int], ...]

# Only keeps integers within what JSON and numpy can hold; vLLM users write open ends such as 100000000.
_MAX_END = 2**53
_MAX_RUNS = 100_000


def read_schedule(triples: Sequence[Sequence[int]]) -> Schedule:
    """Check a schedule as vLLM does for ``num_speculative_tokens_per_batch_size`` and sort it by batch.

    Entries may come in any order, as in vLLM; between and after them the K of the entry before goes on. Stricter than
    vLLM, which rounds 3.9 down and takes ``true`` for 1: only whole numbers are taken.

    Raises
    ------
    TableError
        If it is empty, does not start at batch 1, ranges overlap or run backwards, or a value is no whole number.
    """
    if isinstance(triples, (str, bytes, dict)) or not isinstance(triples, Iterable):
        raise TableError(f"schedule is {shown(triples)}: give a list of [first batch, last batch, K]")
    entries: list[tuple[int, int, int]] = []
    for i, entry in enumerate(triples):
        if i >= _MAX_RUNS:
            raise TableError(f"schedule has more than {_MAX_RUNS} entries: merge neighbours with the same K")
        entries.append(_read_entry(f"schedule[{i}]", entry))
    if not entries:
        raise TableError("schedule is empty: give at least one [first batch, last batch, K]")
    entries.sort(key=lambda entry: entry[0])
    if entries[0][0] != 1:
        raise TableError(f"schedule starts at batch {entries[0][0]}: its first range must start at batch 1")
    for (_, end, _), (start, last, _) in pairwise(entries):
        if start <= end:
            raise TableError(f"schedule range {start}..{last} overlaps the one up to {end}: start it above {end}")
    return tuple(entries)


def _read_entry(where: str, entry: Any) -> tuple[int, int, int]:
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        raise TableError(f"{where} is {shown(entry)}: give [first batch, last batch, K]")
    first = count(f"{where} first batch", entry[0], 1, _MAX_END)
    last = count(f"{where} last batch", entry[1], 1, _MAX_END)
    if first > last:
        raise TableError(f"{where} runs from batch {first} down to {last}: give the smaller one first")
    return first, last, count(f"{where} K", entry[2], 0, MAX_K)


def scheduled_k(schedule: Schedule, batch: float) -> int:
    """K of the last range that starts at or below ``batch``, which must be at least 1."""
    return schedule[bisect_right(schedule, batch, key=lambda entry: entry[0]) - 1][2]


def merge_runs(ks: Sequence[int]) -> list[list[int]]:
    """Ranges of equal K, where ``ks[i]`` is the K of batch ``i + 1``; ``ks`` of shape ``(max_batch,)``."""
    runs: list[list[int]] = []
    for batch, k in enumerate(ks, start=1):
        if runs and runs[-1][2] == k:
            runs[-1][1] = batch
        else:
            runs.append([batch, batch, int(k)])
    return runs
