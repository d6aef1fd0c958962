"""What the README shows is run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adaptk import GoodputTable, Settings

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_drop_in_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints one line of beliefs and one schedule that the table class accepts."""
    examples = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(examples) == 1
    exec(compile(examples[0], "README.md", "exec"), {})
    beliefs, schedule = capsys.readouterr().out.splitlines()
    assert beliefs.startswith("[(0, 1.0, ")
    triples = [[int(n) for n in triple] for triple in re.findall(r"\[(\d+), (\d+), (\d+)\]", schedule)]
    assert GoodputTable.from_schedule(triples).to_schedule(max_batch=256) == triples


def test_every_setting_is_in_the_table() -> None:
    """Each environment variable that is read is named, and none that is not."""
    fields = {"ADAPTK" if name == "mode" else f"ADAPTK_{name.upper()}" for name in Settings.__struct_fields__}
    assert set(re.findall(r"`(ADAPTK(?:_[A-Z_]+)?)`", README)) == fields
