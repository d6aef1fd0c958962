"""Completion in shells: bash completes with the printed script."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from adaptk.cli.completion import SHELLS
from adaptk.cli.main import main

pytest.importorskip("shtab")
_ASK = """\
source "$1"
cd "$2"
COMP_WORDS=("${@:3}")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
function=$(complete -p adaptk | sed 's/.*-F \\([^ ]*\\).*/\\1/')
$function adaptk "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", "bash"])
    assert end.value.code == 0
    path = tmp_path / "adaptk.bash"
    path.write_text(capsys.readouterr().out)
    return path


def completed(script: Path, folder: Path, *words: str) -> set[str]:
    """What bash offers for the last of ``words``."""
    ask = ["bash", "-c", _ASK, "bash", str(script), str(folder), *words]
    done = subprocess.run(ask, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_commands_options_values_and_files(script: Path, tmp_path: Path) -> None:
    """As somebody who presses the tab key would see it."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "table.json").touch()
    assert completed(script, folder, "adaptk", "re") == {"replay", "report"}
    assert completed(script, folder, "adaptk", "table", "co") == {"correct"}
    assert completed(script, folder, "adaptk", "table", "show", "--max") == {"--max-batch"}
    assert completed(script, folder, "adaptk", "table", "show", "ta") == {"table.json"}
    assert completed(script, folder, "adaptk", "surface", "--device", "cu") == {"cuda"}
    assert completed(script, folder, "adaptk", "replay", "--trace", "ta") == {"table.json"}
    assert completed(script, folder, "adaptk", "mode", "file", "sh") == {"shadow"}


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the commands."""
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", shell])
    assert end.value.code == 0
    script = capsys.readouterr().out
    assert "surface" in script
    assert "--print-completion" in script


def test_another_shell_and_a_missing_package_are_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the shells that there are, and with what to install."""
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", "fishes"])
    assert end.value.code == 2
    assert "'bash', 'zsh', 'tcsh'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", "bash"])
    assert end.value.code == 2
    assert "pip install 'adaptk[tools]'" in capsys.readouterr().err
