"""``adaptk surface``, end to end in this process."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pytest

from adaptk.cli import surface
from adaptk.cli.durations import duration
from adaptk.surface import machine as machines
from adaptk.surface import session
from adaptk.table import GoodputTable
from tests.surface.small import DENSE, MIXTURE, Steps

pytest.importorskip("torch")
QUICK = ["--device", "cpu", "--batches", "1,2", "--ks", "0,1,3", "--contexts", "8", "--budget", "0.5"]


@pytest.fixture(autouse=True)
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small copy, and a budget of so many looks at the clock, however busy the machine is."""
    monkeypatch.setitem(machines._COPIED, "cpu", 2**16)
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    real = session.run
    monkeypatch.setattr(session, "run", lambda *given, begun: real(*given, Steps()))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**DENSE, "torch_dtype": "float32"}))
    return folder


def call(*argv: object) -> int:
    parser = argparse.ArgumentParser(prog="adaptk surface")
    surface.add_arguments(parser)
    given = [str(each) for each in argv]
    return surface.run(parser.parse_args(given, argparse.Namespace(argv=["surface", *given])))


def test_a_table_comes_out(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file loads, says what was called and measured; the output fits 80 columns and marks the best K."""
    out = tmp_path / "table.json"
    assert call(model, "--out", out, *QUICK, "--acceptance", "0.8,0.6") == 0
    table = GoodputTable.load(out)
    assert table.batches == (1, 2)
    assert table.ks == (0, 1, 3)
    assert table.acceptance == (0.8, 0.6)
    assert table.meta["key"]["model"] == "tiny"
    assert table.meta["key"]["dtype"] == "float32"
    assert table.meta["provenance"]["command"].startswith(f"adaptk surface {model} --out")
    said = capsys.readouterr()
    assert said.out.startswith("Step time (ms) at context 8, * best goodput\n")
    assert said.out.count("*") == 1 + 2
    assert said.out.endswith(f"Table: {out}\n")
    assert max(map(len, said.out.split("Table:")[0].splitlines())) <= 80
    assert "left] batch 2, context 8; 2 of 2 places" in said.err


def test_drafters(model: Path, tmp_path: Path) -> None:
    """None, an EAGLE-like head, and a model of its own: each is named in the provenance."""
    other = tmp_path / "small-one.json"
    other.write_text(json.dumps({**DENSE, "num_hidden_layers": 1}))
    for given, name in (("none", "none"), ("eagle", "eagle"), (other, "small-one")):
        out = tmp_path / f"with-{name}.json"
        assert call(model, "--out", out, *QUICK, "--drafter", given) == 0
        assert GoodputTable.load(out).meta["provenance"]["drafter"] == name


def test_one_ranks_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Divided by --tp, said without communication; a drafter that cannot be divided runs whole on each rank."""
    mixture, odd = tmp_path / "mixture.json", tmp_path / "odd.json"
    mixture.write_text(json.dumps(MIXTURE))
    odd.write_text(json.dumps({**DENSE, "num_attention_heads": 1, "num_key_value_heads": 1}))
    assert call(mixture, "--out", tmp_path / "t.json", *QUICK, "--tp", 2, "--drafter", odd) == 0
    table = GoodputTable.load(tmp_path / "t.json")
    assert table.meta["key"]["tensor_parallel"] == 2
    said = " ".join(capsys.readouterr().out.split())
    assert "communication between the 2 ranks" in said
    assert "of the drafter: it runs whole on each of the 2 ranks" in said


def test_an_interrupt_keeps_the_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places that were finished are in the file and on the screen; the exit status is 130."""

    def done(watcher: object, what: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("adaptk.cli.surfacebar.Budgeted.done", done)
    out = tmp_path / "table.json"
    assert call(model, "--out", out, *QUICK) == 130
    table = GoodputTable.load(out)
    assert table.batches == (1,)
    assert table.meta["provenance"]["interrupted"] is True
    said = capsys.readouterr().out
    assert said.startswith("Interrupted; this is what was measured until then.\n")
    assert "Not measured before the run was cut short: batch 2 at context 8." in said


def test_an_interrupt_before_the_first_place(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file is left that holds nothing."""

    def begin(watcher: object, what: str, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("adaptk.cli.surfacebar.Budgeted.begin", begin)
    out = tmp_path / "table.json"
    assert call(model, "--out", out, *QUICK) == 130
    assert not out.exists()
    assert capsys.readouterr().err.endswith("adaptk surface: interrupted before anything was measured\n")


@pytest.mark.parametrize("name", ["config.json", "link.json", "drafter.json", "older.json"])
def test_no_file_is_replaced(
    model: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither what is read, under whatever name, nor a table that is there; that is told before anything is built."""
    drafter, out = model / "drafter.json", model / name
    drafter.write_text(json.dumps(DENSE))
    (model / "older.json").write_text("a table")
    (model / "link.json").symlink_to(model / "config.json")
    before = out.read_bytes()
    monkeypatch.setattr(session, "run", lambda *_, **__: pytest.fail("something was measured"))
    assert call(model, "--drafter", drafter, "--out", out, *QUICK) == 1
    told = {
        "drafter.json": "is the file of --drafter too: give another path",
        "older.json": "exists already: remove it, or give another --out",
    }.get(name, "is the file of CONFIG too: give another path")
    assert capsys.readouterr().err == f"adaptk surface: --out {out}: {told}\n"
    assert out.read_bytes() == before


def test_a_folder_that_cannot_be_written_to(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told at once, not after the measurement."""
    monkeypatch.setattr("os.access", lambda *_, **__: False)  # a superuser may write anywhere
    assert call(model, "--out", tmp_path / "t.json", *QUICK) == 1
    assert "its folder cannot be written to" in capsys.readouterr().err


def test_places_that_the_budget_did_not_reach_are_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the screen and in the provenance; with time enough nothing is said."""
    given = ["--device", "cpu", "--batches", "1,2,4", "--ks", "0,1", "--contexts", "8,16"]
    out = tmp_path / "short.json"
    assert call(model, "--out", out, *given, "--budget", "0.001") == 0
    places = "batch 2, 4 at context 8; batch 1, 2, 4 at context 16"
    assert GoodputTable.load(out).meta["provenance"]["not_reached"] == places
    said = " ".join(capsys.readouterr().out.split())
    assert f"Not measured within the budget of 0.001 s: {places}. Give a longer --budget" in said
    assert call(model, "--out", tmp_path / "long.json", *given, "--budget", "1") == 0
    assert GoodputTable.load(tmp_path / "long.json").meta["provenance"]["not_reached"] is None
    assert "Not measured" not in capsys.readouterr().out


def test_the_budget_begins_with_the_command(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What loading libraries takes is part of it."""
    begins: list[float] = []
    real = session.run

    def run(*given: object, begun: float) -> None:
        begins.append(begun)
        real(*given, begun=begun)

    monkeypatch.setattr(session, "run", run)
    before = time.monotonic()
    real_machine = machines.Machine

    def machine(device: str) -> machines.Machine:
        begins.append(time.monotonic())
        return real_machine(device)

    monkeypatch.setattr(machines, "Machine", machine)
    assert call(model, "--out", tmp_path / "t.json", *QUICK) == 0
    built, begun = begins
    assert before <= begun <= built


def test_a_file_that_cannot_be_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured is shown all the same, and the error says why it is not kept."""
    folder = tmp_path / "gone"
    folder.mkdir()
    real = session.run

    def run(*given: object, begun: float) -> None:
        folder.rmdir()
        real(*given, begun=begun)

    monkeypatch.setattr(session, "run", run)
    assert call(model, "--out", folder / "t.json", *QUICK) == 1
    said = capsys.readouterr()
    assert said.out.startswith("Step time (ms)")
    assert "Not measured before the run was cut short: batch 2 at context 8." in said.out
    assert "Table:" not in said.out
    assert f"{folder}/t.json: cannot be written" in said.err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["nowhere"], "nowhere: there is no such file: give a model's folder"),
        (["--preset", "huge"], "preset 'huge' is not known: give one of llama-8b"),
        (
            ["MODEL", "--out", "nowhere/table.json"],
            "--out nowhere/table.json: its folder does not exist; make it first",
        ),
        (["MODEL", "--out", "MODEL"], "is a folder: give the path of a file"),
        (["MODEL", "--out", "/dev/null"], "--out /dev/null: is no regular file"),
        (["MODEL", "--tp", "3"], "heads is 4, which 3 ranks cannot share evenly"),
        (["MODEL", "--drafter", "medusa"], "medusa: there is no such file"),
        (["MODEL", "--batches", "1000000", "--contexts", "1000000"], "the key-value cache of no cell fits"),
    ],
)
def test_errors_without_a_traceback(
    model: Path, given: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, which says what to give instead."""
    monkeypatch.chdir(model.parent)  # where the table would be by default
    assert call("--device", "cpu", *(str(model) if each == "MODEL" else each for each in given)) == 1
    assert told in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--batches", "0,1"), ("--batches", "1,,2"), ("--batches", "1.5"), ("--ks", "-1"), ("--ks", "1025"),
        ("--contexts", ""), ("--budget", "0"), ("--budget", "soon"), ("--tp", "0"), ("--acceptance", "1.2"),
        ("--device", "tpu"),
    ],
)  # fmt: skip
def test_options_are_checked(model: Path, option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A slip is told before anything is built, with the option's name."""
    with pytest.raises(SystemExit) as ended:
        call(model, f"{option}={value}")
    assert ended.value.code == 2
    assert f"argument {option}" in capsys.readouterr().err


@pytest.mark.parametrize("given", [[], ["MODEL", "--preset", "llama-8b"]])
def test_a_model_or_a_preset(model: Path, given: list[str]) -> None:
    """One of them, not both."""
    with pytest.raises(SystemExit):
        call(*(str(model) if each == "MODEL" else each for each in given))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0), ("90s", 90.0), ("2m", 120.0), ("1h", 3600.0), ("0.5m", 30.0), ("1h30m", 5400.0),
        ("1h2m3s", 3723.0), (" 5M ", 300.0), ("2m30s", 150.0),
    ],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    """A number alone is seconds; parts go from large to small."""
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "0", "0m", "-5", "5 m", "5d", "m", "1m1h", "1e3", "nan", "inf", "٣m", "1.5m30s", "9" * 400 + "h"]
)
def test_no_durations(text: str) -> None:
    """The error shows what was given, and how it is written."""
    with pytest.raises(argparse.ArgumentTypeError, match="give a time above 0, as 90, 90s, 2m, 1h or 1h30m"):
        duration(text)
