"""What a verdict rests on, and what must be kept in mind: in sentences."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from adaptk.report.blocks import Change
from adaptk.report.findings import Basis
from adaptk.report.lengths import Lengths
from adaptk.report.measured import Cells
from adaptk.report.reading import Recording
from adaptk.report.words import listed

MOST_OFF = 3.0
"""Times that a table may be off at the K that were played: beyond, it is another engine's, or in another unit."""


def rests_on(
    recording: Recording,
    seen: Cells,
    grounds: list[list[Basis]],
    lengths: Lengths,
    has_table: bool,
    arms: tuple[int, ...],
) -> list[str]:
    """What was measured and what was inferred, in sentences."""
    said = []
    steps = seen.steps.sum(axis=0)
    measured = [f"K={k} ({count:,} steps)" for k, count in zip(arms, steps.tolist(), strict=True) if count]
    kind = "steps with prompts, their share taken off" if seen.with_prompts else "steps without prompts"
    if measured:
        said.append(f"Step times measured in this trace, in {kind}: {', '.join(measured)}.")
    by_table = [k for a, k in enumerate(arms) if any(row[a] == "table" for row in grounds)]
    if by_table:
        off = table_off(recording, seen, arms)
        how = "" if off is None else f", which is off by {off:+.1%} at the K that were played".replace("%", " %")
        said.append(
            f"Step times of K={listed(by_table)}, where these were not played, are the table's{how}: "
            "the intervals allow for errors as large elsewhere."
        )
    unknown = [k for a, k in enumerate(arms) if any(row[a] in ("shape", "nothing") for row in grounds)]
    if unknown:
        said.append(f"Of K={listed(unknown)} neither a time nor a table is there at some or all batch sizes.")
    drafts = [k for a, k in enumerate(arms) if k and lengths.basis[a] == "measured"]
    guessed = [k for a, k in enumerate(arms) if k and lengths.basis[a] != "measured"]
    if drafts:
        said.append(f"Acceptance was measured for K up to {max(drafts)}.")
    if guessed:
        of = "the table's" if has_table and all(lengths.basis[arms.index(k)] == "table" for k in guessed) else "a guess"
        said.append(f"Acceptance of the later drafts of K={listed(guessed)} is {of}.")
    return said


def foreign(recording: Recording, seen: Cells, arms: tuple[int, ...]) -> list[str]:
    """What makes the table one of another engine, in words; empty where nothing does, or there is none."""
    table = recording.table
    if table is None or not table.has_times:
        return []
    why = list(recording.foreign)
    if not why and not all(source.header.trusted for source in recording.sources):
        why.append("the engine did not trust it")
    off = table_off(recording, seen, arms)
    if off is not None and not 1.0 / MOST_OFF <= 1.0 + off <= MOST_OFF:
        times = 1.0 + off if off > 0.0 else 1.0 / (1.0 + off)
        why.append(f"steps here were {times:,.1f} times as {'long' if off > 0.0 else 'short'}, its are milliseconds")
    return why


def table_off(recording: Recording, seen: Cells, arms: tuple[int, ...]) -> float | None:
    """Measured step time over the table's, less 1, in the mean over the steps; ``None`` where nothing was measured."""
    table = recording.table
    if table is None or not table.has_times or not seen.steps.any():
        return None
    total = 0.0
    for g, a in zip(*np.nonzero(seen.steps), strict=True):
        context = None if math.isnan(seen.context[g, a]) else float(seen.context[g, a])
        said = table.itl_ms(max(float(seen.decodes[g, a]), 1.0), arms[int(a)], context)
        assert said is not None
        total += float(seen.steps[g, a] * (seen.log_ms[g, a] - math.log(said)))
    return math.expm1(total / float(seen.steps.sum()))


def caveats(recording: Recording, changes: list[Change], foreign: list[str], by_adaptk: bool) -> list[str]:
    """What must be kept in mind, a sentence each.

    Parameters
    ----------
    recording, changes
        What was read, and the lasting changes in it, of which only what follows is judged.
    foreign
        What makes the table another engine's.
    by_adaptk
        Whether adaptk's K were played in place of the operator's.
    """
    said = []
    if foreign:
        why = "; ".join(foreign)
        said.append(f"The table is of another engine ({why}): it is shown, nothing is concluded from it.")
    for change in changes:
        what = "Acceptance" if change.kind == "acceptance" else "The step time"
        source = next(each for each in recording.sources if change.step < each.last)
        of = f"{source.last:,}" if len(recording.sources) == 1 else Path(source.path).name
        where = f"step {change.step - source.first:,} of {of}"
        said.append(
            f"{what} changed by {100.0 * change.by:+.0f} % at {where} and stayed so: what is said here is of the steps "
            "after it."
        )
    if by_adaptk:
        said.append(
            "adaptk chose the K of this trace, each when it thought it best: what else changed with them (texts, "
            "neighbours on the machine) is in their figures."
        )
    if recording.cut_short:
        said.append("The reading was interrupted: this is of the part that was read.")
    return said
