"""TurboSpec: one acceptance rate for the batch, a fitted step time, a scan every 20 steps."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from adaptk.replay.policies.base import Rival, Setup, decoding
from adaptk.step import StepRecord
from adaptk.table import GoodputTable

START = 0.7  # acceptance rate before any is seen
RATE = 0.15  # of one step's acceptance
HOLD = 20  # steps between scans
OFF_BONUS = 1.1  # on the goodput of K=0
CELL_RATE = 0.5  # of one measured step time


class TurboSpec(Rival):
    """Goodput by one batch-wide acceptance rate and a polynomial step time, scanned upwards every 20 steps.

    Source: Liu et al., "SmartSpec / TurboSpec", arXiv 2406.14066, abstract, and one of its public code variants, read;
    which variant is the authors' last is unknown.

    - Acceptance ``a`` starts at 0.7; each step with drafts moves it, ``a <- 0.85 a + 0.15 accepted / drafted``, sums
      over the batch. That rate falls as K grows, since drafts behind a rejected one count as drafted.
    - Acceptance length ``(1 - a**(K+1)) / (1 - a)``; goodput is batch times that over the step time ``T``. Goodput of
      K=0 counts 1.1 times.
    - Every 20 steps: scan the arms upwards, stop at the first that does not beat the best so far, hold the best for 20
      steps, whatever the batch does. At K=0 acceptance stays as it is, and only another batch size leads back.
    - ``T`` is a polynomial of degree 2 in batch, batch * (K + 1) and batch * mean context for the target, and K drafts
      at a price linear in the batch. The code adds three models (draft, target, overhead), each linear or of degree 2,
      picked by a held-out fit; here all are fitted at once.

    Ours, where the source is silent or needs an engine: the fit is by least squares on relative errors, since goodput
    is a ratio, and made once on the rows of the seed table, else of the start's profile; rows without context are used
    only if there are no others; context is held at the outermost levels; ``T`` is never below the quickest row. Batch
    means decoding requests. Left out: graph-padded draft batches, bucketed context, infinite cost beyond the cache.
    Without the price of the drafts K=5 looks 24 % too cheap at batch 1 on the public profile of vLLM pull request
    32374, and K=0 18 % too dear, as batch * (K + 1) hardly grows with K there.

    Parameters
    ----------
    setup
        Arms and step times.
    live_latency
        Enable the routine that the code has and leaves off: the step time of a visited (batch, K) becomes half old
        and half measured, and replaces the polynomial there from then on. Its engine makes and verifies drafts within
        a step, and does not mix in prompts: only steps count here that made as many drafts as they verified, with no
        prefill, and whose time is known.
    """

    def __init__(self, setup: Setup, live_latency: bool = False) -> None:
        super().__init__(setup.arms)
        self.acceptance = START
        self._latency = Polynomial(setup.timed)
        self._live = live_latency
        self._cells: dict[tuple[int, int], float] = {}  # ms by (decoding requests, K)
        self._k = setup.arms[0]
        self._left = 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The K of the last scan."""
        if self._left == 0:
            self._k = self._scan(decoding(batch_size, decodes), _mean_context(context_tokens, batch_size))
            self._left = HOLD
        self._left -= 1
        return self._k

    def observe(self, record: StepRecord) -> None:
        """Move the acceptance rate, and with live latency the step time of the cell that was visited."""
        drafted = sum(record.drafted)
        if drafted > 0:
            self.acceptance += RATE * (sum(record.accepted) / drafted - self.acceptance)
        if self._live:
            self._take_time(record)

    def goodput(self, batch: int, k: int, context: float | None) -> float:
        """Tokens per millisecond as the rule sees them, the bonus for K=0 included."""
        a = self.acceptance
        length = k + 1.0 if a > 1.0 - 1e-9 else (1.0 - a ** (k + 1)) / (1.0 - a)
        return (OFF_BONUS if k == 0 else 1.0) * batch * length / self.step_ms(batch, k, context)

    def step_ms(self, batch: int, k: int, context: float | None) -> float:
        """Step time as the rule sees it, milliseconds."""
        measured = self._cells.get((batch, k))
        return self._latency.at(batch, k, context) if measured is None else measured

    def _scan(self, batch: int, context: float | None) -> int:
        best_k, best = self.arms[0], -math.inf
        for k in self.arms:
            value = self.goodput(max(1, batch), k, context)
            if value <= best:
                break
            best_k, best = k, value
        return best_k

    def _take_time(self, record: StepRecord) -> None:
        elapsed = record.elapsed_ms if record.device_ms is None else record.device_ms
        made = record.k if record.draft_k is None else record.draft_k
        if elapsed is None or not 0.0 < elapsed < math.inf or record.prefill_tokens > 0:
            return
        if record.batch_size == 0 or made != max(record.drafted, default=0):
            return
        batch = decoding(record.batch_size, record.decodes)
        old = self.step_ms(batch, made, _mean_context(record.context_tokens, record.batch_size))
        self._cells[batch, made] = old + CELL_RATE * (elapsed - old)


class Polynomial:
    """Step time of degree 2 in batch, batch * (K + 1) and batch * context, and drafts, fitted to a table's rows."""

    def __init__(self, table: GoodputTable) -> None:
        self._levels = table.contexts
        rows = [row for row in table.rows if row.context is not None or not self._levels]
        batch = np.array([row.batch for row in rows], dtype=np.float64)
        tokens = batch * np.array([row.k + 1 for row in rows])
        cache = batch * np.array([row.context or 0.0 for row in rows])
        drafts = np.array([row.k for row in rows], dtype=np.float64)
        times = np.array([row.itl_ms for row in rows])
        self._scale = [max(1.0, float(column.max())) for column in (batch, tokens, cache)]
        x, y, z = (column / scale for column, scale in zip((batch, tokens, cache), self._scale, strict=True))
        terms = np.stack(
            [np.ones_like(x), x, y, z, x * x, y * y, z * z, x * y, x * z, y * z, drafts, drafts * x], axis=1
        )
        fit: npt.NDArray[np.float64] = np.linalg.lstsq(terms / times[:, None], np.ones_like(times), rcond=None)[0]
        self.coefficients: list[float] = fit.tolist()  # of 1, x, y, z, xx, yy, zz, xy, xz, yz, k, kx
        self._least = float(times.min())

    def at(self, batch: int, k: int, context: float | None) -> float:
        """Milliseconds; an unknown context (tokens per request) counts as the lower middle level of the rows."""
        levels = self._levels
        if not levels:
            mean = 0.0
        elif context is None:
            mean = levels[(len(levels) - 1) // 2]
        else:
            mean = min(max(context, levels[0]), levels[-1])
        x, y, z = batch / self._scale[0], batch * (k + 1) / self._scale[1], batch * mean / self._scale[2]
        one, cx, cy, cz, cxx, cyy, czz, cxy, cxz, cyz, ck, ckx = self.coefficients
        first = one + cx * x + cy * y + cz * z + k * (ck + ckx * x)
        return max(self._least, first + x * (cxx * x + cxy * y + cxz * z) + y * (cyy * y + cyz * z) + czz * z * z)


def _mean_context(context_tokens: int | None, requests: int) -> float | None:
    return None if context_tokens is None or requests <= 0 else context_tokens / requests
