"""Fields of a config.json, read with errors that name them."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping
from typing import Any

from adaptk.quoted import shown
from adaptk.surface.architecture import ConfigError

_MOST = 2**24  # of any size: more is a slip, and would only end in an error of memory
PROFILE = "measure this model with adaptk profile"
"""The remedy where blocks without an engine cannot stand for a model."""


class Fields:
    """Reads one configuration; every error begins with the model's ``name``."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self.name = name
        self._config = config

    def get(self, field: str) -> Any:
        """The value, ``None`` where there is none."""
        return self._config.get(field)

    def items(self) -> ItemsView[str, Any]:
        """All fields."""
        return self._config.items()

    def whole(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The first of ``names`` that has a value, as a whole number of at least ``least``.

        Raises
        ------
        ConfigError
            If none has a value and there is no default, or the value is no such number.
        """
        for field in names:
            value = self.get(field)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
                raise ConfigError(
                    f"{self.name}: {field} is {shown(value)}: one whole number from {least} to {_MOST} can be "
                    f"modelled; correct it, or {PROFILE}"
                )
            return value
        if default is None:
            raise ConfigError(
                f"{self.name}: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} missing: add "
                f"{'one of them' if len(names) > 1 else 'it'} to the file, or {PROFILE}"
            )
        return default

    def text(self, field: str) -> str | None:
        """The value if it is text, else ``None``."""
        value = self.get(field)
        return value if isinstance(value, str) else None

    def entries(self, field: str, length: int) -> list[Any] | None:
        """A list with one entry per layer; ``None`` where the field has no value.

        Raises
        ------
        ConfigError
            If it is no list, or of another length.
        """
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < length:
            raise ConfigError(
                f"{self.name}: {field} is {shown(value)}: a list with an entry for each of the {length} layers is "
                "expected; correct it, or leave it out"
            )
        return value[:length]
