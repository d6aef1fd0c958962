"""Tables from recorded steps: which steps count, how cells are made, and what is said of what is missing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptk.decision import Decision, Reason
from adaptk.profile.est_acceptance import AcceptanceCounts
from adaptk.profile.trace_steps import batch_names, context_bounds, usable
from adaptk.profile.traces import table_from_traces
from adaptk.step import StepRecord
from adaptk.trace import TraceError, TraceWriter
from tests.profile.simulated import SimulatedEngine

ARMS = (0, 1, 3, 7)
KEY = {"model": "target", "method": "ngram", "device": "card"}


def _records(
    engine: SimulatedEngine,
    batches: Sequence[int],
    rounds: int,
    *,
    hold: int = 6,
    context: float | None = 100.0,
    rate: float = 0.6,
    arms: Sequence[int] = ARMS,
    **more: Any,
) -> list[StepRecord]:
    """An engine that plays each arm for ``hold`` steps in turn, and changes its batch each round."""
    records: list[StepRecord] = []
    before = 0
    for round_ in range(rounds):
        batch = batches[round_ % len(batches)]
        for k in arms:
            for _ in range(hold):
                drafted = [before if engine.rng.random() < engine.supply else 0 for _ in range(batch)]
                accepted = [int(np.cumprod(engine.rng.random(d) < rate).sum()) for d in drafted]
                # A step verifies the drafts of the one before and makes its own: a mixture where K changes.
                width = sum(drafted) / batch
                ms = engine.truth(batch, 0, width) + engine.per_draft * k
                ms *= float(np.exp(engine.noise * engine.rng.standard_normal()))
                if engine.rng.random() < engine.stalls:
                    ms *= 8.0
                fields: dict[str, Any] = {
                    "batch_size": batch,
                    "elapsed_ms": ms,
                    "k": k,
                    "drafted": drafted,
                    "accepted": accepted,
                    "context_tokens": None if context is None else round(context * batch),
                }
                records.append(StepRecord(**{**fields, **more}))
                before = k
    return records


def _write(path: Path, records: Sequence[StepRecord], arms: Sequence[int] = ARMS, **header: Any) -> Path:
    writer = TraceWriter(path, header, max_pending=1 << 20)
    for seq, record in enumerate(records):
        decision = Decision(seq=seq, k=record.k, propensity=0.5, reason=Reason.EXPLOIT, arms=tuple(arms))
        writer.write(record, decision)
    writer.close(60.0)
    assert writer.dropped == 0
    return path


def test_a_trace_gives_the_table_of_the_engine_that_wrote_it(tmp_path: Path) -> None:
    """Times within 2 % in every cell, stalls or not; acceptance within 3 % with the counts behind it."""
    engine = SimulatedEngine(0, drift=0.0)
    trace = _write(tmp_path / "a.jsonl", _records(engine, (1, 8, 32), 60), key=KEY)
    table, notes = table_from_traces([trace])
    assert notes == []
    assert {(row.batch, row.k) for row in table.rows} == {(b, k) for b in (1, 8, 32) for k in ARMS}
    for row in table.rows:
        assert row.itl_ms == pytest.approx(engine.truth(row.batch, row.k), rel=0.02)
        assert row.context == 100.0
        assert row.n is not None
        assert row.n >= 80
        assert row.low_ms is not None
    assert table.acceptance is not None
    assert len(table.acceptance) == 7
    assert table.acceptance[0] == pytest.approx(0.6, rel=0.03)
    assert table.acceptance_counts is not None
    assert table.acceptance_counts[0][1] > 5000
    assert table.supply == (1.0,) * 7
    assert table.key == KEY
    assert table.meta["provenance"]["files"] == ["a.jsonl"]
    assert table.meta["provenance"]["times"] == "elapsed_ms"


def test_goodput_is_what_was_measured_where_drafts_come_now_and_then(tmp_path: Path) -> None:
    """A drafter that finds nothing in seven of ten steps: acceptance and times of the steps as they really were."""
    engine = SimulatedEngine(1, drift=0.0, supply=0.3, per_token=0.3, stalls=0.0)
    records = _records(engine, (4,), 150, rate=0.8)
    table, _ = table_from_traces([_write(tmp_path / "t", records)])
    assert table.supply is not None
    assert table.supply[0] == pytest.approx(0.3, abs=0.02)
    for k in ARMS:
        steps = [s for before, s in pairwise(records) if before.k == s.k == k]
        tokens = sum(sum(step.accepted) + 4 for step in steps) / 4
        seconds = sum(step.elapsed_ms or 0.0 for step in steps) / 1000.0
        assert table.goodput(4, k) == pytest.approx(tokens / seconds, rel=0.03)


def test_only_steps_of_one_arm_count() -> None:
    """Changes of K, prompts, missing times and more drafts than asked for are left out, and counted by reason."""

    def step(k: int, drafted: int, **more: Any) -> StepRecord:
        return StepRecord(**{"batch_size": 1, "elapsed_ms": 9.0, "k": k, "drafted": [drafted], "accepted": [0], **more})

    records = [
        step(3, 0),
        step(3, 3),  # usable
        step(1, 3),  # K changed
        step(1, 1, prefill_tokens=7),
        step(1, 1, elapsed_ms=None),
        step(1, 1, elapsed_ms=float("nan")),
        step(1, 1, verified=4),
        step(1, 1, device_ms=4.0),  # usable
        step(0, 1, draft_k=1),  # usable: it made what was decided before
    ]
    steps, refused = usable(records, device=False)
    assert [(s.at, s.k, s.width, s.ms) for s in steps] == [(1, 3, 3.0, 9.0), (7, 1, 1.0, 9.0), (8, 1, 1.0, 9.0)]
    assert dict(refused) == {
        "the first step, whose drafts nobody asked for here": 1,
        "K changed": 1,
        "prompt tokens in the step": 1,
        "no time": 2,
        "more drafts than asked for": 1,
    }
    assert [s.ms for s in usable(records, device=True).steps] == [4.0]
    assert usable([], device=False) == ([], {})


def test_a_step_that_says_what_was_asked_for_is_believed() -> None:
    """In a pipeline of several stages the record before is another batch's."""
    fields: dict[str, Any] = {"batch_size": 1, "elapsed_ms": 9.0, "accepted": [0]}
    records = [StepRecord(k=k, drafted=[k], asked=k, **fields) for k in (3, 1, 3, 1)]
    assert [s.k for s in usable(records, device=False).steps] == [1, 3, 1]
    assert AcceptanceCounts.from_records(records, 3).asked == (3, 1, 1)


