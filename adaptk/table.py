"""GoodputTable: what a step costs and how often drafts are accepted, as measured offline."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from adaptk.interpolation import Surfaces
from adaptk.schedule import Schedule, merge_runs, read_schedule, scheduled_k
from adaptk.tablecheck import suspicions
from adaptk.tabledrafts import Drafts
from adaptk.tablefile import read_file, write_file
from adaptk.tablerows import MAX_BATCH, MAX_K, TableError, TableRow, count, number, read_meta, read_rows

__all__ = ["GoodputTable", "TableError", "TableRow"]

# Questions may go far beyond the rows, as an engine must be answered whatever its batch; only nonsense is refused.
_ANY_BATCH, _ANY_CONTEXT = 2.0**53, 1e300
_AT_ONCE = 4096  # batch sizes: a grid of all of them and every K would fill the memory


class GoodputTable:
    """Goodput per batch size and K; immutable once built.

    Goodput is ``acceptance_length(k) / itl_ms(batch, k)``: tokens per request and second. Tables come from
    :meth:`from_rows` (measured step times), :meth:`from_schedule` (vLLM's own format, no times) or :meth:`load`.

    Step times between the rows: linear in batch, or, where ``meta["staircase"]`` is true, the next row at or above.
    Below the smallest row its value; above the largest, on in a line from the last two rows of that K, never below the
    last. A K without rows: linear in K through its neighbours (see :meth:`knows`). Rows with a context give one surface
    per context, linear between and held beyond; a question without context is answered from the rows without one, else
    from the (lower) middle level.

    Examples
    --------
    >>> rows = [{"batch": b, "k": k, "itl_ms": 5.0 + 0.01 * b * (k + 1)} for b in (1, 64, 512) for k in (0, 1, 3)]
    >>> table = GoodputTable.from_rows(rows, acceptance=[0.7, 0.6, 0.5])
    >>> table.best_k(4), table.best_k(512)
    (3, 1)
    >>> table.to_schedule(max_batch=8)
    [[1, 8, 3]]
    """

    def __init__(
        self,
        rows: tuple[TableRow, ...],
        drafts: Drafts,
        meta: dict[str, Any],
        schedule: Schedule | None,
    ) -> None:
        """Take checked parts; use the ``from_`` methods instead."""
        self._rows = rows
        self._drafts = drafts
        self._meta = meta
        self._schedule = schedule
        ks = {row.k for row in rows} if schedule is None else {k for _, _, k in schedule}
        self._ks = tuple(sorted(ks))
        self._batches = tuple(sorted({row.batch for row in rows}))
        self._surfaces = Surfaces(rows, meta.get("staircase", False)) if rows else None
        self._lengths = drafts.lengths()
        self._widths = drafts.widths()

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[TableRow | Mapping[str, Any]],
        acceptance: Sequence[float] | None = None,
        meta: Mapping[str, Any] | None = None,
        *,
        acceptance_counts: Sequence[Sequence[int]] | None = None,
        supply: Sequence[float] | None = None,
    ) -> GoodputTable:
        """Build a table from measured step times.

        Parameters
        ----------
        rows
            Mappings with ``batch``, ``k``, ``itl_ms`` and, if wanted, ``context``, ``n``, ``spread_ms``, ``p10_ms``,
            ``p90_ms``, ``low_ms``, ``high_ms``, ``graph_mode`` (units and ranges: :class:`TableRow`); other keys are
            refused. Times are those of steps that ask for ``k`` drafts, with what the drafter then returned.
        acceptance
            Conditional acceptance probability per draft position, shape ``(positions,)``; the last one is held for
            later positions. ``None``: unknown, and 0.7 is assumed. A draft that was asked for and not made counts
            as not accepted.
        meta
            Free JSON: ``name``, ``key`` (an object saying what was measured, see :mod:`adaptk.tablekey`),
            ``provenance`` (how), ``staircase`` (true where graph padding makes step time a staircase in batch).
        acceptance_counts
            ``[accepted, tried]`` behind each value of ``acceptance``, shape ``(positions, 2)``.
        supply
            Share of steps in which the drafter returned a draft at the position, of those that asked for so many,
            shape ``(positions,)``, never rising. ``None``: it always does.

        Raises
        ------
        TableError
            If a value is impossible or two rows describe the same cell.
        """
        return cls(read_rows(rows), Drafts.read(acceptance, acceptance_counts, supply), read_meta(meta), None)

    @classmethod
    def from_schedule(
        cls,
        schedule: Sequence[Sequence[int]],
        acceptance: Sequence[float] | None = None,
        meta: Mapping[str, Any] | None = None,
        *,
        acceptance_counts: Sequence[Sequence[int]] | None = None,
        supply: Sequence[float] | None = None,
    ) -> GoodputTable:
        """Build a table without times from ``[[first batch, last batch, K], ...]``, as vLLM reads it.

        The other parameters as in :meth:`from_rows`.

        Raises
        ------
        TableError
            If vLLM would refuse the schedule, or a value in it is no whole number.
        """
        drafts = Drafts.read(acceptance, acceptance_counts, supply)
        return cls((), drafts, read_meta(meta), read_schedule(schedule))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> GoodputTable:
        """Read a table from a file that :meth:`save` wrote.

        Raises
        ------
        TableError
            If the file is missing, truncated, of another version or inconsistent; file, field and value are named.
        """
        fields = read_file(path)
        try:
            if (fields.get("rows") is None) == (fields.get("schedule") is None):
                raise TableError("rows and schedule: give one of the two")
            shared = {name: fields.get(name) for name in ("meta", *Drafts._fields)}
            if fields.get("rows") is not None:
                return cls.from_rows(fields["rows"], **shared)
            return cls.from_schedule(fields["schedule"], **shared)
        except TableError as error:
            raise TableError(f"{os.fspath(path)}: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to ``path`` in one move.

        Raises
        ------
        TableError
            If the file cannot be written.
        """
        write_file(path, self._meta, self._drafts._asdict(), self._schedule, self._rows)

    @property
    def rows(self) -> tuple[TableRow, ...]:
        """Measured cells, sorted by context, batch and K; empty for a schedule."""
        return self._rows

    @property
    def acceptance(self) -> tuple[float, ...] | None:
        """Conditional acceptance probability per draft position; ``None`` where unknown."""
        return self._drafts.acceptance

    @property
    def acceptance_counts(self) -> tuple[tuple[int, int], ...] | None:
        """``(accepted, tried)`` behind each value of ``acceptance``; ``None`` where unknown."""
        return self._drafts.acceptance_counts

    @property
    def supply(self) -> tuple[float, ...] | None:
        """Share of steps with a draft at each position, of those that asked for it; ``None``: all of them."""
        return self._drafts.supply

    @property
    def meta(self) -> dict[str, Any]:
        """A copy of the table's notes."""
        return deepcopy(self._meta)

    @property
    def key(self) -> dict[str, Any]:
        """What was measured, for :func:`adaptk.tablekey.differences`; empty where the notes hold no such object."""
        key = self._meta.get("key")
        return deepcopy(key) if isinstance(key, dict) else {}

    @property
    def schedule(self) -> Schedule | None:
        """``(first batch, last batch, K)`` triples of a table without times, else ``None``."""
        return self._schedule

    @property
    def ks(self) -> tuple[int, ...]:
        """The K that have rows, or that the schedule names, rising."""
        return self._ks

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes that have rows, rising; empty for a schedule."""
        return self._batches

    @property
    def contexts(self) -> tuple[float, ...]:
        """Levels of mean context that have rows, tokens per request, rising."""
        return () if self._surfaces is None else self._surfaces.levels

    @property
    def has_times(self) -> bool:
        """Whether the table knows step times."""
        return self._surfaces is not None

    def knows(self, k: int) -> bool:
        """Whether ``k`` has rows (or is named by the schedule), so that nothing was interpolated in K."""
        return k in self._ks

    def itl_ms(self, batch: float, k: int, context: float | None = None) -> float | None:
        """Step time in milliseconds; ``None`` for a table without times.

        Parameters
        ----------
        batch
            Decoding requests, ``>= 1``; fractions are interpolated.
        k
            Drafts per request, 0 to 1024.
        context
            Mean tokens per request in the KV cache; ``None`` where unknown.

        Raises
        ------
        TableError
            If an argument is out of range.
        """
        if self._surfaces is None:
            return None
        number("batch", batch, 1, _ANY_BATCH)
        return float(self.itl_grid([batch], [k], context)[0, 0])

    def itl_grid(self, batches: ArrayLike, ks: Sequence[int], context: float | None = None) -> NDArray[np.float64]:
        """Step times in milliseconds, shape ``(len(batches), len(ks))``; the same values as :meth:`itl_ms`.

        Raises
        ------
        TableError
            If the table has no times, or a K or the context is out of range.
        """
        if self._surfaces is None:
            raise TableError("the table has a schedule and no step times: ask has_times first")
        for k in ks:
            count("k", k, 0, MAX_K)
        if context is not None:
            number("context", context, 0, _ANY_CONTEXT)
        return self._surfaces.grid(np.asarray(batches, dtype=float), ks, context)

    def acceptance_length(self, k: int) -> float:
        """Tokens emitted per request and step with ``k`` drafts, the bonus token included."""
        return float(self._lengths[count("k", k, 0, MAX_K)])

    def width(self, k: int) -> float:
        """Drafts verified per request and step where ``k`` are asked for: ``k`` where the drafter returns all."""
        return float(self._widths[count("k", k, 0, MAX_K)])

    def goodput(self, batch: float, k: int, context: float | None = None) -> float | None:
        """Tokens per request and second; ``None`` for a table without times. Arguments as :meth:`itl_ms`."""
        itl_ms = self.itl_ms(batch, k, context)
        return None if itl_ms is None else 1000.0 * self.acceptance_length(k) / itl_ms

    def best_k(self, batch: float, context: float | None = None, arms: Iterable[int] | None = None) -> int:
        """The K of ``arms`` with the highest goodput; of equals the smallest.

        ``arms`` are the K to choose among, by default the table's own. A schedule gives the largest arm not above its
        K, or the smallest arm. ``batch`` and ``context`` as in :meth:`itl_ms`.

        Raises
        ------
        TableError
            If an argument is out of range or ``arms`` is empty.
        """
        number("batch", batch, 1, _ANY_BATCH)
        return self._best(np.array([batch], dtype=float), context, arms)[0]

    def to_schedule(
        self, max_batch: int = 512, context: float | None = None, arms: Iterable[int] | None = None
    ) -> list[list[int]]:
        """:meth:`best_k` of every batch from 1 to ``max_batch`` as ``[[first batch, last batch, K], ...]``.

        Raises
        ------
        TableError
            If an argument is out of range or ``arms`` is empty.
        """
        last = count("max_batch", max_batch, 1, MAX_BATCH)
        choice = None if arms is None else tuple(arms)
        best: list[int] = []
        for first in range(1, last + 1, _AT_ONCE):
            batches = np.arange(first, min(first + _AT_ONCE, last + 1), dtype=np.float64)
            best += self._best(batches, context, choice)
        return merge_runs(best)

    def check(self) -> list[str]:
        """What is legal but looks wrong: holes, outliers, few samples; one sentence each, empty if all looks well."""
        return suspicions(self._rows, self._drafts)

    def _best(self, batches: NDArray[np.float64], context: float | None, arms: Iterable[int] | None) -> list[int]:
        """Best K for each of ``batches``, shape ``(batches,)``."""
        choice = self._ks if arms is None else tuple(sorted({count("arms", arm, 0, MAX_K) for arm in arms}))
        if not choice:
            raise TableError("arms is empty: give at least one K")
        if self._schedule is not None:
            wanted = [scheduled_k(self._schedule, batch) for batch in batches.tolist()]
            return [max((arm for arm in choice if arm <= k), default=choice[0]) for k in wanted]
        goodput = self._lengths[list(choice)] / self.itl_grid(batches, choice, context)
        return [choice[i] for i in np.argmax(goodput, axis=1).tolist()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GoodputTable):
            return NotImplemented
        mine = (self._rows, self._drafts, self._meta, self._schedule)
        return mine == (other._rows, other._drafts, other._meta, other._schedule)

    __hash__ = None  # type: ignore[assignment]  # notes are a dict

    def __repr__(self) -> str:
        name = self._meta.get("name", "unnamed")
        size = f"{len(self._rows)} rows" if self._schedule is None else f"schedule of {len(self._schedule)} ranges"
        return f"<GoodputTable {name}: {size}, k={self._ks}>"
