"""Random weights, made as fast as memory can be written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_TILE = 2**22 + 8191  # odd, so that matrices of equal size do not begin at the same place of the noise


class Weights:
    """Makes matrices of normal noise with variance ``1 / fan_in``, so that hidden states keep their size.

    The noise repeats after some millions of numbers: drawing it anew would take minutes for a large model on a CPU, and
    the time of a matrix product does not depend on it. Random bits do matter on a GPU, which slows down for them.
    """

    def __init__(self, device: str, dtype: torch.dtype, seed: int = 0) -> None:
        import torch

        self.device, self.dtype = device, dtype
        generator = torch.Generator().manual_seed(seed)
        self._noise = torch.randn(_TILE, generator=generator).to(device=device, dtype=dtype)
        self._at = 0

    def matrix(self, *shape: int) -> torch.Tensor:
        """Noise of ``shape``, the last dimension of which is the fan-in."""
        return self.filled(shape, 1.0 / math.sqrt(shape[-1]))

    def filled(self, shape: tuple[int, ...], scale: float = 1.0) -> torch.Tensor:
        """Noise of ``shape`` with standard deviation ``scale``."""
        import torch

        made = torch.empty(shape, device=self.device, dtype=self.dtype)
        flat, done = made.view(-1), 0
        while done < flat.numel():
            piece = flat[done : done + _TILE - self._at]
            torch.mul(self._noise[self._at : self._at + piece.numel()], scale, out=piece)
            self._at = (self._at + piece.numel()) % _TILE
            done += piece.numel()
        return made
