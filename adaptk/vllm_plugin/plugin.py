"""The entry point of group ``vllm.general_plugins``: decides whether adaptk enters vLLM at all, and where."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

_registered = False
# More than any command has; nothing larger is looked through.
_CONFIG_BYTES = 1_000_000
_ARGUMENTS = 1_000


def register(*, always: bool = False) -> None:
    """Enter vLLM if anything asks for adaptk; otherwise return without importing anything.

    vLLM calls this in every process of an engine, outside any ``try``. So it never raises, except under
    ``ADAPTK_STRICT=1``; it may be called again; and it looks at every hook before it touches the first one. Once it has
    entered, each engine's own configuration decides whether adaptk acts there.

    Parameters
    ----------
    always
        Enter although nothing asks yet. vLLM calls its plugins once a process, so that a program whose first engine did
        not ask calls this before it makes one whose ``additional_config`` does. ``ADAPTK=off`` is stronger.

    Raises
    ------
    adaptk.settings.SettingsError
        Under ``ADAPTK_STRICT=1``, for a variable that adaptk refuses.
    RuntimeError
        Under ``ADAPTK_STRICT=1``, if this vLLM lacks something that adaptk needs.
    """
    global _registered
    if _registered:
        return
    callers: list[Any] = []
    try:
        if switched_off():
            return
        callers = _asking_callers()
        if not (always or callers or _mentioned()):
            return
        _enter(callers)
    except Exception as error:
        if _raises(callers):
            raise
        with suppress(Exception):  # a log handler that fails
            from adaptk.vllm_plugin.log import logger

            logger.error("adaptk is inactive: %s", error)
    _registered = True


def switched_off() -> bool:
    """Whether ``ADAPTK`` is ``off``: the switch that nothing else turns on again."""
    return os.environ.get("ADAPTK", "").strip().lower() in ("off", "0", "false")


def _raises(callers: list[Any]) -> bool:
    """Whether the operator wants errors raised, read without the checks of ``Settings``, which may be what failed."""
    with suppress(Exception):  # what is wrong here must not be what is told
        options = [_held(_held(caller, "additional_config") or {}, "adaptk") for caller in callers]
        said = [os.environ.get("ADAPTK_STRICT"), *(_dictionary(held).get("strict") for held in options)]
        return any(str(strict).strip().lower() in ("1", "true", "on") for strict in said)
    return False


def _enter(callers: list[Any]) -> None:
    from adaptk.settings import Settings
    from adaptk.vllm_plugin import asked, compat, patches

    Settings.from_env()
    unfit = compat.unfit_reason()
    if unfit is not None:
        raise RuntimeError(f"{unfit}. Nothing was changed")
    for caller in callers:
        asked.note_missed(caller)
    patches.apply()


def _mentioned() -> bool:
    """Whether the environment or the command line mentions adaptk; what it says is read from the configuration."""
    return bool(os.environ.get("ADAPTK", "").strip()) or _in_arguments(getattr(sys, "argv", None) or ())


def _in_arguments(arguments: Sequence[Any]) -> bool:
    """Whether a command line has an additional configuration, or a file of arguments, that has an entry for adaptk."""
    texts = [argument if isinstance(argument, str) else "" for argument in arguments]
    for argument, following in zip(texts, [*texts[1:], ""], strict=False):
        name, equals, value = argument.partition("=")
        option, *keys = name.replace("_", "-").split(".")
        # As vLLM's parser takes it: in full, or as much of it as no other option begins with.
        additional = len(option) > len("--a") and "--additional-config".startswith(option)
        if additional and ("adaptk" in keys or _entry_in(value if equals else following)):
            return True
        if argument == "--config" and _in_file(following):
            return True
    return False


def _entry_in(text: str) -> bool:
    """Whether JSON or YAML has adaptk for a key."""
    return re.search(r"""\badaptk["'\\]*\s*[:.]""", text) is not None


def _in_file(path: str) -> bool:
    from pathlib import Path

    try:
        file = Path(path)
        # Another kind of file can be read only once, and that is vLLM's to do.
        return file.is_file() and file.stat().st_size <= _CONFIG_BYTES and _entry_in(file.read_text("utf-8", "replace"))
    except (OSError, ValueError):
        return False


def _asking_callers() -> list[Any]:
    """Whatever callers are at work on that holds an ``additional_config`` or a note that asks for adaptk.

    vLLM hands its plugins nothing, and calls them where it begins with its arguments, with an engine or with a worker.
    """
    found = []
    frame = sys._getframe(1).f_back
    while frame is not None:
        names = frame.f_locals
        found += [value for value in (names, *names.values()) if _asks(value)]
        frame = frame.f_back
    return found


def _asks(value: Any) -> bool:
    if "adaptk" in _dictionary(_held(value, "additional_config")):
        return True
    if issubclass(type(value), (list, tuple)):  # a command line that is not this process's
        return len(value) <= _ARGUMENTS and _in_arguments(value)
    # Left by an adaptk in the process that made this configuration; see asked.py.
    note = _dictionary(_held(_held(value, "scheduler_config"), "_adaptk_asked"))
    return bool(note.get("environment")) or "options" in note


def _held(value: Any, name: str) -> Any:
    """The attribute or item ``name`` of ``value``, ``None`` where it has none; no code of a stranger's runs for it."""
    if not issubclass(type(value), dict):
        try:
            value = object.__getattribute__(value, "__dict__")
        except Exception:  # it has none, or has a strange one
            return None
    return dict.get(value, name) if issubclass(type(value), dict) else None


def _dictionary(value: Any) -> dict[str, Any]:
    return dict.copy(value) if issubclass(type(value), dict) else {}
