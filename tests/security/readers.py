"""Every reader of files in adaptk: valid files to damage, how it is asked, and which error alone may come of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from adaptk import Controller, GoodputTable, Settings, StepRecord
from adaptk.decision import Decision, Reason
from adaptk.profile.entries import Answers, Began, Died, Entry, Gridded, Visited
from adaptk.profile.estimate import AcceptanceCounts, Block
from adaptk.profile.journal import JournalError, read_journal
from adaptk.profile.orders import EngineInfo
from adaptk.profile.prompts import PromptsError, read_prompts
from adaptk.profile.traces import table_from_traces
from adaptk.replay.requestfiles import WorkloadError, read_requests
from adaptk.replay.views.files import document, read_rows
from adaptk.report.findings import from_json
from adaptk.settings import SettingsError
from adaptk.statefile import State, StateError, read_state, state_bytes
from adaptk.surface.architecture import ConfigError
from adaptk.surface.configs import read_config
from adaptk.table import TableError
from adaptk.tablekey import differences
from adaptk.tabletools.correcting import correct, read_snapshot
from adaptk.tabletools.doubts import doubts
from adaptk.tabletools.imported import read_source
from adaptk.tabletools.show import bullets, title_lines
from adaptk.tabletools.show import document as shown_table
from adaptk.tabletools.survey import survey
from adaptk.trace import TraceError, read_trace
from adaptk.tracefile import TraceRow, header_line
from adaptk.vllm_plugin import control
from tests.replay.tiny import row
from tests.snapshots import OLD, used_snapshot
from tests.tabletools.measured import COUNTS, of_levels, public_table
from tests.tabletools.test_fromsweep import drafts, result


class Reader(NamedTuple):
    """One reader: its name, the name of its file, valid contents, what it does with a file, and what it may raise."""

    name: str
    file: str
    valid: Callable[[], Sequence[bytes]]
    read: Callable[[Path], object]
    refuses: type[Exception] | tuple[type[Exception], ...]


def _table(path: Path) -> None:
    table = GoodputTable.load(path)
    use_table(table)
    again = path.with_name("again.json")
    table.save(again)
    assert GoodputTable.load(again) == table


def use_table(table: GoodputTable) -> None:
    """Ask a table all that the engine and the commands ask; nothing may go wrong once it was taken."""
    for batch in (1, 7, 300, 10**6):
        assert table.best_k(batch) in table.ks
        assert table.best_k(batch, context=1e6, arms=(0, 1, 7)) in (0, 1, 7)
    assert table.to_schedule(64)[-1][1] == 64
    lines = [line.text for line in title_lines(table, "a table")]
    seen = survey(table, None, 64) if table.has_times else None
    text = "\n".join([*lines, *bullets([*table.check(), *doubts(table)]), repr(table)])
    msgspec.json.encode(shown_table(table, seen))
    assert len(text) < 100_000
    controller = Controller(table, k_max=max(table.ks), seed=0)
    for step in steps(controller.arms[-1]):
        controller.choose(step.batch_size, step.context_tokens)
        controller.observe(step)


def steps(k: int, count: int = 8) -> list[StepRecord]:
    """Some steps of two batch sizes."""
    return [
        StepRecord(
            batch_size=batch, elapsed_ms=9.0 + i, k=k, drafted=[k] * batch, accepted=[min(i, k)] * batch,
            context_tokens=700 * batch,
        )
        for i in range(count)
        for batch in (3, 16)
    ]  # fmt: skip


@cache
def _tables() -> list[bytes]:
    made = [
        public_table({"key": {"model": "m", "capture_sizes": [1, 2, 4]}, "staircase": True}),
        of_levels(128.0, 4096.0),
        GoodputTable.from_rows(
            [{"batch": b, "k": k, "itl_ms": 5.0 + b * k, "n": 9, "low_ms": 4.0, "graph_mode": "FULL"}
             for b in (1, 8) for k in (0, 3)],
            [0.6, 0.5, 0.4, 0.3, 0.2], acceptance_counts=COUNTS, supply=[1.0, 0.9, 0.8],
        ),
        GoodputTable.from_schedule([[1, 4, 7], [5, 32, 3], [33, 512, 0]], [0.8, 0.7]),
    ]  # fmt: skip
    return [_saved(table) for table in made]


def _saved(table: GoodputTable) -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.json"
        table.save(path)
        return path.read_bytes()


@cache
def _trace() -> list[bytes]:
    rows = [
        TraceRow(
            StepRecord(
                batch_size=2, elapsed_ms=9.0 + i % 3, k=(1, 3)[i // 20 % 2], drafted=[(1, 3)[(i - 1) // 20 % 2]] * 2,
                accepted=[1, 0], emitted=[2, 1], context_tokens=900 + i, requests=[i // 10, i // 10 + 1],
                t_ms=10.0 * i, decodes=2, verified=4, prefill_tokens=0,
            ),
            Decision(seq=i, k=3, propensity=0.9, reason=Reason.EXPLOIT, arms=(0, 1, 3), t_ms=10.0 * i),
        )
        for i in range(80)
    ]  # fmt: skip
    header = header_line({
        "adaptk": "0.1.0", "vllm": "0.32.0", "mode": "on", "arms": [0, 1, 3], "k_max": 3, "rank": 0,
        "key": {"model": "m", "device": "cpu"}, "schedule": [[1, 8, 3]],
        "seed_table": {"rows": [{"batch": b, "k": k, "itl_ms": 5.0 + b * k} for b in (1, 8) for k in (0, 1, 3)]},
    })  # fmt: skip
    return [header + b"".join(msgspec.json.encode(row) + b"\n" for row in rows)]


def _both_ways(path: Path) -> None:
    read_trace(path, lenient=True)
    read_trace(path)


@cache
def _journal() -> list[bytes]:
    info = EngineInfo({"model": "m", "capture_sizes": [1, 2]}, (0, 1, 3), 16, 2048, 40_000)
    counts = AcceptanceCounts(accepted=(7, 4), tried=(10, 7), returned=(9, 8), asked=(10, 10), requests=(((1,), (2,)),))
    entries: list[Entry] = [
        Began(arguments=("m", "--x"), info=info, prompts="ab", temperature=0.0, max_tokens=64, budget_s=60.0,
              target=0.03, command="adaptk profile m", date="2026-01-31"),
        Gridded(batches=(1, 4), contexts=(0, 512)),
        Answers(first=0, last=8, counts=counts, seconds=3.5),
        Visited(visit=0, blocks=(Block(4, 1, 512.0, 500.0, 0, 1.5, (9.0, 9.5), (1.0, 1.0)),), seconds=2.0,
                dropped=((8, 3, None),), note="no room"),
        Died(batch=4, k=3, context=512.0, reason="it died"),
    ]  # fmt: skip
    return [b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)]


def _correct(path: Path) -> None:
    from tests.publicengine import PUBLIC

    made = correct(PUBLIC, read_snapshot(path), "state.json", allow_mismatch=True)
    use_table(made.table)


def restore(snapshot: Any) -> None:
    """Go on from a snapshot for some steps: what was taken must be fit to be used."""
    for as_prior in (True, False):
        given = copy.deepcopy(snapshot)
        controller = Controller.restore(given, None if as_prior else public_or_none(given), as_prior=as_prior)
        controller.note_engine_restarted()
        for step in steps(controller.arms[-1]):
            controller.choose(step.batch_size, step.context_tokens)
            controller.observe(step)
        json.dumps(controller.snapshot(), allow_nan=False)


def public_or_none(snapshot: Any) -> GoodputTable | None:
    """The table that the snapshots of the tests are of, if it is of one."""
    from tests.publicengine import PUBLIC

    return PUBLIC if isinstance(snapshot, dict) and snapshot.get("table") is not None else None


def _restore(path: Path) -> None:
    restore(read_snapshot(path))


@cache
def _states() -> list[bytes]:
    key = {"model": "m", "device": "cpu", "capture_sizes": [1, 2, 4]}
    return [state_bytes(State(adaptk="0.1.0", vllm="0.32.0", saved=1.7e9, key=key, snapshot=used_snapshot()))]


def _state(path: Path) -> None:
    """As an engine begins from it whose arms are others than the state's."""
    state = read_state(path)
    if state is not None:
        differences(state.key, {"model": "m", "device": "cpu", "capture_sizes": [1, 2]})
        controller = Controller(None, arms=(0, 5), seed=0)
        controller.begin_from(state.snapshot)
        for step in steps(5):
            controller.choose(step.batch_size, step.context_tokens)
            controller.observe(step)


