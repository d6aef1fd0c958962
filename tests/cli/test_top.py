"""``adaptk top`` where it prints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import util

import pytest

from adaptk.cli import top
from adaptk.cli.main import main
from tests.live.pages import Engine, page, served


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """A server with the page of one engine in shadow."""
    with served(page(Engine(mode="shadow"))) as place:
        yield place


@pytest.fixture(scope="module")
def gone() -> str:
    """A port where nothing listens."""
    with served("") as place:
        return place


def test_a_line_for_each_engine(place: str, gone: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Where standard output is no terminal; one that is out of reach says why, and the status is that of the others."""
    assert main(["top", "--once", place, gone]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d", first[:8])
    assert first[9:] == f"{place} shadow batch 12 K=1/3 +20.0/+50.0 % on vLLM/K=0"
    assert second[9:] == f"{gone} unreachable: connection refused: nothing listens there"


def test_nothing_reached_is_status_1(gone: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason, as JSON too."""
    assert main(["top", "--once", gone]) == 1
    assert "connection refused" in capsys.readouterr().out
    assert main(["top", "--once", "--json", gone]) == 1
    (engine,) = json.loads(capsys.readouterr().out)["engines"]
    assert (engine["reachable"], engine["error"]) == (False, "connection refused: nothing listens there")


def test_json_has_the_figures(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Plain numbers, one document."""
    assert main(["top", "--once", "--json", place]) == 0
    document = json.loads(capsys.readouterr().out)
    (engine,) = document["engines"]
    assert (engine["model"], engine["mode"], engine["batch"], engine["chosen_k"]) == ("org/model", "shadow", 12.0, 3)
    assert engine["arms"] == [0, 1, 3, 7]
    assert engine["last_minute"] is None
    told = engine["since_start"]
    assert (told["steps"], told["reasons"]) == (400.0, {"exploit": 0.9, "explore": 0.1})
    assert told["gains"] == {
        "k0": pytest.approx(0.5),
        "table": pytest.approx(1.2 / 0.9 - 1),
        "vllm": pytest.approx(0.2),
    }
    cell = next(cell for cell in engine["cells"] if (cell["batch"], cell["k"]) == ("8-15", 3))
    assert (cell["steps"], cell["drift"], cell["table_k"]) == (300.0, 1.05, 1)
    assert engine["positions"][0] == {
        "position": 1,
        "accepted": 0.79,
        "ratio": 0.79,
        "low": 0.76,
        "high": pytest.approx(0.82),
    }


def test_lines_go_on_until_the_reader_leaves(place: str) -> None:
    """With rates from the second look on; JSON is an object a line."""
    command = [sys.executable, "-m", "adaptk", "top", "--interval", "0.1s", "--json", place]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.stdout.close()
        assert process.wait(30.0) == 0
        assert process.stderr.read() == ""
    assert first["engines"][0]["last_minute"] is None
    assert second["engines"][0]["last_minute"]["seconds"] > 0.0
    assert second["engines"][0]["last_minute"]["steps"] == 0.0


def test_the_environment_names_the_engine(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the variables that its server has; without them an example is given."""
    monkeypatch.delenv("ADAPTK_METRICS_HOST", raising=False)
    monkeypatch.setenv("ADAPTK_METRICS_PORT", place.split(":")[1])
    assert main(["top", "--once"]) == 0
    assert place in capsys.readouterr().out
    monkeypatch.delenv("ADAPTK_METRICS_PORT")
    assert main(["top", "--once"]) == 1
    said = "adaptk top: no engine is named: give its metrics port, as adaptk top 127.0.0.1:9475, or set"
    assert capsys.readouterr().err.startswith(said)
    monkeypatch.setenv("ADAPTK_METRICS_PORT", "many")
    assert main(["top", "--once"]) == 1
    assert "ADAPTK_METRICS_PORT='many'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["nonsense"], "'nonsense': give HOST:PORT"),
        (["1-65000"], "too many"),
        (["--interval", "0"], "give a time above 0"),
        (["--interval", "0.05", "9475"], "give at least 0.1 s"),
    ],
)
def test_bad_arguments_are_refused(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With status 2 and what to give."""
    try:
        status = main(["top", *argv])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
    assert says in capsys.readouterr().err


def test_what_is_not_installed_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setattr(top, "find_spec", lambda name: None if name == "prometheus_client" else util.find_spec(name))
    assert main(["top", "--once", "9475"]) == 1
    assert capsys.readouterr().err == "adaptk top: prometheus_client is missing: pip install 'adaptk[tools]'\n"
