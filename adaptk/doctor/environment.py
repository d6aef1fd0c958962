"""The ``ADAPTK`` variables: every one that is wrong, and what the others ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from adaptk.doctor.facts import Facts
from adaptk.doctor.finding import Finding
from adaptk.doctor.switch import Switch, switch
from adaptk.settings import MODES, PREFIX, Mode, Settings, SettingsError

_ACTS: Mapping[Mode, str] = {
    "on": "adaptk chooses K",
    "shadow": "adaptk decides and records, and vLLM's own K is played",
    "off": "vLLM's own K is played, and adaptk learns nothing",
}
_WRITTEN_AS = "variables are read in capitals, as ADAPTK or ADAPTK_SEED"


class Environment(NamedTuple):
    """What the variables say.

    ``mode``: the one that was asked for, ``None`` if none was. ``settings`` and ``variables``: without what is wrong,
    and with mode ``on`` where it is off or not given: what would be if adaptk were switched on.
    """

    mode: Mode | None
    settings: Settings
    variables: dict[str, str]
    wrong: tuple[Finding, ...]


def read(env: Mapping[str, str]) -> Environment:
    """Read each variable by itself, so that all that are wrong are found at once.

    Examples
    --------
    >>> found = read({"ADAPTK": "on", "ADAPTK_BUDGET": "2", "ADAPTK_SEDE": "1"})
    >>> [finding.id for finding in found.wrong], found.settings.budget
    (['settings.ADAPTK_BUDGET', 'settings.ADAPTK_SEDE'], 0.01)
    """
    ours = {name: text for name, text in sorted(env.items()) if name.lower().startswith("adaptk")}
    kept: dict[str, str] = {}
    wrong: list[Finding] = []
    for name, text in ours.items():
        if name != "ADAPTK" and not name.startswith(PREFIX):
            wrong.append(Finding(f"settings.{name}", "warn", f"{name} is not read by adaptk", _WRITTEN_AS, "rename it"))
            continue
        try:
            Settings.from_env({name: text})
        except SettingsError as error:
            wrong.append(Finding(f"settings.{name}", "fail", str(error), "adaptk stays out while it is set so"))
        else:
            if text.strip():
                kept[name] = text
    mode = MODES.get(kept.get("ADAPTK", "").strip().lower())
    if mode in (None, "off"):
        kept["ADAPTK"] = "on"
    return Environment(mode, Settings.from_env(kept), kept, tuple(wrong))


def findings(environment: Environment, facts: Facts) -> Iterator[Finding]:
    """What is asked of adaptk, by the environment and, where there is a configuration, by its ``additional_config``."""
    engine = facts.engine
    settings = environment.settings if engine is None else engine.settings
    if not any(finding.id == "settings.ADAPTK" for finding in environment.wrong):
        yield _mode(environment.mode, facts.options.mode, switch(settings, engine))
    yield from environment.wrong
    for i, sentence in enumerate(facts.options.wrong, start=1):
        yield Finding(f"settings.option_{i}", "fail", sentence, "adaptk stays out while it is there")
    given = [f"{name} {shown(value)}" for name, value in _changed(settings).items() if name not in ("mode", "strict")]
    if given:
        yield Finding("settings.given", "ok", f"set: {', '.join(given)}")
    if settings.strict:
        text = "ADAPTK_STRICT is set: what keeps adaptk from starting stops vLLM's start"
        yield Finding("settings.strict", "note", text, "without it vLLM serves as if adaptk were not there")


def asked_mode(variable: Mode | None, option: Mode | None) -> Mode | None:
    """The mode that holds: an option's over the variable's, unless that is off; ``None`` where neither is there.

    Examples
    --------
    >>> asked_mode("on", "shadow"), asked_mode("off", "on"), asked_mode(None, None)
    ('shadow', 'off', None)
    """
    return variable if variable == "off" or option is None else option


def _mode(variable: Mode | None, option: Mode | None, switched: Switch | None) -> Finding:
    mode = asked_mode(variable, option)
    if mode is None:
        what, remedy = "ADAPTK is not set: vLLM is left untouched", "set ADAPTK=on or ADAPTK=shadow"
        return Finding("settings.mode", "note", what, "what follows is as if it were on", remedy)
    said = f"ADAPTK={mode}" if variable == "off" or option is None else f"additional_config asks for mode {mode}"
    if mode == "off":
        what = f"{said}: vLLM is left untouched"
        return Finding("settings.mode", "note", what, "what follows is as if it were on", "say on or shadow there")
    if switched is not None:
        what = f"{said}, and the control file {switched.path} says {switched.mode}: {_ACTS[switched.mode]}"
        return Finding("settings.mode", "note", what)
    return Finding("settings.mode", "ok", f"{said}: {_ACTS[mode]}")


def _changed(settings: Settings) -> dict[str, object]:
    """The settings that are not at their defaults."""
    defaults = msgspec.structs.asdict(Settings())
    return {name: value for name, value in msgspec.structs.asdict(settings).items() if value != defaults[name]}


def shown(value: object) -> str:
    """A setting's value as its variable would hold it.

    Examples
    --------
    >>> shown((0, 1, 3)), shown(0.02), shown(True)
    ('0,1,3', '0.02', '1')
    """
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(int(value)) if isinstance(value, bool) else str(value)
