"""The pages' Python is run; what needs vLLM is in tests/engine/test_documents.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from adaptk import GoodputTable
from tests.docs.documents import Block, blocks

NEED_VLLM = ("from vllm", "adaptk.vllm_plugin", "scheduler.adaptk")


def without_vllm() -> list[Block]:
    """Blocks that run anywhere."""
    return [block for block in blocks("python") if not any(name in block.text for name in NEED_VLLM)]


def example(begins: str) -> str:
    """The one block that begins so."""
    found = [block.text for block in without_vllm() if block.text.startswith(begins)]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("block", without_vllm(), ids=str)
def test_it_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an empty folder, without an error."""
    monkeypatch.chdir(tmp_path)
    exec(compile(block.text, str(block), "exec"), {})


def test_the_controller_prints_beliefs_and_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    """One line of beliefs, and one schedule that the table class accepts."""
    exec(compile(example("from adaptk import Controller"), "own-engine.md", "exec"), {})
    beliefs, schedule = capsys.readouterr().out.splitlines()
    assert beliefs.startswith("[(0, 1.0, ")
    triples = [[int(n) for n in triple] for triple in re.findall(r"\[(\d+), (\d+), (\d+)\]", schedule)]
    assert GoodputTable.from_schedule(triples).to_schedule(max_batch=256) == triples


def test_the_sweep_runs_on_another_backend(capsys: pytest.CaptureFixture[str]) -> None:
    """Two policies, two seeds, none better than the oracle."""
    exec(compile(example("from joblib"), "replay.md", "exec"), {})
    lines = [eval(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted((policy, seed) for line in lines for policy, seed, _ in line) == [
        ("adaptk", 0), ("adaptk", 1), ("table", 0), ("table", 1),
    ]  # fmt: skip
    assert all(0.5 < ratio <= 1.0 for line in lines for _, _, ratio in line)
