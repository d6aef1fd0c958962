"""What the variables ask for, and all that is wrong with them."""

from __future__ import annotations

import pytest

from adaptk.doctor import environment
from adaptk.doctor.facts import Facts, Options
from adaptk.settings import Mode, Settings
from tests.doctor.made import by_id, made_facts


def test_all_that_is_wrong_is_found_at_once() -> None:
    """Each bad variable has a line of its own, and the good ones hold."""
    env = {
        "ADAPTK": "onn",
        "ADAPTK_BUDGET": "2",
        "ADAPTK_SEDE": "1",
        "ADAPTK_ARMS": "",
        "ADAPTK_SEED": "5",
        "PATH": "x",
    }
    told = environment.read(env)
    assert [finding.id for finding in told.wrong] == [
        "settings.ADAPTK", "settings.ADAPTK_BUDGET", "settings.ADAPTK_SEDE",
    ]  # fmt: skip
    assert {finding.status for finding in told.wrong} == {"fail"}
    assert told.settings == Settings(mode="on", seed=5)
    assert told.variables == {"ADAPTK": "on", "ADAPTK_SEED": "5"}
    found = by_id(environment.findings(told, Facts()))
    assert "settings.mode" not in found  # the variable is there, and wrong
    assert found["settings.given"].what == "set: seed 5"


@pytest.mark.parametrize("name", ["adaptk", "adaptk_seed", "Adaptk_Trace", "ADAPTKTABLE"])
def test_names_that_nobody_reads(name: str) -> None:
    """What adaptk would pass over in silence is told."""
    (finding,) = environment.read({name: "1"}).wrong
    assert (finding.status, finding.id) == ("warn", f"settings.{name}")


@pytest.mark.parametrize(
    ("env", "status", "said"),
    [
        ({}, "note", "ADAPTK is not set"),
        ({"ADAPTK": " "}, "note", "ADAPTK is not set"),
        ({"ADAPTK": "0"}, "note", "ADAPTK=off: vLLM is left untouched"),
        ({"ADAPTK": "SHADOW"}, "ok", "vLLM's own K is played"),
        ({"ADAPTK": "true"}, "ok", "adaptk chooses K"),
    ],
)
def test_the_mode(env: dict[str, str], status: str, said: str) -> None:
    """Off and unset are looked at as if it were on."""
    told = environment.read(env)
    found = by_id(environment.findings(told, Facts()))["settings.mode"]
    assert found.status == status
    assert said in found.what
    assert told.settings.mode == ("shadow" if "SHADOW" in str(env) else "on")


@pytest.mark.parametrize(
    ("variable", "option", "status", "said"),
    [
        (None, "on", "ok", "additional_config asks for mode on"),
        ("shadow", "on", "ok", "additional_config asks for mode on"),
        ("on", "off", "note", "additional_config asks for mode off: vLLM is left untouched"),
        ("off", "on", "note", "ADAPTK=off: vLLM is left untouched"),
    ],
)
def test_the_configuration_may_ask(variable: str | None, option: Mode, status: str, said: str) -> None:
    """Its mode holds over the variable's, unless that says off."""
    told = environment.read({} if variable is None else {"ADAPTK": variable})
    found = by_id(environment.findings(told, Facts(options=Options(mode=option))))["settings.mode"]
    assert found.status == status
    assert said in found.what


def test_the_settings_of_the_engine_are_shown() -> None:
    """Those that hold there, whoever gave them."""
    facts = made_facts(settings=Settings(mode="on", budget=0.02, arms=(0, 3), strict=True))
    found = by_id(environment.findings(environment.read({}), facts))
    assert found["settings.given"].what == "set: arms 0,3, budget 0.02"
    assert found["settings.strict"].status == "note"


def test_what_is_wrong_in_the_configuration() -> None:
    """Every wrong option keeps adaptk out."""
    options = Options(mode="on", wrong=("a is refused", "b is refused"))
    found = by_id(environment.findings(environment.read({}), Facts(options=options)))
    assert [found[f"settings.option_{i}"].what for i in (1, 2)] == ["a is refused", "b is refused"]
    assert found["settings.option_1"].status == "fail"
