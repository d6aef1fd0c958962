"""A release tried as its users get it: built twice, installed where nothing else is, and tested from there.

    python -m tests.packaging.check [--out FOLDER]

1. Wheel and sdist are built here and from a clone of what is committed, in another folder, with another umask, locale
   and clock: they must be the same, byte for byte.
2. The wheel goes into an empty environment with nothing but what it needs. The whole core must load there, its
   commands run, vLLM's entry point be listed, and mypy see its types.
3. With the extra ``tools``, pytest and hypothesis beside it, the quick tests of the core, and those of commands and
   pages, run there out of the sdist, whose own package is taken away.

Needs git, a package index, and some six minutes. Ends with status 1 at the first thing that fails. ``--out`` leaves the
two files there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.packaging.distributions import ROOT, STRANGER, Built, build

# Of the core's tests those that are quick.
QUICK = (
    "acceptance", "batch", "belief", "cells", "controller", "controller_refusals", "controller_versions",
    "drift", "evidence", "forks", "grid", "guard", "htmlpage", "import", "latency", "mirror", "onefile", "outputs",
    "planner", "prior", "progress", "roofline", "schedule", "settings", "statefile", "step", "supply", "table",
    "tablecheck", "tabledrafts", "tablefile", "tablekey", "tablerows", "thompson", "trace", "trace_cut",
    "tracepieces"
)  # fmt: skip
TOOLS = ("tests/cli/test_main.py", "tests/cli/test_grafana.py", "tests/cli/test_table.py", "tests/live")
USER = """\
from adaptk import Controller, GoodputTable, StepRecord

controller = Controller(GoodputTable.from_schedule([[1, 8, 3]]))
k: int = controller.choose(4)
controller.observe(StepRecord(batch_size=4, elapsed_ms=9.0, k=k, drafted=[0] * 4, accepted=[0] * 4))
"""
CORE = """\
import importlib, pkgutil, adaptk
for module in pkgutil.iter_modules(adaptk.__path__, "adaptk."):
    if not module.ispkg and module.name != "adaptk.__main__":
        importlib.import_module(module.name)
"""
MISTAKEN = USER + "name: str = controller.choose(4)\n"


class CheckError(RuntimeError):
    """Something did not hold."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run all of it; 1 where something did not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.packaging.check", description=(__doc__ or "").splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--out", type=Path, help="where to leave wheel and sdist (default: nowhere)")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            built = build(ROOT, folder / "dist")
            same_from_a_clone(built, folder)
            python = installed(built, folder)
            commands_run(python, folder)
            types_are_seen(python, folder)
            tests_pass(built, python, folder)
        except (CheckError, RuntimeError) as error:
            print(f"FAILED: {error}", file=sys.stderr)
            return 1
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
            for path in built:
                shutil.copy(path, given.out)
    print("The release is as it should be.")
    return 0


def same_from_a_clone(built: Built, folder: Path) -> None:
    """What is committed builds the same elsewhere."""
    if _run(["git", "status", "--porcelain"], ROOT):
        print("Not compared with a clone: there are changes that are not committed.", flush=True)
        return
    _run(["git", "clone", "--quiet", str(ROOT), str(folder / "clone")], folder, umask=0o077)
    again = build(folder / "clone", folder / "again", umask=0o077, **STRANGER)
    if again.contents() != built.contents():
        raise CheckError(f"a clone of it builds otherwise: compare {built.wheel.name} and {built.sdist.name}")
    _say("A clone in another folder, with another umask, locale and clock builds the same bytes")


def installed(built: Built, folder: Path) -> Path:
    """The Python of an empty environment that the wheel was put into."""
    _run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    python = folder / "venv" / "bin" / "python"
    _pip(python, folder, "install", str(built.wheel))
    _pip(python, folder, "check")
    found = _run([str(python), "-c", "import adaptk; print(adaptk.__file__)"], folder)
    if str(folder) not in found:
        raise CheckError(f"adaptk comes from {found.strip()}, not from the wheel")
    listed = [line.split("==")[0].lower() for line in _pip(python, folder, "freeze").splitlines()]
    _say(f"Installed with nothing but {', '.join(name.split(' ')[0] for name in listed if name[:6] != 'adaptk')}")
    return python


def commands_run(python: Path, folder: Path) -> None:
    """The core, the command, the module, and the entry point for vLLM, without any extra."""
    _run([str(python), "-W", "error", "-c", CORE], folder)
    version = build_version()
    for command in ([str(python.with_name("adaptk"))], [str(python), "-m", "adaptk"]):
        if _run([*command, "--version"], folder).split() != ["adaptk", version]:
            raise CheckError(f"{' '.join(command)} --version does not say {version}")
        if "usage: adaptk" not in _run([*command, "--help"], folder):
            raise CheckError(f"{' '.join(command)} --help shows no usage")
    found = _run(
        [str(python), "-c", "from importlib.metadata import entry_points as e; print(e(group='vllm.general_plugins'))"],
        folder,
    )
    if "adaptk.vllm_plugin.plugin:register" not in found:
        raise CheckError(f"vLLM would not find it: {found.strip()}")
    _run([str(python), "-c", "from adaptk.vllm_plugin import register; register()"], folder)
    _say("The core loads, the commands run, and vLLM would find it")


def build_version() -> str:
    """The version of this folder."""
    from adaptk._version import __version__

    return __version__


def types_are_seen(python: Path, folder: Path) -> None:
    """A program that uses it right passes in strict mode, and one that does not is told: py.typed counts."""
    for name, text, said in (("right.py", USER, "Success"), ("mistaken.py", MISTAKEN, "Incompatible types")):
        (folder / name).write_text(text)
        mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", str(python), name]
        found = subprocess.run(mypy, cwd=folder, capture_output=True, text=True, check=False).stdout
        if said not in found:
            raise CheckError(f"mypy says of {name}: {found}")
    _run([str(python), "right.py"], folder)
    _say("Its types are seen from outside")


def tests_pass(built: Built, python: Path, folder: Path) -> None:
    """Out of the sdist, against what is installed."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(folder, filter="data")
    sources = folder / built.sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(sources / "adaptk")
    _pip(python, folder, "install", f"{built.wheel}[tools]", "pytest", "hypothesis")
    _pip(python, folder, "check")
    _say(f"The core's quick tests: {_tests(python, sources, [f'tests/test_{name}.py' for name in QUICK])}")
    _say(f"Those of commands and pages: {_tests(python, sources, TOOLS)}")


def _tests(python: Path, sources: Path, chosen: Sequence[str]) -> str:
    # The project's own options name plugins that are not there.
    command = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--import-mode=importlib"]
    return _run([*command, *chosen], sources).strip().splitlines()[-1]


def _pip(python: Path, folder: Path, *arguments: str) -> str:
    return _run([str(python), "-m", "pip", "--disable-pip-version-check", *arguments], folder)


def _run(command: Sequence[str], folder: Path, umask: int = -1) -> str:
    own = ("PYTHONPATH", "VIRTUAL_ENV", "ADAPTK")
    env = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, errors="replace", umask=umask, check=False
    )
    if done.returncode:
        raise CheckError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done.stdout


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}.", flush=True)


if __name__ == "__main__":
    sys.exit(main())
