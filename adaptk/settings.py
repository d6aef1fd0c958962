"""Every setting, its default, its unit and its environment variable, in one place."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from adaptk.quoted import plain, shown

Mode = Literal["on", "shadow", "off"]
# What may be written for them.
MODES: Mapping[str, Mode] = {
    "on": "on", "1": "on", "true": "on", "shadow": "shadow", "off": "off", "0": "off", "false": "off",
}  # fmt: skip
PREFIX = "ADAPTK_"
# Where operators find an option again, in messages.
OPTIONS = "additional_config adaptk"
_T = TypeVar("_T")


class SettingsError(ValueError):
    """A setting has a value that adaptk refuses; the message names the setting, the value and the remedy."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a controller and of the vLLM plugin around it.

    The plugin reads them from the environment and from the entry ``adaptk`` of vLLM's ``additional_config``.

    Parameters
    ----------
    mode
        ``on`` acts, ``shadow`` decides and records without acting, ``off`` leaves the engine untouched (``ADAPTK``).
    table
        Path of the seed table (``ADAPTK_TABLE``).
    arms
        Numbers of drafts per request that may be chosen (``ADAPTK_ARMS``, as ``0,1,3,7``); ``None``: (0, 1, 3, 7) cut
        at the engine's maximum, and that maximum.
    min_k
        Smallest number of drafts that may be chosen (``ADAPTK_MIN_K``).
    max_itl_ms
        Arms whose believed step time is above this are not chosen, milliseconds (``ADAPTK_MAX_ITL_MS``).
    budget
        Share of the baseline's time that exploring may cost, 0 to 1 (``ADAPTK_BUDGET``).
    seed
        Seed of the random draws (``ADAPTK_SEED``).
    trace, state, control
        Paths; ``{rank}`` stands for the data-parallel rank (``ADAPTK_TRACE``, ``ADAPTK_STATE``, ``ADAPTK_CONTROL``).
        ``control`` names a file that may hold another mode for the running engine.
    trace_max_mb
        What the files of a trace may take together, 10**6 bytes; the oldest are removed (``ADAPTK_TRACE_MAX_MB``);
        ``None``: all are kept.
    metrics_port, metrics_host
        Where metrics are served (``ADAPTK_METRICS_PORT``, ``ADAPTK_METRICS_HOST``); no port: nowhere.
    allow_mismatch
        Start from a table whose key is not the engine's, as a weak prior, instead of standing down
        (``ADAPTK_ALLOW_MISMATCH``).
    strict
        Raise instead of standing down when adaptk cannot start (``ADAPTK_STRICT``).

    Raises
    ------
    SettingsError
        If a value is out of range.

    Examples
    --------
    >>> Settings.from_env({"ADAPTK": "on", "ADAPTK_ARMS": "0,1,3"}).arms
    (0, 1, 3)
    """

    mode: Mode = "off"
    table: str | None = None
    arms: tuple[int, ...] | None = None
    min_k: int = 0
    max_itl_ms: float | None = None
    budget: float = 0.01
    seed: int = 0
    trace: str | None = None
    trace_max_mb: int | None = None
    state: str | None = None
    control: str | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    allow_mismatch: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        for name, (holds, remedy) in _RULES.items():
            value = getattr(self, name)
            if (value is not None or name not in _OPTIONAL) and not _quietly(holds, value):
                raise SettingsError(f"{name} is {shown(value)}: {remedy}")
        if self.arms is not None:
            msgspec.structs.force_setattr(self, "arms", tuple(sorted(self.arms)))

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read ``ADAPTK`` and ``ADAPTK_*``; an empty variable counts as unset.

        Raises
        ------
        SettingsError
            For a variable that adaptk does not know or a value that it refuses, naming both.
        """
        return cls(**_from_env(os.environ if env is None else env))

    @classmethod
    def from_config(cls, options: Any, env: Mapping[str, str] | None = None) -> Settings:
        """Read what an operator put under ``adaptk`` in vLLM's ``additional_config``, over the environment.

        Field by field ``options`` win. To give them is to ask for adaptk: without a mode in either it is ``on``. Only
        ``ADAPTK=off`` is stronger than all of them.

        Parameters
        ----------
        options
            Settings by name, each as a value of its type or as text like that of its environment variable. An option of
            ``None`` takes back what the environment says, where there may be nothing.
        env
            ``None``: the process's own.

        Raises
        ------
        SettingsError
            For an option or a variable that adaptk does not know or a value that it refuses, naming both.

        Examples
        --------
        >>> made = Settings.from_config({"budget": 0.02}, {"ADAPTK_BUDGET": "0.05", "ADAPTK_SEED": "3"})
        >>> made.mode, made.budget, made.seed
        ('on', 0.02, 3)
        """
        fields = _from_env(os.environ if env is None else env)
        if fields.get("mode") == "off":
            return cls(**fields)
        if not isinstance(options, Mapping):
            given = shown(options)
            raise SettingsError(f'{OPTIONS}={given} is refused: give an object of settings, as {{"mode": "on"}}')
        for name, value in options.items():
            if name not in _READERS:
                raise SettingsError(
                    f"{OPTIONS}.{plain(str(name))} is not a setting of adaptk{_near(str(name), tuple(_READERS), 0.75)}"
                )
            try:
                fields[name] = _option(name, value)
                Settings(**{name: fields[name]})
            except ValueError as error:
                raise SettingsError(f"{OPTIONS}.{name}={shown(value)} is refused: {_reason(name, error)}") from None
        return cls(**{"mode": "on", **fields})


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for variable, text in env.items():
        if (variable != "ADAPTK" and not variable.startswith(PREFIX)) or not text.strip():
            continue
        name = "mode" if variable == "ADAPTK" else variable.removeprefix(PREFIX).lower()
        read = _READERS.get(name) if variable.isupper() else None
        if read is None or (name == "mode" and variable != "ADAPTK"):
            known = ("ADAPTK", *(PREFIX + name.upper() for name in _READERS if name != "mode"))
            raise SettingsError(f"{plain(variable)} is not a setting of adaptk{_near(variable, known)}")
        try:
            fields[name] = read(text.strip())
            Settings(**{name: fields[name]})
        except ValueError as error:
            raise SettingsError(f"{variable}={shown(text)} is refused: {_reason(name, error)}") from None
    return fields


