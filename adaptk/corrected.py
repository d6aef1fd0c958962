"""The seed table as the controller now believes it."""

from __future__ import annotations

import math

from adaptk.acceptance import AcceptancePosterior
from adaptk.grid import NODES
from adaptk.latency import LatencyPosterior
from adaptk.table import GoodputTable
from adaptk.tablerows import MAX_ITL_MS, MIN_ITL_MS


def corrected_table(
    table: GoodputTable | None,
    acceptance: AcceptancePosterior,
    latency: LatencyPosterior,
    context: float | None,
) -> GoodputTable:
    """Believed step times at the table's batch sizes (powers of two where it has none), and believed acceptance.

    Both hold what the drafter returns in the long run: the acceptance the chance that there is a draft at all, the
    times the drafts that were really verified when so many were asked for; the supply says how many. A table with
    contexts is answered at the mean context of now.
    """
    if not latency.level_known:
        if table is not None:
            return table
        raise ValueError("no step time was observed yet: there is nothing to make a table from")
    batches = table.batches if table is not None and table.has_times else tuple(2**i for i in range(NODES))
    accepted, widths, supply = acceptance.long_run(latency.arms)
    rows = [
        {"batch": batch, "k": k, "itl_ms": min(MAX_ITL_MS, max(MIN_ITL_MS, math.exp(log_time)))}
        for batch in batches
        for k, log_time in zip(latency.arms, latency.log_times(batch, widths, context), strict=True)
    ]
    meta = dict(table.meta) if table is not None else {}
    return GoodputTable.from_rows(rows, accepted or None, meta | {"corrected": True}, supply=supply)
