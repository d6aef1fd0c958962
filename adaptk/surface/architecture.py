"""Architecture: the sizes of a decoder that decide what a step costs."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class ConfigError(ValueError):
    """A model's configuration is refused; the message names the field, the value and the remedy."""


class Layer(NamedTuple):
    """What one decoder layer is: a mixture of experts or not, and how far back it attends (``None``: all the way)."""

    mixture: bool = False
    window: int | None = None


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of a decoder-only transformer with grouped-query attention.

    Parameters
    ----------
    name
        The model, as tables name it.
    hidden, heads, kv_heads, head_dim, vocab
        Widths of the residual stream and of attention, and the number of tokens of the vocabulary.
    layers
        One entry for each decoder layer.
    width
        Of the dense feed-forward network; 0 where every layer is a mixture.
    experts, experts_per_token, expert_width, shared_width
        Of the mixture layers: how many, how many each token takes, the width of one, and that of the experts that every
        token takes (0: none).
    gated
        Whether the feed-forward network has a gate beside its first matrix, as SwiGLU has.
    tied
        Whether the head and the embedding share their weights.
    fused
        Whether each pass begins by joining a token's embedding and the target's hidden state, as an EAGLE head does.
    dtype
        What the weights are stored in; ``None`` where the configuration does not say.
    remarks
        What of the configuration is not modelled, one clause each.
    """

    name: str
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    layers: tuple[Layer, ...]
    width: int = 0
    experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    shared_width: int = 0
    gated: bool = True
    tied: bool = False
    fused: bool = False
    dtype: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def kinds(self) -> dict[Layer, int]:
        """How many layers there are of each kind, in the order in which they first appear."""
        counts: dict[Layer, int] = {}
        for layer in self.layers:
            counts[layer] = counts.get(layer, 0) + 1
        return counts

    @property
    def head_weights(self) -> int:
        """Weights of the head that turns hidden states into logits."""
        return self.hidden * self.vocab

    @property
    def parameters(self) -> int:
        """All weights, embedding and norms included, biases not."""
        embeddings = self.head_weights * (1 if self.tied else 2)
        norms = (2 * len(self.layers) + 1) * self.hidden
        return embeddings + norms + sum(count * self.block_weights(layer) for layer, count in self.kinds.items())

    def block_weights(self, layer: Layer) -> int:
        """Weights in the matrices of one layer."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        matrices = 3 if self.gated else 2
        if not layer.mixture:
            return attention + matrices * self.hidden * self.width
        experts = self.experts * self.expert_width + self.shared_width
        return attention + self.hidden * (self.experts + matrices * experts)

    def cache_elements(self, batch: int, context: int) -> int:
        """Elements of one layer's keys and values for ``batch`` requests of ``context`` tokens each."""
        return 2 * batch * context * self.kv_heads * self.head_dim

    def all_cache_elements(self, batch: int, context: int) -> int:
        """:meth:`cache_elements` of all layers together; layers with a window keep no more than that."""
        kept = [count * self.cache_elements(batch, held(layer, context)) for layer, count in self.kinds.items()]
        return sum(kept)

    def activation_elements(self, tokens: int) -> int:
        """A bound on what is alive at once while ``tokens`` tokens pass, in elements: the logits, or one layer."""
        routed = self.experts_per_token * (3 * self.expert_width + 3 * self.hidden) + 3 * self.shared_width
        block = 6 * self.hidden + (2 * self.heads + 2 * self.kv_heads) * self.head_dim + max(3 * self.width, routed)
        return tokens * max(2 * self.vocab, block)

    def divided(self, ways: int) -> Architecture:
        """One rank's share under tensor parallelism: heads, widths and vocabulary cut by ``ways``, experts each.

        Key-value heads are held twice where there are fewer of them than ranks.

        Raises
        ------
        ConfigError
            If heads or a width cannot be cut evenly.
        """
        if ways == 1:
            return self
        for field in ("heads", "width", "expert_width", "shared_width"):
            if getattr(self, field) % ways:
                raise ConfigError(
                    f"{self.name}: {field} is {getattr(self, field)}, which {ways} ranks cannot share evenly: "
                    "give another --tp"
                )
        if self.kv_heads % ways and ways % self.kv_heads:
            raise ConfigError(
                f"{self.name}: kv_heads is {self.kv_heads}, neither a multiple nor a divisor of {ways} ranks: "
                "give another --tp"
            )
        return msgspec.structs.replace(
            self,
            heads=self.heads // ways,
            kv_heads=max(1, self.kv_heads // ways),
            width=self.width // ways,
            expert_width=self.expert_width // ways,
            shared_width=self.shared_width // ways,
            vocab=-(-self.vocab // ways),
        )


def held(layer: Layer, context: int) -> int:
    """Tokens of ``context`` whose keys and values ``layer`` reads."""
    return context if layer.window is None else min(context, layer.window)
