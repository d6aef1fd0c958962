"""adaptk: an online controller for the number of speculative tokens per engine step.

The names are loaded when they are first asked for, so that a process which has adaptk installed and does not use it
pays nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from adaptk._version import __version__

if TYPE_CHECKING:
    from adaptk.belief import ArmBelief
    from adaptk.controller import Controller
    from adaptk.decision import Decision, Reason
    from adaptk.settings import Settings, SettingsError
    from adaptk.step import StepRecord
    from adaptk.table import GoodputTable, TableError

__all__ = [
    "ArmBelief",
    "Controller",
    "Decision",
    "GoodputTable",
    "Reason",
    "Settings",
    "SettingsError",
    "StepRecord",
    "TableError",
    "__version__",
]

_HOMES = {
    "ArmBelief": "belief",
    "Controller": "controller",
    "Decision": "decision",
    "GoodputTable": "table",
    "Reason": "decision",
    "Settings": "settings",
    "SettingsError": "settings",
    "StepRecord": "step",
    "TableError": "table",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'adaptk' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"adaptk.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
