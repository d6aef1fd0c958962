"""The benchmarks in the files of ``vllm bench sweep serve`` and ``vllm bench serve``, and which of them can be used."""

from __future__ import annotations

import ast
import csv
import io
import json
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from adaptk.quoted import listed, said
from adaptk.schedule import read_schedule, scheduled_k
from adaptk.tablerows import MAX_BATCH, MAX_ITL_MS, MAX_K, MIN_ITL_MS, TableError
from adaptk.tabletools.exported import FIELD
from adaptk.tabletools.imported import read_text

_MOST_FILES = 10_000  # and results in one of them
_MOST_LINES = 1_000_000  # of a CSV, empty ones and those within fields among them
_MOST_DETAIL = 20_000  # signs of a text, or entries of a list
_RUNS, _SUMMARIES = "run=*.json", ("summary.json", "summary.csv")
_NO_DRAFTER = "no_drafter"
_BUNCHED = 0.25  # of the mean time between chunks, below which the median is of chunks that arrived together


class Benchmark(NamedTuple):
    """One run: its cell, its time, and what it says of the drafts.

    ``turns`` counts requests over decode steps, with drafts or without (tokens that neither came with the prompt nor
    were accepted drafts), ``drafts`` those of them that had some; ``None`` where the results do not say.
    """

    batch: int
    k: int
    itl_ms: float
    spread_ms: float | None
    turns: int | None
    input_len: float | None
    context: float | None
    drafts: int
    draft_tokens: int
    rates: tuple[float, ...]


class Found(NamedTuple):
    """The runs that can be used, what the key may say of them, and what was left out or is doubtful."""

    usable: list[Benchmark]
    key: dict[str, Any]
    notes: list[str]


_SAID = {
    "concurrency": "{} of {} runs name no max_concurrency and are left out: their batch size is unknown",
    "k": "{} of {} runs drafted, but name no num_speculative_tokens, and are left out (bench with --metadata "
    "num_speculative_tokens=K)",
    "time": "{} of {} runs have no median_itl_ms above 0 and are left out: bench with a streaming backend",
    "bunched": "{} of {} runs have a median_itl_ms below a quarter of their mean_itl_ms and are left out: chunks came "
    "in bunches, as where client or server cannot keep up, so neither is the time of a step",
    _NO_DRAFTER: "{} of {} runs had no drafter and stand as K=0: with a drafter loaded K=0 is slower, by 1 to 20 %, "
    "so measure it with a schedule of K=0 if the choice is close",
    "rate": "{} of {} runs have a finite request_rate: the batch can have been smaller than max_concurrency",
    "few": "{} of {} runs have fewer than two prompts per slot of max_concurrency: much is filling and draining",
    "failed": "{} of {} runs had failed requests: the batch was smaller for a while",
}


def read_benchmarks(source: Path) -> Found:
    """All runs below a folder, or in a file.

    Raises
    ------
    TableError
        If nothing can be read, or nothing that was read can be used.
    """
    records, notes = _records(source)
    seen: Counter[str] = Counter()
    usable = [run for record in records if (run := _benchmark(record, seen)) is not None]
    if not usable:
        why = ", ".join(_SAID[name].format(count, len(records)) for name, count in seen.items())
        raise TableError(f"{source}: holds no run that can be used: {why or 'no results'}")
    notes += [_SAID[name].format(seen[name], len(records)) for name in _SAID if seen[name]]
    models = {record["model_id"] for record in records if isinstance(record.get("model_id"), str)}
    if len(models) > 1:
        raise TableError(f"{source}: holds runs of {len(models)} models ({listed(sorted(models))}): "
                         "import them one by one")  # fmt: skip
    return Found(usable, {"model": models.pop()} if models else {}, notes)


def _records(source: Path) -> tuple[list[dict[str, Any]], list[str]]:
    if not source.is_dir():
        return _content(source), []
    paths = sorted(source.rglob(_RUNS))
    for name in _SUMMARIES if not paths else ():
        paths = paths or sorted(source.rglob(name))
    if not paths:
        raise TableError(f"{source}: has no {_RUNS}, summary.json or summary.csv in it or below: give the folder that "
                         "vllm bench sweep wrote its results to")  # fmt: skip
    if len(paths) > _MOST_FILES:
        raise TableError(f"{source}: has {len(paths)} results, more than {_MOST_FILES}: give the folder of one sweep")
    failures = len(list(source.rglob("*failure.json")))
    notes = [f"{failures} failures are recorded there: those runs are missing"] if failures else []
    return [record for path in paths for record in _content(path)], notes


def _content(path: Path) -> list[dict[str, Any]]:
    text = read_text(path)
    if path.suffix == ".csv" or text.lstrip()[:1] not in ("{", "["):
        csv.field_size_limit(16 * 2**20)  # results with details hold every token's time
        if text.count("\n") > _MOST_LINES:
            raise TableError(f"{path}: has more than {_MOST_LINES} lines: give the summary of one sweep")
        try:
            lines = list(islice(csv.DictReader(io.StringIO(text, newline="")), _MOST_FILES + 1))
        except csv.Error as error:
            raise TableError(f"{path}: is no CSV ({said(error)}): save it again") from None
        if len(lines) > _MOST_FILES:
            raise TableError(f"{path}: has more than {_MOST_FILES} lines: give the summary of one sweep")
        return [{name: _literal(value) for name, value in line.items() if name and value} for line in lines]
    try:
        content = json.loads(text)  # it writes NaN, which strict readers refuse
    except (ValueError, RecursionError) as error:
        raise TableError(f"{path}: is no JSON ({said(error)}): copy it again") from None
    entries = content if isinstance(content, list) else [content]
    if not all(isinstance(entry, dict) for entry in entries):
        raise TableError(f"{path}: holds something else than results of benchmarks")
    if len(entries) > _MOST_FILES:
        raise TableError(f"{path}: holds more than {_MOST_FILES} results: give those of one sweep")
    return [{name: value for name, value in entry.items() if not _long(value)} for entry in entries]


