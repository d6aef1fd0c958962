"""``adaptk doctor``: the check of the installation, and the measurement around engines that are none."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adaptk.cli import doctormeasure
from adaptk.cli.console import print_spans
from adaptk.cli.doctorlines import meaning, tax_lines
from adaptk.cli.doctorshow import Waiting, finding_lines, report_lines
from adaptk.cli.main import main
from adaptk.doctor import examine, installation, process
from adaptk.doctor.examine import Report
from adaptk.doctor.facts import Facts, Question
from adaptk.doctor.finding import Finding, Status
from adaptk.profile.orders import Doing, EngineDiedError, EngineOrder
from adaptk.profile.taxrows import Span, TaxRow
from adaptk.spans import plain
from adaptk.vllm_plugin import profile_process
from tests.doctor.made import made_facts
from tests.profile.fakeengine import FakeEngine

MEASURE = ["doctor", "--measure", "some/model", "--dtype", "bfloat16", "--budget", "20", "--batches", "1,16"]
Start = Callable[[EngineOrder, Callable[[Doing], None]], FakeEngine]


def use(monkeypatch: pytest.MonkeyPatch, start: Start = lambda order, tell: FakeEngine(order)) -> list[EngineOrder]:
    """Start fakes; their orders."""
    orders: list[EngineOrder] = []

    def noting(order: EngineOrder, tell: Callable[[Doing], None]) -> FakeEngine:
        orders.append(order)
        return start(order, tell)

    monkeypatch.setattr(profile_process, "EngineProcess", noting)
    return orders


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Question]:
    """A vLLM in which adaptk starts, whatever is installed here; what was asked of it."""
    asked: list[Question] = []

    def ask(question: Question, waiting: Callable[[str, float], None]) -> Facts:
        asked.append(question)
        waiting("importing vLLM", 1.0)
        return made_facts()

    monkeypatch.setattr(process, "ask", ask)
    monkeypatch.setattr(examine, "find_spec", lambda name: object())
    monkeypatch.setattr(installation, "_entry_point", lambda: ())
    for name in [name for name in os.environ if name.startswith("ADAPTK")]:
        monkeypatch.delenv(name)
    return asked


def test_a_look(told: list[Question], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings by field with signs, the sentence last, nothing beside; the arguments go to vLLM as they are."""
    monkeypatch.setenv("ADAPTK", "on")
    assert main(["doctor", "M", "--max-num-seqs", "8", "--mesure"]) == 0
    assert told[0].arguments == ("M", "--max-num-seqs", "8", "--mesure")
    shown, errors = capsys.readouterr()
    assert errors == ""
    lines = shown.splitlines()
    titles = ["Installation", "vLLM", "Machine", "Settings", "Metrics", "Engine", "Table"]
    assert [line for line in lines if line in titles] == titles
    assert "ok    ADAPTK=on: adaptk chooses K" in lines
    assert " ".join(lines[-2:]).endswith("at every step, starting without a table.")
    assert lines[-3] == ""
    assert max(map(len, lines)) <= 80


def test_what_is_well_is_told_together() -> None:
    """In one paragraph for each field, before what is not; what goes with it stands in the document."""
    found = (
        Finding("vllm.version", "ok", "vLLM 0.32.0", "tested"),
        Finding("vllm.command", "warn", "no command", "why", "do this"),
        Finding("vllm.hooks", "ok", "every hook is there"),
        Finding("engine.start", "ok", "adaptk starts"),
    )
    assert [plain(line) for line in report_lines(Report(found, "All is told."))] == [
        "vLLM",
        "ok    vLLM 0.32.0; every hook is there",
        "warn  no command",
        "      why",
        "      -> do this",
        "Engine",
        "ok    adaptk starts",
        "",
        "All is told.",
    ]


