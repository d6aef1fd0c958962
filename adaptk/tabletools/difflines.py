"""The comparison of two tables in lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.tabletools.compared import Choice, Comparison, Ratio, Share
from adaptk.tabletools.show import percent
from adaptk.textlines import Column, Line, number, table, wrapped

_MOST = 12


def comparison_lines(found: Comparison, first: str, second: str) -> list[Line]:
    """All of it; ``first`` and ``second`` are what A and B stand for."""
    lines = [Line(text) for name, path in (("A", first), ("B", second)) for text in wrapped(f"{name}: {path}")]
    if found.key:
        lines += [Line("Key: what differs, A as 'the table', B as 'here'", "title")]
        lines += [Line(text) for each in found.key for text in wrapped(f"  {each}")]
    lines += _ratio_lines(found)
    if found.acceptance:
        lines += [Line("Acceptance, given the drafts before (! more than the trials explain)", "title")]
        lines += _share_table(found.acceptance[:_MOST])
        lines += _more(len(found.acceptance))
    if found.same_decisions:
        return [*lines, Line(f"The same K at every batch size up to {found.max_batch}.", "own")]
    lines += [Line(f"Best K that differ up to batch {found.max_batch}, and what the other's K costs", "title")]
    lines += _choice_table(found.choices[:_MOST])
    return [*lines, *_more(len(found.choices))]


def _ratio_lines(found: Comparison) -> list[Line]:
    lines: list[Line] = []
    if found.levels:
        pairs = ", ".join(f"{pair.first:g} and {pair.second:g}" for pair in found.levels[:_MOST])
        more = ", ..." if len(found.levels) > _MOST else ""
        said = f"Levels of context taken for the same, in A and in B: {pairs}{more}."
        lines += [Line(text) for text in wrapped(said)]
    changed = [ratio for ratio in found.ratios if ratio.ratio != 1.0]
    if changed:
        marked = " (! outside both intervals)" if any(ratio.apart is not None for ratio in changed) else ""
        lines.append(Line(f"Step times that differ, the largest first{marked}", "title"))
        lines += [Line(text) for text in wrapped(_noise(found, changed))]
        lines += [*_ratio_table(changed), *_more(len(changed))]
    elif found.ratios and not found.interpolated:
        lines.append(Line(f"Step times: the same in all {len(found.ratios)} common cells."))
    for count, name in ((found.only_first, "A"), (found.only_second, "B")):
        if count:
            lines.append(Line(f"{count} cells are in {name} only."))
    return lines


def _noise(found: Comparison, changed: Sequence[Ratio]) -> str:
    """What keeps differences from being told from noise; empty where nothing does."""
    if found.interpolated:
        return (
            "No cell is in both: B's are what it answers at the cells of A. Such times have no intervals: noise cannot "
            "be told."
        )
    judged = [ratio.apart is not None for ratio in changed]
    if not any(judged):
        return "No cell has an interval in both: noise cannot be told."
    return "" if all(judged) else "? no interval in both: noise cannot be told."


def _ratio_table(changed: Sequence[Ratio]) -> list[Line]:
    unknown = " ?" if any(ratio.apart is not None for ratio in changed) else "  "
    marks, ratios = {True: " !", False: "  ", None: unknown}, changed[:_MOST]
    columns = [
        Column("K", 5, lambda i: str(ratios[i].k)),
        Column("A, ms", 9, lambda i: number(ratios[i].first_ms, 9, most=3)),
        Column("B, ms", 9, lambda i: number(ratios[i].second_ms, 9, most=3)),
        Column("B/A", 9, lambda i: number(ratios[i].ratio, 7, most=3) + marks[ratios[i].apart]),
    ]
    if any(ratio.context is not None for ratio in ratios):
        columns.insert(1, Column("context", 9, lambda i: number(ratios[i].context, 9, most=0)))
    return table([str(ratio.batch) for ratio in ratios], columns, of="batch")


def _share_table(shares: Sequence[Share]) -> list[Line]:
    columns = [
        Column("A", 7, lambda i: number(shares[i].first, 7, most=3)),
        Column("B", 9, lambda i: number(shares[i].second, 7, most=3) + (" !" if shares[i].apart else "  ")),
    ]
    return table([str(share.position) for share in shares], columns, of="position")


def _choice_table(choices: Sequence[Choice]) -> list[Line]:
    columns = [
        Column("A", 5, lambda i: f"K={choices[i].first_k}"),
        Column("B", 5, lambda i: f"K={choices[i].second_k}"),
        Column("B's, by A", 10, lambda i: _cost(choices[i].cost_by_first)),
        Column("A's, by B", 10, lambda i: _cost(choices[i].cost_by_second)),
    ]
    if any(choice.context is not None for choice in choices):
        columns.insert(0, Column("context", 9, lambda i: number(choices[i].context, 9, most=0)))
    names = [f"{choice.first_batch} to {choice.last_batch}" for choice in choices]
    return table(names, columns, of="batch")


def _cost(cost: float | None) -> str:
    return "-" if cost is None else percent(cost)


def _more(count: int) -> list[Line]:
    return [Line(f"... and {count - _MOST} more; --json has all")] if count > _MOST else []
