"""What the code of adaptk never does, read from its source; Ruff's rules S (bandit) go with it in ``make lint``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import adaptk

ROOT = Path(adaptk.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))

# Modules that turn data into objects or code, reach a shell, or take what comes from a file for more than data.
NEVER_IMPORTED = frozenset({
    "pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "dbm", "yaml", "xml", "xmlrpc",
    "plistlib", "code", "codeop", "runpy", "imp", "pty", "commands", "ftplib", "telnetlib", "smtplib", "ctypes",
})  # fmt: skip
NEVER_CALLED = frozenset({"eval", "exec", "compile", "__import__", "execfile", "input", "breakpoint"})
NEVER_CALLED_OF = {
    "os": {"system", "popen", "execv", "execve", "execl", "spawnl", "spawnv", "putenv", "chmod", "chown", "umask"},
    "subprocess": {"getoutput", "getstatusoutput", "call", "check_call"},
    "tempfile": {"mktemp"},
    "np": {"load", "fromfile", "genfromtxt", "loadtxt"},
    "importlib": {"import_module"},
    "torch": {"load"},
}
# Where files are made or changed, and what for.
WRITERS = {
    "outputs.py": "everything that is written whole",
    "tracedisk.py": "the trace",
    "traceplace.py": "the trace, and an older one moved aside",
    "profile/journal.py": "the journal of a profile",
    "vllm_plugin/stateplace.py": "the state, moved aside where it is damaged",
    "demo/model.py": "the demo's model, unpacked for vLLM",
    "doctor/process.py": "what a process says, into a temporary file",
    "vllm_plugin/profile_process.py": "what an engine says, into its log",
    "cli/console.py": "standard output turned to the null device",
}
_WRITING = frozenset({
    "write_text", "write_bytes", "touch", "mkdir", "makedirs", "unlink", "rmdir", "rename", "replace", "symlink_to",
    "hardlink_to", "truncate", "ftruncate", "remove", "removedirs", "rmtree", "copy", "copyfile", "move", "link",
    "symlink", "mkfifo", "mknod",
})  # fmt: skip
_OF_PATHS = frozenset({"os", "shutil", "path", "scratch", "target", "folder", "file", "_path", "Path"})
# Mappings of names to modules that are imported by name: the names are written in the code.
NAMED_IMPORTS = frozenset({"cli/main.py", "doctor/installation.py", "vllm_plugin/compat.py", "vllm_plugin/plugin.py"})


def calls(source: Path) -> Iterator[tuple[str, str, ast.Call]]:
    """Each call in a file: what it is of (empty: a plain name), the name, and the node."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield "", node.func.id, node
            elif isinstance(node.func, ast.Attribute):
                of = node.func.value
                name = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
                yield name or "?", node.func.attr, node


def of(source: Path) -> str:
    return source.relative_to(ROOT).as_posix()


def executing(source: Path) -> Iterator[str]:
    """Where a file turns data into code or objects, or asks a shell."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (f"{of(source)}:{node.lineno}: {n}" for n in names if n.partition(".")[0] in NEVER_IMPORTED)
    for owner, name, node in calls(source):
        by_name = (owner, name) == ("importlib", "import_module") and of(source) in NAMED_IMPORTS
        words = {word.arg for word in node.keywords}
        if (
            (not owner and name in NEVER_CALLED)
            or (name in NEVER_CALLED_OF.get(owner, ()) and not by_name)
            or (owner == "subprocess" and "shell" in words)
            or "allow_pickle" in words
        ):
            yield f"{of(source)}:{node.lineno}: {owner}.{name}"


def writing(source: Path) -> Iterator[str]:
    """Where a file opens for writing, makes, moves or removes files."""
    for owner, name, node in calls(source):
        where = f"{of(source)}:{node.lineno}: {owner}.{name}"
        of_text = name == "replace" and len(node.args) == 2
        if name in _WRITING and owner in _OF_PATHS and not of_text:
            yield where
        if name == "open" and owner == "os":
            flags = {part.attr for part in ast.walk(node.args[1]) if isinstance(part, ast.Attribute)}
            if flags & {"O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC"}:
                yield where
        elif name == "open" and owner != "?":
            modes = [*node.args[0 if owner else 1 :][:1], *(word.value for word in node.keywords if word.arg == "mode")]
            texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
            if any(set(text) & set("wax+") for text in texts if len(text) <= 3):
                yield where


def test_nothing_turns_data_into_code() -> None:
    """No pickle, no evaluation, no shell, no module by a name that is not written here."""
    assert [where for source in SOURCES for where in executing(source)] == []


def test_files_are_written_in_known_places_alone() -> None:
    """Opened for writing, made, moved or removed: elsewhere they are only read; and each of the places does so."""
    found = {of(source): list(writing(source)) for source in SOURCES}
    assert {name: wheres for name, wheres in found.items() if wheres and name not in WRITERS} == {}
    assert {name for name in WRITERS if not found.get(name)} == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import pickle", 1),
        ("from yaml import load", 1),
        ("eval(x)", 1),
        ("os.system(x)", 1),
        ("subprocess.run(x, shell=True)", 1),
        ("np.load(x)", 1),
        ("importlib.import_module(x)", 1),
        ("table.load(x)", 0),
        ("re.compile(x)", 0),
    ],
)
def test_what_is_looked_for_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: int) -> None:
    """The search itself, by code that does it."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "a.py").write_text(text)
    assert len(list(executing(tmp_path / "a.py"))) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('open(x, "w")', 1),
        ('x.open("ab")', 1),
        ('open(x, mode="r+")', 1),
        ("os.open(x, os.O_RDWR | os.O_CREAT)", 1),
        ("path.replace(x)", 1),
        ("Path(x).open()", 0),
        ('open(x, "rb")', 0),
        ('path.replace("a", "b")', 0),
    ],
)
def test_writing_that_is_looked_for_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, found: int
) -> None:
    """The search itself, by code that does it."""
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "a.py").write_text(text)
    assert len(list(writing(tmp_path / "a.py"))) == found