def _long(value: Any) -> bool:
    """Whether it is a detail, as the time of every token is: nothing that is asked for, and too much to keep."""
    return isinstance(value, str | list) and len(value) > _MOST_DETAIL


def _literal(value: Any) -> Any:
    """A value as pandas wrote it: numbers, lists and dicts by their Python form, else text."""
    if _long(value):  # the tree of a literal takes a hundred times its size
        return None
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value


def _benchmark(record: Mapping[str, Any], seen: Counter[str]) -> Benchmark | None:
    batch = _whole(_named(record, "max_concurrency"), 1, MAX_BATCH)
    if batch is None:
        seen["concurrency"] += 1
        return None
    drafts = _whole(record.get("spec_decode_num_drafts"), 0, 2**53) or 0
    k = _k(record, batch, drafts > 0)
    if k is None:
        seen["k"] += 1
        return None
    itl_ms = _real(record.get("median_itl_ms"), MIN_ITL_MS, MAX_ITL_MS)
    if itl_ms is None:
        seen["time"] += 1
        return None
    if itl_ms < _BUNCHED * (_real(record.get("mean_itl_ms"), 0.0, MAX_ITL_MS) or 0.0):
        seen["bunched"] += 1
        return None
    rate, prompts = _real(_named(record, "request_rate"), 0.0, 1e300), _real(_named(record, "num_prompts"), 0.0, 1e18)
    seen[_NO_DRAFTER] += k == 0 and not _drafter_named(record)
    seen["rate"] += rate is not None
    seen["few"] += prompts is not None and prompts < 2 * batch
    seen["failed"] += (_real(record.get("failed"), 0.0, 1e18) or 0.0) > 0.0
    made = _real(record.get("total_output_tokens"), 0.0, 1e18)
    done, asked = _real(record.get("completed"), 1.0, 1e18), _real(record.get("total_input_tokens"), 0.0, 1e18)
    rates = record.get("spec_decode_per_position_acceptance_rates")
    shares = [_real(share, 0.0, 1.0) for share in rates] if isinstance(rates, list) else []
    return Benchmark(
        batch=batch,
        k=k,
        itl_ms=itl_ms,
        spread_ms=_real(record.get("std_itl_ms"), 0.0, MAX_ITL_MS),
        turns=_turns(record, made, done),
        input_len=next(
            (
                length
                for name in ("random_input_len", "input_len")
                if (length := _real(_named(record, name), 0.0, 1e12))
            ),
            None,
        ),
        context=None if None in (done, asked, made) else (asked + made / 2.0) / done,  # type: ignore[operator]
        drafts=drafts,
        draft_tokens=_whole(record.get("spec_decode_draft_tokens"), 0, 2**53) or 0,
        rates=() if None in shares else tuple(share for share in shares if share is not None),
    )


def _turns(record: Mapping[str, Any], made: float | None, done: float | None) -> int | None:
    """Requests over decode steps: each emits a token of its own beside the drafts accepted."""
    accepted = _whole(record.get("spec_decode_accepted_tokens", 0), 0, 2**53)
    if made is None or done is None or accepted is None:
        return None
    turns = int(made - done - accepted)
    return turns if turns > 0 else None


def _named(record: Mapping[str, Any], name: str) -> Any:
    """A value whose name may be spelt with hyphens, as on a command line."""
    return record.get(name, record.get(name.replace("_", "-")))


def _overrides(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the record says of speculative decoding, by the field's own name in the speculative config."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        first, _, rest = name.replace("-", "_").partition(".")
        if rest and first in ("speculative_config", "spec_config"):
            found[rest] = value
        elif first in ("speculative_config", "spec_config"):
            found |= _config(value)
        elif first in ("num_speculative_tokens", FIELD):
            found[first] = value
    return found


def _config(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return {str(name): part for name, part in value.items()} if isinstance(value, Mapping) else {}


def _drafter_named(record: Mapping[str, Any]) -> bool:
    return any(value is not None for name, value in _overrides(record).items() if name != "num_speculative_tokens")


def _k(record: Mapping[str, Any], batch: int, drafted: bool) -> int | None:
    """Drafts per request that the run asked for; 0 where there was no drafter, ``None`` where it is unknown."""
    config = _overrides(record)
    most = _whole(config.get("num_speculative_tokens"), 0, MAX_K)
    if config.get(FIELD) is not None:
        try:
            k = scheduled_k(read_schedule(config[FIELD]), batch)
        except TableError:
            return None
        return k if most is None else min(k, most)
    if most is None and not drafted and config.get("method") is None and config.get("model") is None:
        return 0
    return most


def _whole(value: Any, low: int, high: int) -> int | None:
    real = _real(value, low, high)
    return int(real) if real is not None and real.is_integer() else None


def _real(value: Any, low: float, high: float) -> float | None:
    """A number in range; ``None`` for everything else, NaN and infinity included."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if low <= value <= high and value != float("inf") else None
