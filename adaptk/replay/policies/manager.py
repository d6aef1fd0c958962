"""The goodput manager of vLLM's draft pull request 38038: live acceptance, frozen step times."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.cascade import cascade_counts
from adaptk.replay.policies.base import Rival, Setup
from adaptk.step import StepRecord

WARM_UP = 100  # steps
KEEP = 0.99  # of the counts, per step, in the variant that forgets


class AcceptanceManager(Rival):
    """K with the highest acceptance length over step time, acceptance counted live, step times measured once.

    Source: vLLM pull request 38038, a draft, its code read. It is the ablation of adaptk with a seed table and live
    acceptance only.

    - Acceptance of a position is accepted over drafted there, counted over all history and not given earlier positions;
      a position that never was drafted reads 0, so K ratchets down and does not recover.
    - ``AL(K) = 1 +`` the sum of the first K rates; K* maximises ``AL(K) / ITL(batch, K)`` for K from 0, the smaller of
      equals. After the warm-up every step rebuilds K* for all batch sizes.
    - ``ITL`` is a table of medians, linear in batch between its rows, then linear in K, without context.
    - Warm-up: 100 steps (another variant of the code has 10).

    Ours, where the source is silent: during the warm-up the table's own acceptance decides, as the configuration of
    that design line carries rates; counting begins at the first step; batch means scheduled requests, as in the rule
    that was merged; above its rows the table goes on in a line. Late records only come late: counts need no K.

    Parameters
    ----------
    setup
        Arms and step times: the seed table's, else the profile's of the engine's start.
    forget
        Variant: counts fade by 0.99 per step (ours).
    extrapolate
        Variant: a position never drafted reads as the last drafted one times the geometric ratio of
        :func:`extended` (ours); until any was drafted, the table's acceptance stays.
    """

    def __init__(self, setup: Setup, forget: bool = False, extrapolate: bool = False) -> None:
        super().__init__(setup.arms)
        self._table = setup.timed
        self._keep = KEEP if forget else 1.0
        self._extrapolate = extrapolate
        self._drafted = [0.0] * setup.k_max
        self._accepted = [0.0] * setup.k_max
        self.rates = [0.0] * setup.k_max  # accepted / drafted; a rate is kept while its position is not drafted
        self._lengths = [self._table.acceptance_length(k) for k in setup.arms]
        self._steps = 0
        self._times: dict[int, list[float]] = {}  # ms per arm, by batch

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """K* of ``batch_size`` scheduled requests."""
        times = self._times.get(batch_size)
        if times is None:
            times = self._times[batch_size] = self._table.itl_grid([max(1, batch_size)], self.arms)[0].tolist()
        best_k, best = self.arms[0], 0.0
        for k, length, time in zip(self.arms, self._lengths, times, strict=True):
            if length / time > best:
                best_k, best = k, length / time
        return best_k

    def observe(self, record: StepRecord) -> None:
        """Count what was drafted and accepted per position."""
        self._steps += 1
        succeeded, _, present = cascade_counts(record.drafted, record.accepted, len(self.rates))
        if self._keep < 1.0:
            self._drafted = [self._keep * n for n in self._drafted]
            self._accepted = [self._keep * n for n in self._accepted]
        for j, n in enumerate(present):
            if n == 0:
                break  # no draft here means none behind it
            self._drafted[j] += n
            self._accepted[j] += succeeded[j]
            self.rates[j] = self._accepted[j] / self._drafted[j]
        if self._steps >= WARM_UP:
            self._rebuild()

    def _rebuild(self) -> None:
        rates = self.rates
        if self._extrapolate:
            known = sum(n > 0.0 for n in self._drafted)
            if known == 0:
                return
            rates = extended(rates[:known], len(rates))
        sums = [1.0]
        for rate in rates:
            sums.append(sums[-1] + rate)
        self._lengths = [sums[k] for k in self.arms]


def extended(rates: Sequence[float], positions: int) -> list[float]:
    """Unconditional acceptance of all positions from that of the first ones, shape ``(positions,)``.

    Each further one is the one before times ``(p_last / p_first) ** (1 / (n - 1))``, the mean ratio of neighbours among
    the ``n`` known. Ours: with one known that rate is the ratio, and the ratio is at most 1. Nothing known: zeros.

    Examples
    --------
    >>> extended([0.8, 0.4], 4)
    [0.8, 0.4, 0.2, 0.1]
    >>> extended([0.5], 3)
    [0.5, 0.25, 0.125]
    """
    out = list(rates[:positions])
    if not out:
        return [0.0] * positions
    first, last = out[0], out[-1]
    ratio = first
    if len(out) > 1:
        ratio = min(1.0, (last / first) ** (1.0 / (len(out) - 1))) if first > 0.0 else 0.0
    while len(out) < positions:
        out.append(out[-1] * ratio)
    return out
