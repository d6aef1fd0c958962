"""What a control file that is there already makes of the mode of the start."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from adaptk.doctor.facts import Engine
from adaptk.settings import Mode, Settings, SettingsError


class Switch(NamedTuple):
    """A control file, and the mode that it holds."""

    path: str
    mode: Mode


def switch(settings: Settings, engine: Engine | None) -> Switch | None:
    """The first rank's control file where it holds another mode than that of the start, and is obeyed.

    Parameters
    ----------
    settings
        As the engine will have them.
    engine
        Of which it is known whether it can be switched on; ``None``: it can.
    """
    from adaptk.vllm_plugin.control import read

    if settings.control is None:
        return None
    path = settings.control.replace("{rank}", "0")
    try:
        mode = read(Path(path))
    except (SettingsError, OSError, ValueError):  # told where the files are
        return None
    refused = mode == "on" and engine is not None and engine.switched is not None and not engine.switched.active
    return None if mode == settings.mode or refused else Switch(path, mode)
