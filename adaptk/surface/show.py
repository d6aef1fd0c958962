"""A surface as text of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from adaptk.table import GoodputTable
from adaptk.textlines import WIDTH, Line, wrapped

_SCATTERED = 0.2  # (p90 - p10) / median
_FIRST, _CELL = 7, 9
_ACROSS = (WIDTH - _FIRST) // _CELL


def surface_lines(table: GoodputTable, left_out: Sequence[str]) -> list[Line]:
    """Step times by batch and K for each context, the best K where acceptance is known, and what was left out."""
    lines: list[Line] = []
    for context in table.contexts:
        lines += [*_level(table, context), Line("")]
    remarks = [_remark(table), _scatter(table), f"Not in these times: {'; '.join(left_out)}."]
    return [*lines, *paragraphs(*remarks)]


def paragraphs(*texts: str | None) -> list[Line]:
    """Texts in lines of at most 80 columns, an empty one between them; ``None`` is left out."""
    lines = [line for text in texts if text is not None for line in ("", *wrapped(text))]
    return [Line(line) for line in lines[1:]]


def _level(table: GoodputTable, context: float) -> Iterator[Line]:
    times = {(row.batch, row.k): row.itl_ms for row in table.rows if row.context == context}
    batches = sorted({batch for batch, _ in times})
    ks = sorted({k for _, k in times})
    known = table.acceptance is not None
    best = {batch: table.best_k(batch, context, ks) if known else None for batch in batches}
    yield Line(f"Step time (ms) at context {context:g}{', * best goodput' if known else ''}", "title")
    for begin in range(0, len(ks), _ACROSS):
        some = ks[begin : begin + _ACROSS]
        yield Line(f"{'batch':>{_FIRST}}" + "".join(f"{f'K={k}':>{_CELL - 1}} " for k in some).rstrip(), "head")
        for batch in batches:
            cells = (_cell(times.get((batch, k)), best[batch] == k) for k in some)
            yield Line((f"{batch:>{_FIRST}}" + "".join(cells)).rstrip())


def _cell(value_ms: float | None, best: bool) -> str:
    if value_ms is None:
        return " " * (_CELL - 2) + "- "
    text = f"{value_ms:.{max(0, min(3, 4 - len(str(int(value_ms)))))}f}"
    return f"{text:>{_CELL - 1}}{'*' if best else ' '}"


def _scatter(table: GoodputTable) -> str | None:
    """A warning where the times are those of a machine that is doing something else as well."""
    shares = [(row.p90_ms - row.p10_ms) / row.itl_ms for row in table.rows if row.p90_ms and row.p10_ms is not None]
    if not shares or median(shares) < _SCATTERED:
        return None
    return (
        f"These times scatter: in the middle cell the 10th and the 90th percentile are {median(shares):.0%} of the "
        "median apart. Is something else running on this machine? Repeat it when nothing is."
    )


def _remark(table: GoodputTable) -> str:
    if table.acceptance is None:
        return (
            "No best K, as acceptance is unknown: --acceptance 0.7,0.6,... gives one. The controller begins with a "
            "guess and learns it from the engine."
        )
    shares = ", ".join(f"{share:g}" for share in table.acceptance)
    return f"Best goodput at acceptance {shares} per position, given that all before were accepted."
