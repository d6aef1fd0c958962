"""``adaptk mode``: the file that it writes is one that a server follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.cli.main import main
from adaptk.vllm_plugin.control import read


@pytest.mark.parametrize("mode", ["on", "shadow", "off"])
def test_what_is_written_is_what_is_read(mode: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By a server as by the command itself; nothing else is left in the folder."""
    path = tmp_path / "mode"
    path.write_text("shadow")
    assert main(["mode", str(path), mode]) == 0
    assert read(path) == mode
    assert mode in capsys.readouterr().out
    assert main(["mode", str(path)]) == 0
    assert capsys.readouterr().out == f"{mode}\n"
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_file_there_is_no_mode_to_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing on standard output that a script could take for one."""
    assert main(["mode", str(tmp_path / "mode")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "there is no " in err
    assert "the mode that it was started with" in err


@pytest.mark.parametrize("content", [b"", b"yes", b"\xff", b"on" * 1000])
def test_what_is_no_mode_is_said_to_be_none(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the remedy."""
    path = tmp_path / "mode"
    path.write_bytes(content)
    assert main(["mode", str(path)]) == 1
    assert "write on, shadow or off" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content", [b'{"schema_version": 1}\n', b"onn", b" \n" * 10_000 + b"text", b"\xff\xfe", b"on" * 1000]
)
def test_another_file_is_not_written_over(content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table, say, whose name was given by mistake: it stays, and is named in one line with the remedy."""
    path = tmp_path / "table.json"
    path.write_bytes(content)
    assert main(["mode", str(path), "on"]) == 1
    err = capsys.readouterr().err
    assert path.read_bytes() == content
    assert str(path) in err
    assert "ADAPTK_CONTROL" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b" \n\t", b"SHADOW\r\n", b"\xef\xbb\xbfoff", b"0"])
def test_a_mode_or_nothing_is_written_over(content: bytes, tmp_path: Path) -> None:
    """However it was spelt, and by whatever editor."""
    path = tmp_path / "mode"
    path.write_bytes(content)
    assert main(["mode", str(path), "on"]) == 0
    assert read(path) == "on"


@pytest.mark.parametrize("place", [".", "missing/mode", "mode-{rank}", "\0"])
def test_what_cannot_be_written_is_refused(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line that names it; the file of no rank is nobody's."""
    assert main(["mode", f"{tmp_path}/{place}", "on"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("adaptk mode: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_another_word_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written."""
    with pytest.raises(SystemExit) as end:
        main(["mode", str(tmp_path / "mode"), "maybe"])
    assert end.value.code == 2
    assert not (tmp_path / "mode").exists()