@pytest.mark.parametrize(("waiting", "left"), [(0, 39), (10, 29), (30, 9), (38, 39), (40, 39)])
def test_waiting_for_a_grammar_is_no_arms_cost(waiting: int, left: int) -> None:
    """Steps that waited are left out, but where there are hardly any others."""
    fields: dict[str, Any] = {"batch_size": 1, "elapsed_ms": 9.0, "k": 1, "drafted": [1], "accepted": [0]}
    records = [StepRecord(waited=i >= 40 - waiting, **fields) for i in range(40)]
    steps, refused = usable(records, device=False)
    assert (len(steps), refused["waited for a grammar"]) == (left, 39 - left)


def test_a_sure_drafter_without_drafts_is_not_itself() -> None:
    """Where drafts nearly always come, a step without any does not show the arm's cost."""
    records = [StepRecord(batch_size=1, elapsed_ms=9.0, k=1, drafted=[int(i != 7)], accepted=[0]) for i in range(20)]
    steps, refused = usable(records, device=False)
    assert len(steps) == 18
    assert refused["drafts missing"] == 1


def test_the_workers_time_is_preferred(tmp_path: Path) -> None:
    """Where nearly all steps have it, none of the wall clock's is mixed in."""
    engine = SimulatedEngine(0, drift=0.0, stalls=0.0, noise=0.001)
    records = _records(engine, (2,), 20, device_ms=3.0)
    table, _ = table_from_traces([_write(tmp_path / "t", records)])
    assert {round(row.itl_ms, 6) for row in table.rows} == {3.0}
    assert table.meta["provenance"]["times"] == "device_ms"


