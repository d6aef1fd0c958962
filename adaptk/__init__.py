"""adaptk: an online controller for the number of speculative tokens per engine step."""

from adaptk._version import __version__
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
