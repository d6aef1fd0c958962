"""Hypothesis strategies for the value types of adaptk, and small builders of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st

from adaptk.decision import Decision, Reason
from adaptk.step import StepRecord
from adaptk.table import GoodputTable, TableError


def rows_of(grid: dict[int, dict[int, float]], **extra: Any) -> list[dict[str, Any]]:
    """Rows from ``{batch: {k: ms}}``."""
    return [{"batch": b, "k": k, "itl_ms": ms, **extra} for b, line in grid.items() for k, ms in line.items()]


def read_or_refused(build: Callable[[], object]) -> None:
    """Any outcome is right but an exception other than TableError."""
    with contextlib.suppress(TableError):
        build()


times_ms = st.floats(0.01, 10_000.0)
probabilities = st.floats(0.0, 1.0)
ks = st.integers(0, 12)
batches = st.integers(1, 600)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def step_records(draw: st.DrawFn) -> StepRecord:
    """Any StepRecord, times that are not finite included."""
    drafted = draw(st.lists(ks, max_size=6))
    times = st.none() | st.floats() | times_ms
    return StepRecord(
        batch_size=len(drafted),
        elapsed_ms=draw(times),
        k=draw(ks),
        drafted=drafted,
        accepted=[draw(st.integers(0, d)) for d in drafted],
        context_tokens=draw(st.none() | st.integers(0, 10**9)),
        prefill_tokens=draw(st.integers(0, 10**6)),
        device_ms=draw(times),
        draft_k=draw(st.none() | ks),
        decodes=draw(st.none() | st.integers(0, len(drafted))),
        verified=draw(st.none() | st.integers(0, 100)),
        emitted=draw(st.none() | st.lists(ks, min_size=len(drafted), max_size=len(drafted))),
        requests=draw(st.none() | st.lists(st.integers(0, 10**9), min_size=len(drafted), max_size=len(drafted))),
        t_ms=draw(times),
    )


def without_infinities(step: StepRecord) -> StepRecord:
    """The record as JSON keeps it: times that are not finite are unknown."""
    times = {name: getattr(step, name) for name in ("elapsed_ms", "device_ms", "t_ms")}
    return msgspec.structs.replace(
        step, **{name: None for name, value in times.items() if value is not None and not math.isfinite(value)}
    )


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Any Decision, a propensity that is not finite included."""
    return Decision(
        seq=draw(st.integers(0, 2**40)),
        k=draw(ks),
        propensity=draw(probabilities | st.just(math.nan)),
        reason=draw(st.sampled_from(Reason)),
        arms=tuple(draw(st.lists(ks, max_size=5))),
        t_ms=draw(st.none() | times_ms),
    )


@st.composite
def row_lists(draw: st.DrawFn, contexts: bool = True) -> list[dict[str, Any]]:
    """Rows of a table: any cells, each once, with or without levels of context."""
    level = st.none() | st.sampled_from([128, 1024.5, 8192]) if contexts else st.none()
    cells = draw(st.lists(st.tuples(batches, ks, level), min_size=1, max_size=12, unique=True))
    extra = st.fixed_dictionaries({}, optional={"n": st.integers(1, 10**6), "p90_ms": times_ms})
    return [
        {"batch": batch, "k": k, "context": context, "itl_ms": draw(times_ms), **draw(extra)}
        for batch, k, context in cells
    ]


@st.composite
def timed_tables(draw: st.DrawFn, contexts: bool = True, staircase: bool | None = None) -> GoodputTable:
    """Tables with step times."""
    stair = draw(st.booleans()) if staircase is None else staircase
    return GoodputTable.from_rows(
        draw(row_lists(contexts)),
        draw(st.none() | st.lists(probabilities, min_size=1, max_size=8)),
        {"name": draw(st.text(max_size=8)), "staircase": stair},
    )


@st.composite
def schedules(draw: st.DrawFn) -> list[list[int]]:
    """vLLM schedules with gaps, in order."""
    runs = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 200), st.integers(0, 9)), min_size=1, max_size=6))
    triples: list[list[int]] = []
    for gap, length, k in runs:
        first = triples[-1][1] + 1 + gap if triples else 1
        triples.append([first, first + length - 1, k])
    return triples


tables = timed_tables() | schedules().map(GoodputTable.from_schedule)