def _option(name: str, value: Any) -> Any:
    """An option as its setting holds it; YAML and dotted arguments give text, and 1 or true where a word was meant."""
    if name == "arms" and isinstance(value, (list, tuple)):
        return _arms(",".join(value)) if value and all(isinstance(k, str) for k in value) else tuple(value)
    if isinstance(value, str) or (name in ("mode", "allow_mismatch", "strict") and isinstance(value, int)):
        return _READERS[name](str(value).strip())
    return value


def _reason(name: str, error: ValueError) -> str:
    """Why a value is refused: our own words, or the rule where Python could not even read it."""
    return str(error) if isinstance(error, SettingsError) else _RULES[name][1]


def _integer(text: str) -> int:
    return int(text)


def _flag(text: str) -> bool:
    value = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}.get(text.lower())
    if value is None:
        raise SettingsError("use 1 or 0")
    return value


def _arms(text: str) -> tuple[int, ...]:
    return tuple(sorted(int(part) for part in text.split(",")))


def _mode(text: str) -> str:
    return MODES.get(text.lower(), text)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> bool:
    """Whether the system takes it for a name: no null byte, and nothing that has no bytes, which JSON can hold."""
    return isinstance(value, str) and value != "" and b"\0" not in os.fsencode(value)


def _quietly(holds: Callable[[_T], bool], value: _T) -> bool:
    try:
        return holds(value)
    except (TypeError, ValueError, OverflowError):  # of another type, or an int beyond all floats
        return False


def _near(name: str, known: Sequence[str], cutoff: float = 0.85) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f": did you mean {near[0]}?" if near else f": known are {', '.join(known)}"


_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "mode": (lambda v: v in ("on", "shadow", "off"), "use on, shadow or off"),
    "arms": (
        lambda v: len(v) > 0 and all(map(_count, v)) and len(set(v)) == len(v),
        "give distinct whole numbers of at least 0, as 0,1,3,7",
    ),
    "min_k": (_count, "give a whole number of at least 0"),
    "max_itl_ms": (lambda v: _real(v) and v > 0, "give milliseconds above 0"),
    "budget": (lambda v: _real(v) and 0 <= v <= 1, "give a share from 0 to 1, as 0.01"),
    "seed": (_count, "give a whole number of at least 0"),
    "trace_max_mb": (lambda v: _count(v) and v >= 16, "give a whole number of MB, at least 16"),
    "metrics_port": (lambda v: _count(v) and 0 < v < 65536, "give a port from 1 to 65535"),
    "allow_mismatch": (lambda v: isinstance(v, bool), "use 1 or 0"),
    "strict": (lambda v: isinstance(v, bool), "use 1 or 0"),
}

_RULES |= dict.fromkeys(
    ("table", "trace", "state", "control"), (_text, "give a path, without null bytes, or leave it out")
)
_RULES["metrics_host"] = (_text, "give a host name or an address, without null bytes")

_OPTIONAL = frozenset(
    name
    for name, default in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True)
    if default is None
)

_READERS: dict[str, Callable[[str], Any]] = {
    "mode": _mode,
    "table": str,
    "arms": _arms,
    "min_k": _integer,
    "max_itl_ms": float,
    "budget": float,
    "seed": _integer,
    "trace": str,
    "trace_max_mb": _integer,
    "state": str,
    "control": str,
    "metrics_port": _integer,
    "metrics_host": str,
    "allow_mismatch": _flag,
    "strict": _flag,
}
