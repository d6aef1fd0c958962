"""What the operator asked of one engine, and how that reaches the process in which its scheduler lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from adaptk.settings import PREFIX, Settings, SettingsError

# In vLLM's additional_config.
ENTRY = "adaptk"
NOTES = "_adaptk_"  # how the names of all notes begin
_NOTE = NOTES + "asked"
_OPTIONS = "options"
_ENVIRONMENT = "environment"


def note(config: Any) -> None:
    """Leave on a ``VllmConfig`` what was asked: plain data, on the part that later chooses the scheduler.

    That part knows nothing of ``additional_config``. By pickle the note comes to an engine's process, which may have
    another environment: an actor on another machine gets vLLM's own variables only. What a first configuration noted
    is not taken back by a second one around the same part, such as a drafter makes without ``additional_config``.
    """
    additional = getattr(config, "additional_config", None)
    before = _said(config.scheduler_config)
    said = {**before, _ENVIRONMENT: _environment(before)}
    if isinstance(additional, Mapping) and ENTRY in additional:
        said[_OPTIONS] = additional[ENTRY]
    config.scheduler_config.__dict__[_NOTE] = said


def note_missed(caller: Any) -> None:
    """Note what a ``VllmConfig`` asks that was made before adaptk was in the process; do nothing for anything else."""
    scheduler_config = getattr(caller, "scheduler_config", None)
    if hasattr(scheduler_config, "get_scheduler_cls") and not _said(scheduler_config):
        note(caller)


def settings_for(scheduler_config: Any) -> Settings:
    """The settings of the engine with this part of the configuration; mode ``off`` where nobody asked.

    Raises
    ------
    SettingsError
        For an option or a variable that adaptk refuses.
    """
    said = _said(scheduler_config)
    env = _environment(said)
    return Settings.from_config(said[_OPTIONS], env) if _OPTIONS in said else Settings.from_env(env)


def strict(scheduler_config: Any) -> bool:
    """Whether the operator wants errors raised, read without the checks that another setting may fail."""
    said = _said(scheduler_config)
    name = PREFIX + "STRICT"
    env = _environment(said)
    given: dict[str, str] = {name: env[name]} if name in env else {}
    options = said.get(_OPTIONS)
    asked = {"strict": options["strict"]} if isinstance(options, Mapping) and "strict" in options else {}
    try:
        return Settings.from_config(asked, given).strict
    except SettingsError:
        return False


def _said(scheduler_config: Any) -> Mapping[str, Any]:
    said: Mapping[str, Any] = getattr(scheduler_config, "__dict__", {}).get(_NOTE, {})
    return said


def _environment(said: Mapping[str, Any]) -> dict[str, str]:
    """This process's own variables where it has any, else those of the process that made the configuration."""
    here = {name: text for name, text in os.environ.items() if name == "ADAPTK" or name.startswith(PREFIX)}
    return here or dict(said.get(_ENVIRONMENT, {}))