@cache
def _replayed() -> list[bytes]:
    return [document([row(), row(policy="table", p99_ms=float("nan"))], ["replay"], 0, cut_short=False)]


def _config(path: Path) -> None:
    made = read_config(path)
    assert made.parameters > 0
    assert made.divided(1) is made


_DENSE = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "torch_dtype": "bfloat16",
          "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"] * 2,
          "architectures": ["LlamaForCausalLM"], "quantization_config": {"quant_method": "fp8"}}  # fmt: skip
_MIXTURE = {**_DENSE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [0],
            "decoder_sparse_step": 1, "moe_layers": [1, 2], "shared_expert_intermediate_size": 16}  # fmt: skip
_AZURE = b"""TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0310000,3180,8
2023-11-16T18:17:04.1310000+00:00,"110",27
"""
_MOONCAKE = b"".join(
    json.dumps({"timestamp": 30 * i, "input_length": 60 + i, "output_length": 5, "hash_ids": [1, 2, i]}).encode()
    + b"\n"
    for i in range(4)
)
_K = "speculative_config.num_speculative_tokens"
_RESULTS = [result(4, 9.0, **drafts(3, 500, 0.7, 0.5, 0.2)), result(16, 12.0, random_input_len=128, **{_K: 0})]
_SUMMARY = "\n".join((
    f",max_concurrency,median_itl_ms,request_throughput,{_K},spec_decode_num_drafts,"
    "spec_decode_per_position_acceptance_rates,speculative_config,model_id",
    '0,4,9.5,3.0,3,100,"[0.7, 0.5, 0.2]","{\'method\': \'ngram\'}",org/m',
    "1,16,12.5,5.0,0,,,,org/m",
)).encode()  # fmt: skip
_CSV = b"batch;k;itl_ms;context;n;p90_ms;graph_mode\n1;0;5,5;128;10;6,0;FULL\n8;3;7,25;128;12;;\n8;3;7,5;128;3;;\n"
_CONFIG = {"method": "eagle3", "model": "org/drafter", "num_speculative_tokens": 7,
           "num_speculative_tokens_per_batch_size": [[1, 4, 7], [5, 64, 3], [65, 256, 0]]}  # fmt: skip