def test_several_traces_of_one_set_up_are_pooled(tmp_path: Path) -> None:
    """Keys that agree, or are missing; steps and requests add up. Keys that differ are refused by field."""
    one = _write(tmp_path / "one", _records(SimulatedEngine(0, drift=0.0), (4,), 20), key=KEY)
    two = _write(tmp_path / "two", _records(SimulatedEngine(1, drift=0.0), (4,), 20), key={**KEY, "vllm": "0.32.0"})
    bare = _write(tmp_path / "bare", _records(SimulatedEngine(2, drift=0.0), (4,), 20))
    single, both = table_from_traces([one]).table, table_from_traces([one, two, bare], name="mine")
    assert both.table.key == {**KEY, "vllm": "0.32.0"}
    assert both.table.meta["name"] == "mine"
    assert any("bare" in note and "no key" in note for note in both.notes)
    assert sum(row.n or 0 for row in both.table.rows) > 2.5 * sum(row.n or 0 for row in single.rows)
    other = _write(tmp_path / "other", _records(SimulatedEngine(3), (4,), 20), key={**KEY, "device": "another"})
    with pytest.raises(TraceError, match=r"other: is of another set-up .*device: 'card' before it, 'another' in this"):
        table_from_traces([one, other])
    wrong = _write(tmp_path / "wrong", _records(SimulatedEngine(3), (4,), 20), key="text")
    with pytest.raises(TraceError, match="key is 'text'"):
        table_from_traces([wrong])


def test_contexts_that_differ_make_levels(tmp_path: Path) -> None:
    """Short and long contexts: two levels, each with its own times and mean."""
    short = _records(SimulatedEngine(0, drift=0.0), (4,), 40, context=100.0)
    long = _records(SimulatedEngine(1, drift=0.0, fixed=20.0), (4,), 40, context=900.0)
    table, _ = table_from_traces([_write(tmp_path / "s", short), _write(tmp_path / "l", long)])
    assert table.contexts == (100.0, 900.0)
    low, high = (table.itl_ms(4, 1, context) for context in table.contexts)
    assert low is not None
    assert high is not None
    assert high - low == pytest.approx(14.0, rel=0.05)
    unknown = _write(tmp_path / "u", _records(SimulatedEngine(0), (4,), 20, context=None))
    assert table_from_traces([unknown]).table.rows[0].context is None


def test_rare_batches_are_merged_and_named(tmp_path: Path) -> None:
    """A batch size of few steps is booked with its neighbours under their mean."""
    assert batch_names(Counter({16: 100, 17: 5, 18: 5, 200: 3})) == {16: 16, 17: 18, 18: 18, 200: 200}
    assert batch_names(Counter()) == {}
    engine = SimulatedEngine(0, drift=0.0)
    records = _records(engine, (16,), 20) + _records(engine, (20, 21, 22), 3, hold=4)
    table, notes = table_from_traces([_write(tmp_path / "t", records)])
    assert table.batches == (16, 21)
    assert any("batch sizes from 20 to 22" in note for note in notes)
    assert any("fewer than 20 steps" in note for note in notes)


def test_levels_need_enough_steps_and_spread() -> None:
    """Alike, few, unknown or zero contexts: one level. Very wide ones: three."""
    assert context_bounds([]) == []
    assert context_bounds([100.0] * 1000) == []
    assert context_bounds([100.0, 900.0] * 100) == []
    assert context_bounds([0.0] * 1000) == []
    assert context_bounds([None] * 500 + [100.0, 900.0] * 250) == []
    assert len(context_bounds([100.0, 200.0] * 300)) == 1
    assert len(context_bounds(list(np.linspace(10.0, 1000.0, 1000)))) == 2


