"""Cost surfaces: what a step of an engine takes, verifying and drafting apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from adaptk.table import GoodputTable

Array = NDArray[np.float64]

CAPTURE_SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
"""Token counts that vLLM captures as CUDA graphs by default up to 512 (vllm/config/compilation.py, 0.32.0)."""


@dataclass(frozen=True)
class CostSurface:
    """Step time over batch, K and context, in milliseconds.

    A step takes ``verify_ms + draft_ms``, and for prompt tokens ``prefill_ms`` each and ``mixed_ms`` once. Between
    numbers of drafts really verified it is linear.

    Parameters
    ----------
    name
        What it describes.
    contexts
        Levels of mean tokens per request in the KV cache, rising, shape ``(levels,)``; linear between, held beyond.
    verify_ms
        Verifying k drafts of each of b decoding requests, shape ``(levels, max_batch + 1, k_max + 1)``. Batch 0 is a
        step of prompt tokens alone.
    draft_ms
        Making k drafts for each of b requests, shape ``(max_batch + 1, k_max + 1)``. At k = 0: what a loaded drafter
        costs all the same.
    prefill_ms, mixed_ms
        Per prompt token, and per step that has any.
    """

    name: str
    contexts: Array
    verify_ms: Array
    draft_ms: Array
    prefill_ms: float = 0.0
    mixed_ms: float = 0.0

    def __post_init__(self) -> None:
        levels, batches, ks = self.verify_ms.shape
        if self.contexts.shape != (levels,) or np.any(np.diff(self.contexts) <= 0):
            raise ValueError(f"contexts is {self.contexts!r}: give {levels} rising levels, one per layer of verify_ms")
        if self.draft_ms.shape != (batches, ks):
            raise ValueError(f"draft_ms has shape {self.draft_ms.shape}: give {(batches, ks)}, as verify_ms has")
        for name in ("verify_ms", "draft_ms"):
            grid = getattr(self, name)
            if not np.all(np.isfinite(grid)) or np.any(grid < 0):
                raise ValueError(f"{name} holds a negative or infinite time: give milliseconds of at least 0")
        if self.verify_ms[:, 1:].min() <= 0:
            raise ValueError("verify_ms is 0 for a batch that is not empty: give milliseconds above 0")

    @property
    def max_batch(self) -> int:
        """Largest batch size that it describes."""
        return int(self.verify_ms.shape[1]) - 1

    @property
    def k_max(self) -> int:
        """Largest K that it describes."""
        return int(self.verify_ms.shape[2]) - 1

    def itl_ms(self, batch: int, k: int, context: float | None = None) -> float:
        """Time of a step that verifies and makes ``k`` drafts per request; ``context`` in tokens per request.

        Raises
        ------
        ValueError
            If batch or K is beyond the surface.
        """
        if not 1 <= batch <= self.max_batch or not 0 <= k <= self.k_max:
            raise ValueError(f"batch {batch}, k {k}: give 1 to {self.max_batch} and 0 to {self.k_max}")
        return float(self.itl_grid(context)[batch, k])

    def itl_grid(self, context: float | None = None) -> Array:
        """Step times at one context (default: the lowest level), shape ``(max_batch + 1, k_max + 1)``."""
        at = self.contexts[0] if context is None else min(max(context, self.contexts[0]), self.contexts[-1])
        right = int(np.clip(np.searchsorted(self.contexts, at), 1, max(1, len(self.contexts) - 1)))
        if len(self.contexts) == 1:
            return np.asarray(self.verify_ms[0] + self.draft_ms)
        low, high = self.contexts[right - 1], self.contexts[right]
        share = (at - low) / (high - low)
        between = (1.0 - share) * self.verify_ms[right - 1] + share * self.verify_ms[right]
        return np.asarray(between + self.draft_ms)

    def to_table(
        self,
        ks: Sequence[int],
        acceptance: Sequence[float] | None,
        batches: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
        with_contexts: bool = False,
        context: float | None = None,
    ) -> GoodputTable:
        """What a profiling run would write: rows at ``batches`` and ``ks``, at one context or at every level."""
        rows = []
        kept = [b for b in batches if b <= self.max_batch]
        for level in self.contexts.tolist() if with_contexts else [context]:
            grid = self.itl_grid(level)
            for b in kept:
                for k in ks:
                    row = {"batch": b, "k": k, "itl_ms": float(grid[b, k])}
                    rows.append({**row, "context": level} if with_contexts else row)
        return GoodputTable.from_rows(rows, acceptance, {"name": self.name})

    def stretched(self, k_factor: float = 1.0, level: float = 1.0) -> CostSurface:
        """The same engine with what drafts cost beyond K=0 times ``k_factor``, and everything times ``level``."""
        verify = self.verify_ms[:, :, :1] + k_factor * (self.verify_ms - self.verify_ms[:, :, :1])
        draft = self.draft_ms[:, :1] + k_factor * (self.draft_ms - self.draft_ms[:, :1])
        return replace(self, verify_ms=level * verify, draft_ms=level * draft)

    def steep_first(self, factor: float) -> CostSurface:
        """The same engine whose first draft costs ``factor`` times as much; later ones cost what they did."""
        verify, draft = self.verify_ms.copy(), self.draft_ms.copy()
        verify[:, :, 1:] += (factor - 1.0) * (verify[:, :, 1:2] - verify[:, :, :1])
        draft[:, 1:] += (factor - 1.0) * (draft[:, 1:2] - draft[:, :1])
        return replace(self, verify_ms=verify, draft_ms=draft)

    def padded(self, sizes: Sequence[int] = CAPTURE_SIZES, eager: float = 1.0) -> CostSurface:
        """The same engine with steps padded to captured graphs: a staircase, then a cliff.

        A step of b·(k+1) tokens costs what the next captured size costs; above the largest one it runs without a graph
        and costs ``eager`` times as much.
        """
        verify = self.verify_ms.copy()
        batches = np.arange(self.max_batch + 1)
        for k in range(self.k_max + 1):
            tokens = batches * (k + 1)
            at = np.searchsorted(sizes, tokens)
            full = at < len(sizes)
            size = np.asarray(sizes)[np.minimum(at, len(sizes) - 1)] / (k + 1.0)
            for level in range(len(self.contexts)):
                grid = np.interp(size, batches, self.verify_ms[level, :, k])
                verify[level, :, k] = np.where(full, grid, eager * self.verify_ms[level, :, k])
        verify[:, 0] = self.verify_ms[:, 0]
        return replace(self, verify_ms=verify)

    def without_drafter(self) -> CostSurface:
        """The same engine with no drafter loaded: only K=0, and no price for it."""
        return replace(self, verify_ms=self.verify_ms[:, :, :1], draft_ms=np.zeros_like(self.draft_ms[:, :1]))

    @classmethod
    def from_table(
        cls, table: GoodputTable, max_batch: int, k_max: int, draft_share: float = 0.2, prefill_ms: float = 0.044
    ) -> CostSurface:
        """A table taken for the truth: bilinear in batch and K, a staircase where the table is one.

        ``draft_share`` of what drafts cost beyond K=0 is paid when they are made, the rest when they are verified: a
        table does not say, so this is an assumption. ``prefill_ms`` per prompt token likewise.

        Raises
        ------
        adaptk.table.TableError
            If the table has no step times.
        """
        levels = table.contexts or (0.0,)
        batches = np.arange(1, max_batch + 1)
        grids = []
        for level in levels:
            grid = table.itl_grid(batches, range(k_max + 1), level if table.contexts else None)
            grids.append(np.vstack([grid[:1], grid]))
        whole = np.stack(grids)
        whole[:, 0] = whole[:, 0, :1]
        beyond = np.maximum(whole - whole[:, :, :1], 0.0)
        draft = draft_share * beyond.min(axis=0)
        name = str(table.meta.get("name", "a table taken for the truth"))
        return cls(name, np.asarray(levels, float), whole - draft, draft, prefill_ms, 0.0)
