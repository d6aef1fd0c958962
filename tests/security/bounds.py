"""Inputs that are far too large, each read in a process of its own that may hardly grow.

``python -m tests.security.bounds`` prints a JSON object per case: what came of it, the processor's
seconds and the memory that it took at most.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adaptk import Controller, GoodputTable, Settings, StepRecord
from adaptk.profile.journal import Journal, read_journal
from adaptk.profile.prompts import read_prompts
from adaptk.replay.requestfiles import read_requests
from adaptk.replay.views.files import read_rows
from adaptk.snapshot import seal
from adaptk.statefile import read_state
from adaptk.surface.configs import from_config, read_config
from adaptk.tabletools.correcting import read_snapshot
from adaptk.tabletools.imported import read_source
from adaptk.trace import read_trace
from adaptk.tracefile import header_line
from adaptk.vllm_plugin import control

MOST_GROWTH = 512 * 2**20
"""Bytes of address space that a case may take beyond what the interpreter and the modules have."""

HUGE = 10**9
_ROWS = [{"batch": b, "k": k, "itl_ms": 5.0 + b * k / 100} for b in (1, 64) for k in (0, 1, 3)]
_ROW = '{"batch":%d,"k":%d,"itl_ms":5.5,"low_ms":5.0,"high_ms":6.0,"n":99}'
_TINY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100}


def sparse(path: Path, size: int = 2**30) -> Path:
    """A file of a size that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def _table(**fields: Any) -> Callable[[Path], object]:
    return lambda folder: GoodputTable.load(
        written(folder / "table.json", json.dumps({"schema_version": 1, "rows": _ROWS, **fields}))
    )


def _row(**fields: Any) -> Callable[[Path], object]:
    return _table(rows=[{**_ROWS[0], **fields}])


