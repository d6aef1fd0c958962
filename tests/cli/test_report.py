"""``adaptk report``."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adaptk import GoodputTable
from adaptk.cli import report
from adaptk.cli.main import main
from adaptk.report import analysis
from adaptk.report.findings import Findings, from_json
from tests.cli.examplefiles import make
from tests.report.made_up import contradicted, made_up

change = msgspec.structs.replace


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("files"))


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Findings], list[Any]]:
    """Findings in place of an analysis, in an empty folder; gives what the analysis is asked for."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.jsonl").write_text("")
    asked: list[Any] = []

    def put(findings: Findings, table: GoodputTable | None = None) -> list[Any]:
        def analysed(paths: Sequence[Path], table_given: Any = None, **more: Any) -> Any:
            asked.append((list(paths), table_given, more))
            more["progress"]("reading", 0.5)
            return analysis.Analysed(findings, table)

        monkeypatch.setattr(analysis, "analyse_with_table", analysed)
        return asked

    return put


def quick() -> Findings:
    """Findings that are drawn at once."""
    made = made_up(4)
    advice = change(made.advice, ranges=made.advice.ranges[:2])
    return change(made, advice=advice, timelines=[], simulation=None, off_policy=[])


def kept(verdict: str = "keep") -> Findings:
    made = quick()
    advice = change(made.advice, verdict=verdict, schedule_new=None, paste="", gain=None, sentence="It is right.")
    return change(made, advice=advice)


