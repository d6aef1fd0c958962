from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.settings import Settings, SettingsError
from tests.strategies import json_values

FULL = {
    "ADAPTK": "shadow",
    "ADAPTK_TABLE": "table.json",
    "ADAPTK_ARMS": "3,0, 1",
    "ADAPTK_MIN_K": "1",
    "ADAPTK_MAX_ITL_MS": "40.5",
    "ADAPTK_BUDGET": "0.02",
    "ADAPTK_SEED": "7",
    "ADAPTK_TRACE": "trace.{rank}.jsonl",
    "ADAPTK_STATE": "state.json",
    "ADAPTK_CONTROL": "control.json",
    "ADAPTK_METRICS_PORT": "9100",
    "ADAPTK_METRICS_HOST": "0.0.0.0",
    "ADAPTK_ALLOW_MISMATCH": "1",
    "ADAPTK_STRICT": "1",
}


def test_every_variable_is_read() -> None:
    assert Settings.from_env({**FULL, "PATH": "/bin", "VLLM_ADAPTK": "x"}) == Settings(
        mode="shadow",
        table="table.json",
        arms=(0, 1, 3),
        min_k=1,
        max_itl_ms=40.5,
        budget=0.02,
        seed=7,
        trace="trace.{rank}.jsonl",
        state="state.json",
        control="control.json",
        metrics_port=9100,
        metrics_host="0.0.0.0",
        allow_mismatch=True,
        strict=True,
    )


def test_every_field_has_a_variable() -> None:
    read = Settings.from_env(FULL)
    assert all(getattr(read, name) != getattr(Settings(), name) for name in Settings.__struct_fields__)


def test_nothing_set_is_off() -> None:
    assert Settings.from_env({}) == Settings() == Settings.from_env(dict.fromkeys(FULL, "  "))
    assert Settings().mode == "off"
    assert Settings(min_k=0, budget=0.01) == Settings()


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in FULL:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("ADAPTK_SEED", "5")
    assert Settings.from_env().seed == 5


@pytest.mark.parametrize(
    ("text", "mode"), [("on", "on"), ("ON", "on"), ("1", "on"), ("0", "off"), ("Shadow", "shadow")]
)
def test_spellings_of_the_mode(text: str, mode: str) -> None:
    assert Settings.from_env({"ADAPTK": text}).mode == mode


@pytest.mark.parametrize(("text", "strict"), [("1", True), ("true", True), ("off", False), ("0", False)])
def test_spellings_of_a_flag(text: str, strict: bool) -> None:
    assert Settings.from_env({"ADAPTK_STRICT": text}).strict is strict


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("ADAPTK", "yes"),
        ("ADAPTK_ARMS", "0,1,,3"),
        ("ADAPTK_ARMS", "0,-1"),
        ("ADAPTK_ARMS", "0,1,1"),
        ("ADAPTK_ARMS", "[0]"),
        ("ADAPTK_ARMS", "1.5"),
        ("ADAPTK_MIN_K", "-1"),
        ("ADAPTK_MIN_K", "1.0"),
        ("ADAPTK_MAX_ITL_MS", "0"),
        ("ADAPTK_MAX_ITL_MS", "nan"),
        ("ADAPTK_MAX_ITL_MS", "inf"),
        ("ADAPTK_MAX_ITL_MS", "10ms"),
        ("ADAPTK_BUDGET", "1.01"),
        ("ADAPTK_BUDGET", "-0.1"),
        ("ADAPTK_BUDGET", "nan"),
        ("ADAPTK_BUDGET", "1%"),
        ("ADAPTK_SEED", "-1"),
        ("ADAPTK_SEED", "x"),
        ("ADAPTK_METRICS_PORT", "0"),
        ("ADAPTK_METRICS_PORT", "65536"),
        ("ADAPTK_STRICT", "maybe"),
    ],
)
def test_a_bad_value_is_refused_with_variable_value_and_remedy(variable: str, text: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{variable}={re.escape(repr(text))} is refused: .*(give|use) "):
        Settings.from_env({variable: text})


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("ADAPTK_TABEL", "did you mean ADAPTK_TABLE?"),
        ("ADAPTK_MODE", "is not a setting"),
        ("ADAPTK_arms", "is not a setting"),
        ("ADAPTK_ZZZZZZZZ", "known are ADAPTK, ADAPTK_TABLE"),
        ("ADAPTK_", "is not a setting"),
    ],
)
def test_an_unknown_variable_is_refused_with_a_hint(variable: str, hint: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(variable)) as error:
        Settings.from_env({variable: "1"})
    assert hint in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "yes"},
        {"mode": None},
        {"arms": ()},
        {"arms": (0, 0)},
        {"arms": (0, True)},
        {"arms": 3},
        {"arms": "013"},
        {"min_k": None},
        {"min_k": True},
        {"max_itl_ms": -1.0},
        {"max_itl_ms": 10**400},
        {"max_itl_ms": "5"},
        {"budget": None},
        {"budget": True},
        {"budget": float("nan")},
        {"seed": 1.5},
        {"metrics_port": 70_000},
        {"metrics_host": ""},
        {"strict": "1"},
        {"strict": None},
        {"table": 5},
        {"table": ""},
        {"trace": True},
    ],
)
def test_a_bad_field_is_refused_by_name(fields: dict[str, Any]) -> None:
    [name] = fields
    with pytest.raises(SettingsError, match=rf"^{name} is "):
        Settings(**fields)


def test_arms_are_kept_in_rising_order() -> None:
    assert Settings(arms=[3, 0, 1]).arms == (0, 1, 3)  # type: ignore[arg-type]


def refusal(build: Callable[[], Settings]) -> str | None:
    try:
        build()
    except SettingsError as error:
        return str(error)
    return None


@given(st.sampled_from(Settings.__struct_fields__), json_values)
def test_any_value_is_taken_or_refused_by_name(name: str, value: Any) -> None:
    message = refusal(lambda: Settings(**{name: value}))
    assert message is None or message.startswith(name)


@given(st.sampled_from(sorted(FULL)), st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=8))
def test_any_text_is_taken_or_refused_by_name(variable: str, text: str) -> None:
    message = refusal(lambda: Settings.from_env({variable: text}))
    assert message is None or message.startswith(variable)
