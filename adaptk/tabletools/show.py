"""A table in lines of text: what it decides, what that gains, and what it was made of."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from adaptk.table import GoodputTable
from adaptk.tablekey import summary
from adaptk.tabletools.levels import level_of
from adaptk.tabletools.survey import Fixed, Run, Survey
from adaptk.textlines import Column, Line, number, shortened, table, wrapped

_MOST_RUNS = 40
_PROVENANCE = 5  # lines
_MOST_TIES = 12
_MOST_FIXED = 12


def title_lines(source: GoodputTable, path: str) -> list[Line]:
    """Name, size, key and provenance, a line or two each."""
    meta = source.meta
    name = _text(meta.get("name")) or path
    size = f"{len(source.rows)} rows" if source.has_times else f"schedule of {len(source.schedule or ())} ranges"
    ks = ",".join(map(str, source.ks[:12])) + (",..." if len(source.ks) > 12 else "")
    lines = [Line(shortened(f"{name}: {size}, K={ks}", 80), "title")]
    if source.key:
        lines += [Line(text) for text in wrapped(f"key: {_printable(summary(source.key))}")]
    else:
        lines.append(Line("key: none, so nobody can tell whether an engine is the one that was measured"))
    provenance = meta.get("provenance")
    if isinstance(provenance, dict) and provenance:
        parts = sorted(provenance.items(), key=lambda item: item[0] == "command")  # the longest, and the last cut
        said = ", ".join(f"{part}={_text(value)}" for part, value in parts if _text(value))
        found = wrapped(_printable(f"provenance: {said}"))
        lines += [Line(text) for text in found[:_PROVENANCE]]
        if len(found) > _PROVENANCE:
            lines.append(Line("... (the table's file has the rest)"))
    lines += [Line(text) for text in wrapped(_acceptance(source))]
    return lines


def schedule_lines(source: GoodputTable, max_batch: int | None) -> list[Line]:
    """A table without step times: its ranges and nothing that would need times."""
    triples = source.schedule or ()
    shown = [triple for triple in triples if max_batch is None or triple[0] <= max_batch]
    lines = [
        Line("It has no step times: goodput and gains are unknown, K is as the schedule says.", "title"),
        *table(
            [f"{first} to {last}" for first, last, _ in shown[:_MOST_RUNS]],
            [Column("K", 5, lambda i: str(shown[i][2]))],
            of="batch",
        ),
    ]
    if len(shown) > _MOST_RUNS:
        lines.append(Line(f"... and {len(shown) - _MOST_RUNS} more ranges"))
    return [*lines, Line("Between and after the ranges the K of the range before goes on.")]


def run_lines(seen: Survey, source: GoodputTable) -> list[Line]:
    """The best K per run of batch sizes, and what it gains over each fixed one."""
    return [
        Line("Best K; goodput in tokens per request and second", "title"),
        *(Line(text) for text in wrapped(_at(seen, source))),
        *_run_table(seen.runs[:_MOST_RUNS]),
        *([Line(f"... and {len(seen.runs) - _MOST_RUNS} more runs")] if len(seen.runs) > _MOST_RUNS else []),
        *(Line(text) for note in notes(seen, source) for text in wrapped(note)),
        Line(""),
        Line(f"Gain over a fixed K; mean over {_batches(seen)}", "title"),
        *_fixed_table(seen.fixed[:_MOST_FIXED]),
        *([Line(f"... and {len(seen.fixed) - _MOST_FIXED} more")] if len(seen.fixed) > _MOST_FIXED else []),
    ]


def tie_lines(seen: Survey) -> list[Line]:
    """Which arms cannot be told apart; nothing where there is one alone."""
    if seen.pairs == 0:
        return []
    if not seen.ties:
        return [Line(text) for text in wrapped(_all_told_apart(seen))]
    lines = [Line("Not told apart: the best and another K, within their 95 % intervals", "title")]
    for tie in seen.ties[:_MOST_TIES]:
        lead, within = percent(tie.lead), percent(tie.within)
        lines.append(Line(f"  batch {tie.batch}: K={tie.k} leads K={tie.other} by {lead}, within {within}"))
    if len(seen.ties) > _MOST_TIES:
        lines.append(Line(f"  ... and {len(seen.ties) - _MOST_TIES} more"))
    return lines


def _all_told_apart(seen: Survey) -> str:
    unknown = "whether two arms differ by more than noise cannot be told"
    if seen.between:
        return f"No rows stand at this context: {unknown}."
    if not seen.with_intervals:
        return f"Rows have no intervals: {unknown}."
    if not seen.judged:
        return f"Nowhere have the best K and another one both an interval: {unknown}."
    said = "Every best K is ahead of the others by more than the intervals of their times"
    return f"{said}." if seen.judged == seen.pairs else f"{said}, where both have one."


def notes(seen: Survey, source: GoodputTable) -> list[str]:
    """What the figures rest on where that is not plain, one sentence each."""
    said = []
    if source.acceptance is None:
        said.append("Acceptance is unknown: 0.7 is assumed at every position, and every best K rests on that.")
    said += _reach(seen, source)
    if seen.beyond is not None:
        said.append(f"Above batch {seen.beyond} there are no rows: times go on in a line.")
    if not source.knows(0):
        said.append("K=0 has no rows: gains over no speculation are unknown.")
    level = level_of(source, None)
    if seen.context is None and level is not None and len(source.contexts) > 1:
        others = ", ".join(f"{other:g}" for other in source.contexts if other != level)
        said.append(f"This is context {level:g}; --context {others} gives the other levels.")
    return said


def _reach(seen: Survey, source: GoodputTable) -> list[str]:
    """Batch sizes that are told of below the rows, and above those of one K."""
    level = level_of(source, seen.context)
    ends: dict[int, int] = {}
    least = seen.max_batch
    for row in source.rows:
        if row.context == level:
            ends[row.k] = max(row.batch, ends.get(row.k, 0))
            least = min(row.batch, least)
    said = [f"Below batch {least} there are no rows: times are those of batch {least}."] if least > 1 else []
    most = min(seen.max_batch, max(ends.values(), default=0))
    short: dict[int, list[str]] = {}
    for k, end in sorted(ends.items()):
        if end < most:
            short.setdefault(end, []).append(str(k))
    for end, ks in sorted(short.items()):
        said.append(f"K={', '.join(ks)}: no rows above batch {end}; the times there are taken from other rows.")
    return said


def document(source: GoodputTable, seen: Survey | None) -> dict[str, Any]:
    """The same for machines: what was measured, then the survey's fields, or the schedule of a table without times."""
    meta = source.meta
    about = {
        "name": meta.get("name"),
        "key": source.key,
        "provenance": meta.get("provenance"),
        "acceptance": source.acceptance,
        "acceptance_counts": source.acceptance_counts,
        "supply": source.supply,
        "contexts": source.contexts,
    }
    if seen is None:
        return {**about, "schedule": source.schedule}
    return {**about, "notes": notes(seen, source), **msgspec.structs.asdict(seen)}


