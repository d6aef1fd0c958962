"""``adaptk profile`` around an engine that is none."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adaptk import GoodputTable
from adaptk.cli.main import main
from adaptk.profile.orders import Doing, EngineDiedError, EngineOrder
from adaptk.profile.run import journal_path
from adaptk.vllm_plugin import profile_process
from tests.profile.fakeengine import FakeEngine

ENGINE = ["profile", "some/model", "--dtype", "bfloat16", "--batches", "1,4,16", "--contexts", "128,512"]
Start = Callable[[EngineOrder, Callable[[Doing], None]], FakeEngine]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[EngineOrder]:
    """Orders of the engines that were started; each is the fake."""
    orders: list[EngineOrder] = []
    use(monkeypatch, lambda order, tell: (orders.append(order), FakeEngine(order))[1])
    return orders


def use(monkeypatch: pytest.MonkeyPatch, start: Start) -> None:
    monkeypatch.setattr(profile_process, "EngineProcess", start)


@pytest.fixture
def out(tmp_path: Path) -> list[str]:
    return ["--out", str(tmp_path / "t.json")]


def test_from_start_to_end(started: list[EngineOrder], out: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What is vLLM's goes to vLLM; the table is written and shown within 80 columns, progress apart from it."""
    assert main([*ENGINE, *out, "--budget", "1m", "--speculative-config", '{"method": "eagle"}']) == 0
    (order,) = started
    assert order.arguments == ("some/model", "--dtype", "bfloat16", "--speculative-config", '{"method": "eagle"}')
    assert order.temperature == 0.0
    assert len(order.prompts) == 24
    table = GoodputTable.load(out[1])
    assert len(table.rows) == 18
    assert "--budget 1m" in table.meta["provenance"]["command"]
    shown, progress = capsys.readouterr()
    assert "Best K; goodput in tokens per request and second" in shown
    assert "18 of 18 cells measured" in shown
    long = [line for line in shown.splitlines() if len(line) > 80 and out[1] not in line]
    assert long == []
    assert "Starting the engine" in progress.splitlines()[:2]
    assert "left] batch 1, context 128, first look; 0 of 18 cells precise" in progress
    assert "K=0 over no drafter" not in shown


