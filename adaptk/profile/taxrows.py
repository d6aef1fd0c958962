"""What blocks of an engine with its drafter, and of one without, amount to: a row per batch size and K. All pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from adaptk.profile.est_fit import ArmFit, GroupFit, fit_group
from adaptk.profile.estimate import FEWEST_VISITS, AcceptanceCounts, Block, CellEstimate, Group, GroupEstimate, estimate

_NORMAL = 1.96


class Span(NamedTuple):
    """A value and the ends of its 95 % interval, ``None`` where too little was seen to say."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def relative_width(self) -> float:
        """Width of the interval over the value; infinite where it is unknown."""
        return math.inf if self.low is None or self.high is None else (self.high - self.low) / self.value


class TaxRow(NamedTuple):
    """One K at one batch size.

    Parameters
    ----------
    batch, context
        Decoding requests, and tokens per request in the KV cache.
    k
        Drafts per request; ``None``: the engine without a drafter.
    itl_ms
        Time of a step, milliseconds.
    ratio
        Step time over that of the engine without a drafter; ``None`` where that was not measured here.
    tokens_per_s
        Of all requests together, at the acceptance of the answers; ``None`` where no draft was tried.
    gain
        Tokens per second over those of the engine without a drafter.
    pays_above
        Acceptance, alike at each position, above which this K gives more tokens per second than no drafter; ``None``
        where no acceptance does, and for K=0.
    """

    batch: int
    context: float | None
    k: int | None
    itl_ms: Span
    ratio: Span | None = None
    tokens_per_s: Span | None = None
    gain: Span | None = None
    pays_above: float | None = None

    @property
    def relative_width(self) -> float:
        """Of the ratio's interval; infinite where there is none."""
        return math.inf if self.ratio is None else self.ratio.relative_width


def tax_rows(
    drafting: Iterable[Block], bare: Iterable[Block], acceptance: AcceptanceCounts, paired: bool
) -> list[TaxRow]:
    """Rows by rising batch size, no drafter first.

    Parameters
    ----------
    drafting, bare
        Blocks of the engine with its drafter, and of the one without.
    acceptance
        Counts of the answers.
    paired
        Whether visits of the same number were played one right after the other, so that their ratios are those of
        pairs (a t interval over the logs); else the two engines' means are compared as independent ones.

    Examples
    --------
    >>> def blocks(k, ms):
    ...     return [Block(4, k, 64, 64, visit, 0.0, (ms + 0.1 * visit,) * 8, (k,) * 8) for visit in range(5)]
    >>> counts = AcceptanceCounts(accepted=(60,), tried=(100,), returned=(100,), asked=(100,))
    >>> none, idle, one = tax_rows(blocks(0, 10.5) + blocks(1, 12.0), blocks(0, 10.0), counts, True)
    >>> round(idle.ratio.value, 3), round(one.ratio.value, 3), round(one.gain.value, 2), round(one.pays_above, 2)
    (1.049, 1.196, 1.34, 0.2)
    """
    ours, theirs = _by_group(drafting), _by_group(bare)
    widths = {k: acceptance.width(k) for k in _arms(ours)} if any(acceptance.asked) else {}
    with_drafter = estimate((block for blocks in ours.values() for block in blocks), widths)
    without = estimate(block for blocks in theirs.values() for block in blocks)
    rows: list[TaxRow] = []
    for group in sorted(with_drafter.keys() | without.keys(), key=lambda g: (g.batch, g.context or 0.0)):
        alone = _cell(without, group, 0)
        if alone is not None:
            rows.append(_bare_row(group, alone))
        fits = (_fit(group, ours.get(group, ()), widths), _fit(group, theirs.get(group, ()), {}))
        for k, cell in with_drafter[group].cells.items() if group in with_drafter else ():
            if alone is None:
                ratio = None
            elif paired:
                ratio = _paired(fits, k)
            else:
                ratio = strangers(cell, alone)
            rows.append(_row(group, k, cell, ratio, acceptance))
    return rows