def test_a_look_at_what_fails(
    told: list[Question], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1; why and what to do stand below the line with the sign."""
    monkeypatch.setenv("ADAPTK_BUDGET", "2")
    assert main(["doctor", "--table", "/nowhere.json"]) == 1
    shown = capsys.readouterr().out
    assert "\nfail  ADAPTK_BUDGET='2' is refused: " in shown
    assert "\nfail  the table /nowhere.json cannot be used\n      /nowhere.json: there is no such file" in shown
    assert "\n      -> set ADAPTK=on or ADAPTK=shadow\n" in shown


def test_a_document(told: list[Question], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Alone on standard output, or beside the text in a file; the status is the same."""
    assert main(["doctor", "M", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["fails"] is False
    assert {"id", "status", "what", "detail", "remedy"} == set(document["findings"][0])
    file = tmp_path / "d.json"
    assert main(["doctor", "--json", str(file), "M"]) == 0
    assert "Started now" in capsys.readouterr().out
    assert json.loads(file.read_bytes())["verdict"] == document["verdict"]


def test_what_is_no_json_file(told: list[Question], capsys: pytest.CaptureFixture[str]) -> None:
    """A model's name after --json is not taken for a file to write."""
    with pytest.raises(SystemExit) as end:
        main(["doctor", "--json", "some/model"])
    assert end.value.code == 2
    assert "ends in .json" in capsys.readouterr().err
    assert told == []


@pytest.mark.parametrize("status", ["ok", "note", "warn", "fail"])
def test_long_findings_keep_within_the_page(status: Status) -> None:
    """Whatever is told, except a word that is longer than the page."""
    words = "some words of a long line " * 9
    finding = Finding("vllm.x", status, words, words, words)
    lines = list(map(plain, finding_lines(finding)))
    assert lines[0].startswith(f"{status:<6}some words")
    assert max(map(len, lines)) <= 80
    long = plain(next(finding_lines(Finding("vllm.x", status, "x" * 100))))
    assert long == f"{status:<6}{'x' * 100}"  # a path can be copied whole
    assert [plain(line) for line in finding_lines(Finding("vllm.x", status, ""))] == [status]


def test_signs_that_steer_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A path or a variable may hold them, and bytes that are no text."""
    print_spans(list(finding_lines(Finding("vllm.x", "ok", "a\x1b[31m\udcffb"))))
    assert capsys.readouterr().out == "ok    a�[31m�b\n"


def test_waiting_shows_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """There the line is gone afterwards."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, said in ((Terminal(), "\rimporting vLLM, 3 s\x1b[K\r\x1b[K"), (io.StringIO(), "")):
        monkeypatch.setattr("sys.stderr", stream)
        with Waiting() as waiting:
            waiting("", 0.1)
            waiting("importing vLLM", 3.2)
        assert stream.getvalue() == said


def test_an_interrupt(
    told: list[Question], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ends it with a word."""

    def interrupted(question: Question, waiting: object) -> Facts:
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "ask", interrupted)
    assert main(["doctor"]) == 130
    assert capsys.readouterr() == ("", "adaptk doctor: interrupted\n")


def test_measuring_needs_vllm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Said before anything starts."""
    monkeypatch.setattr(doctormeasure, "find_spec", lambda name: None)
    assert main(["doctor", "--measure", "M"]) == 1
    assert "there is nothing to measure" in capsys.readouterr().err


def test_from_start_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two engines, a table and sentences within 80 columns, progress apart, and the rows as JSON."""
    orders, file = use(monkeypatch), tmp_path / "d.json"
    assert main([*MEASURE, "--json", str(file), "--speculative-config", '{"method": "eagle"}']) == 0
    assert [order.drafter for order in orders] == [True, False]
    given = ("some/model", "--dtype", "bfloat16", "--speculative-config", '{"method": "eagle"}')
    assert orders[0].arguments == (*given, "--gpu-memory-utilization", "0.4")
    shown, progress = capsys.readouterr()
    assert [line for line in shown.splitlines() if len(line) > 80 and str(file) not in line] == []
    said = " ".join(shown.split())
    assert re.search(r"Batch 1: a drafter loaded and idle \(K=0\) costs 1\d\.\d % \[", said)
    assert "K=3 gives 1.5" in said
    assert "Batch 16:" in said
    assert "no K reaches the engine without a drafter: at best" in said
    assert "adaptk cannot remove" in said
    assert progress.splitlines()[0].startswith(("Starting the engine", "This machine is busy"))
    held = json.loads(file.read_bytes())
    assert held["schema_version"] == 1
    assert held["side_by_side"] is True
    assert "--budget 20" in held["command"]
    assert [(row["batch"], row["k"]) for row in held["rows"]] == [(b, k) for b in (1, 16) for k in (None, 0, 1, 3)]
    idle = held["rows"][1]
    assert idle["ratio"]["low"] < 1 / 0.9 < idle["ratio"]["high"]
    assert idle["ratio"]["value"] == pytest.approx(1 / 0.9, rel=0.02)


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (EngineDiedError("out of memory"), 1)])
def test_what_ends_it_early_costs_nothing(
    error: BaseException,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What there is is shown and written; the reason stands on standard error."""

    def end(stays: int) -> None:
        if stays == 12:
            raise error

    use(monkeypatch, lambda order, tell: FakeEngine(order, after=end))
    assert main([*MEASURE, "--json", str(tmp_path / "d.json")]) == status
    shown, errors = capsys.readouterr()
    assert "Batch 16: a drafter loaded and idle" in shown
    assert errors.splitlines()[-1] == f"adaptk doctor: {str(error) or 'interrupted'}"
    assert json.loads((tmp_path / "d.json").read_bytes())["rows"]


def test_the_rows_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A bare --json puts them on standard output, and no text beside them."""
    use(monkeypatch)
    assert main([*MEASURE, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]


def test_an_engine_that_does_not_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the reason."""

    def start(order: EngineOrder, tell: Callable[[Doing], None]) -> FakeEngine:
        raise EngineDiedError("no such model")

    use(monkeypatch, start)
    assert main(MEASURE) == 1
    shown, errors = capsys.readouterr()
    assert shown == ""
    assert "adaptk doctor: no such model" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--measure"], "no engine is named"),
        (["--measure", "M", "--arms", "1,3"], "--arms 1,3: K=0 is what is asked for here; add 0"),
        (["--measure", "M", "--json", "/nowhere/d.json"], "its folder does not exist"),
        (["--measure", "M", "--prompts", "/nowhere.jsonl"], "there is no such file"),
        (["--budget", "1m", "--arms", "0"], "--budget --arms: nothing is measured without --measure"),
    ],
)
def test_what_is_refused_before_an_engine_starts(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With one line that says what to do."""
    orders = use(monkeypatch)
    assert main(["doctor", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert orders == []


def rows(idle: Span | None, *, gain: float = 1.5, pays: float | None = 0.25, idle_gain: float = 0.9) -> list[TaxRow]:
    """A batch size of 4 with K=0 and K=1."""
    ms = Span(10.0, 9.9, 10.1)
    wide = Span(gain, gain - 0.1, gain + 0.1)
    slow = Span(idle_gain, idle_gain - 0.05, idle_gain + 0.05)
    ratio = None if idle is None else Span(1.25, 1.2, 1.3)
    return [
        TaxRow(4, 64.0, None, ms, Span(1.0, 1.0, 1.0), Span(400.0), Span(1.0, 1.0, 1.0)),
        TaxRow(4, 64.0, 0, ms, idle, Span(380.0), slow),
        TaxRow(4, 64.0, 1, ms, ratio, Span(600.0), wide, pays),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (rows(Span(1.06, 1.04, 1.08)), "a drafter loaded and idle (K=0) costs 6.0 % [4.0,8.0]; below an acceptance of "
         "0.25, alike at every position (that of K=1), speculation cannot pay here. With these prompts K=1 gives 1.50 "
         "[1.40,1.60] times"),
        (rows(Span(1.01, 0.99, 1.03)), "cannot be told from nothing: 1.0 % [-1.0,3.0]"),
        (rows(Span(0.9, 0.85, 0.95)), "the machine was not the same for both engines"),
        (rows(Span(1.06)), "seems to cost 6.0 %, seen too seldom to be sure"),
        (rows(None), "one of the two engines was not measured here"),
        (rows(Span(1.06, 1.04, 1.08), pays=None), "no acceptance makes speculation pay here"),
        (rows(Span(1.06, 1.04, 1.08), pays=0.0), "speculation can pay here at any acceptance"),
        (rows(Span(1.06, 1.04, 1.08), gain=0.8), "no K reaches the engine without a drafter: at best 0.90 [0.85,0.95]"),
    ],
)  # fmt: skip
def test_what_the_figures_mean(given: list[TaxRow], said: str) -> None:
    """In the words of someone who wants to know whether to speculate."""
    assert said in meaning(given)


def test_help_keeps_within_the_page(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["doctor", "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_lines_keep_within_the_page() -> None:
    """Whatever the numbers: huge, tiny, unknown."""
    odd: list[Any] = [Span(1e9, 1e8, 1e10), Span(1e-6, 1e-7, 1e-5), Span(123456.7, 99999.9, 200000.1), Span(5.0), None]
    for value in odd:
        row = TaxRow(100_000, 64.0, 100, value or Span(1.0), value, value, value, 0.5)
        assert max(map(len, tax_lines([row], [0.5] * 40))) <= 80
    assert tax_lines([], [])
