"""What the README shows is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adaptk import GoodputTable, Settings

README = (Path(__file__).parents[1] / "README.md").read_text()


def example(begins: str) -> str:
    """The one example of the README that begins so."""
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    found = [text for text in examples if text.startswith(begins)]
    assert len(found) == 1
    return str(found[0])


def test_the_sweep_runs_on_another_backend(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(example("from joblib"), "README.md", "exec"), {})
    lines = [eval(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted((policy, seed) for line in lines for policy, seed, _ in line) == [
        ("adaptk", 0), ("adaptk", 1), ("table", 0), ("table", 1),
    ]  # fmt: skip
    assert all(0.5 < ratio <= 1.0 for line in lines for _, _, ratio in line)


def test_every_replay_option_shown_exists() -> None:
    """Options and names in the examples of the replay are known to the command."""
    from adaptk.cli.main import parser
    from adaptk.replay.presets import PRESETS
    from adaptk.replay.scenarios import find
    from adaptk.replay.sweep import GROUPS

    commands = re.findall(r"^adaptk (replay .*?)(?: +#.*)?$", README, re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        arguments = parser().parse_args(command.split())
        for name in arguments.scenario or ():
            assert name in GROUPS or find(name)
        assert arguments.preset is None or arguments.preset in PRESETS


def test_the_drop_in_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints one line of beliefs and one schedule that the table class accepts."""
    exec(compile(example("from adaptk import Controller"), "README.md", "exec"), {})
    beliefs, schedule = capsys.readouterr().out.splitlines()
    assert beliefs.startswith("[(0, 1.0, ")
    triples = [[int(n) for n in triple] for triple in re.findall(r"\[(\d+), (\d+), (\d+)\]", schedule)]
    assert GoodputTable.from_schedule(triples).to_schedule(max_batch=256) == triples


def test_every_setting_is_in_the_table() -> None:
    """Each environment variable that is read is named, and none that is not."""
    fields = {"ADAPTK" if name == "mode" else f"ADAPTK_{name.upper()}" for name in Settings.__struct_fields__}
    assert set(re.findall(r"`(ADAPTK(?:_[A-Z_]+)?)`", README)) == fields
