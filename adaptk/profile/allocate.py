"""What is measured next: first everything, coarse to fine, then what the choice of K hangs on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from adaptk.profile.alloc_cost import VisitCosts
from adaptk.profile.alloc_order import arm_order, check_grid, coarse_to_fine
from adaptk.profile.alloc_value import SETTLED_LOSS, Doubt, doubt
from adaptk.profile.alloc_visit import Progress, Visit, summarised
from adaptk.profile.est_fit import GroupFit, fit_group
from adaptk.profile.estimate import FEWEST_VISITS, AcceptanceCounts, Block, Group, GroupEstimate, conclude

__all__ = ["SETTLED_LOSS", "Allocator", "Progress", "Visit"]

FEWEST_STEPS = 3  # kept in a block where the budget is short
_STALE = 3.0  # a group is seen again before the session is so many times as old as at its last visit
_DEAR = 1.0 / 3.0  # of the time left, that a first look may take while there are others
FIRST_LOOK = "first look"
_Wanted = tuple[Group, Sequence[int], str]
_MOST_MISSES = 2  # visits in a row without one step after which an arm is left out


class Allocator:
    """Decides which group is visited next and with which arms; deterministic, and knows no engine.

    Every cell first gets ``min_visits`` visits in rounds over the whole grid, extremes and middle of the batches first.
    Then visits go where the choice of K may still cost most per second of measuring, among the arms that contend, and
    at last to cells whose interval is wider than ``target``. Meanwhile no group is left unseen for two thirds of the
    session, or its interval would not hold the session's drift. A visit that is not expected to end within the budget
    is not begun, except the very first, which is the cheapest.

    Parameters
    ----------
    grid
        Groups to measure.
    arms
        K to measure in each.
    budget_s
        Seconds that the session may take, counted on the clock of :meth:`next`.
    target
        Width of a 95 % interval over its middle at which a cell is precise enough.
    min_visits
        Visits that every cell gets where the budget allows.
    steps, blocks
        Steps kept in a block (fewer, where the rounds over the grid would not fit in the budget otherwise), and blocks
        per arm and visit (even).
    weights
        Weight of a group's expected loss, default 1.
    acceptance
        Counts that goodput is judged with; may be set later, and anew (``allocator.acceptance = counts``). ``None``:
        no choice of K can be judged, and visits go by the intervals alone.

    Raises
    ------
    ValueError
        If a value is impossible.

    Examples
    --------
    >>> allocator = Allocator([Group(1), Group(8), Group(64)], arms=(0, 1, 3), budget_s=60.0)
    >>> visit = allocator.next(0.0)
    >>> visit.group.batch, visit.order, visit.why
    (1, (0, 1, 3, 3, 1, 0), 'first look')
    """

    reason: str | None  #: why it ended; ``None`` while it goes on

    def __init__(
        self,
        grid: Sequence[Group],
        arms: Sequence[int],
        budget_s: float,
        target: float = 0.03,
        min_visits: int = 3,
        *,
        steps: int = 8,
        blocks: int = 2,
        weights: Mapping[Group, float] | None = None,
        acceptance: AcceptanceCounts | None = None,
    ) -> None:
        check_grid(grid, arms, budget_s, target, min_visits, steps, blocks, weights or {})
        self.grid, self.arms = tuple(grid), tuple(sorted(arms))
        self.budget_s, self.target, self.min_visits = float(budget_s), target, min_visits
        self.reason = None
        self._steps, self._repeats, self._weights = steps, blocks // 2, dict(weights or {})
        self._rank = coarse_to_fine(self.grid)
        self._blocks: dict[Group, list[Block]] = defaultdict(list)
        self._fits: dict[Group, GroupFit | None] = {}
        self._estimates: dict[Group, GroupEstimate] | None = None
        self._costs = VisitCosts()
        self._out: set[tuple[Group, int]] = set()
        self._misses: dict[tuple[Group, int], int] = defaultdict(int)
        self._number = 0
        self.acceptance = acceptance

    @property
    def acceptance(self) -> AcceptanceCounts | None:
        """Counts that goodput is judged with, and that say how wide each K is in the long run."""
        return self._acceptance

    @acceptance.setter
    def acceptance(self, counts: AcceptanceCounts | None) -> None:
        self._acceptance = counts
        self._length_ratio = None if counts is None else cache(counts.log_length_ratio)
        self._fits.clear()
        self._estimates = None

    @property
    def left_out(self) -> tuple[tuple[Group, int], ...]:
        """Cells that cannot be measured."""
        return tuple(cell for cell in ((g, k) for g in self.grid for k in self.arms) if cell in self._out)

    def next(self, now_s: float) -> Visit | None:
        """The next visit; ``None`` at the end, and :attr:`reason` then says why.

        ``now_s`` is the time since the start of the session, seconds, earlier runs of a resumed one included.
        """
        self.reason = None
        left = self.budget_s - now_s
        if not any(self._live(group) for group in self.grid):
            self.reason = "no cell can be measured"
        elif left <= 0.0 and self._costs.known:
            self.reason = "the time is spent"
        if self.reason is not None:
            return None
        needs: list[float] = []
        steps = self._affordable_steps(left)
        for group, arms, why in self._cheap_first(self._wanted(now_s), left):
            order = arm_order(arms, len(self._visits(group)), self._repeats)
            cost = self._costs.seconds(group, order, steps)
            if cost <= left or not self._costs.known:
                return Visit(self._number, group, order, steps, why)
            needs.append(cost)
        if needs:
            self.reason = f"no visit fits in the {left:.1f} s left: the shortest would take some {min(needs):.1f} s"
        else:
            self.reason = f"every interval is within {100 * self.target:g} %{self._of_choices()}"
        return None

    def _of_choices(self) -> str:
        if self._acceptance is None:
            return ""
        if any(judged.loss >= SETTLED_LOSS for judged in self.doubts().values()):
            return "; the choices of K that are open hang on acceptance, which more prompts would tell"
        return ", and no choice of K is in doubt"

    def done(self, visit: Visit, blocks: Iterable[Block], seconds: float) -> None:
        """A visit was played: its blocks, and what it took altogether, prompts included, seconds.

        An arm that twice in a row gave no step is left out from then on, as by :meth:`failed`.

        Raises
        ------
        ValueError
            If a block is of another group or visit.
        """
        played = list(blocks)
        for block in played:
            if block.group != visit.group or block.visit != visit.number:
                raise ValueError(f"a block of {block.group}, visit {block.visit} was handed in for {visit}")
        self._take(visit.group, played, seconds)
        self._number = max(self._number, visit.number + 1)
        gave = {block.k for block in played if block.ms}
        for k in visit.arms:
            cell = visit.group, k
            self._misses[cell] = 0 if k in gave else self._misses[cell] + 1
            if self._misses[cell] >= _MOST_MISSES:
                self._out.add(cell)

    def failed(self, visit: Visit, arms: Sequence[int] | None = None) -> None:
        """The group (``None``), or only these arms of it, cannot be measured: left out from then on."""
        self._out.update((visit.group, k) for k in (self.arms if arms is None else arms))
        self._number = max(self._number, visit.number + 1)

    def restore(
        self,
        blocks: Iterable[Block],
        seconds: Mapping[int, float] | None = None,
        failed: Iterable[tuple[Group, int]] = (),
    ) -> None:
        """Take over an earlier run's blocks, the seconds of its visits by number, and what :attr:`left_out` said.

        Where a visit's seconds are missing, its steps stand for it.
        """
        by_visit: dict[tuple[int, Group], list[Block]] = defaultdict(list)
        for block in blocks:
            by_visit[block.visit, block.group].append(block)
        for (number, group), played in sorted(by_visit.items(), key=lambda item: item[0][0]):
            self._take(group, played, (seconds or {}).get(number))
        self._number = max(self._number, *(number + 1 for number, _ in by_visit), *(n + 1 for n in seconds or {}), 0)
        self._out.update(failed)

    def estimates(self) -> dict[Group, GroupEstimate]:
        """What is concluded from all blocks so far."""
        if self._estimates is None:
            counts = self._acceptance
            widths = {k: counts.width(k) for k in self.arms} if counts is not None and any(counts.asked) else {}
            for group, blocks in self._blocks.items():
                if group not in self._fits:
                    self._fits[group] = fit_group(group, blocks, widths)
            self._estimates = conclude(fit for fit in self._fits.values() if fit is not None)
        return self._estimates

    def doubts(self) -> dict[Group, Doubt]:
        """How sure the choice of K is at each group of which two arms are measured; empty without acceptance."""
        if self._length_ratio is None:
            return {}
        found = {
            group: doubt(known, self._length_ratio, self._live(group))
            for group, known in self.estimates().items()
            if group in self._rank
        }
        return {group: judged for group, judged in found.items() if judged is not None}

    def progress(self, now_s: float) -> Progress:
        """How far it is; what remains is a guess from the intervals' widths, never more than the budget."""
        widths = {(g, k): self._width(g, k) for g in self.grid for k in self._live(g)}
        left = 0.0
        for group in self.grid:
            mine = self._live(group)
            if mine and self.reason is None:
                visits = max(self._visits_wanted(group, k, widths[group, k]) for k in mine)
                left += visits * self._seconds(group, mine)
        left = max(min(left, self.budget_s - now_s), 0.0)
        if not self._costs.known and self.reason is None:
            left = max(self.budget_s - now_s, 0.0)
        share = now_s / (now_s + left) if now_s + left > 0.0 else float(self.reason is not None)
        seen = sum(self._seen(group, k) > 0 for group, k in widths)
        return Progress(share, left, seen, sum(width <= self.target for width in widths.values()), len(widths))

    def summary(self) -> str:
        """A sentence or two: what is known how well, and why it ended."""
        return summarised(self.progress(0.0), self.target, len(self.left_out), self.doubts(), self.reason)

    def _take(self, group: Group, blocks: list[Block], seconds: float | None) -> None:
        if not any(block.ms for block in blocks):
            return
        self._blocks[group].extend(blocks)
        self._costs.book(group, blocks, seconds)
        self._fits.pop(group, None)
        self._estimates = None

    def _wanted(self, now_s: float) -> list[_Wanted]:
        """Visits wanted, the most wanted first."""
        groups = [group for group in self.grid if self._live(group)]
        if not self._costs.known:
            cheapest = min(groups, key=lambda g: (g.batch * (g.context or 1.0), g.batch))
            return [(cheapest, self._live(cheapest), FIRST_LOOK)]
        least = {group: self._fewest(group) for group in groups}
        few = sorted((g for g in groups if least[g] < self.min_visits), key=lambda g: (least[g], self._rank[g]))
        wanted = [(g, self._live(g), "again" if least[g] else FIRST_LOOK) for g in few]
        rest = [g for g in groups if least[g] >= self.min_visits]
        useful = self._uncertain(rest) + self._wide(rest)
        stale = sorted((g for g in rest if self._last_s(g) * _STALE < now_s), key=self._last_s)
        if useful or wanted:
            wanted += [(g, self._live(g), "again") for g in stale]
        return wanted + useful

    def _cheap_first(self, wanted: list[_Wanted], left: float) -> list[_Wanted]:
        """First looks that would take more than their share of what is left stand behind the others of their kind."""
        first = [visit for visit in wanted if visit[2] == FIRST_LOOK]
        dear = [visit for visit in first if self._seconds(visit[0], visit[1]) > _DEAR * left]
        if not dear or len(dear) == len(first):
            return wanted
        return [visit for visit in first if visit not in dear] + dear + [v for v in wanted if v[2] != FIRST_LOOK]

    def _uncertain(self, groups: Sequence[Group]) -> list[_Wanted]:
        found = []
        for group, judged in self.doubts().items():
            if group in groups and judged.avoidable >= SETTLED_LOSS:
                gain = judged.avoidable * self._weights.get(group, 1.0)
                found.append((self._rate(group, judged.contenders, gain), group, judged.contenders))
        return [(group, arms, "decision") for _, group, arms in sorted(found, key=lambda f: (-f[0], self._rank[f[1]]))]

    def _wide(self, groups: Sequence[Group]) -> list[_Wanted]:
        found = []
        for group in groups:
            widths = {k: self._width(group, k) for k in self._live(group)}
            arms = [k for k, width in widths.items() if width > self.target]
            if arms:
                gain = sum(1.0 - self.target / widths[k] for k in arms)
                found.append((self._rate(group, arms, gain), group, arms))
        return [(group, arms, "interval") for _, group, arms in sorted(found, key=lambda f: (-f[0], self._rank[f[1]]))]

    def _rate(self, group: Group, arms: Sequence[int], gain: float) -> float:
        """Gain per second of one more visit: what it removes of an error falls with the visits there were."""
        return gain / ((1 + len(self._visits(group))) * max(self._seconds(group, arms), 1e-9))

    def _affordable_steps(self, left: float) -> int:
        """Fewer steps per block while the rounds that every cell should get would not fit in ``left`` seconds."""
        groups = [group for group in self.grid if self._live(group)]
        missing = sum(max(self.min_visits - self._fewest(group), 0) for group in groups)
        known = [self._seconds(group, self._live(group)) for group in groups if self._visits(group)]
        if not known or missing == 0:
            return self._steps
        needed = missing * sum(known) / len(known)
        return self._steps if needed <= left else max(int(self._steps * left / needed), min(FEWEST_STEPS, self._steps))

    def _seconds(self, group: Group, arms: Sequence[int]) -> float:
        return self._costs.seconds(group, arm_order(arms, 0, self._repeats), self._steps)

    def _fewest(self, group: Group) -> int:
        return min(self._seen(group, k) for k in self._live(group))

    def _live(self, group: Group) -> list[int]:
        return [k for k in self.arms if (group, k) not in self._out]

    def _visits(self, group: Group) -> set[int]:
        return {block.visit for block in self._blocks.get(group, ())}

    def _seen(self, group: Group, k: int) -> int:
        return len({block.visit for block in self._blocks.get(group, ()) if block.k == k and block.ms})

    def _last_s(self, group: Group) -> float:
        return max((block.at_s for block in self._blocks.get(group, ())), default=0.0)

    def _width(self, group: Group, k: int) -> float:
        known = self.estimates().get(group)
        return known.cells[k].relative_width if known is not None and k in known.cells else math.inf

    def _visits_wanted(self, group: Group, k: int, width: float) -> float:
        seen = self._seen(group, k)
        wanted = max(self.min_visits, FEWEST_VISITS) - seen
        if math.isfinite(width) and width > self.target:
            wanted = max(wanted, math.ceil(seen * ((width / self.target) ** 2 - 1.0)))
        return max(wanted, 0)
