"""Every command that the pages show is run on small inputs, or read by the program's own parser where it is long."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from adaptk import Settings
from adaptk.cli.main import main, parser
from adaptk.replay import scenarios as known
from adaptk.replay.sweep import GROUPS
from tests.dashboards import contract
from tests.docs import inputs
from tests.docs.documents import PAGES, ROOT, Block, Command, all_commands, blocks, commands, spoken
from tests.live.pages import served
from tests.replay.tiny import tiny

# They start engines, or vLLM: read by their parsers here and by vLLM's own in tests/engine/test_documents.py.
ENGINES = ("profile", "doctor", "demo")
# What a comparison or a check says by its status.
FINE = {("table", "diff"): {0, 1}, ("table", "check"): {0, 1}}
METRICS = "127.0.0.1:9475"
PROGRAMS = ("adaptk", "vllm", "make", "pip", "python", "kubectl", "curl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands read."""
    folder = tmp_path_factory.mktemp("made")
    inputs.make(folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def metrics() -> Iterator[str]:
    """The address of a metrics page."""
    with served(contract.page()) as place:
        yield place


def of_adaptk() -> list[Block]:
    """Shell blocks with a command of adaptk's that is short enough to run."""
    return [block for block in blocks("sh") if any(map(_short, commands(block)))]


def _short(command: Command) -> bool:
    """Whether it is a command of adaptk's that starts no engine."""
    return command.words[0] == "adaptk" and (command.words[1] not in ENGINES or "--from-traces" in command.words)


@pytest.mark.parametrize("block", of_adaptk(), ids=str)
def test_the_commands_of_a_block_run(
    block: Block,
    folder: Path,
    metrics: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the order in which they stand, each without an error, and each that shows something shows it."""
    small = {name: tiny(name, group=scenario.group) for name, scenario in known.scenarios().items()}
    small = {name: small[name] for name in ("C26", "dense-wave", "time-drift")}
    monkeypatch.setattr(known, "scenarios", lambda: small)
    for command in filter(_short, commands(block)):
        words = [metrics if word == METRICS else word for word in command.words[1:]]
        assert main([*words, *_quick(words)]) in FINE.get(tuple(words[:2]), {0}), command
        shown = capsys.readouterr()
        assert shown.out.strip(), command
        assert "Traceback" not in shown.err
    assert folder.is_dir()


def _quick(words: list[str]) -> list[str]:
    """What makes a command small; of options given twice the last one counts."""
    if words[0] == "replay" and not {"--list", "--rows"}.intersection(words):
        return ["--seeds", "1", "--jobs", "1", "--policy", "adaptk", "table"]
    return {
        "top": ["--once"],
        "report": ["--no-simulation"],
        "surface": ["--budget", "1s", "--batches", "1,2", "--ks", "0,1", "--contexts", "16", "--device", "cpu"],
    }.get(words[0], [])


@pytest.mark.parametrize("command", all_commands("adaptk"), ids=str)
def test_a_command_is_one_that_adaptk_knows(command: Command) -> None:
    """Its options and their values are read; what is left over is there only where it goes on to vLLM."""
    arguments, rest = parser().parse_known_args(list(command.words[1:]))
    assert arguments.passes_on or not rest
    assert not command.variables or Settings.from_env(command.variables).mode != "off"
    for name in getattr(arguments, "scenario", None) or ():
        assert name in GROUPS or known.find(name)


@pytest.mark.parametrize("command", all_commands("vllm"), ids=str)
def test_the_variables_of_a_server_are_settings(command: Command) -> None:
    """Each ADAPTK variable in front of ``vllm serve`` is read without complaint, and asks for adaptk."""
    assert command.words[1] == "serve"
    asked = any("adaptk" in word for word in command.words)
    assert asked or Settings.from_env(command.variables).mode in ("on", "shadow")


def test_every_program_is_one_that_is_looked_at() -> None:
    """No command of another kind slips through."""
    others = {command.words[0] for block in blocks("sh") for command in commands(block)}.difference(PROGRAMS)
    assert not others


@pytest.mark.parametrize("command", all_commands("make"), ids=str)
def test_make_has_the_target(command: Command) -> None:
    """And every variable given to it is one that the Makefile reads."""
    makefile = (ROOT / "Makefile").read_text()
    targets = [word for word in command.words[1:] if "=" not in word]
    assert targets
    for target in targets:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE)
    for name in (word.partition("=")[0] for word in command.words[1:] if "=" in word):
        assert f"$({name})" in makefile


@pytest.mark.parametrize("command", all_commands("pip"), ids=str)
def test_pip_installs_extras_that_are_there(command: Command) -> None:
    """Each extra named in brackets is declared."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert command.words[1] == "install"
    for word in command.words[2:]:
        named = re.fullmatch(r"[\w./]+\[([\w,]+)\]", word)
        assert named is None or set(named[1].split(",")) <= set(extras)


@pytest.mark.parametrize("command", all_commands("python"), ids=str)
def test_python_finds_what_it_is_to_run(command: Command) -> None:
    """A module or a script of this folder."""
    if command.words[1] == "-m":
        assert importlib.util.find_spec(command.words[2])
    else:
        assert (ROOT / command.words[1]).is_file()


@pytest.mark.parametrize("command", all_commands("kubectl", "curl"), ids=str)
def test_kubectl_names_what_the_manifest_makes(command: Command) -> None:
    """The file, the Deployment, the folder of the control file, and the port of the metrics."""
    deployment = next(
        part for part in yaml.safe_load_all((ROOT / "docs/kubernetes.yaml").read_text()) if part["kind"] == "Deployment"
    )
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    for word in command.words:
        if word.endswith(".yaml"):
            assert (ROOT / word).is_file()
        if word.startswith("deploy/"):
            assert word == f"deploy/{deployment['metadata']['name']}"
        if word.isdigit():
            assert word == variables["ADAPTK_METRICS_PORT"]
        path = word.rpartition(":")[2]
        if path.startswith("/run"):
            paths = {variables[name].replace("{rank}", "0") for name in ("ADAPTK_CONTROL", "ADAPTK_TRACE")}
            assert path in paths


@cache
def _known_options() -> dict[str, set[str]]:
    """The options of each command of adaptk's."""
    found: dict[str, set[str]] = {}
    for action in parser()._actions:
        for name, sub in (action.choices or {}).items() if isinstance(action, argparse._SubParsersAction) else ():
            found[name] = _options(sub)
    return found


def _options(of: argparse.ArgumentParser) -> set[str]:
    options = {option for action in of._actions for option in action.option_strings}
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                options |= _options(sub)
    return options


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_exist(page: str) -> None:
    """``adaptk NAME --option`` in a sentence names a command, and options that it has."""
    for text in spoken(page):
        words = text.split()
        if words[0] != "adaptk" or len(words) < 2:
            continue
        assert words[1] in _known_options() or words[1].startswith("--"), text
        given = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
        assert given <= _known_options().get(words[1], set()), text


def test_python_is_this_one() -> None:
    """The pages promise Python 3.11."""
    assert sys.version_info >= (3, 11)
