"""vLLM's OpenAI server under a load that rises and falls, adaptk on beside off.

    python -m tests.benchmarks.serve_load [--quick] [--rounds N] [--json FILE]

Two servers over SmolLM2-135M with an n-gram drafter live side by side, one with ADAPTK=on and no table, one without
adaptk (vLLM's K=7 throughout). What ``vllm bench serve`` runs drives them stage by stage, first one, then the other, in
turn: 1, 4, 16, 32, 16, 4 and 1 requests at once, over chat completions. It is called within this process, as the
command of the CPU build does not start and would start anew for each stage. Both servers answer the same prompts,
greedily, 64 tokens each. A round takes some six minutes on two quiet cores, two with --quick.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from adaptk.cli import options
from adaptk.demo import load
from adaptk.demo.engine import ENVIRONMENT, precision
from adaptk.demo.model import ensure_model
from adaptk.profile.prompts import read_prompts
from tests.benchmarks.pairs import machine, ratio
from tests.engine.servers import serving

STAGES = (1, 4, 16, 32, 16, 4, 1)  # requests at once
TOKENS, QUICK_TOKENS = 64, 24
NAME = "smollm2"
SPECULATION = {"method": "ngram", "num_speculative_tokens": 7, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
OF_SERVERS = {
    "served-model-name": NAME,
    "max-model-len": "1024",
    "max-num-seqs": "32",
    "gpu-memory-utilization": "0.3",
    "speculative-config": json.dumps(SPECULATION),
    "enforce-eager": "",
    "no-enable-prefix-caching": "",  # a prompt that comes again must cost both the same
}
_HEAD = f"{'at once':>7}  {'adaptk':<6} {'req/s':>8} {'tok/s':>8} {'TPOT, ms':>9} {'p99 ITL':>8} {'accepted':>9}"


class Stage(NamedTuple):
    """What ``vllm bench serve`` said of one server in one stage; times in milliseconds, ``accepted`` a share."""

    at_once: int
    adaptk: str
    requests_per_s: float
    tokens_per_s: float
    tpot_ms: float
    p99_itl_ms: float
    accepted: float | None
    failed: int


class Bench:
    """Runs what ``vllm bench serve`` does.

    Parameters
    ----------
    folder
        For the prompts.
    model
        Where the tokenizer is.
    tokens
        Of each answer.
    """

    def __init__(self, folder: Path, model: Path, tokens: int) -> None:
        from vllm.benchmarks import serve
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        self._model, self._tokens = model, tokens
        self._main = serve.main
        self._parser = FlexibleArgumentParser()
        serve.add_cli_args(self._parser)
        self._prompts = folder / "prompts.json"
        turns = [{"conversations": [{"value": prompt}, {"value": "-"}]} for prompt in prompts()]
        self._prompts.write_text(json.dumps(turns))

    def run(self, address: str, adaptk: str, at_once: int, requests: int, seed: int) -> Stage:
        """Drive one server through one stage."""
        given = {
            "backend": "openai-chat",
            "endpoint": "/v1/chat/completions",
            "base-url": address,
            "model": NAME,
            "tokenizer": str(self._model),
            "dataset-name": "sharegpt",
            "dataset-path": str(self._prompts),
            "sharegpt-output-len": str(self._tokens),
            "num-prompts": str(requests),
            "max-concurrency": str(at_once),
            "seed": str(seed),
            "temperature": "0",
            "percentile-metrics": "tpot,itl",
            "metric-percentiles": "99",
            "ignore-eos": "",
            "disable-tqdm": "",
        }
        arguments = [part for name, value in given.items() for part in (f"--{name}", value) if part]
        with redirect_stdout(io.StringIO()):  # pages of its own
            result = self._main(self._parser.parse_args(arguments))
        return _stage(result, adaptk, at_once, requests)


def main(argv: Sequence[str] | None = None) -> int:
    """Run all stages, print a line for each server in each, and the ratios; 1 if a request failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="few and short requests: shows how it works")
    parser.add_argument("--rounds", type=options.count, default=1, help="times through all stages (default 1)")
    parser.add_argument("--json", type=Path, help="write a row per server and stage")
    given = parser.parse_args(argv)
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name != "VLLM_LOGGING_LEVEL"})
    print(machine(), flush=True)
    rows: list[Stage] = []
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        model, of_both = ensure_model(), OF_SERVERS | {"dtype": precision()}
        settings = {"on": {"ADAPTK": "on", "ADAPTK_STRICT": "1"}, "off": {"ADAPTK": "off"}}
        servers = {
            name: cleanup.enter_context(serving(model, folder / f"{name}.log", of_both, **env))
            for name, env in settings.items()
        }
        bench = Bench(folder, model, QUICK_TOKENS if given.quick else TOKENS)
        for name, address in servers.items():
            bench.run(address, name, 8, 8, 0)  # what is made only once is made here
        print(_HEAD, flush=True)
        for stage in stages(bench, servers, given.rounds, given.quick):
            rows.append(stage)
            print(line(stage), flush=True)
    for said in compared(rows):
        print(said)
    if given.json is not None:
        given.json.write_text(json.dumps([row._asdict() for row in rows], indent=1))
    return int(any(row.failed for row in rows))


