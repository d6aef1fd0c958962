"""What exploring took in a recording, and what it cost."""

from __future__ import annotations

import numpy as np

from adaptk.decision import Reason
from adaptk.report.columns import REASONS, Bools, Columns, Floats, Ints
from adaptk.report.findings import Ledger


def ledger(columns: Columns, steered: Bools, of: Ints, arms: tuple[int, ...], goodput: Floats) -> Ledger | None:
    """What exploring took; ``None`` without decisions.

    ``steered`` are the steps in which the controller's K was played, ``of`` is each step's group, ``goodput`` what is
    believed of each group and arm, shape ``(groups, arms)``.
    """
    decided = columns.chosen >= 0
    if not decided.any():
        return None
    explore = columns.reason == REASONS.index(Reason.EXPLORE)
    played = explore & steered
    if explore.any() and not played.any():
        about = "Other K were played than decided (shadow): exploring was drawn, not played, and has cost nothing."
        return Ledger(explored_steps=int(explore.sum()), explored_s=0.0, cost_s=None, share=None, about=about)
    # The drafts that a visit decided on are verified in the step that follows.
    visit = np.concatenate([[False], played[:-1]]) & (columns.asked == np.concatenate([[-1], columns.chosen[:-1]]))
    taken = float(np.nansum(columns.ms[visit])) / 1000.0
    plan = np.where(explore | ~decided, -1, columns.chosen)
    last = np.maximum.accumulate(np.where(plan >= 0, np.arange(len(plan)), 0))
    place = {k: a for a, k in enumerate(arms)}
    cost = 0.0
    for step in np.flatnonzero(visit & (of >= 0) & ~np.isnan(columns.ms)).tolist():
        mine, planned = place.get(int(columns.asked[step])), place.get(int(plan[last[step]]))
        if mine is not None and planned is not None:
            own = goodput[of[step]]
            cost += float(columns.ms[step]) * (1.0 - float(own[mine] / own[planned])) / 1000.0
    busy = float(np.nansum(columns.ms)) / 1000.0
    drawn = int(explore.sum() - played.sum())
    also = f" {drawn:,} more were drawn in shadow, not played, and have cost nothing." if drawn else ""
    about = "By the goodput that this trace speaks for; below 0 where the K looked at proved better." + also
    share = cost / busy if busy > 0.0 else None
    return Ledger(explored_steps=int(played.sum()), explored_s=taken, cost_s=cost, share=share, about=about)
