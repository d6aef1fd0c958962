"""The dense feed-forward network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptk.surface.weights import Weights

if TYPE_CHECKING:
    import torch


class Network:
    """Two matrices, with a gate beside the first where ``gated``."""

    def __init__(self, hidden: int, width: int, *, gated: bool, weights: Weights) -> None:
        self._gated = gated
        self._up = weights.matrix(2 * width if gated else width, hidden)
        self._down = weights.matrix(hidden, width)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Output for ``x``, both of shape ``(tokens, hidden)``."""
        from torch.nn import functional

        inner = activated(functional.linear(x, self._up), self._gated)
        return functional.linear(inner, self._down)


def activated(inner: torch.Tensor, gated: bool) -> torch.Tensor:
    """SiLU of ``inner``; of its first half, times the second, where ``gated``."""
    from torch.nn import functional

    if not gated:
        return functional.silu(inner)
    gate, up = inner.chunk(2, -1)
    return functional.silu(gate) * up
