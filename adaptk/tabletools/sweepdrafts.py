"""Acceptance from the counters of speculative decoding in benchmark results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adaptk.tabletools.sweepfiles import Benchmark

_SHORT = 0.95  # of the drafts asked for, below which the drafter is said to return fewer


class Pooled(NamedTuple):
    """``[accepted, tried]`` per draft position, all runs together; empty where none counted."""

    counts: list[list[int]]
    notes: list[str]


def pooled(runs: Sequence[Benchmark]) -> Pooled:
    """Counts of every position over the runs that asked for so many drafts.

    The first position is tried whenever a request decodes, others when the draft before was accepted: a draft that was
    not made counts as not accepted. Results give accepted drafts over the requests that had some.

    Examples
    --------
    >>> run = Benchmark(8, 2, 9.0, None, None, None, None, drafts=1000, draft_tokens=2000, rates=(0.6, 0.3))
    >>> pooled([run]).counts, pooled([run._replace(turns=1500)]).counts
    ([[600, 1000], [300, 600]], [[600, 1500], [300, 600]])
    """
    counted = [run for run in runs if run.k > 0 and run.drafts > 0 and run.rates]
    counts: list[list[int]] = []
    for position in range(max((run.k for run in counted), default=0)):
        accepted, tried = 0, 0
        for run in counted:
            if position < min(run.k, len(run.rates)):
                before = _turns(run) if position == 0 else round(run.rates[position - 1] * run.drafts)
                tried += before
                accepted += min(round(run.rates[position] * run.drafts), before)
        if tried == 0:
            break
        counts.append([accepted, tried])
    return Pooled(counts, _notes(runs, counted))


def _turns(run: Benchmark) -> int:
    return max(run.drafts, run.turns or 0)


def _notes(runs: Sequence[Benchmark], counted: Sequence[Benchmark]) -> list[str]:
    drafted = [run for run in runs if run.k > 0]
    notes = []
    if drafted and not counted:
        notes.append("the results hold no rates of acceptance per position")
    elif counted:
        notes.append(f"acceptance is pooled over {len(counted)} runs with drafts, whatever their batch size and K")
    least = min((run.draft_tokens / (run.k * _turns(run)) for run in counted), default=1.0)
    if least < _SHORT:
        notes.append(
            f"the drafter returned fewer drafts than were asked for, {100.0 * least:.0f} % at worst: the others count "
            "as not accepted; at which positions they lack is unknown, so the table has no supply"
        )
    return notes
