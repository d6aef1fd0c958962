"""Settings that name one file for two purposes, which would destroy each other's."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

from adaptk.quoted import shown
from adaptk.settings import PREFIX, Settings, SettingsError

_PATHS = ("table", "trace", "state", "control")


def refuse_one_file(settings: Settings, rank: int = 0) -> None:
    """Look whether two paths lead to one file, however they are written.

    Parameters
    ----------
    settings
        As the engine has them.
    rank
        What stands for ``{rank}``.

    Raises
    ------
    SettingsError
        If two do; it names both.

    Examples
    --------
    >>> refuse_one_file(Settings(trace="t", state="./t"))
    Traceback (most recent call last):
    adaptk.settings.SettingsError: ADAPTK_TRACE='t' and ADAPTK_STATE='./t' are one file: give each a path of its own
    """
    given = {name: path.replace("{rank}", str(rank)) for name in _PATHS if (path := getattr(settings, name))}
    for (one, path), (other, again) in combinations(given.items(), 2):
        if _one_file(path, again):
            raise SettingsError(
                f"{PREFIX}{one.upper()}={shown(path)} and {PREFIX}{other.upper()}={shown(again)} are one file: "
                "give each a path of its own"
            )


def _one_file(path: str, other: str) -> bool:
    try:
        if Path(path).exists() and not Path(path).is_file():
            return False  # /dev/null, a folder: nothing that could be destroyed
        return os.path.realpath(path) == os.path.realpath(other) or Path(path).samefile(other)
    except (OSError, ValueError):  # one is not there yet, or no path at all, which its own use will tell
        return False