def test_it_says_what_to_change_and_writes_the_page(
    found: Callable[..., list[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence first, then JSON that can be copied; nothing is wider than 80 columns, nothing goes to stderr."""
    asked = found(quick())
    assert main(["report", "trace.jsonl"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert lines[0] == "Your schedule loses 6 % [3, 9] at batch 65-101."
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 20
    start = lines.index("Paste this into --speculative-config:") + 1
    end = lines.index("  (above 512 vLLM goes on with the last K, 3)")
    pasted = " ".join(lines[start:end])
    assert json.loads(f"{{{pasted}}}") == {
        "num_speculative_tokens_per_batch_size": [[1, 64, 3], [65, 101, 1], [102, 512, 3]]
    }
    row = next(line for line in lines if line.startswith("65-101 "))
    assert row.split()[1:] == [
        "3",
        ">",
        "1",
        "1",
        "+6",
        "%",
        "[+3,",
        "+10]",
        "34",
        "%",
        "change",
        "measured",
        "/",
        "table",
    ]
    assert "- Acceptance changed at 31 min: what is advised holds for what came after it." in lines
    assert lines[-1] == "Report: report.html"
    assert "<h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert asked[0][0] == [Path("trace.jsonl")]
    assert asked[0][2]["simulate"] is True
    assert asked[0][2]["lenient"] is False


def test_what_is_asked_of_the_analysis(found: Callable[..., list[Any]], files: Path) -> None:
    """Options go on to it; several traces are one."""
    asked = found(quick())
    Path("second.jsonl").write_text("")
    table = str(files / "table.json")
    given = ["--table", table, "--no-simulation", "--lenient", "--out", "r.html"]
    assert main(["report", "trace.jsonl", "second.jsonl", *given]) == 0
    paths, handed, more = asked[0]
    assert paths == [Path("trace.jsonl"), Path("second.jsonl")]
    assert handed.meta["name"] == "example"
    assert (more["simulate"], more["lenient"]) == (False, True)
    assert Path("r.html").exists()


def test_json_alone_writes_no_file(found: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    found(quick())
    assert main(["report", "trace.jsonl", "--json"]) == 0
    assert from_json(capsys.readouterr().out) == quick()
    assert not Path("report.html").exists()


def test_json_in_a_file_stands_beside_the_text(
    found: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    found(quick())
    assert main(["report", "trace.jsonl", "--json", "f.json"]) == 0
    assert from_json(Path("f.json").read_bytes()) == quick()
    assert capsys.readouterr().out.splitlines()[-2:] == ["Findings: f.json", "Report: report.html"]


@pytest.mark.parametrize(
    ("findings", "schedule", "told"),
    [
        (quick(), [[1, 64, 3], [65, 101, 1], [102, 512, 3]], ""),
        (kept(), [[1, 64, 3], [65, 512, 3]], "adaptk report: this is the schedule in use. It is right.\n"),
    ],
    ids=["change", "keep"],
)
def test_the_schedule_for_scripts(
    findings: Findings, schedule: list[list[int]], told: str, found: Callable[..., list[Any]],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """One line of JSON that can be used in any case, and nothing written or simulated."""
    asked = found(findings)
    assert main(["report", "--schedule", "trace.jsonl"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == schedule
    assert out.count("\n") == 1
    assert err == told
    assert asked[0][2]["simulate"] is False
    assert not Path("report.html").exists()


def test_no_schedule_where_there_is_nothing_to_judge(
    found: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    found(kept("nothing"))
    assert main(["report", "--schedule", "trace.jsonl"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("adaptk report: It is right. To decide at batch 102-512")


def test_the_corrected_table_is_saved(
    found: Callable[..., list[Any]], files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a new file only: one that is there is refused before the analysis."""
    table = GoodputTable.load(files / "table.json")
    asked = found(quick(), table)
    assert main(["report", "trace.jsonl", "--save-table", "new.json"]) == 0
    assert GoodputTable.load("new.json").best_k(8) == table.best_k(8)
    assert "Table: new.json" in capsys.readouterr().out
    assert len(asked) == 1
    assert main(["report", "trace.jsonl", "--save-table", "new.json"]) == 1
    assert "new.json: exists already" in capsys.readouterr().err
    assert len(asked) == 1


def test_without_a_table_to_save_the_rest_stands(
    found: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Page, findings and text are there, as they took their time; the status says that something is missing."""
    found(quick(), None)
    assert main(["report", "trace.jsonl", "--save-table", "other.json", "--json", "f.json"]) == 1
    out, err = capsys.readouterr()
    assert "has no step times for a table, none was written: leave the option out" in err
    assert out.splitlines()[-2:] == ["Findings: f.json", "Report: report.html"]
    assert "<h1>" in Path("report.html").read_text(encoding="utf-8")
    assert from_json(Path("f.json").read_bytes()) == quick()
    assert not Path("other.json").exists()


def test_it_fits_one_screen(found: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """With many ranges those of the most time are shown; what is to be pasted is whole, however long it is."""
    made = quick().advice
    tiers = [[i + 1, i + 1, i % 2] for i in range(12)]
    ranges = [change(made.ranges[1], first=i + 1, last=i + 1, time_share=i / 100) for i in range(12)]
    paste = f'"num_speculative_tokens_per_batch_size": {tiers}'
    advice = change(made, ranges=ranges, schedule_new=tiers, paste=paste)
    found(change(quick(), advice=advice))
    assert main(["report", "trace.jsonl", "--save-table", "t.json", "--json", "f.json"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Your schedule loses 6 % [3, 9] at batch 65-101."
    shown = [int(line.split()[0]) for line in lines if line.endswith("measured / table")]
    assert shown == list(range(13 - len(shown), 13))
    assert len(shown) >= 2
    assert f"{12 - len(shown)} more ranges stand in the report." in lines
    start = lines.index("Paste this into --speculative-config:") + 1
    pasted = " ".join(lines[start : lines.index("  (above 12 vLLM goes on with the last K, 1)")])
    assert json.loads(f"{{{pasted}}}")["num_speculative_tokens_per_batch_size"] == tiers


def test_what_the_simulation_does_not_bear_out_is_said(
    found: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    found(contradicted(quick()))
    assert main(["report", "trace.jsonl"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "The simulation does not bear this out: there the advised schedule is slower than yours" in out


def test_an_interrupt_gives_what_is_there(found: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    found(change(quick(), cut_short=True))
    assert main(["report", "trace.jsonl"]) == 130
    assert capsys.readouterr().out.startswith("Interrupted: this is what was found until then.\n")
    assert "Interrupted" in Path("report.html").read_text(encoding="utf-8")
    assert main(["report", "--schedule", "trace.jsonl"]) == 130
    assert capsys.readouterr() == ("", "adaptk report: interrupted\n")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["missing.jsonl"], "missing.jsonl: there is no such file"),
        (["trace.jsonl", "trace.jsonl"], "trace.jsonl is given twice: name each trace once"),
        (["trace.jsonl", "--out", "trace.jsonl"], "is the file of TRACE trace.jsonl too: give another path"),
        (["trace.jsonl", "--out", "no/r.html"], "its folder does not exist; make it first"),
        (["trace.jsonl", "--table", "trace.jsonl"], "trace.jsonl: is not JSON"),
        (["table.json"], "is no header of an adaptk trace"),
        (["--schedule", "trace.jsonl", "--out", "r.html"], "--out does not go with --schedule"),
        (["broken.jsonl"], "remove the line, or pass --lenient"),
    ],
)
def test_errors_say_what_to_do(
    given: list[str], told: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with status 1, and the trace stays what it was."""
    monkeypatch.chdir(files)
    whole = Path("trace.jsonl").read_bytes()
    Path("broken.jsonl").write_bytes(whole[:3000] + b"\n")
    assert main(["report", *given]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("adaptk report: ")
    assert told in err
    assert err.count("\n") == 1
    assert Path("trace.jsonl").read_bytes() == whole


def test_without_matplotlib_it_says_what_to_install(
    found: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What needs no figure works all the same."""
    found(quick())
    monkeypatch.setattr(report, "find_spec", lambda _: None)
    assert main(["report", "trace.jsonl"]) == 1
    assert "pip install 'adaptk[tools]'" in capsys.readouterr().err
    assert main(["report", "trace.jsonl", "--json"]) == 0
    assert main(["report", "trace.jsonl", "--schedule"]) == 0


def test_a_real_trace(files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """From the file to the page, without a stand-in: gzip or not, the findings are the same but for the name."""
    monkeypatch.chdir(files)
    assert main(["report", "trace.jsonl", "--table", "table.json", "--no-simulation", "--json", "found.json"]) == 0
    out = capsys.readouterr().out
    assert "Recorded: 1,000 steps" in out
    assert max(map(len, out.splitlines())) <= 80
    found = from_json(Path("found.json").read_bytes())
    assert found.overview.steps == 1000
    page = Path("report.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 2
    assert "Belief against table" in page