def pays_above(ratio: float, k: int) -> float | None:
    """Acceptance, alike at each position, at which ``k`` drafts emit ``ratio`` tokens per step; ``None`` where none is.

    Examples
    --------
    >>> pays_above(1.5, 1), pays_above(0.9, 3), pays_above(2.1, 1), round(pays_above(1.75, 2), 3)
    (0.5, 0.0, None, 0.5)
    """
    if ratio > k + 1 or k == 0:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(k + 1)) < ratio else (low, middle)
    return round(high, 6)


def _by_group(blocks: Iterable[Block]) -> dict[Group, list[Block]]:
    found: dict[Group, list[Block]] = {}
    for block in blocks:
        found.setdefault(block.group, []).append(block)
    return found


def _arms(groups: Mapping[Group, Sequence[Block]]) -> set[int]:
    return {block.k for blocks in groups.values() for block in blocks}


def _cell(estimates: Mapping[Group, GroupEstimate], group: Group, k: int) -> CellEstimate | None:
    return estimates[group].cells.get(k) if group in estimates else None


def _fit(group: Group, blocks: Sequence[Block], widths: Mapping[int, float]) -> GroupFit | None:
    return fit_group(group, blocks, widths) if blocks else None


def _paired(fits: tuple[GroupFit | None, GroupFit | None], k: int) -> Span | None:
    """Ratio of the visits that saw both, as pairs."""
    ours, theirs = (_arm(fit, which) for fit, which in zip(fits, (k, 0), strict=True))
    if ours is None or theirs is None:
        return None
    common = sorted(ours.visits.keys() & theirs.visits.keys())
    if not common:
        return None
    logs = np.array([ours.visits[visit].log_ms - theirs.visits[visit].log_ms for visit in common])
    middle = math.exp(float(logs.mean()))
    if len(common) < FEWEST_VISITS:
        return Span(middle)
    from scipy.special import stdtrit

    error = math.hypot(float(logs.std(ddof=1)) / math.sqrt(len(common)), ours.shift_error)
    reach = math.exp(min(float(stdtrit(len(common) - 1, 0.975)) * error, 10.0))
    return Span(middle, middle / reach, middle * reach)


def _arm(fit: GroupFit | None, k: int) -> ArmFit | None:
    return None if fit is None else fit.arms.get(k)


def strangers(mine: CellEstimate, theirs: CellEstimate) -> Span:
    """Ratio of two step times that share no drift: its interval is that of two independent means."""
    value = mine.itl_ms / theirs.itl_ms
    reach = math.hypot(mine.relative_width, theirs.relative_width) / 2
    return Span(value) if math.isinf(reach) else Span(value, value * max(1.0 - reach, 0.0), value * (1.0 + reach))


def _bare_row(group: Group, cell: CellEstimate) -> TaxRow:
    speed = _inverse(1e3 * group.batch, _itl(cell), 0.0)
    return TaxRow(group.batch, group.context, None, _itl(cell), Span(1.0, 1.0, 1.0), speed, Span(1.0, 1.0, 1.0))


def _row(group: Group, k: int, cell: CellEstimate, ratio: Span | None, acceptance: AcceptanceCounts) -> TaxRow:
    length, error = acceptance.acceptance_length(k)
    known = k == 0 or any(acceptance.tried)
    error = 0.0 if k == 0 or math.isinf(error) else error / length
    return TaxRow(
        group.batch,
        group.context,
        k,
        _itl(cell),
        ratio,
        _inverse(1e3 * group.batch * length, _itl(cell), error) if known else None,
        _inverse(length, ratio, error) if known and ratio is not None else None,
        None if ratio is None else pays_above(ratio.value, k),
    )


def _itl(cell: CellEstimate) -> Span:
    return Span(cell.itl_ms, cell.low_ms, cell.high_ms)


def _inverse(top: float, bottom: Span, error: float) -> Span:
    """``top / bottom``, where ``top`` has a relative standard error of its own."""
    value = top / bottom.value
    if bottom.low is None or bottom.high is None:
        return Span(value)
    own = math.log(bottom.high / bottom.low) / 2
    reach = math.exp(math.hypot(own, _NORMAL * error))
    return Span(value, value / reach, value * reach)