def stages(bench: Bench, servers: dict[str, str], rounds: int, quick: bool) -> Iterator[Stage]:
    """Every stage on both servers, one right after the other; who goes first alternates."""
    for place, at_once in enumerate(STAGES * rounds):
        requests = max(at_once, 2) if quick else max(3 * at_once, 6)
        for name in sorted(servers, reverse=place % 2 == 1):
            yield bench.run(servers[name], name, at_once, requests, seed=place)


def prompts() -> list[str]:
    """Prompts of many kinds, some of which are answered by copying: the built-in ones, and the demo's."""
    copied = [request.prompt for round_ in range(6) for request in load.copy_phase(round_, 4, 120).requests]
    chatted = [request.prompt for round_ in range(3) for request in load.chat_phase(round_, TOKENS).requests]
    return list(dict.fromkeys([*read_prompts(None), *copied, *chatted]))


def line(stage: Stage) -> str:
    """One server's stage, in 80 columns."""
    accepted = "-" if stage.accepted is None else f"{100 * stage.accepted:.0f} %"
    return (
        f"{stage.at_once:>7}  {stage.adaptk:<6} {stage.requests_per_s:>8.3f} {stage.tokens_per_s:>8.1f} "
        f"{stage.tpot_ms:>9.1f} {stage.p99_itl_ms:>8.1f} {accepted:>9}"
    )


def compared(rows: Sequence[Stage]) -> list[str]:
    """On over off of each figure, over the stages."""
    on, off = ([row for row in rows if row.adaptk == name] for name in ("on", "off"))
    said = [f"Stages: {len(on)}; in brackets 95 % intervals over them, as far as so few stages have one"]
    for name in ("requests_per_s", "tokens_per_s", "tpot_ms", "p99_itl_ms"):
        found = ratio([getattr(row, name) for row in on], [getattr(row, name) for row in off])
        said.append(f"{name}, on over off: {found.median:.3f} [{found.low:.3f},{found.high:.3f}]")
    return said


def _stage(result: dict[str, Any], adaptk: str, at_once: int, requests: int) -> Stage:
    accepted = result.get("spec_decode_acceptance_rate")
    return Stage(
        at_once=at_once,
        adaptk=adaptk,
        requests_per_s=result["request_throughput"],
        tokens_per_s=result["output_throughput"],
        tpot_ms=result["mean_tpot_ms"],
        p99_itl_ms=result["p99_itl_ms"],
        accepted=None if accepted is None else accepted / 100.0,
        failed=requests - int(result["completed"]),
    )


if __name__ == "__main__":
    sys.exit(main())
