"""What the README promises on its first screen and in its table of settings."""

from __future__ import annotations

import re
from typing import Any

from adaptk import Settings
from tests.docs.documents import read

README = read("README.md")
DEFAULTS: dict[str, Any] = dict(zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True))
FIRST_SCREEN = 40


def rows() -> dict[str, list[str]]:
    """The cells of the table of settings, by the field that each is about."""
    found = re.findall(r"^\| `(ADAPTK(?:_[A-Z_]+)?)` \|(.*)\|$", README, re.MULTILINE)
    return {
        "mode" if name == "ADAPTK" else name.removeprefix("ADAPTK_").lower(): [cell.strip() for cell in rest.split("|")]
        for name, rest in found
    }


def test_every_setting_is_in_the_table() -> None:
    """Each setting has a row, and no row is of another one."""
    assert set(rows()) == set(DEFAULTS)


def test_the_table_says_the_defaults() -> None:
    """As they are in the code; a setting without one has none."""
    for name, (_, said, _) in rows().items():
        default = DEFAULTS[name]
        if name == "arms":
            assert default is None
            assert said.startswith("0, 1, 3, 7 cut at")
        elif default is None:
            assert said.startswith("none"), name
        else:
            assert said.strip("`") == str(int(default) if isinstance(default, bool) else default), name


def test_what_has_a_unit_says_it() -> None:
    """Numbers of a quantity are followed by what they count."""
    units = {name: unit for name, (_, _, unit) in rows().items() if unit}
    assert units == {
        "arms": "drafts per request", "min_k": "drafts per request", "max_itl_ms": "ms", "budget": "ratio",
        "trace_max_mb": "MB",
    }  # fmt: skip


def test_every_setting_named_is_one() -> None:
    """No variable that adaptk would refuse is named anywhere."""
    known = {"ADAPTK" if name == "mode" else f"ADAPTK_{name.upper()}" for name in DEFAULTS}
    assert set(re.findall(r"\bADAPTK(?:_[A-Z_]+)?\b", README)) <= known


def test_the_first_screen_says_how_to_start_and_how_much() -> None:
    """Within the first lines: three commands, what was measured, and what was not."""
    first = "\n".join(README.splitlines()[:FIRST_SCREEN])
    for said in ("pip install", "ADAPTK=shadow", "adaptk report", "set-up", "simulated", "on a GPU yet"):
        assert said in first, said


def test_demo_and_test_are_two_commands() -> None:
    """A block of its own holds just these."""
    assert "```sh\nmake demo\nmake test\n```" in README
