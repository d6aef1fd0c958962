"""A mixture of experts, of which each token takes a few."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptk.surface.architecture import Architecture
from adaptk.surface.network import Network, activated
from adaptk.surface.weights import Weights

if TYPE_CHECKING:
    import torch


class Mixture:
    """Router, experts and, where there are any, the experts that every token takes.

    Random hidden states route uniformly and independently of each other. Real ones do not: their tokens share experts,
    so that fewer are awake.
    """

    def __init__(self, shape: Architecture, weights: Weights) -> None:
        self._taken, self._experts, self._gated = shape.experts_per_token, shape.experts, shape.gated
        self.router = weights.matrix(shape.experts, shape.hidden)
        self.up = weights.matrix(shape.experts, (2 if shape.gated else 1) * shape.expert_width, shape.hidden)
        self.down = weights.matrix(shape.experts, shape.hidden, shape.expert_width)
        self.shared = (
            Network(shape.hidden, shape.shared_width, gated=shape.gated, weights=weights)
            if shape.shared_width
            else None
        )

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights and numbers of the experts that each token takes, both of shape ``(tokens, taken)``."""
        from torch.nn import functional

        scores, chosen = functional.linear(x, self.router).float().softmax(-1).topk(self._taken, -1)
        return scores / scores.sum(-1, keepdim=True), chosen

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Output for ``x``, both of shape ``(tokens, hidden)``."""
        import torch

        scores, chosen = self.route(x)
        flat = chosen.reshape(-1)
        order = flat.argsort()
        # bincount would have to wait for the GPU, which a graph cannot.
        counts = torch.zeros(self._experts, device=x.device, dtype=torch.int64)
        ends = counts.scatter_add_(0, flat, torch.ones_like(flat)).cumsum(0).to(torch.int32)
        rows = x[torch.div(order, self._taken, rounding_mode="floor")]
        made = (self._grouped if x.is_cuda else self._one_by_one)(rows, ends)
        back = torch.empty_like(made)
        back[order] = made
        mixed = (back.view(-1, self._taken, x.shape[-1]) * scores.to(x.dtype).unsqueeze(-1)).sum(1)
        return mixed if self.shared is None else mixed + self.shared(x)

    def _grouped(self, rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """All experts at once; ``rows`` are sorted by expert, ``ends`` says where each one's stop."""
        import torch

        inner = activated(torch._grouped_mm(rows, self.up.transpose(-2, -1), offs=ends), self._gated)
        return torch._grouped_mm(inner, self.down.transpose(-2, -1), offs=ends)

    def _one_by_one(self, rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        """The same, expert after expert; one that no token takes costs nothing."""
        import torch
        from torch.nn import functional

        made = torch.empty_like(rows)
        start = 0
        for expert, end in enumerate(ends.tolist()):
            if end > start:
                inner = activated(functional.linear(rows[start:end], self.up[expert]), self._gated)
                made[start:end] = functional.linear(inner, self.down[expert])
            start = end
        return made