def test_what_was_never_played_is_named(tmp_path: Path) -> None:
    """Arms that decisions offered and the trace lacks, and arms that were only passed through."""
    records = _records(SimulatedEngine(0), (4,), 20, arms=(0, 1))
    _, notes = table_from_traces([_write(tmp_path / "t", records)])
    assert [note for note in notes if "never played" in note] == [
        f"K={k} was never played: its times will be inter- or extrapolated" for k in (3, 7)
    ]
    _, notes = table_from_traces([_write(tmp_path / "u", _records(SimulatedEngine(0), (4,), 20, arms=(3,)))])
    assert "only K=3 was measured: the table cannot tell which K is best" in notes


def test_too_little_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    """No files, no rows, only prompts, K changed in every step: said by number and reason."""
    with pytest.raises(TraceError, match="no trace was named"):
        table_from_traces([])
    with pytest.raises(TraceError, match="there is no such file"):
        table_from_traces([tmp_path / "missing"])
    with pytest.raises(TraceError, match="0 usable steps of 0, 30 are needed"):
        table_from_traces([_write(tmp_path / "empty", [])])
    records = _records(SimulatedEngine(0), (4,), 20, hold=1)
    with pytest.raises(TraceError, match=r"0 usable steps of 80, .*K changed: 79"):
        table_from_traces([_write(tmp_path / "restless", records)])
    records = _records(SimulatedEngine(0), (4,), 20, prefill_tokens=3)
    with pytest.raises(TraceError, match="prompt tokens in the step"):
        table_from_traces([_write(tmp_path / "prompts", records)])
    twice = _write(tmp_path / "twice", _records(SimulatedEngine(0), (4,), 20))
    with pytest.raises(TraceError, match="give each once"):
        table_from_traces([twice, twice])


def test_a_cut_off_trace_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """The last line of a killed engine is left out and counted."""
    trace = _write(tmp_path / "t", _records(SimulatedEngine(0), (4,), 20))
    trace.write_bytes(trace.read_bytes()[:-30])
    table, notes = table_from_traces([trace])
    assert table.ks == ARMS
    assert notes == [f"{trace}: 1 row cut off at its end"]


def test_absurd_values_of_a_file_are_left_out(tmp_path: Path) -> None:
    """Batches, drafts and times beyond what a table may hold, and no request at all."""
    records = _records(SimulatedEngine(0, drift=0.0), (4,), 20)
    absurd = [
        StepRecord(batch_size=10**11, elapsed_ms=9.0, k=0, drafted=[], accepted=[]),
        StepRecord(batch_size=10**11, elapsed_ms=9.0, k=0, drafted=[], accepted=[]),
        StepRecord(batch_size=1, elapsed_ms=1e300, k=0, drafted=[0], accepted=[0]),
        StepRecord(batch_size=1, elapsed_ms=9.0, k=10**9, drafted=[0], accepted=[0]),
        StepRecord(batch_size=1, elapsed_ms=9.0, k=10**9, drafted=[0], accepted=[0]),
        StepRecord(batch_size=0, elapsed_ms=9.0, k=10**9, drafted=[], accepted=[]),
        StepRecord(batch_size=1, elapsed_ms=9.0, k=0, drafted=[10**9], accepted=[0]),
    ]
    table, _ = table_from_traces([_write(tmp_path / "t", records + absurd)])
    assert table.batches == (4,)
    assert table.acceptance is not None
    assert len(table.acceptance) == 7


def test_a_table_from_traces_can_be_saved(tmp_path: Path) -> None:
    """Rows, counts, key and provenance come back from the file."""
    trace = _write(tmp_path / "tracé.jsonl", _records(SimulatedEngine(0), (4,), 20), key=KEY)
    table, _ = table_from_traces([trace])
    table.save(tmp_path / "table.json")
    assert type(table).load(tmp_path / "table.json") == table
    assert json.loads((tmp_path / "table.json").read_text())["meta"]["name"] == "tracé.jsonl"


def test_without_drafts_acceptance_is_unknown(tmp_path: Path) -> None:
    """An engine that only played K=0 has times alone."""
    records = _records(SimulatedEngine(0), (4,), 20, arms=(0,))
    table, notes = table_from_traces([_write(tmp_path / "t", records, arms=(0,))])
    assert (table.acceptance, table.supply, table.ks) == (None, None, (0,))
    assert "only K=0 was measured: the table cannot tell which K is best" in notes
