"""The table of one engine: step time believed and by its table, goodput and the best K, a row for each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from adaptk.live.fleet import Seen
from adaptk.live.snapshot import Cell, CellBelief, Snapshot, batch_order
from adaptk.live.texts import amount, drifted, milliseconds, percent
from adaptk.spans import Span, Spans

LEGEND = "> played now  t the table's K"
_PROMPTS = "0"  # the range of steps that held prompts only
_UNKNOWN = CellBelief()


class _Context(NamedTuple):
    seen: Seen
    snapshot: Snapshot
    cell: Cell
    belief: CellBelief
    best: bool
    now: bool


class _Column(NamedTuple):
    """A heading as wide as its cells, the cell, and from which width of the terminal on there is room for it."""

    head: str
    cell: Callable[[_Context], str | Span]
    least: int = 0


def cell_rows(seen: Seen, snapshot: Snapshot, width: int) -> tuple[Spans, list[Spans], int | None]:
    """The heading, a row for each range of batch sizes and K, and the number of the row that is played now."""
    cells = sorted(
        (cell for cell in {*snapshot.cells, *snapshot.counts.steps} if cell.batch != _PROMPTS),
        key=lambda cell: (batch_order(cell.batch), cell.k),
    )
    columns = [column for column in _COLUMNS if column.least <= width]
    now = _now(snapshot, cells)
    best = {cell.batch: max(_chances(snapshot, cell.batch), default=None) for cell in cells}
    rows = []
    for cell in cells:
        belief = snapshot.cells.get(cell, _UNKNOWN)
        context = _Context(seen, snapshot, cell, belief, (belief.p_best, cell.k) == best[cell.batch], cell == now)
        rows.append(_row(context, columns))
    focus = next((i for i, cell in enumerate(cells) if cell == now), None)
    head = (Span("".join(column.head for column in columns), "underline"),)
    return head, rows or [(Span("no steps yet", "dim"),)], focus


def _chances(snapshot: Snapshot, batch: str) -> list[tuple[float, int]]:
    return [(b.p_best, cell.k) for cell, b in snapshot.cells.items() if cell.batch == batch and b.p_best is not None]


def _row(context: _Context, columns: list[_Column]) -> Spans:
    spans = []
    for column in columns:
        cell = column.cell(context)
        spans.append(cell if isinstance(cell, Span) else Span(f"{cell:>{len(column.head)}}"))
    if not context.now:
        return tuple(spans)
    return tuple(Span(span.text, span.style or "bold") for span in spans)


def _now(snapshot: Snapshot, cells: Sequence[Cell]) -> Cell | None:
    """The cell that is played now; with prompts in the batch, fewer requests decode than it holds."""
    batch = snapshot.batch
    if batch is None:
        return None
    below = [cell for cell in cells if cell.k == snapshot.played_k and batch_order(cell.batch)[0] <= batch]
    return below[-1] if below else None


def _marks(context: _Context) -> str:
    now = ">" if context.now else " "
    return now + ("t " if context.snapshot.table_k.get(context.cell.batch) == context.cell.k else "  ")


def _interval(context: _Context) -> Span:
    low, high = context.belief.itl_low, context.belief.itl_high
    text = "" if low is None or high is None else f" [{milliseconds(low)}, {milliseconds(high)}]"
    return Span(f"{text:<18}")


def _lately(context: _Context) -> str:
    recent = context.seen.recent
    return amount(None if recent is None else recent.counts.steps.get(context.cell, 0.0))


def _best(context: _Context) -> Span:
    text = percent(context.belief.p_best) + ("*" if context.best else " ")
    return Span(f"{text:>8}", "bold green" if context.best else "")


_COLUMNS = (
    _Column("   ", _marks),
    _Column("batch    ", lambda context: f"{context.cell.batch:<9}"),
    _Column("  K", lambda context: str(context.cell.k)),
    _Column("  steps", lambda context: amount(context.snapshot.counts.steps.get(context.cell, 0.0))),
    _Column("  lately", _lately, 96),
    _Column(" step ms", lambda context: milliseconds(context.belief.itl)),
    _Column(" [90 %]           ", _interval),
    _Column("  table", lambda context: milliseconds(context.belief.table_itl)),
    _Column("   drift  ", lambda context: drifted(context.belief.drift, 10)),
    _Column("  AL   ", lambda context: "-" if context.belief.al is None else f"{context.belief.al:.2f}", 88),
    _Column("  tok/s", lambda context: amount(context.belief.goodput)),
    _Column("   best ", _best),
)
