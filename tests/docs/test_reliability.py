"""README's tables of faults: every test that a line names is there and runs, and no test of a fault lacks a line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.documents import ROOT, read

# Markers under which a test does not run, or need not pass, in the suite.
IDLE = {"skip", "xfail", "benchmark"}


HEAD = "| what happens | what adaptk does | shown by |\n|---|---|---|\n"


def rows() -> list[list[str]]:
    """The cells of the tables' lines."""
    section = read("README.md").partition("\n## Reliability\n")[2].partition("\n## ")[0]
    tables = [after.partition("\n\n")[0] for after in section.split(HEAD)[1:]]
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def named() -> list[str]:
    """The tests that the table names."""
    return [name for *_, tests in rows() for name in re.findall(r"`(tests/[^`]+)`", tests)]


@cache
def _tests_of(file: str) -> dict[str, set[str]]:
    """Tests and classes of tests in a file by ``Class::name``, each with the markers on it and around it."""
    body = ast.parse((ROOT / file).read_text()).body
    return dict(_within(body, "", _marks_of_module(body)))


def _within(body: list[ast.stmt], prefix: str, marks: set[str]) -> Iterator[tuple[str, set[str]]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            own = marks | {mark for each in node.decorator_list for mark in _marks(each)}
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                yield prefix + node.name, own
                yield from _within(node.body, f"{prefix}{node.name}::", own)
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield prefix + node.name, own


def _marks_of_module(body: list[ast.stmt]) -> set[str]:
    assigned = [node for node in body if isinstance(node, ast.Assign)]
    given = [node.value for node in assigned if ast.unparse(node.targets[0]) == "pytestmark"]
    return {mark for value in given for mark in _marks(value)}


def _marks(node: ast.expr) -> set[str]:
    return set(re.findall(r"\bmark\.(\w+)", ast.unparse(node)))


def test_a_line_says_what_happens_what_adaptk_does_and_which_test_shows_it() -> None:
    """Three cells each, none of them empty, the last one nothing but tests."""
    assert len(rows()) > 40
    for row in rows():
        assert len(row) == 3, row
        assert all(row), row
        assert re.fullmatch(r"`tests/[^`]+`(, `tests/[^`]+`)*", row[2]), row


def test_no_two_lines_are_of_the_same_fault() -> None:
    """Each is named once, and no test twice."""
    happens = [row[0] for row in rows()]
    assert len(set(happens)) == len(happens)
    assert len(set(named())) == len(named())


@pytest.mark.parametrize("name", named())
def test_a_test_that_is_named_runs(name: str) -> None:
    """It is in that file, and nothing keeps it from running with the rest of the suite."""
    file, _, test = name.partition("::")
    assert re.fullmatch(r"tests/(\w+/)*test_\w+\.py", file)
    found = _tests_of(file)
    assert test in found
    assert not found[test] & IDLE


def test_every_fault_from_outside_has_a_line() -> None:
    """All tests of ``tests/faults`` are named, by themselves or with their class."""
    lines = set(named())
    for path in sorted(ROOT.glob("tests/faults/test_*.py")):
        file = str(path.relative_to(ROOT))
        for test in _tests_of(file):
            whole = f"{file}::{test}"
            inner = any(line.startswith(f"{whole}::") for line in lines)
            assert whole in lines or whole.rpartition("::")[0] in lines or inner, whole
