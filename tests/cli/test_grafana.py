"""``adaptk grafana``: the files as they are in the package."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from adaptk.cli.grafana import DASHBOARD, RULES
from adaptk.cli.main import main


@pytest.mark.parametrize(("argv", "name"), [([], DASHBOARD), (["--rules"], RULES)])
def test_what_is_printed_and_what_is_written_is_the_file(
    argv: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last byte."""
    held = (files("adaptk.data") / name).read_text(encoding="utf-8")
    assert main(["grafana", *argv]) == 0
    assert capsys.readouterr().out == held
    out = tmp_path / "file"
    assert main(["grafana", *argv, "--out", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == held
    assert capsys.readouterr().out.endswith(f": {out}\n")


def test_what_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason; a file that is there is replaced, as nothing that was measured is lost."""
    assert main(["grafana", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"adaptk grafana: --out {tmp_path}: is a folder: give the path of a file\n"
    (tmp_path / "old").write_text("old")
    assert main(["grafana", "--out", str(tmp_path / "old")]) == 0
    assert json.loads((tmp_path / "old").read_bytes())["uid"] == "adaptk"
