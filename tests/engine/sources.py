"""vLLM's source read without importing it: from a folder, a wheel or a source archive, parsed and looked up by name."""

from __future__ import annotations

import ast
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

Read = Callable[[str], str | None]


class Found(NamedTuple):
    """A class and the module that it is written in."""

    module: str
    node: ast.ClassDef


def reader(place: Path) -> Read:
    """A function from a path such as ``vllm/version.py`` to its text, ``None`` where there is no such file.

    Parameters
    ----------
    place
        A folder that holds the package ``vllm``, the package itself, a wheel, or a source archive.

    Raises
    ------
    FileNotFoundError
        If there is no vLLM in ``place``.
    """
    read = _reader(place)
    if read("vllm/__init__.py") is None:
        raise FileNotFoundError(f"{place} holds no package vllm: name a folder with it, a wheel or a source archive")
    return read


def _reader(place: Path) -> Read:
    if place.is_dir():
        root = place.parent if (place / "__init__.py").is_file() and place.name == "vllm" else place
        return lambda path: _text(root / path)
    if zipfile.is_zipfile(place):
        return lambda path: _zipped(place, path)
    if place.is_file() and tarfile.is_tarfile(place):
        with tarfile.open(place) as archive:
            texts = {}
            for member in archive:  # in order: going back and forth in a compressed file costs minutes
                path = member.name.partition("/")[2]
                content = archive.extractfile(member) if path.startswith("vllm/") and path.endswith(".py") else None
                if content is not None:
                    texts[path] = content.read().decode()
        return texts.get
    return lambda path: None


def _zipped(wheel: Path, path: str) -> str | None:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(path).decode() if path in archive.namelist() else None


def _text(path: Path) -> str | None:
    return path.read_text("utf-8") if path.is_file() else None


class Tree:
    """One version's modules, parsed when first asked for.

    Parameters
    ----------
    read
        Gives the text of a file, see :func:`reader`.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._modules: dict[str, tuple[ast.Module, bool] | None] = {}

    @property
    def version(self) -> str:
        """What the build wrote into ``vllm/_version.py``; ``unknown`` in a tree that was never built."""
        written = re.search(r"^__version__ = (?:version = )?'([^']+)'", self._read("vllm/_version.py") or "", re.M)
        return written[1] if written else "unknown"

    def module(self, name: str) -> ast.Module | None:
        """The module ``name``, plain or a package's ``__init__``."""
        parsed = self._parsed(name)
        return parsed[0] if parsed else None

    def _parsed(self, name: str) -> tuple[ast.Module, bool] | None:
        if name not in self._modules:
            path = name.replace(".", "/")
            plain, package = self._read(f"{path}.py"), self._read(f"{path}/__init__.py")
            text = package if plain is None else plain
            self._modules[name] = None if text is None else (ast.parse(text), plain is None)
        return self._modules[name]

    def find_class(self, module: str, name: str) -> Found | None:
        """The class that ``module`` has under ``name``, its own or imported from another module of vLLM."""
        parsed = self._parsed(module)
        if parsed is None:
            return None
        tree, package = parsed
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                return Found(module, node)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    source = _absolute(module, package, node)
                    if (alias.asname or alias.name) == name and source.startswith("vllm") and source != module:
                        return self.find_class(source, alias.name)
        return None

    def lineage(self, module: str, name: str) -> Iterator[Found]:
        """The class and, after it, those it is derived from, as far as they are vLLM's."""
        found = self.find_class(module, name)
        if found is None:
            return
        yield found
        for base in found.node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(plain, ast.Name) and plain.id != name:
                yield from self.lineage(found.module, plain.id)

    def members(self, module: str, name: str, *, instance: bool = False) -> set[str]:
        """Names in the body of a class and its bases; with ``instance`` those that methods set on ``self`` too."""
        names: set[str] = set()
        for _, node in self.lineage(module, name):
            for statement in node.body:
                names |= _bound(statement)
            if instance:
                names |= {
                    target.attr
                    for target in ast.walk(node)
                    if isinstance(target, ast.Attribute)
                    and isinstance(target.ctx, ast.Store)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                }
        return names

    def functions(self, module: str) -> set[str]:
        """Names of the functions that ``module`` defines; empty where there is no such module."""
        tree = self.module(module)
        return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} if tree else set()

    def function(self, module: str, name: str, function: str) -> ast.FunctionDef | None:
        """A method of a class, its own or a base's."""
        for _, node in self.lineage(module, name):
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == function:
                    return statement
        return None


def mentions(node: ast.AST, name: str) -> list[tuple[int, int]]:
    """Where ``name`` stands in ``node``, as a variable, an attribute or an argument's name: line and column."""
    places = []
    for part in ast.walk(node):
        named = getattr(part, "id", None) or getattr(part, "attr", None)
        if isinstance(part, ast.keyword):
            named = part.arg
        if named == name:
            places.append((part.end_lineno or part.lineno, part.end_col_offset or 0))  # type: ignore[attr-defined]
    return sorted(places)


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, ast.AnnAssign):
        return {statement.target.id} if isinstance(statement.target, ast.Name) else set()
    if isinstance(statement, ast.Assign):
        return {target.id for target in statement.targets if isinstance(target, ast.Name)}
    if isinstance(statement, ast.If):
        return set().union(*map(_bound, statement.body + statement.orelse))
    return set()


def _absolute(module: str, package: bool, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    kept = parts[: len(parts) - node.level + package]
    return ".".join([*kept, node.module] if node.module else kept)