def bullets(remarks: Iterable[str]) -> list[str]:
    """Remarks as a list, in lines of at most 80 columns.

    Examples
    --------
    >>> bullets(["a hole", "a spread"])
    ['- a hole', '- a spread']
    """
    return [
        line
        for remark in remarks
        for line in textwrap.wrap(
            remark, 80, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
        )
    ]


def percent(share: float) -> str:
    """A share in percent with a decimal below ten, in at most 8 columns.

    Examples
    --------
    >>> percent(0.0123), percent(-0.25), percent(12.0)
    ('1.2 %', '-25 %', '1200 %')
    """
    return f"{number(100.0 * share, 4 if abs(share) < 0.1 else 6, most=1 if abs(share) < 0.1 else 0)} %"


def _run_table(runs: Sequence[Run]) -> list[Line]:
    gains = runs[0].over_k0_first is not None
    columns = [
        Column("K", 5, lambda i: str(runs[i].k)),
        Column("goodput", 21, lambda i: _span(runs[i].goodput_first, runs[i].goodput_last)),
    ]
    if gains:
        columns.append(Column("over K=0", 21, lambda i: _gains(runs[i])))
    return table([_range(run) for run in runs], columns, of="batch")


def _fixed_table(fixed: Sequence[Fixed]) -> list[Line]:
    names = [f"K={each.k}" + (" (best fixed)" if i == 0 else "") for i, each in enumerate(fixed)]
    columns = [
        Column("gain", 9, lambda i: percent(fixed[i].gain)),
        Column("most", 9, lambda i: percent(fixed[i].most)),
        Column("at batch", 9, lambda i: str(fixed[i].most_at) if fixed[i].most > 0.0 else "-"),
    ]
    return table(names, columns, of="fixed")


def _at(seen: Survey, source: GoodputTable) -> str:
    """Which context is answered for; empty where the rows have none."""
    if not source.contexts:
        return ""
    levels = ", ".join(f"{level:g}" for level in source.contexts[:8]) + (", ..." if len(source.contexts) > 8 else "")
    level = seen.context if seen.context is not None else level_of(source, None)
    where = "rows without context" if level is None else f"mean context {level:g}"
    return f"{where}; levels of context in the table: {levels}"


def _batches(seen: Survey) -> str:
    count = len(seen.batches)
    return f"batch {seen.batches[0]}" if count == 1 else f"{count} batch sizes from {seen.batches[0]}"


def _range(run: Run) -> str:
    return str(run.first) if run.first == run.last else f"{run.first} to {run.last}"


def _span(first: float, last: float) -> str:
    one, other = number(first, 8), number(last, 8)
    return one if one == other else f"{one} to {other}"


def _gains(run: Run) -> str:
    if run.over_k0_first is None or run.over_k0_last is None or run.k == 0:
        return "-"
    one, other = percent(run.over_k0_first), percent(run.over_k0_last)
    return one if one == other else f"{one} to {other}"


def _acceptance(source: GoodputTable) -> str:
    if source.acceptance is None:
        return "acceptance: unknown, 0.7 assumed"
    shown = ", ".join(f"{share:.3g}" for share in source.acceptance[:12])
    more = ", ..." if len(source.acceptance) > 12 else ""
    said = f"acceptance per position, given those before: {shown}{more}"
    if source.acceptance_counts is not None:
        tried = [str(count) for _, count in source.acceptance_counts[:12]]
        said += f" (of {', '.join(tried)}{more} trials)"
    if source.supply is not None:
        said += f"; drafts returned per position: {', '.join(f'{share:.3g}' for share in source.supply[:12])}"
    return said


def _text(value: Any) -> str:
    return _printable(str(value)) if isinstance(value, str | int | float) else ""


def _printable(text: str) -> str:
    """Without control characters, which a file may hold and a terminal would obey."""
    return "".join(sign if sign.isprintable() else " " for sign in text)
