"""Small architectures, and a session's helpers that cost no time."""

from __future__ import annotations

from typing import Any

from adaptk.surface.architecture import Architecture
from adaptk.surface.configs import from_config

DENSE: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
}
MIXTURE: dict[str, Any] = {**DENSE, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}


def small(**fields: Any) -> Architecture:
    """A dense model with ``fields`` changed."""
    return from_config({**DENSE, **fields}, "small")


def small_mixture(**fields: Any) -> Architecture:
    """A mixture with ``fields`` changed."""
    return from_config({**MIXTURE, **fields}, "small-mixture")


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self, ms: float) -> None:
        """Let ``ms`` milliseconds pass."""
        self.now_s += ms / 1000.0


class Steps:
    """A clock that goes on by a millisecond whenever it is read: a budget is then so many looks at it."""

    def __init__(self) -> None:
        self._looks = 0

    def __call__(self) -> float:
        self._looks += 1
        return self._looks / 1000.0


class Quiet:
    """Watches and remembers what was finished."""

    def __init__(self) -> None:
        self.finished: list[str] = []

    def begin(self, what: str, total: int) -> None:
        """Nothing to show."""

    def done(self, what: str) -> None:
        """Remember it."""
        self.finished.append(what)

    def doing(self, what: str) -> None:
        """Nothing to show."""
