"""A model's decoder, or a few of its layers that stand for all, and the parts whose times make up its step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from adaptk.surface.architecture import Architecture
from adaptk.surface.blocks import Block, Head
from adaptk.surface.caches import Cache, Caches, cut
from adaptk.surface.plan import Place
from adaptk.surface.timing import Run
from adaptk.surface.weights import Weights

if TYPE_CHECKING:
    import torch


class Part(NamedTuple):
    """Something to time, and how many times over it goes into the step."""

    factor: float
    run: Run


class Model:
    """The decoder layers that are built, and the head.

    Parameters
    ----------
    shape
        Sizes of the model.
    counts
        Layers to build of each kind, in the order of ``shape.kinds``, shape ``(kinds,)``, each at least 1.
    weights
        Makes the matrices.
    """

    def __init__(self, shape: Architecture, counts: Sequence[int], weights: Weights) -> None:
        self.shape = shape
        self._stacks = [
            ([Block(shape, kind, weights) for _ in range(built)], there / built)
            for (kind, there), built in zip(shape.kinds.items(), counts, strict=True)
        ]
        self._head = Head(shape, weights)

    @property
    def layers(self) -> int:
        """Layers that are built."""
        return sum(len(blocks) for blocks, _ in self._stacks)

    @property
    def complete(self) -> bool:
        """Whether they are all of the model's."""
        return self.layers == len(self.shape.layers)

    def parts(self, x: torch.Tensor, place: Place, caches: Caches) -> list[Part]:
        """One forward pass of ``x``, shape ``(tokens, hidden)``: whole, or by kinds of layers where few stand for all.

        The head is then timed apart, as there is one of it however many layers there are.
        """
        kept = caches.of(self.shape, place, self.layers)
        if self.complete:
            blocks = [block for stack, _ in self._stacks for block in stack]
            return [Part(1.0, lambda: self._head(passed(blocks, x, place, kept)))]
        apart = [Part(factor, partial(passed, blocks, x, place, kept)) for blocks, factor in self._stacks]
        return [*apart, Part(1.0, partial(self._head, x))]

    def forward(self, x: torch.Tensor, place: Place, kept: Sequence[Cache]) -> torch.Tensor:
        """Hidden states after all layers that are built, of the shape of ``x``."""
        return passed([block for stack, _ in self._stacks for block in stack], x, place, kept)

    def head(self, x: torch.Tensor) -> torch.Tensor:
        """Token per row of ``x``, shape ``(tokens,)``."""
        return self._head(x)


def passed(blocks: Sequence[Block], x: torch.Tensor, place: Place, kept: Sequence[Cache]) -> torch.Tensor:
    """Hidden states after ``blocks``, each with a cache of ``kept``."""
    for i, block in enumerate(blocks):
        x = block(x, cut(kept[i % len(kept)], place, block.layer.window))
    return x
