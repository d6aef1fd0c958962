"""``--json``: one document on standard output, nothing else there; or a file beside the text."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adaptk import GoodputTable
from adaptk.cli import options
from adaptk.cli.main import main, parser
from adaptk.demo import session
from adaptk.demo.measure import Run, Step, Turn
from tests.cli import examplefiles

READ_BY_PEOPLE_ALONE = {"adaptk", "adaptk table", "adaptk grafana"}  # the last gives a file as it stands


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = examplefiles.make(tmp_path / "files")
    monkeypatch.chdir(made)
    return made


def printed(capsys: pytest.CaptureFixture[str], *argv: str, status: int = 0) -> Any:
    """What a command with ``--json`` gives."""
    assert main([*argv, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def parsers(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield of
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from parsers(sub)


def test_every_command_has_it() -> None:
    """But those that give nothing to read."""
    without = {each.prog for each in parsers(parser()) if "--json" not in each._option_string_actions}
    assert {name.removesuffix(" ACTION") for name in without} == READ_BY_PEOPLE_ALONE


def test_a_mode(capsys: pytest.CaptureFixture[str]) -> None:
    """Written and read."""
    said = {"file": "mode", "mode": "shadow"}
    assert printed(capsys, "mode", "mode", "shadow") == said
    assert printed(capsys, "mode", "mode") == said


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Figures, findings, differences and schedules; what was written is named with its size and remarks."""
    assert printed(capsys, "table", "show", "table.json")["ks"] == [0, 1, 3]
    assert printed(capsys, "table", "check", "table.json") == {"table": "table.json", "suspicious": []}
    assert printed(capsys, "table", "diff", "table.json", "other.json", status=1)["same_decisions"] is False
    exported = printed(capsys, "table", "export", "table.json", "--max-batch", "64")
    assert exported["num_speculative_tokens"] == 3
    assert exported["num_speculative_tokens_per_batch_size"] == [[1, 41, 3], [42, 64, 1]]
    assert exported["notes"]
    made = printed(capsys, "table", "import", "schedule.json", "--out", "made.json")
    assert (made["out"], made["rows"], made["schedule"]) == ("made.json", 0, examplefiles.SCHEDULE)
    assert GoodputTable.load("made.json").schedule
    made = printed(capsys, "table", "correct", "table.json", "--state", "state.json", "--out", "new.json")
    assert (made["steps"], made["ks"]) == (1000, [0, 1, 3])
    assert made["rows"] == len(GoodputTable.load("new.json").rows)


def test_what_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    """The names of the list, by kind."""
    pytest.importorskip("numba")
    listed = printed(capsys, "replay", "--list")
    assert {"core", "cases", "apart"} == set(listed["scenarios"])
    assert {"name", "about"} == set(listed["policies"][0])
    assert "adaptk" in listed["usual"]


def test_a_replay(capsys: pytest.CaptureFixture[str]) -> None:
    """The same rows on standard output as in a file."""
    pytest.importorskip("numba")
    asked = ["replay", "--trace", "trace.jsonl", "--policy", "table", "fixed-1", "--seeds", "1", "--jobs", "1"]
    rows = printed(capsys, *asked)["rows"]
    assert main([*asked, "--json", "rows.json"]) == 0
    assert capsys.readouterr().out.endswith("Rows: rows.json\n")
    assert json.loads(Path("rows.json").read_bytes())["rows"] == rows


def test_a_profile_of_traces(capsys: pytest.CaptureFixture[str]) -> None:
    """The table that was written."""
    pytest.importorskip("scipy")
    table = printed(capsys, "profile", "--from-traces", "trace.jsonl", "--out", "new.json")
    assert table == json.loads(Path("new.json").read_bytes())


def test_a_demo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows; where the picture is, stands on standard error."""

    def shown(given: session.Options, outcome: session.Outcome, progress: object) -> None:
        outcome.turns = [Turn("k0", "copy", 0, Run([Step(10.0, 2, 2)] * 3, "x"))]

    monkeypatch.setattr(session, "run", shown)
    assert main(["demo", "--quick", "--out", "demo.png", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [row["policy"] for row in json.loads(out)] == ["k0"]
    assert "demo.png" in err


def test_a_file_is_one_by_its_ending(capsys: pytest.CaptureFixture[str]) -> None:
    """What follows a bare --json, as a model's name, is not taken for a file and overwritten."""
    with pytest.raises(SystemExit) as end:
        main(["demo", "--json", "some/model"])
    assert end.value.code == 2
    assert "give a file that ends in .json, or write --json last" in capsys.readouterr().err
    given = argparse.ArgumentParser()
    options.add_json(given, "it", file=True)
    assert given.parse_args([]).json is None
    assert given.parse_args(["--json"]).json == options.STDOUT
    assert given.parse_args(["--json", "a.json"]).json == Path("a.json")