_PROMPTS = b'{"prompt": "one two three"}\n{"turns": ["four", "five"], "category": "chat"}\n'


@cache
def _findings() -> list[bytes]:
    from adaptk.report.analysis import analyse
    from adaptk.report.findings import to_json

    return [_of_trace(lambda path: to_json(analyse([path], simulate=False)))]


def _of_trace(make: Callable[[Path], bytes]) -> bytes:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        path.write_bytes(_trace()[0])
        return make(path)


def _analysed(path: Path) -> None:
    """The report of a damaged trace, all but its simulation, down to the page."""
    from adaptk.report.analysis import analyse
    from adaptk.report.page.render import render

    render(analyse([path], lenient=True, simulate=False))


READERS: tuple[Reader, ...] = (
    Reader("table", "table.json", _tables, _table, TableError),
    Reader("snapshot", "state.json", lambda: [json.dumps(used_snapshot()).encode(), OLD.read_bytes()], _restore,
           (TableError, ValueError)),
    Reader("state", "state.json", _states, _state, (StateError, ValueError)),
    Reader("corrected", "state.json", lambda: [json.dumps(used_snapshot()).encode()], _correct, TableError),
    Reader("schedule", "schedule.json", lambda: [json.dumps(_CONFIG).encode(), b"[[1, 4, 7], [5, 64, 0]]"],
           lambda path: use_table(read_source(path, "schedule").table), TableError),
    Reader("csv", "table.csv", lambda: [_CSV, _CSV.replace(b",", b".").replace(b";", b",")],
           lambda path: use_table(read_source(path, "csv").table), TableError),
    Reader("sweep", "summary.json", lambda: [json.dumps(_RESULTS).encode(), json.dumps(_RESULTS[0]).encode()],
           lambda path: use_table(read_source(path, "sweep").table), TableError),
    Reader("summary", "summary.csv", lambda: [_SUMMARY], lambda path: use_table(read_source(path, "sweep").table),
           TableError),
    Reader("source", "source", lambda: [_SUMMARY, _CSV, json.dumps(_CONFIG).encode()], read_source, TableError),
    Reader("azure", "requests.csv", lambda: [_AZURE], lambda path: read_requests(path, lenient=True), WorkloadError),
    Reader("mooncake", "requests.jsonl", lambda: [_MOONCAKE], read_requests, WorkloadError),
    Reader("config", "config.json", lambda: [json.dumps(_DENSE).encode(), json.dumps(_MIXTURE).encode()], _config,
           ConfigError),
    Reader("journal", "a.profile.jsonl", _journal, read_journal, JournalError),
    Reader("prompts", "prompts.jsonl", lambda: [_PROMPTS], read_prompts, PromptsError),
    Reader("replay rows", "rows.json", _replayed, lambda path: read_rows([path]), ValueError),
    Reader("findings", "findings.json", _findings, lambda path: from_json(path.read_bytes()), ValueError),
    Reader("control", "mode", lambda: [b"shadow\n", b"on"], control.read, (SettingsError, OSError)),
    Reader("trace", "trace.jsonl", _trace, _both_ways, TraceError),
    Reader("trace table", "trace.jsonl", _trace, lambda path: use_table(table_from_traces([path]).table), TraceError),
    Reader("trace report", "trace.jsonl", _trace, _analysed, TraceError),
)  # fmt: skip


def settings(env: dict[str, str], options: Any) -> None:
    """Both ways to the settings."""
    Settings.from_env(env)
    Settings.from_config(options, env)
