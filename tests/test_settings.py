from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.quoted import plain
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
    "ADAPTK_TRACE_MAX_MB": "500",
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
        trace_max_mb=500,
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
        {"trace_max_mb": 15},
        {"trace_max_mb": 20.5},
        {"metrics_host": ""},
        {"metrics_host": "a\0b"},
        {"table": "a\0b"},
        {"trace": "\0"},
        {"state": "a\ud800"},
        {"control": "a\0b"},
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


class TestFromConfig:
    """Options of vLLM's ``additional_config``, over the environment."""

    OPTIONS: ClassVar[dict[str, Any]] = {
        name: getattr(Settings.from_env(FULL), name) for name in Settings.__struct_fields__
    }

    def test_every_setting_is_an_option(self) -> None:
        """As JSON gives it."""
        assert Settings.from_config(json.loads(json.dumps(self.OPTIONS)), {}) == Settings.from_env(FULL)

    def test_text_is_read_as_that_of_a_variable(self) -> None:
        """Dotted arguments arrive as text."""
        text = {"mode" if name == "ADAPTK" else name[7:].lower(): value for name, value in FULL.items()}
        assert Settings.from_config(text, {}) == Settings.from_env(FULL)

    def test_field_by_field_it_beats_the_environment(self) -> None:
        """What it leaves out is the environment's; null takes a variable back."""
        options = {"seed": 8, "budget": 0.5, "table": None}
        assert Settings.from_config(options, FULL) == msgspec.structs.replace(
            Settings.from_env(FULL), seed=8, budget=0.5, table=None
        )

    @pytest.mark.parametrize(
        ("options", "variable", "mode"),
        [
            ({}, None, "on"),
            ({}, " ", "on"),
            ({}, "shadow", "shadow"),
            ({"mode": "on"}, "shadow", "on"),
            ({"mode": "off"}, "on", "off"),
            ({"mode": True}, None, "on"),
            ({"mode": False}, "on", "off"),
            ({"mode": 1}, None, "on"),
            ({"mode": "on"}, "off", "off"),
            ({}, "0", "off"),
        ],
    )
    def test_the_mode(self, options: dict[str, Any], variable: str | None, mode: str) -> None:
        """Options alone mean on; YAML makes booleans of on and off; ``ADAPTK=off`` is stronger than all."""
        env = {} if variable is None else {"ADAPTK": variable}
        assert Settings.from_config(options, env).mode == mode

    @pytest.mark.parametrize("options", ["on", True, None, 3, ["mode"], [{"mode": "on"}]])
    def test_anything_but_an_object_is_refused(self, options: Any) -> None:
        """With an example."""
        with pytest.raises(SettingsError, match=r"additional_config adaptk=.* is refused: give an object of settings"):
            Settings.from_config(options, {})

    @pytest.mark.parametrize(
        ("name", "hint"),
        [("tabel", "did you mean table?"), ("ADAPTK_TABLE", "known are mode, table"), (3, "known are")],
    )
    def test_an_unknown_option_is_refused_with_a_hint(self, name: Any, hint: str) -> None:
        """It is named as it was written."""
        with pytest.raises(
            SettingsError, match=re.escape(f"additional_config adaptk.{name} is not a setting")
        ) as error:
            Settings.from_config({name: 1}, {})
        assert hint in str(error.value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("mode", "yes"),
            ("mode", 2),
            ("mode", None),
            ("table", ""),
            ("table", {"a": 1}),
            ("arms", 3),
            ("arms", []),
            ("arms", [0, 1.5]),
            ("arms", ["0", "x"]),
            ("arms", {"0": 1}),
            ("min_k", 1.0),
            ("budget", "much"),
            ("budget", None),
            ("seed", True),
            ("strict", "maybe"),
            ("strict", 2),
            ("metrics_port", 0),
        ],
    )
    def test_a_bad_value_is_refused_with_option_value_and_remedy(self, name: str, value: Any) -> None:
        message = refusal(lambda: Settings.from_config({name: value}, {}))
        assert message is not None
        assert message.startswith(f"additional_config adaptk.{name}={value!r} is refused: ")
        assert re.search("(give|use) ", message)

    @pytest.mark.parametrize("arms", [[7, 0, 1], "7,0,1", ["0", "1", "7"], (0, 1, 7)])
    def test_spellings_of_arms(self, arms: Any) -> None:
        """JSON, text, and the list of texts that vLLM makes of ``--additional-config.adaptk.arms+=0,1,7``."""
        assert Settings.from_config({"arms": arms}, {}).arms == (0, 1, 7)

    def test_a_bad_variable_is_refused_all_the_same(self) -> None:
        """Even where an option says the same setting."""
        with pytest.raises(SettingsError, match="ADAPTK_BUDGET"):
            Settings.from_config({"budget": 0.1}, {"ADAPTK_BUDGET": "2"})

    @given(st.dictionaries(st.text(max_size=8) | st.sampled_from(Settings.__struct_fields__), json_values, max_size=3))
    def test_any_options_are_taken_or_refused_by_name(self, options: dict[str, Any]) -> None:
        message = refusal(lambda: Settings.from_config(options, {}))
        assert message is None or any(message.startswith(f"additional_config adaptk.{plain(name)}") for name in options)


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