def test_the_price_of_a_drafter_is_printed(
    started: list[EngineOrder], out: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With --baseline there is a second engine, without a drafter."""
    assert main([*ENGINE, *out, "--baseline"]) == 0
    assert [order.drafter for order in started] == [True, False]
    assert "K=0 over no drafter, batch 16, context 512: 1.1" in capsys.readouterr().out


def test_resume_needs_no_arguments(
    started: list[EngineOrder], out: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal knows them; without --resume nothing is overwritten."""
    assert main([*ENGINE, *out, "--budget", "4"]) == 0
    assert main([*ENGINE, *out]) == 1
    assert "exists already: go on with --resume" in capsys.readouterr().err
    assert main(["profile", "--resume", *out, "--budget", "1m", "--batches", "1,4,16", "--contexts", "128,512"]) == 0
    assert started[1].arguments == started[0].arguments == ("some/model", "--dtype", "bfloat16")


def test_an_interrupt_keeps_what_there_is(
    out: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 130, the table shown, and how to go on."""

    def interrupt(stays: int) -> None:
        if stays == 4:
            raise KeyboardInterrupt

    use(monkeypatch, lambda order, tell: FakeEngine(order, after=interrupt))
    assert main([*ENGINE, *out]) == 130
    shown, errors = capsys.readouterr()
    assert "Best K" in shown
    assert f"interrupted: adaptk profile --resume --out {out[1]} goes on" in errors
    assert GoodputTable.load(out[1]).rows


def test_a_request_to_end_is_taken_as_an_interrupt(out: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM, as a scheduler of jobs sends it; afterwards the signal does what it did."""
    before = signal.getsignal(signal.SIGTERM)
    use(monkeypatch, lambda order, tell: FakeEngine(order, after=lambda stays: os.kill(os.getpid(), signal.SIGTERM)))
    assert main([*ENGINE, *out]) == 130
    assert signal.getsignal(signal.SIGTERM) is before


def test_resume_takes_what_was_not_given_from_the_journal(
    started: list[EngineOrder], out: list[str], tmp_path: Path
) -> None:
    """Prompts, temperature, length of answers, arms, grid and budget; the table goes on naming the first command."""
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("".join(f'{{"prompt": "{i}"}}\n' for i in range(30)))
    own = ["--prompts", str(prompts), "--temperature", "0.5", "--max-tokens", "32", "--budget", "4"]
    assert main([*ENGINE, *out, *own, "--arms", "0,1,3"]) == 0
    assert main(["profile", "--resume", *out]) == 0
    assert len(started[1].prompts) == 30
    assert (started[1].temperature, started[1].arms) == (0.5, (0, 1, 3))
    table = GoodputTable.load(out[1])
    assert table.meta["provenance"]["max_tokens"] == 32
    assert "p.jsonl --temperature 0.5" in table.meta["provenance"]["command"]
    assert "--resume" not in table.meta["provenance"]["command"]
    assert {row.batch for row in table.rows} <= {1, 4, 16}


def test_a_table_that_is_there_is_not_replaced(
    started: list[EngineOrder], out: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither by a profile nor from traces; a trace is never replaced by the table made of it."""
    Path(out[1]).write_text("precious")
    assert main([*ENGINE, *out]) == 1
    assert main(["profile", "--from-traces", "x.jsonl", *out]) == 1
    assert capsys.readouterr().err.count("exists already") == 2
    assert main(["profile", "--from-traces", out[1], *out]) == 1
    assert "is the file of --from-traces" in capsys.readouterr().err
    assert Path(out[1]).read_text() == "precious"
    for folder in (".", "/dev/null", "x" * 300):
        assert main([*ENGINE, "--out", folder]) == 1
        assert "remove it" not in capsys.readouterr().err
    assert started == []


def test_an_engine_that_dies(
    out: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1; which cell it was, what is kept, and how to go on without it."""

    class Dies(FakeEngine):
        def stay(self, order: Any) -> Any:
            if order.batch == 16:
                raise EngineDiedError("out of memory", Doing(16, 3, order.context))
            return super().stay(order)

    use(monkeypatch, lambda order, tell: Dies(order))
    assert main([*ENGINE, *out]) == 1
    errors = capsys.readouterr().err
    assert "adaptk profile: out of memory" in errors
    assert "--resume goes on without K=3 at batch 16 and beyond" in errors
    assert {row.batch for row in GoodputTable.load(out[1]).rows} == {1}


def test_an_engine_that_does_not_start(
    out: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the reason; no file is left."""

    def start(order: EngineOrder, tell: Callable[[Doing], None]) -> FakeEngine:
        raise EngineDiedError("no such model")

    use(monkeypatch, start)
    assert main([*ENGINE, *out]) == 1
    assert "no such model" in capsys.readouterr().err
    assert list(Path(out[1]).parent.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile"], "no engine is named"),
        (["profile", "M", "--out", "/nowhere/t.json"], "its folder does not exist"),
        (["profile", "M", "--prompts", "/nowhere.jsonl"], "there is no such file"),
        (["profile", "--resume"], "there is nothing to resume"),
        (["profile", "M", "--from-traces", "x.jsonl"], "leave this out"),
    ],
)
def test_what_is_refused_before_an_engine_starts(
    arguments: list[str],
    message: str,
    started: list[EngineOrder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With one line that says what to do."""
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
    assert started == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "option",
    [["--budget", "soon"], ["--batches", "0"], ["--batches", "a"], ["--target", "3"], ["--temperature", "-1"],
     ["--arms", "x"], ["--max-tokens", "0"]],
)  # fmt: skip
def test_bad_values_are_usage_errors(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and the value is named."""
    with pytest.raises(SystemExit) as end:
        main(["profile", "M", *option])
    assert end.value.code == 2
    assert option[1] in capsys.readouterr().err


def test_other_commands_take_nothing_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    """Only what is meant for vLLM is passed on."""
    with pytest.raises(SystemExit) as end:
        main(["demo", "--tpyo"])
    assert end.value.code == 2
    assert "unrecognized arguments: --tpyo" in capsys.readouterr().err


def test_the_journal_lies_beside_the_table(started: list[EngineOrder], out: list[str]) -> None:
    """Under a name that says so."""
    assert main([*ENGINE, *out, "--budget", "4"]) == 0
    assert sorted(path.name for path in Path(out[1]).parent.iterdir()) == ["t.json", "t.profile.jsonl"]
    assert journal_path(Path(out[1])).stat().st_size > 100
