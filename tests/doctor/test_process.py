"""The process that imports vLLM, with modules in its place that do what broken installations do."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.doctor import process
from adaptk.doctor.facts import Question


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a module vllm that a new process finds first."""
    package = tmp_path / "vllm"
    package.mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    return package / "__init__.py"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('no such operator')", "RuntimeError: no such operator"),
        ("import os; print('the last words'); os.kill(os.getpid(), 11)",
         "the process that was importing vLLM was killed by signal 11"),
        ("raise SystemExit(3)", "the process that was importing vLLM ended with status 3"),
        ("", "AttributeError: module 'vllm' has no attribute '__version__'"),
    ],
)  # fmt: skip
def test_a_vllm_that_breaks(code: str, said: str, fake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The reason comes back, and nothing of the noise is seen."""
    fake.write_text(f"import sys; print('noise', flush=True); print('noise', file=sys.stderr)\n{code}\n")
    seen: list[str] = []
    facts = process.ask(Question(), lambda what, seconds: seen.append(what))
    assert facts.installed is None
    assert facts.broken.startswith(said)
    assert capfd.readouterr() == ("", "")
    assert seen


def test_a_vllm_that_is_too_old(fake: Path) -> None:
    """It need not have anything else."""
    fake.write_text("__version__ = '0.19.2'")
    installed = process.ask(Question(arguments=("model",))).installed
    assert installed is not None
    assert installed.version == "0.19.2"
    assert "adaptk needs vLLM 0.24 or later" in (installed.unfit or "")


def test_a_vllm_that_hangs(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor goes on after a while."""
    fake.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(process, "LIMIT_S", 1.5)
    assert process.ask(Question()).broken.startswith("importing vLLM took longer than 2 s")
