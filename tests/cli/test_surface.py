"""``adaptk surface``, end to end in this process."""

from __future__ import annotations

import argparse
import json
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
    monkeypatch.setattr(session, "run", lambda *given: real(*given, Steps()))


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
    assert "[2/2] batch 2, context 8" in said.err


def test_drafters(model: Path, tmp_path: Path) -> None:
    """None, an EAGLE-like head, and a model of its own: each is named in the key."""
    other = tmp_path / "small-one.json"
    other.write_text(json.dumps({**DENSE, "num_hidden_layers": 1}))
    for given, name in (("none", "none"), ("eagle", "eagle"), (other, "small-one")):
        assert call(model, "--out", tmp_path / "t.json", *QUICK, "--drafter", given) == 0
        assert GoodputTable.load(tmp_path / "t.json").meta["provenance"]["drafter"] == name


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

    monkeypatch.setattr("adaptk.demo.progress.Progress.done", done)
    out = tmp_path / "table.json"
    assert call(model, "--out", out, *QUICK) == 130
    table = GoodputTable.load(out)
    assert table.batches == (1,)
    assert table.meta["provenance"]["interrupted"] is True
    assert capsys.readouterr().out.startswith("Interrupted; this is what was measured until then.\n")


def test_an_interrupt_before_the_first_place_leaves_the_file(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older table is not overwritten by nothing."""

    def begin(watcher: object, what: str, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("adaptk.demo.progress.Progress.begin", begin)
    out = tmp_path / "table.json"
    out.write_text("old")
    assert call(model, "--out", out, *QUICK) == 130
    assert out.read_text() == "old"
    assert capsys.readouterr().err.endswith(
        f"adaptk surface: interrupted before anything was measured; {out} is left as it was\n"
    )


def test_a_file_that_cannot_be_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured is shown all the same, and the error says why it is not kept."""
    folder = tmp_path / "gone"
    folder.mkdir()
    real = session.run

    def run(*given: object) -> None:
        folder.rmdir()
        real(*given)

    monkeypatch.setattr(session, "run", run)
    assert call(model, "--out", folder / "t.json", *QUICK) == 1
    said = capsys.readouterr()
    assert said.out.startswith("Step time (ms)")
    assert f"{folder}/t.json: cannot be written" in said.err


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["nowhere"], "nowhere: there is no such file: give a model's folder"),
        (["--preset", "huge"], "preset 'huge' is not known: give one of llama-8b"),
        (["MODEL", "--out", "nowhere/table.json"], "nowhere/table.json: its folder does not exist: give --out a file"),
        (["MODEL", "--out", "MODEL"], "is no regular file: give --out a file"),
        (["MODEL", "--out", "/dev/null"], "/dev/null: is no regular file"),
        (["MODEL", "--tp", "3"], "heads is 4, which 3 ranks cannot share evenly"),
        (["MODEL", "--drafter", "medusa"], "medusa: there is no such file"),
        (["MODEL", "--batches", "1000000", "--contexts", "1000000"], "the key-value cache of no cell fits"),
    ],
)
def test_errors_without_a_traceback(
    model: Path, given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, which says what to give instead."""
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
