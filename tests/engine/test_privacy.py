"""Prompts, texts, tokens and the names of requests stay with vLLM: adaptk writes and shows none of them."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import openai
import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Settings
from adaptk.cli.main import main
from adaptk.vllm_plugin import adaptive, faulttext
from tests.engine import versions
from tests.engine.driver import Worker, build_config, build_scheduler, make_request
from tests.engine.engine import NGRAM, running, scheduler_of
from tests.engine.metricspages import free_port, parsed, scraped
from tests.engine.secretwords import leaks, secret
from tests.engine.servers import serving

PLUGIN = Path(faulttext.__file__).parent
PROMPT = [ord(sign) for sign in secret("prompt")]


class Whole(logging.Handler):
    """Every line of a log as it is written, tracebacks included."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += self.format(record) + "\n"


@pytest.fixture
def whole_log(monkeypatch: pytest.MonkeyPatch) -> Whole:
    """What adaptk logs at any level; vLLM sets its loggers up anew with each engine, their handlers included."""
    logger, handler = logging.getLogger("vllm.adaptk"), Whole()
    monkeypatch.setattr(logger, "isEnabledFor", lambda _: True)
    monkeypatch.setattr(logger, "handle", handler.emit)
    return handler


def everything(folder: Path) -> str:
    """All that lies in a folder, names and contents."""
    return "\n".join(f"{path}\n{path.read_text(errors='replace')}" for path in folder.rglob("*") if path.is_file())


def reported(trace: Path) -> None:
    """Have a report made of a trace, as a page and as JSON, beside it."""
    out = str(trace.with_name("report.html"))
    assert main(["report", str(trace), "--out", out, "--json", str(trace.with_name("report.json"))]) == 0


def asked(text: str, **more: Any) -> tuple[Any, Any]:
    """What an engine is given: a prompt that is kept apart in its cache, and parameters."""
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    regex = more.pop("regex", None)
    more |= {"structured_outputs": StructuredOutputsParams(regex=regex)} if regex else {}
    params = SamplingParams(max_tokens=40, temperature=0.0, **more)
    return {"prompt": text, "cache_salt": secret("salt")}, params


def test_nothing_of_an_engines_requests_is_written(model: Path, tmp_path: Path, whole_log: Whole) -> None:
    """Prompts, salts, grammars, stop strings, names of requests, answers: not in trace, state, log, metrics, report.

    Words are searched for, and tokens four in a row, of prompts and of answers.
    """
    port = free_port()
    settings = {"ADAPTK": "on", "ADAPTK_BUDGET": "0.2", "ADAPTK_METRICS_PORT": str(port)}
    settings |= {"ADAPTK_TRACE": str(tmp_path / "trace.jsonl"), "ADAPTK_STATE": str(tmp_path / "state.json")}
    tokens: list[list[int]] = []
    with running(model, NGRAM, **settings) as llm:
        given = [
            asked(secret("prompt ") * 3, ignore_eos=True),
            asked(secret("stopped ") * 3, stop=[secret("stop")], ignore_eos=True),
            asked(secret("structured "), regex=f"({secret('grammar')}){{2}}"),
        ]
        for number, (prompt, params) in enumerate(given):
            llm.llm_engine.add_request(secret(f"request{number}"), prompt, params)
        while llm.llm_engine.has_unfinished_requests():
            for output in llm.llm_engine.step():
                if output.finished:
                    tokens += [list(output.prompt_token_ids), list(output.outputs[0].token_ids)]
        page = scraped(f"http://127.0.0.1:{port}/metrics")
        steering = scheduler_of(llm).adaptk
        assert steering.active
        assert parsed(page).sum("adaptk_steps_total") > 10
    reported(tmp_path / "trace.jsonl")
    names = {path.name for path in tmp_path.iterdir()}
    assert {"trace.jsonl", "state.json", "report.html", "report.json"} <= names
    assert len(tokens) == 6
    assert leaks(str(tokens), tokens)  # they would be found
    written = everything(tmp_path) + whole_log.text + page
    assert "adaptk serves its metrics" in written
    assert leaks(written, tokens) == []


@pytest.mark.parametrize("cls", [Scheduler, AsyncScheduler])
@pytest.mark.parametrize("where", ["schedule", "count", "record"])
def test_a_fault_quotes_nobody(
    model: Path, tmp_path: Path, whole_log: Whole, monkeypatch: pytest.MonkeyPatch, cls: type, where: str
) -> None:
    """Though the exception that stops adaptk holds the requests themselves: it is told by its kind and its place."""
    settings = Settings(mode="on", trace=str(tmp_path / "trace.jsonl"), metrics_port=free_port())
    config = build_config(model, asynchronous=cls is AsyncScheduler)
    config.scheduler_config.async_scheduling = cls is AsyncScheduler
    scheduler = build_scheduler(adaptive(cls, settings=settings), config)
    request = make_request(secret("request"), PROMPT, 12)
    scheduler.add_request(request)

    def fail(*_: Any, **__: Any) -> None:
        try:
            raise KeyError(secret("inner"))
        except KeyError as error:
            error.add_note(secret("note"))
            raise ValueError(f"{request!r} {request.prompt_token_ids} {vars(request)}") from error

    monkeypatch.setattr(scheduler.adaptk.collector, where, fail)
    worker = Worker(scheduler, 0, asynchronous=cls is AsyncScheduler)
    while scheduler.requests:
        worker.schedule()
        worker.update()
    page = scraped(f"http://127.0.0.1:{settings.metrics_port}/metrics")
    scheduler.shutdown()
    (info,) = parsed(page).samples("adaptk_inactive_info")
    assert parsed(page).value("adaptk_faults_total") == 1
    assert "ValueError in adaptk/vllm_plugin/steering.py:" in info.labels["reason"]
    assert "ValueError (its message" in whole_log.text
    assert "KeyError (its message" in whole_log.text
    assert "test_privacy.py" in whole_log.text
    tokens = [PROMPT, list(request.output_token_ids)]
    assert leaks(everything(tmp_path) + whole_log.text + page, tokens) == []


