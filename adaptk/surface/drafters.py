"""What drafting costs: nothing, an EAGLE-like block, or a whole small model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from adaptk.surface.architecture import Architecture, Layer
from adaptk.surface.caches import Caches
from adaptk.surface.model import Model, Part
from adaptk.surface.plan import Place
from adaptk.surface.weights import Weights

if TYPE_CHECKING:
    import torch

EAGLE, NONE = "eagle", "none"
_EAGLE_VOCAB = 32_000  # EAGLE-3 heads propose from the most frequent tokens only


def eagle_shape(target: Architecture) -> Architecture:
    """One dense block of the target's width with a head over a reduced vocabulary.

    For a mixture the block is as wide as the experts that one token takes.
    """
    taken = target.experts_per_token * target.expert_width + target.shared_width
    return msgspec.structs.replace(
        target,
        name=EAGLE,
        layers=(Layer(),),
        width=target.width or taken,
        experts=0,
        experts_per_token=0,
        expert_width=0,
        shared_width=0,
        vocab=min(target.vocab, _EAGLE_VOCAB),
        fused=True,
        remarks=(),
    )


class Drafter:
    """A model that is run once for each draft, one after the other.

    As in vLLM, its first pass takes all tokens of the step just verified, ``batch * (K + 1)`` of them, and writes its
    cache; the later ones take one token per request. The first pass is made at K=0 too, without a head, as the drafter
    would otherwise lose the thread.

    Parameters
    ----------
    shape
        Sizes of the drafter.
    weights
        Makes the matrices.
    """

    def __init__(self, shape: Architecture, weights: Weights) -> None:
        self.shape = shape
        self._model = Model(shape, list(shape.kinds.values()), weights)
        self._fuse = weights.matrix(shape.hidden, 2 * shape.hidden) if shape.fused else None

    def part(self, x: torch.Tensor, k: int, place: Place, caches: Caches) -> Part:
        """Making ``k`` drafts per request after a step of tokens ``x``, shape ``(batch * (k + 1), hidden)``."""
        kept = caches.of(self.shape, place, self._model.layers)

        def run() -> None:
            states = self._model.forward(self._joined(x), place, kept)
            for i in range(k):
                states = states[: place.batch]
                self._model.head(states)
                if i + 1 < k:
                    states = self._model.forward(self._joined(states), place, kept)

        return Part(1.0, run)

    def _joined(self, x: torch.Tensor) -> torch.Tensor:
        import torch
        from torch.nn import functional

        return x if self._fuse is None else functional.linear(torch.cat([x, x], -1), self._fuse)


def drafter_weights(shape: Architecture) -> int:
    """Weights that a :class:`Drafter` of that shape holds."""
    blocks = sum(count * shape.block_weights(layer) for layer, count in shape.kinds.items())
    return blocks + shape.head_weights + (2 * shape.hidden**2 if shape.fused else 0)
