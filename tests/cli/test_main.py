"""The command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adaptk import GoodputTable, __version__
from adaptk.cli.main import commands, main
from adaptk.demo import session
from adaptk.demo.engine import EngineError
from adaptk.demo.measure import Run, Step, Turn
from adaptk.progress import Progress


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """The version is that of the package."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"adaptk {__version__}\n"


def test_alone_it_tells_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """The help, where errors go, and the status of a usage error: a script that forgot the command notices."""
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("usage: adaptk")
    for command in commands():
        assert f"    {command.NAME} " in err


@pytest.mark.parametrize("at", ["adaptk.cli.main.parser", "adaptk.cli.main.commands", "adaptk.cli.table.run"])
def test_an_interrupt_is_told_in_a_line(
    at: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While commands are loaded, the arguments are read, or a command has not begun to listen."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(at, interrupted)
    assert main(["table", "check", "nothing.json"]) == 130
    assert capsys.readouterr().err == "adaptk: interrupted\n"


def test_help_loads_nothing_heavy() -> None:
    """So that it is there in a tenth of a second."""
    code = (
        "import sys; from adaptk.cli.main import parser; parser().format_help();"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"numpy", "vllm", "torch", "scipy", "matplotlib", "rich", "numba", "prometheus_client"})


@pytest.mark.parametrize(
    "argv",
    [
        ["--print-completion", "bash"],
        ["grafana"],
        ["mode", "file", "on"],
        ["table", "--help"],
        ["table", "show", "table.json", "--json"],
    ],
)
def test_a_full_disk_and_a_reader_that_is_gone_give_no_traceback(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is told and is an error, but for the help, on which nobody depends; a closed pipe is none.

    Of ``adaptk table`` the status is 2, as 1 is a difference.
    """
    GoodputTable.from_rows([{"batch": 1, "k": k, "itl_ms": 5.0 + k} for k in (0, 3)]).save(tmp_path / "table.json")
    command = [sys.executable, "-m", "adaptk", *argv]
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # else nothing is left to write at the exit
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=60)
    assert "Traceback" not in done.stderr
    assert done.returncode == (0 if "--help" in argv else 2 if "table" in argv else 1)
    assert ("No space left" in done.stderr) == ("--help" not in argv)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=tmp_path, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("argv", [["nonsense"], ["demo", "--rounds", "0"], ["demo", "--rounds", "many"]])
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
