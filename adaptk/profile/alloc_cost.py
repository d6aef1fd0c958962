"""What a visit costs: learnt from those that were played, bounded for groups that were not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from adaptk.profile.est_values import Block, Group

_MARGIN = 1.1  # over what visits took before: stalls come
_REMEMBERED = 3  # visits of a group whose overheads are remembered


class VisitCosts:
    """Seconds of a visit: prompts and all else that comes once, and each block's steps with one of transition."""

    def __init__(self) -> None:
        self._step_ms: dict[tuple[Group, int], list[float]] = defaultdict(list)
        self._overhead_s: dict[Group, list[float]] = {}

    @property
    def known(self) -> bool:
        """Whether any visit was booked."""
        return bool(self._overhead_s)

    def book(self, group: Group, blocks: Iterable[Block], seconds: float | None) -> None:
        """A visit's blocks and what it took altogether; ``None`` where only its steps are known."""
        played = [block for block in blocks if block.ms]
        for block in played:
            self._step_ms[group, block.k].append(median(block.ms))
        stepping = sum(self._step_s(group, block.k) * (len(block.ms) + 1) for block in played)
        overheads = self._overhead_s.setdefault(group, [])
        overheads.append(0.0 if seconds is None else max(seconds - stepping, 0.0))
        del overheads[:-_REMEMBERED]

    def seconds(self, group: Group, order: Sequence[int], steps: int) -> float:
        """Seconds that a visit will take, 0 where nothing is known at all.

        For a group that was never visited: the least of the upper bounds that visited ones give, as long as a visit
        costs no more than in proportion to batch and to context.
        """
        if group in self._overhead_s:
            return self._visited(group, order, steps)
        bounds = [self._visited(seen, order, steps) * _growth(seen, group) for seen in self._overhead_s]
        return min(bounds, default=0.0)

    def _visited(self, group: Group, order: Sequence[int], steps: int) -> float:
        stepping = sum(self._step_s(group, k) for k in order) * (steps + 1)
        return _MARGIN * (stepping + max(self._overhead_s[group]))

    def _step_s(self, group: Group, k: int) -> float:
        own = self._step_ms.get((group, k))
        if own:
            return median(own) / 1000.0
        others = [(j, median(ms)) for (g, j), ms in self._step_ms.items() if g == group]
        return max((ms * max(1.0, (k + 1) / (j + 1)) for j, ms in others), default=0.0) / 1000.0


def _growth(seen: Group, wanted: Group) -> float:
    growth = max(1.0, wanted.batch / seen.batch)
    if seen.context and wanted.context:
        growth *= max(1.0, wanted.context / seen.context)
    return growth
