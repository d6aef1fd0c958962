"""The command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from adaptk import __version__
from adaptk.cli.main import main
from adaptk.demo import session
from adaptk.demo.engine import EngineError
from adaptk.demo.measure import Run, Step, Turn
from adaptk.demo.progress import Progress


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is that of the package."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"adaptk {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["demo", "--rounds", "0"], ["demo", "--rounds", "many"]])
def test_bad_arguments_are_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """With a usage message and status 2."""
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    assert "usage: adaptk" in capsys.readouterr().err


def test_a_folder_that_does_not_exist_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after half an hour of measuring."""
    monkeypatch.setattr(session, "run", lambda *_: pytest.fail("started"))
    assert main(["demo", "--json", str(tmp_path / "missing" / "rows.json")]) == 1
    assert "folder does not exist" in capsys.readouterr().err


def _measured(interrupted: bool, seen: list[session.Options]) -> object:
    def run(options: session.Options, outcome: session.Outcome, progress: Progress) -> None:
        seen.append(options)
        outcome.turns = [Turn("k0", "copy", 0, Run([Step(10.0, 2, 2)] * 3, "x"))]
        outcome.interrupted = interrupted

    return run


@pytest.mark.parametrize("interrupted", [False, True])
def test_rows_are_flat(
    interrupted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What machines read; an interrupted run writes what it has and says so in its exit status."""
    seen: list[session.Options] = []
    monkeypatch.setattr(session, "run", _measured(interrupted, seen))
    rows, picture = tmp_path / "rows.json", tmp_path / "picture.png"
    assert main(["demo", "--quick", "--json", str(rows), "--out", str(picture)]) == (130 if interrupted else 0)
    assert seen == [session.Options(rounds=1, quick=True, trace=None)]
    (row,) = json.loads(rows.read_bytes())
    assert row["policy"] == "k0"
    assert (row["phase"], row["round"], row["steps"], row["dropped"]) == ("copy", 0, 3, 0)
    assert row["tokens_per_s"] == pytest.approx(200.0)
    assert picture.exists()
    assert ("Interrupted" in capsys.readouterr().out) == interrupted


def test_a_full_run_has_five_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer could not give a 90 % interval."""
    seen: list[session.Options] = []
    monkeypatch.setattr(session, "run", _measured(False, seen))
    assert main(["demo", "--out", str(tmp_path / "picture.png")]) == 0
    assert seen[0].rounds == 5


def test_a_missing_engine_is_an_error_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says what to install."""

    def run(*_: object) -> None:
        raise EngineError("vLLM is not installed: run make demo")

    monkeypatch.setattr(session, "run", run)
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == "adaptk demo: vLLM is not installed: run make demo\n"
