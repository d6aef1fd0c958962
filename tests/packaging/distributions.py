"""Builds of adaptk, from any folder, under any circumstances."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Whose umask lets nobody else read, whose clock is elsewhere, whose locale knows no UTF-8, who has another home.
STRANGER = {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "LANG": "C", "PYTHONHASHSEED": "7", "PYTHONUTF8": "0"}
_NOT_SOURCES = (
    ".git",
    ".venv*",
    "build",
    "dist",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    ".benchmarks",
    "*.egg-info",
)


class Built(NamedTuple):
    """The two files of a release."""

    wheel: Path
    sdist: Path

    def contents(self) -> tuple[bytes, bytes]:
        """Byte for byte."""
        return self.wheel.read_bytes(), self.sdist.read_bytes()


def build(sources: Path, target: Path, umask: int = 0o022, **env: str) -> Built:
    """Build both with the tools that are installed, the wheel out of the sdist, as releases are.

    Raises
    ------
    RuntimeError
        If that fails; it holds what was printed.
    """
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(sources)]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=os.environ | env, umask=umask, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    (wheel,), (sdist,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return Built(wheel, sdist)


def copied(target: Path, umask: int) -> Path:
    """A copy of the sources, made anew under another umask."""
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*_NOT_SOURCES), copy_function=shutil.copyfile)
    for path in target.rglob("*"):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)
    return target
