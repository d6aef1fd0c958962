"""Every example of every ``--help`` works when it is pasted into a folder that holds what it names."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from adaptk.cli import main as command_line
from adaptk.demo import session
from adaptk.demo.measure import Run, Step, Turn
from adaptk.doctor import process
from adaptk.surface import machine as machines
from adaptk.surface import session as surface
from tests.cli import examplefiles
from tests.dashboards import contract
from tests.doctor.made import made_facts
from tests.live.pages import served
from tests.profile.fakeengine import FakeEngine
from tests.surface.small import Steps


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and all below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from parsers(sub)


def examples(text: str) -> list[str]:
    """The command lines of a help text: indented by two, going on behind a backslash."""
    return [found.replace("\\\n", "") for found in re.findall(r"^  (adaptk (?:.*\\\n)*.*)$", text, re.MULTILINE)]


COMMANDS = list(parsers(command_line.parser()))[1:]
EXAMPLES = [example for parser in COMMANDS for example in examples(parser.format_help())]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where examples are run."""
    made = examplefiles.make(tmp_path / "examples")
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of engines that would be started, ones that are none; vLLM is not asked; no budget is waited for."""
    pytest.importorskip("torch")
    monkeypatch.setattr(process, "ask", lambda question, waiting: made_facts())
    monkeypatch.setattr("adaptk.vllm_plugin.profile_process.EngineProcess", lambda order, tell: FakeEngine(order))
    monkeypatch.setitem(machines._COPIED, "cpu", 2**16)
    real = surface.run
    monkeypatch.setattr(surface, "run", lambda *given, begun: real(*given, Steps()))

    def shown(options: session.Options, outcome: session.Outcome, progress: object) -> None:
        outcome.turns = [Turn("k0", "copy", 0, Run([Step(10.0, 2, 2)] * 3, "x"))]

    monkeypatch.setattr(session, "run", shown)


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    """The address of a made-up engine's metrics."""
    with served(contract.page()) as place:
        yield place


@pytest.mark.parametrize("parser", COMMANDS, ids=lambda parser: parser.prog)
def test_every_help_shows_an_example(parser: argparse.ArgumentParser) -> None:
    """And says what the command does, in lines that fit a terminal; the example is one of that command."""
    text = parser.format_help()
    shown = examples(text)
    assert shown
    assert parser.description
    assert all(example.startswith(parser.prog.removesuffix(" ACTION")) for example in shown)
    assert max(map(len, (parser.epilog or "").splitlines())) <= 80


@pytest.mark.parametrize("example", EXAMPLES)
def test_it_works(example: str, folder: Path, page: str, no_engine: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 0, or 1 where the help says that it means a difference; what it says it writes is there."""
    pasted = example.replace("127.0.0.1:9475", page).replace("MODEL", ".").replace("/tmp/", "").replace("2m", "0.5s")
    if example.startswith("adaptk mode") and len(shlex.split(example)) == 3:
        (folder / "adaptk-mode").write_text("shadow\n")
    status = command_line.main(shlex.split(pasted)[1:])
    said = capsys.readouterr()
    differs = example.startswith(("adaptk table diff", "adaptk table check"))
    assert status in ((0, 1) if differs else (0,)), said.err
    assert said.out
    words = shlex.split(pasted)
    for option in ("--out", "--html", "--save-table"):
        if option in words:
            assert Path(words[words.index(option) + 1]).is_file()
    assert max(map(len, said.out.splitlines())) <= 80 or "--schedule" in words or "grafana" in words
