"""Decoder blocks with random weights: grouped-query attention over a cache, then a dense network or a mixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptk.surface.architecture import Architecture, Layer
from adaptk.surface.mixture import Mixture
from adaptk.surface.network import Network
from adaptk.surface.weights import Weights

if TYPE_CHECKING:
    import torch


class Attention:
    """Grouped-query attention of the new tokens over a key-value cache.

    Drafts do not see each other, and nothing is written to the cache: the bytes read and the operations are those of
    an engine but for the few new tokens themselves.
    """

    def __init__(self, shape: Architecture, weights: Weights) -> None:
        self._shape = shape
        self._inner = shape.heads * shape.head_dim
        self._in = weights.matrix(self._inner + 2 * shape.kv_heads * shape.head_dim, shape.hidden)
        self._out = weights.matrix(shape.hidden, self._inner)

    def __call__(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Attend from ``x``, shape ``(batch * t, hidden)``, to ``keys`` and ``values``, shape ``(batch, kv_heads,
        context, head_dim)``; request ``b`` owns rows ``b * t`` to ``(b + 1) * t``.
        """
        from torch.nn import functional

        queries = functional.linear(x, self._in)[:, : self._inner]
        mixed = grouped_attention(queries, keys, values, self._shape.heads)
        return functional.linear(mixed, self._out)


def grouped_attention(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, heads: int) -> torch.Tensor:
    """Softmax attention without a mask, shape ``(batch * t, heads * head_dim)``; see :class:`Attention`.

    The queries of all heads that share a key-value head, and of all new tokens of a request, are rows of one product:
    the cache is read once for them, and no head is copied.
    """
    from torch.nn import functional

    batch, kv_heads, _, dim = keys.shape
    group = heads // kv_heads
    new = queries.shape[0] // batch
    rows = queries.view(batch, new, kv_heads, group, dim).permute(0, 2, 3, 1, 4).reshape(batch, kv_heads, -1, dim)
    mixed = functional.scaled_dot_product_attention(rows, keys, values)
    mixed = mixed.view(batch, kv_heads, group, new, dim).permute(0, 3, 1, 2, 4)
    return mixed.reshape(batch * new, heads * dim)


class Block:
    """One decoder layer, with the norms and the residual stream."""

    def __init__(self, shape: Architecture, layer: Layer, weights: Weights) -> None:
        self.layer = layer
        self._attention = Attention(shape, weights)
        self._network: Mixture | Network = (
            Mixture(shape, weights)
            if layer.mixture
            else Network(shape.hidden, shape.width, gated=shape.gated, weights=weights)
        )

    def __call__(self, x: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Hidden states after the layer, of the shape of ``x``: ``(tokens, hidden)``."""
        x = x + self._attention(normed(x), *cache)
        return x + self._network(normed(x))


class Head:
    """The last norm, the logits, and the token with the highest."""

    def __init__(self, shape: Architecture, weights: Weights) -> None:
        self._matrix = weights.matrix(shape.vocab, shape.hidden)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Token per row of ``x``, shape ``(tokens,)``."""
        from torch.nn import functional

        return functional.linear(normed(x), self._matrix).argmax(-1)


def normed(x: torch.Tensor) -> torch.Tensor:
    """Root-mean-square norm of each row."""
    from torch.nn import functional

    return functional.rms_norm(x, x.shape[-1:])
