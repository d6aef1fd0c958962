"""``adaptk table``: what a person or a script gets to see."""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from adaptk.cli import table as command
from adaptk.table import GoodputTable
from tests.tabletools.measured import of_levels, public_rows, public_table
from tests.tabletools.test_correcting import snapshot, tables

FIELD = "num_speculative_tokens_per_batch_size"
SCRIPT = """
import argparse, sys
from adaptk.cli import table
parser = argparse.ArgumentParser(prog="adaptk table")
table.add_arguments(parser)
sys.exit(table.run(parser.parse_args()))
"""


def run(*words: object) -> int:
    parser = argparse.ArgumentParser(prog="adaptk table")
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "public.json"
    public_table().save(path)
    return path


class TestShow:
    def test_lines(self, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Plain text of at most 80 columns: no terminal is there."""
        assert run("show", saved) == 0
        out = capsys.readouterr().out
        assert "K=3 (best fixed)" in out
        assert "64 ░░  73  ██ 100* ▓▓  96" in out
        assert "\x1b" not in out
        assert max(map(len, out.splitlines())) <= 80

    def test_json(self, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The figures, and nothing else on standard output."""
        assert run("show", saved, "--json", "--max-batch", "64") == 0
        document = json.loads(capsys.readouterr().out)
        assert [[each["first"], each["last"], each["k"]] for each in document["runs"]] == [[1, 50, 3], [51, 64, 1]]
        assert document["name"] == "public"

    def test_png(self, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Written and named; a schedule has nothing to draw, and a folder must be there."""
        png = tmp_path / "map.png"
        assert run("show", saved, "--png", png) == 0
        assert png.read_bytes().startswith(b"\x89PNG")
        assert f"Figure: {png}" in capsys.readouterr().out
        schedule = tmp_path / "schedule.json"
        GoodputTable.from_schedule([[1, 8, 3]]).save(schedule)
        assert run("show", schedule, "--png", tmp_path / "none.png") == 2
        assert not (tmp_path / "none.png").exists()
        assert run("show", saved, "--png", saved) == 2
        assert run("show", saved, "--png", tmp_path / "no" / "map.png") == 2

    def test_a_schedule(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Shown as such, also as JSON."""
        path = tmp_path / "schedule.json"
        GoodputTable.from_schedule([[1, 8, 3], [9, 16, 0]]).save(path)
        assert run("show", path) == 0
        assert "no step times" in capsys.readouterr().out
        assert run("show", path, "--json") == 0
        assert json.loads(capsys.readouterr().out)["schedule"] == [[1, 8, 3], [9, 16, 0]]


class TestCheck:
    def test_status(self, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """0 nothing found, 1 something, 2 no table."""
        assert run("check", saved) == 0
        assert "Nothing looks wrong" in capsys.readouterr().out
        doubtful = tmp_path / "doubtful.json"
        GoodputTable.from_rows(public_rows()[:-1], public_table().acceptance).save(doubtful)
        assert run("check", doubtful) == 1
        assert "- batch 256: no row for k 5" in capsys.readouterr().out
        assert run("check", doubtful, "--json") == 1
        assert len(json.loads(capsys.readouterr().out)["suspicious"]) == 1

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 9}', '{"schema_version": 1, "rows": [{}]}'])
    def test_no_table(self, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """One line on standard error that names the file."""
        path = tmp_path / "broken.json"
        path.write_text(text)
        assert run("check", path) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(f"adaptk table check: {path}: ")
        assert captured.err.count("\n") == 1


class TestExport:
    def test_standard_output_is_json_alone(self, saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Advice goes to standard error."""
        assert run("export", "--vllm", saved, "--max-batch", "256") == 0
        captured = capsys.readouterr()
        assert json.loads(captured.out) == {
            "num_speculative_tokens": 3,
            FIELD: [[1, 50, 3], [51, 169, 1], [170, 256, 0]],
        }
        assert "PIECEWISE" in captured.err
        assert max(map(len, captured.err.splitlines())) <= 80

    def test_options(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Context, arms and merging are obeyed."""
        path = tmp_path / "levels.json"
        of_levels(512, 16_384).save(path)
        arguments = ("--context", "16384", "--arms", "0,1", "--min-gain", "0.05")
        assert run("export", path, *arguments) == 0
        out = json.loads(capsys.readouterr().out)
        assert {k for _, _, k in out[FIELD]} <= {0, 1}

    @pytest.mark.parametrize(
        "option", [("--min-gain", "2"), ("--arms", "a"), ("--max-batch", "0"), ("--context", "-1")]
    )
    def test_impossible_options(self, option: tuple[str, str], saved: Path) -> None:
        """Refused by the parser."""
        with pytest.raises(SystemExit) as end:
            run("export", saved, *option)
        assert end.value.code == 2


class TestImport:
    def test_there_and_back(self, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """What export printed can be imported, and chooses the same."""
        assert run("export", saved) == 0
        source, out = tmp_path / "config.json", tmp_path / "schedule.json"
        source.write_text(capsys.readouterr().out)
        assert run("import", source, "--out", out, "--acceptance", "0.68,0.39", "--marginal") == 0
        made = GoodputTable.load(out)
        assert made.to_schedule(1024) == public_table().to_schedule(1024)
        assert made.acceptance == pytest.approx((0.68, 0.39 / 0.68))
        assert "no step times" in capsys.readouterr().out

    def test_a_csv(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """What is missing is said."""
        source, out = tmp_path / "cells.csv", tmp_path / "table.json"
        source.write_text("bs,k,itl\n1,0,6.5\n1,3,8.8\n")
        assert run("import", source, "--from", "csv", "--out", out) == 0
        assert GoodputTable.load(out).itl_ms(1, 3) == 8.8
        assert "acceptance is unknown" in capsys.readouterr().out

    def test_refusals(self, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The input is never the output, and --marginal needs something to convert."""
        source = tmp_path / "schedule.json"
        source.write_text("[[1, 8, 3]]")
        assert run("import", source, "--out", source) == 2
        assert source.read_text() == "[[1, 8, 3]]"
        assert run("import", source, "--out", tmp_path / "out.json", "--marginal") == 2
        assert run("import", tmp_path / "missing", "--out", tmp_path / "out.json") == 2
        assert run("import", saved, "--out", tmp_path / "out.json") == 2
        assert not (tmp_path / "out.json").exists()
        assert all(line.startswith("adaptk table import: ") for line in capsys.readouterr().err.splitlines())


class TestDiff:
    def test_status(self, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """0 the same decisions, 1 others, 2 no table."""
        other = tmp_path / "other.json"
        rows = [row | {"itl_ms": row["itl_ms"] * (1.3 if row["k"] else 1.0)} for row in public_rows()]
        GoodputTable.from_rows(rows, public_table().acceptance).save(other)
        assert run("diff", saved, saved) == 0
        assert "The same K at every batch size" in capsys.readouterr().out
        assert run("diff", saved, other) == 1
        assert "Best K that differ" in capsys.readouterr().out
        assert run("diff", saved, other, "--json", "--max-batch", "256") == 1
        assert json.loads(capsys.readouterr().out)["same_decisions"] is False
        assert run("diff", saved, tmp_path / "missing.json") == 2


class TestCorrect:
    def test_a_corrected_table(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Written with what it was made of."""
        seed, state, new = (tmp_path / name for name in ("seed.json", "state.json", "new.json"))
        made = tables()["timed"]
        assert made is not None
        made.save(seed)
        state.write_text(json.dumps({"controller": snapshot("timed")}))
        assert run("correct", seed, "--state", state, "--out", new) == 0
        corrected = GoodputTable.load(new)
        assert corrected.meta["provenance"]["corrected_from"] == "seed.json"
        assert corrected.key == {"device": "H100"}
        assert "after 200 steps" in capsys.readouterr().out

    def test_without_a_table(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Only where that is said."""
        state, new = tmp_path / "state.json", tmp_path / "new.json"
        state.write_text(json.dumps(snapshot("none")))
        assert run("correct", "--state", state, "--out", new) == 2
        assert "--no-table" in capsys.readouterr().err
        assert run("correct", "--no-table", "--state", state, "--out", new) == 0
        assert GoodputTable.load(new).has_times

    def test_refusals(self, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Another table, an output that is an input, a missing state."""
        state, new = tmp_path / "state.json", tmp_path / "new.json"
        state.write_text(json.dumps(snapshot("levels")))
        before = saved.read_bytes()
        assert run("correct", saved, "--state", state, "--out", new) == 2
        assert "another table" in capsys.readouterr().err
        assert run("correct", saved, "--state", state, "--out", saved) == 2
        assert run("correct", saved, "--state", state, "--out", state) == 2
        assert run("correct", saved, "--state", tmp_path / "missing", "--out", new) == 2
        assert saved.read_bytes() == before
        assert not new.exists()
        assert run("correct", saved, "--state", state, "--out", new, "--allow-mismatch") == 0


class TestStreams:
    def processed(self, saved: Path, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, words[0], str(saved), *words[1:]], stderr=subprocess.PIPE, **more
        )

    def test_a_reader_that_has_gone_is_no_error(self, saved: Path) -> None:
        """As ``| head`` leaves."""
        process = self.processed(saved, "show", stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()

    def test_a_terminal_gets_colour(self, saved: Path) -> None:
        """The same signs, in colour beside it."""
        master, slave = os.openpty()
        env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
        env.pop("NO_COLOR", None)
        process = self.processed(saved, "show", stdout=slave, env=env)
        os.close(slave)
        out = b""
        with suppress(OSError):  # Linux ends a terminal whose other side is closed with an error
            while part := os.read(master, 65_536):
                out += part
        _, error = process.communicate(timeout=60)
        os.close(master)
        assert (process.returncode, error) == (0, b"")
        assert b"\x1b[" in out
        assert "██".encode() in out

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
    def test_a_full_disk_is_one(self, saved: Path) -> None:
        """One line, not a traceback."""
        with Path("/dev/full").open("wb") as full:
            process = self.processed(saved, "show", stdout=full)
            _, error = process.communicate(timeout=60)
        assert process.returncode == 2
        assert error.startswith(b"adaptk table show: what came out cannot be shown")
        assert error.count(b"\n") == 1

    def test_an_encoding_without_block_characters(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """ASCII stands for them, and a question mark for what a name holds."""
        public_table({"name": "模型"}).save(saved)
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
        assert run("show", saved) == 0
        assert b"64 ..  73  ## 100* ++  96" in out.getvalue()
        assert out.getvalue().startswith(b"??: 20 rows")

    def test_no_standard_output_at_all(self, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As under a service that closed it; the status is what counts."""
        monkeypatch.setattr(sys, "stdout", None)
        assert run("show", saved) == 0
        assert run("check", saved) == 0