def _many_rows(folder: Path) -> object:
    rows = ",".join(_ROW % (1 + i // 8, i % 8) for i in range(60_000))
    return GoodputTable.load(written(folder / "t.json", f'{{"schema_version":1,"rows":[{rows}]}}'))


def _as_many_as_may_be(folder: Path) -> object:
    rows = ",".join(_ROW % (1 + i // 8, i % 8) for i in range(50_000))
    return GoodputTable.load(written(folder / "t.json", f'{{"schema_version":1,"rows":[{rows}]}}'))


def _long_names(folder: Path) -> object:
    """Names of a megabyte above a million entries: a message per entry would be a terabyte."""
    fields = {"schema_version": 1, "schedule": [[1, 2, 3]], "meta": {"x" * 2**20: [0] * 10**6}}
    text = json.dumps(fields, separators=(",", ":"))
    return GoodputTable.load(written(folder / "t.json", text))


def _schedule(*triples: list[int]) -> GoodputTable:
    return GoodputTable.from_schedule(triples)


def _endless() -> Iterator[float]:
    while True:
        yield 0.5


def _snapshot(**fields: Any) -> Callable[[Path], object]:
    def read(_: Path) -> object:
        state = Controller(None, k_max=3, seed=0).snapshot()
        for name, value in fields.items():
            part, _, key = name.partition("__")
            if key:
                state[part] = {**state[part], key: value}
            else:
                state[part] = value
        return Controller.restore(seal({k: v for k, v in state.items() if k != "digest"}), None)

    return read


def _trace_row(folder: Path) -> object:
    """More than any engine has at once."""
    step = {"batch_size": 10**6, "elapsed_ms": 9.0, "k": 1, "drafted": [1] * 10**6, "accepted": [0] * 10**6}
    row = json.dumps({"step": step}).encode() + b"\n"
    return read_trace(written(folder / "t.jsonl", header_line({}) + row))


def _observed(**fields: Any) -> Callable[[Path], object]:
    def observe(_: Path) -> object:
        controller = Controller(None, k_max=3, seed=0)
        for _ in range(3):
            controller.choose(8)
            sound = {"batch_size": 2, "elapsed_ms": 9.0, "k": 3, "drafted": [3, 3], "accepted": [1, 0]}
            controller.observe(StepRecord(**{**sound, **fields}))
        return controller.choose(8)

    return observe


def _layers(folder: Path) -> object:
    listed = json.dumps({**_TINY, "num_hidden_layers": 4096, "num_experts": 8, "num_experts_per_tok": 2,
                         "moe_layers": [*range(10**6, 1_500_000)], "mlp_only_layers": [0] * 10**5})  # fmt: skip
    return read_config(written(folder / "config.json", listed))


def _literal(folder: Path) -> object:
    """A field that is a list of a million numbers, as a table of Python's own forms holds it."""
    head = "max_concurrency,median_itl_ms,request_throughput,num_speculative_tokens,itls\n"
    return read_source(written(folder / "summary.csv", f'{head}4,9.5,3.0,3,"[{"0.1," * 10**6}]"\n')).table.ks


def _deep(levels: int, read: Callable[[Path], object], before: str = "", after: str = "") -> Callable[[Path], object]:
    return lambda folder: read(written(folder / "deep.json", before + nested(levels) + after))


def _journal(folder: Path) -> None:
    with Journal(sparse(folder / "a.profile.jsonl"), resume=True):
        pass


_IN_TABLE = '{"schema_version":1,"schedule":[[1,2,3]],"meta":{"a":'


def _log(start: bytes, nothing: bytes, lenient: bool = False) -> Callable[[Path], object]:
    """A request log that goes on with 300 MB of something that is no request, in a few bytes."""
    packed = gzip.compress(nothing * (2**20 // len(nothing)))
    return lambda folder: read_requests(written(folder / "r.gz", gzip.compress(start) + 300 * packed), lenient)


_LOG = b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5,5\n"

REFUSED: dict[str, Callable[[Path], object]] = {
    "table of 1 GB": lambda folder: GoodputTable.load(sparse(folder / "t.json")),
    "table nested 10^5 levels": _deep(10**5, GoodputTable.load),
    "table nested 10^6 levels": _deep(10**6, GoodputTable.load),
    "notes nested 10^5 levels": _deep(10**5, GoodputTable.load, _IN_TABLE, "}}"),
    "table of 60,000 rows": _many_rows,
    "row of batch 10^9": _row(batch=HUGE),
    "row of k 10^9": _row(k=HUGE),
    "row of context 1e18": _row(context=1e18),
    "row of 10^18 samples": _row(n=10**18),
    "acceptance of 10^6 positions": _table(acceptance=[0.5] * 10**6),
    "acceptance without end": lambda _: GoodputTable.from_rows(_ROWS, _endless()),  # type: ignore[arg-type]
    "schedule of k 10^9": lambda _: _schedule([1, 2, HUGE]),
    "schedule up to 10^18": lambda _: _schedule([1, 10**18, 3]),
    "schedule for batch 10^9": lambda _: GoodputTable.from_rows(_ROWS).to_schedule(HUGE),
    "best of 10^9 arms": lambda _: GoodputTable.from_rows(_ROWS).best_k(8, arms=range(HUGE)),
    "controller of 10^9 drafts": lambda _: Controller(None, k_max=HUGE),
    "controller of 10^6 arms": lambda _: Controller(None, arms=range(10**6), k_max=10**6),
    "controller of 1,000 arms": lambda _: Controller(None, arms=range(1000), k_max=1000),
    "arms of 10^6 in the environment": lambda _: Controller(
        None, settings=Settings.from_env({"ADAPTK_ARMS": ",".join(map(str, range(10**6)))}), k_max=10**6
    ),
    "a budget of 10^6 digits": lambda _: Settings.from_env({"ADAPTK_BUDGET": "9" * 10**6}),
    "a variable with a name of 10^5 signs": lambda _: Settings.from_env({f"ADAPTK_BUDGE{'T' * 10**5}": "1"}),
    "snapshot of 1 GB": lambda folder: read_snapshot(sparse(folder / "s.json")),
    "snapshot nested 10^6 levels": _deep(10**6, read_snapshot),
    "snapshot of 10^9 drafts": _snapshot(arms=[0, HUGE]),
    "snapshot of 10^6 positions": _snapshot(acceptance__alpha=[1.0] * 10**6),
    "snapshot of 10^6 arms": _snapshot(arms=list(range(10**6))),
    "state of 1 GB": lambda folder: read_state(sparse(folder / "s")),
    "state nested 10^6 levels": _deep(10**6, read_state, '{"kind":"adaptk-state","snapshot":', "}"),
    "trace of 1 GB without a line": lambda folder: read_trace(sparse(folder / "t.jsonl")),
    "trace with a header of 10^6 levels": _deep(10**6, read_trace),
    "trace with a row of 10^6 levels": _deep(10**6, read_trace, header_line({}).decode(), "\n"),
    "trace with a row of 10^6 requests": _trace_row,
    "request log of 1 GB without a line": lambda folder: read_requests(sparse(folder / "r.csv")),
    "request log with a line of 10^5 levels": _deep(10**5, read_requests, '{"timestamp":'),
    "request log of 300 MB of line ends": _log(b"", b"\n"),
    "request log that ends in 300 MB of line ends": _log(_LOG, b"\r\n", lenient=True),
    "request log of 300 MB of blanks": _log(b"", b" "),
    "request log with a line of 300 MB": _log(_LOG, b"x", lenient=True),
    "prompts in 60 MB of line ends": lambda folder: read_prompts(written(folder / "p.jsonl", b"\n" * 60 * 10**6)),
    "sweep in 16 MB of line ends": lambda folder: read_source(
        written(folder / "s.csv", b"request_throughput\n" + b"\n" * (15 << 20) + b"1\n"), "sweep"
    ),
    "prompts of 1 GB": lambda folder: read_prompts(sparse(folder / "p.jsonl")),
    "prompts of 10^5 levels": _deep(10**5, read_prompts),
    "journal of 1 GB": lambda folder: read_journal(sparse(folder / "a.profile.jsonl")),
    "journal of 1 GB gone on with": _journal,
    "replayed rows of 1 GB": lambda folder: read_rows([sparse(folder / "r.json")]),
    "replayed rows of 10^6 levels": _deep(10**6, lambda path: read_rows([path])),
    "CSV of 1 GB": lambda folder: read_source(sparse(folder / "t.csv"), "csv"),
    "CSV of 200,000 lines": lambda folder: read_source(
        written(folder / "t.csv", "batch,k,itl_ms\n" + "1,0,5\n" * 200_000), "csv"
    ),
    "sweep of 10^6 levels": _deep(10**6, lambda path: read_source(path, "sweep")),
    "sweep of 10^6 runs": lambda folder: read_source(written(folder / "s.json", f"[{'{},' * 10**6}{{}}]"), "sweep"),
    "schedule of 10^6 levels": _deep(10**6, lambda path: read_source(path, "schedule")),
    "configuration of 1 GB": lambda folder: read_config(sparse(folder / "config.json")),
    "configuration of 10^6 levels": _deep(10**6, read_config),
    "configuration of 10^9 layers": lambda _: from_config({**_TINY, "num_hidden_layers": HUGE}, "m"),
    "control file of 1 GB": lambda folder: control.read(sparse(folder / "mode")),
    "record with 10^6 wrong entries": _observed(batch_size=10**6, drafted=[3] * 10**6, accepted=[1.5] * 10**6),
    "record of 10^5000 drafts": _observed(k=10**5000),
}
"""What is refused, by an error that says so."""

TAKEN: dict[str, Callable[[Path], object]] = {
    "table of as many rows as may be": _as_many_as_may_be,
    "schedule up to batch 10^9": lambda _: _schedule([1, HUGE, 3]).to_schedule(1000),
    "schedule of 1,025 K for 5,000 batches": lambda _: GoodputTable.from_rows(
        [{"batch": b, "k": k, "itl_ms": 5.0 + b * k / 100} for b in (1, 64) for k in range(1025)]
    ).to_schedule(5_000),
    "notes with names of a megabyte": _long_names,
    "capture sizes of 10^6": lambda _: Controller(None, k_max=3, capture_sizes=range(1, 10**6)).choose(8),
    "batch of 10^18": lambda _: Controller(None, k_max=3, seed=0).choose(10**18, 10**30),
    "record of 10^11 everywhere": _observed(
        batch_size=10**11, k=10**11, drafted=[10**11] * 2, accepted=[10**11, 0], context_tokens=10**11, decodes=10**11,
        prefill_tokens=10**11, verified=10**11, gone=10**11, asked=10**11, draft_k=10**11, elapsed_ms=1e300,
    ),
    "literal of 10^6 numbers": _literal,
    "layers listed 500,000 times": _layers,
}  # fmt: skip
"""What is taken, and must not cost more for its numbers."""

CASES = REFUSED | TAKEN


def _run(case: str) -> dict[str, Any]:
    """What comes of a case in a process that may grow by ``MOST_GROWTH``."""
    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + MOST_GROWTH, space + MOST_GROWTH))
    resource.setrlimit(resource.RLIMIT_CPU, (30, 30))
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        try:
            CASES[case](Path(folder))
            outcome, words = "taken", ""
        except ValueError as error:
            outcome, words = "refused", str(error).replace(folder, "")
        except BaseException as error:  # MemoryError among them: the parent judges
            outcome, words = type(error).__name__, str(error)[:200]
        seconds = time.process_time() - began
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"case": case, "outcome": outcome, "seconds": seconds, "grown_mb": grown, "words": words}


def main(cases: list[str]) -> None:
    """One line of JSON per case, each run in a fork."""
    for case in cases or CASES:
        child = os.fork()
        if child == 0:
            sys.stdout.write(json.dumps(_run(case)) + "\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            ended = {"case": case, "outcome": f"ended with {status}", "seconds": 0.0, "grown_mb": 0.0, "words": ""}
            print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
