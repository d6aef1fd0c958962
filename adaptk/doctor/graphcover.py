"""Which K have FULL CUDA graphs, and up to which batch size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adaptk.doctor.facts import Engine
from adaptk.doctor.finding import Finding

_SHOWN = 6


def graphs(engine: Engine) -> Iterator[Finding]:
    """Where graphs replay decode steps, and where they do not."""
    name = "engine.graphs"
    if engine.reaches is None:
        yield Finding(name, "ok", "decode steps have no FULL CUDA graphs of their own", _why_none(engine))
        return
    reach = ", ".join(f"K={each.k} to {each.batch}" for each in engine.reaches)
    what = f"FULL CUDA graphs ({engine.captures} of decode steps), up to a batch of: {reach}"
    if all(each.batch >= engine.max_num_seqs for each in engine.reaches):
        yield Finding(name, "ok", what, "that is every batch")
    else:
        detail = "beyond that a K is not played where another one has a graph"
        remedy = "a larger max_cudagraph_capture_size takes it further, for more memory"
        yield Finding(name, "note", what, detail, remedy)
    for each in engine.reaches:
        if each.holes:
            where = spanned(each.holes)
            yield Finding(f"engine.graphs_k{each.k}", "note", f"K={each.k} has no FULL graph at batch {where}")


def _why_none(engine: Engine) -> str:
    if engine.eager:
        return "enforce_eager is set"
    return f"the mode of CUDA graphs is {engine.graph_mode}"


def spanned(batches: Sequence[int]) -> str:
    """Batch sizes with those that follow each other drawn together.

    Examples
    --------
    >>> spanned([3, 5, 6, 7, 9])
    '3, 5-7, 9'
    """
    runs: list[list[int]] = []
    for batch in sorted(batches):
        if runs and batch == runs[-1][1] + 1:
            runs[-1][1] = batch
        else:
            runs.append([batch, batch])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")