def raised(file: Path, code: str) -> Exception:
    """What the code raises, as if it stood in ``file``."""
    try:
        exec(compile(code, str(file), "exec"), {"secret": secret("value")})
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("file", "code", "shown"),
    [
        (PLUGIN.parent / "step.py", "raise ValueError('batch_size is -1')", "ValueError: batch_size is -1"),
        (PLUGIN / "collect.py", "None.missing", "AttributeError: 'NoneType' object has no attribute 'missing'"),
        (PLUGIN / "collect.py", "1 / 0", "ZeroDivisionError: division by zero"),
        (PLUGIN / "collect.py", "{}[secret]", None),
        (PLUGIN / "collect.py", "int(secret)", None),
        (PLUGIN / "collect.py", "raise RuntimeError(secret)", None),
        (Path("/site-packages/vllm/request.py"), "raise TypeError(secret)", None),
        (Path("/site-packages/adaptk_policy.py"), "raise AttributeError(secret)", None),
    ],
)
def test_a_message_is_told_where_it_can_hold_nothing(file: Path, code: str, shown: str | None) -> None:
    """Of the core's, which sees no request, and of the interpreter's about the plugin's own code; no other."""
    error = raised(file, code)
    told = faulttext.full(error)
    assert leaks(told + faulttext.short(error)) == []
    assert (shown or f"{type(error).__name__} (its message may hold") in told
    assert f'File "{file}", line 1' in told
    assert faulttext.short(error).startswith(f"{type(error).__name__} in ")


def test_a_fault_without_end_is_told_in_bounds() -> None:
    """Deep recursion, a chain of a thousand causes, signs that steer a terminal, names without end."""

    def deep(n: int) -> None:
        deep(n + 1)

    last: BaseException | None = None
    for number in range(1000):
        try:
            raise type("\x1b[2J" + "N" * 10_000, (ValueError,), {})(number) from last
        except ValueError as error:
            last = error
    assert last is not None
    with pytest.raises(RecursionError) as endless:
        deep(0)
    for error in (last, endless.value):
        assert len(faulttext.full(error)) < 20_000
        assert len(faulttext.short(error)) < 400
        assert faulttext.short(error).isprintable()
        assert "\x1b" not in faulttext.full(error)


def test_nothing_of_a_servers_requests_is_written(model: Path, tmp_path: Path) -> None:
    """The same of the server, with all that a request of its interface may name, and its whole log."""
    versions.need_engine()
    port = free_port()
    settings = {"ADAPTK": "on", "ADAPTK_STRICT": "1", "ADAPTK_METRICS_PORT": str(port)}
    settings |= {"ADAPTK_TRACE": str(tmp_path / "trace.jsonl"), "ADAPTK_STATE": str(tmp_path / "state.json")}
    options = {"served-model-name": "tiny", "dtype": "float32", "max-model-len": "1024", "max-num-seqs": "8"}
    options |= {"speculative-config": json.dumps(NGRAM), "enforce-eager": ""}
    schema = {"type": "object", "properties": {secret("field"): {"enum": [secret("enum")]}}}
    with serving(model, tmp_path / "log", options, **settings) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key=secret("key"), max_retries=0, timeout=120)
        for number in range(4):
            answer = client.completions.create(
                model="tiny", prompt=secret(f"prompt{number} ") * 4, max_tokens=60, temperature=0, user=secret("user"),
                stop=[secret("stop")], extra_headers={"X-Request-Id": secret("request")},
                extra_body={
                    "ignore_eos": True, "cache_salt": secret("salt"), "return_token_ids": True,
                    **({"structured_outputs": {"json": schema}, "ignore_eos": False} if number % 2 else {}),
                },
            )  # fmt: skip
        assert answer.usage is not None
        tokens = [answer.choices[0].token_ids, answer.choices[0].prompt_token_ids]  # type: ignore[attr-defined]
        ends = time.monotonic() + 20
        page = ""
        while "adaptk_steps_total{" not in page and time.monotonic() < ends:
            page = scraped(f"http://127.0.0.1:{port}/metrics")
    assert parsed(page).sum("adaptk_steps_total") > 10
    reported(tmp_path / "trace.jsonl")
    assert {"trace.jsonl", "log", "report.html"} <= {path.name for path in tmp_path.iterdir()}
    assert all(len(each) > 20 for each in tokens)
    written = everything(tmp_path) + page
    assert "adaptk serves its metrics" in written
    assert leaks(written, tokens) == []
