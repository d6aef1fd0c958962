"""GPUs, models and drafters as numbers: what a roofline needs, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

BYTES = 2  # bf16, weights and KV cache alike

HBM_SHARE = 0.90
"""Share of the datasheet's bandwidth that reading weights and KV cache reaches: an assumption."""

DENSE_SHARE = 0.65
"""Share of peak FLOP/s that dense matrix products reach: an assumption."""

EXPERT_SHARE = 0.35
"""The same for grouped products of experts, whose groups are small and uneven: an assumption."""

LINK_SHARE = 0.84
"""Share of NVLink's bandwidth that is reached: 380 of 450 GB/s between H100s, NVIDIA/nccl issue 1264; B200 assumed."""

KV_SHARE = 0.90
"""Share of a GPU's memory that vLLM takes: the usual default of ``gpu_memory_utilization``."""


@dataclass(frozen=True)
class Chip:
    """One GPU.

    Parameters
    ----------
    bf16_flops
        Peak of dense bf16 matrix products without sparsity, FLOP/s.
    hbm_bytes_s
        Bandwidth of its memory, bytes/s.
    memory_bytes
        Size of its memory, bytes.
    link_bytes_s
        NVLink bandwidth in one direction, bytes/s.
    """

    name: str
    bf16_flops: float
    hbm_bytes_s: float
    memory_bytes: float
    link_bytes_s: float


# Vendor datasheet "H100 Tensor Core GPU", SXM5: 989 TFLOP/s (1,979 with sparsity), HBM3 80 GB at 3.35 TB/s, NVLink 4 of
# 900 GB/s in both directions together. Modal's GPU glossary, "memory bandwidth", lists the same for H100 and B200.
H100 = Chip("H100 SXM", 989e12, 3.35e12, 80e9, 450e9)
# Vendor datasheet "H200 Tensor Core GPU", SXM: the same die, HBM3e 141 GB at 4.8 TB/s.
H200 = Chip("H200 SXM", 989e12, 4.8e12, 141e9, 450e9)
# Vendor datasheet "HGX B200", one GPU at 1,000 W: 2,250 TFLOP/s (4,500 with sparsity), HBM3e at up to 8 TB/s, 180 GB of
# the 192 fitted are usable; NVLink 5 of 1,800 GB/s in both directions together.
B200 = Chip("B200", 2250e12, 8.0e12, 180e9, 900e9)


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer with grouped-query attention and gated MLPs; names as in its ``config.json``.

    ``experts`` of 0 is a dense model; else ``intermediate`` is the width of one expert and each token goes through
    ``top_k`` of them.

    Examples
    --------
    >>> round(LLAMA_8B.parameters / 1e9, 2), LLAMA_8B.kv_bytes
    (8.03, 131072)
    """

    name: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    experts: int = 0
    top_k: int = 0

    @property
    def attention(self) -> int:
        """Parameters of one layer outside its MLP: projections and, where there are experts, their router."""
        projections = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return projections + self.hidden * self.experts

    @property
    def mlp(self) -> int:
        """Parameters of one MLP, or of one expert."""
        return 3 * self.hidden * self.intermediate

    @property
    def head(self) -> int:
        """Parameters of the output layer; the input embedding has as many, and a step reads a few rows of it."""
        return self.hidden * self.vocab

    @property
    def parameters(self) -> int:
        """Parameters in all; norms are left out."""
        return self.layers * (self.attention + max(self.experts, 1) * self.mlp) + 2 * self.head

    @property
    def kv_bytes(self) -> int:
        """Bytes in the KV cache per token."""
        return 2 * self.layers * self.kv_heads * self.head_dim * BYTES


# config.json of meta-llama/Llama-3.1-8B and -70B; embeddings not tied.
LLAMA_8B = Model("Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128, 128_256)
LLAMA_70B = Model("Llama-3.1-70B", 80, 8192, 28672, 64, 8, 128, 128_256)
# config.json of Qwen/Qwen3-30B-A3B: moe_intermediate_size 768, 128 experts of which 8 per token, in every layer.
QWEN3_30B_A3B = Model("Qwen3-30B-A3B", 48, 2048, 768, 32, 4, 128, 151_936, experts=128, top_k=8)


@dataclass(frozen=True)
class DraftModel:
    """An EAGLE-like drafter: one dense layer whose input is a token and a hidden state of the target, and a head.

    It drafts one token per forward, so K drafts are K forwards of one token per request.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    @property
    def parameters(self) -> int:
        """Parameters that one forward reads: fusion of both inputs, attention, MLP, head."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return 2 * self.hidden**2 + attention + 3 * self.hidden * self.intermediate + self.hidden * self.vocab


def eagle(model: Model, vocab: int = 32_000) -> DraftModel:
    """A drafter of the target's own widths; where that has experts, a dense MLP as wide as those of one token.

    ``vocab`` is that of the drafter: EAGLE-3 heads for Llama and Qwen predict 32,000 of the target's tokens
    (``draft_vocab_size`` of their config.json), EAGLE's share the target's head.
    """
    width = model.intermediate * max(model.top_k, 1)
    return DraftModel(model.hidden, width, model.heads, model.kv_heads, model.head_dim, vocab)


@dataclass(frozen=True)
class Deployment:
    """A model on GPUs, with tensor parallelism over ``chips`` of them."""

    chip: Chip
    model: Model
    chips: int = 1

    @property
    def name(self) -> str:
        """Model and machine."""
        return f"{self.model.name} on {self.chips} x {self.chip.name}"

    @property
    def bytes_ms(self) -> float:
        """Bytes that all its GPUs together read from memory in a millisecond."""
        return self.chips * self.chip.hbm_bytes_s * HBM_SHARE / 1e3

    @property
    def flops_ms(self) -> float:
        """FLOP of dense matrix products that all its GPUs together do in a millisecond."""
        return self.chips * self.chip.bf16_flops * DENSE_SHARE / 1e3

    @property
    def link_bytes_ms(self) -> float:
        """Bytes that one of its GPUs sends to the others in a millisecond."""
        return self.chip.link_bytes_s * LINK_SHARE / 1e3

    @property
    def kv_tokens(self) -> int:
        """Tokens for which the KV cache has room once the weights are loaded; activations are left out.

        Raises
        ------
        ValueError
            If the weights alone do not fit.
        """
        room = self.chips * self.chip.memory_bytes * KV_SHARE - self.model.parameters * BYTES
        if room < self.model.kv_bytes:
            raise ValueError(f"chips is {self.chips}: {self.name} leaves no room for a KV cache, give more of them")
        return int(room // self.model.kv_bytes)
