"""Blocks against references that are written the slow way."""

from __future__ import annotations

import math
from typing import Any

import pytest

from adaptk.surface.architecture import Architecture
from adaptk.surface.blocks import Attention, Block, Head, grouped_attention
from adaptk.surface.mixture import Mixture
from adaptk.surface.network import Network
from adaptk.surface.weights import Weights
from tests.surface.small import small, small_mixture

torch = pytest.importorskip("torch")


def weights() -> Weights:
    return Weights("cpu", torch.float32)


def matrices(thing: Any) -> int:
    """Numbers in all the tensors that ``thing`` holds."""
    if isinstance(thing, torch.Tensor):
        return thing.numel()
    return sum(map(matrices, vars(thing).values())) if hasattr(thing, "__dict__") else 0


def test_attention_is_that_of_each_head_alone() -> None:
    """Request by request, token by token and head by head: softmax of scaled products, over its own keys."""
    batch, new, heads, kv_heads, context, dim = 3, 4, 6, 2, 11, 8
    made = torch.Generator().manual_seed(1)
    queries = torch.randn(batch * new, heads * dim, generator=made)
    keys, values = (torch.randn(batch, kv_heads, context, dim, generator=made) for _ in range(2))
    found = grouped_attention(queries, keys, values, heads)
    assert found.shape == (batch * new, heads * dim)
    for row in range(batch * new):
        for head in range(heads):
            query = queries[row, head * dim : (head + 1) * dim]
            own = row // new, head // (heads // kv_heads)
            shares = torch.softmax(keys[own] @ query / math.sqrt(dim), 0)
            torch.testing.assert_close(found[row, head * dim : (head + 1) * dim], shares @ values[own])


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("shared", [0, 2])
def test_mixture_is_that_of_each_token_alone(gated: bool, shared: int) -> None:
    """Token by token: the weighted sum of the experts that it takes, and the one that every token takes."""
    shape = small_mixture(n_shared_experts=shared, model_type="llama" if gated else "phi")
    mixture = Mixture(shape, weights())
    x = torch.randn(13, 32, generator=torch.Generator().manual_seed(2))
    scores, chosen = mixture.route(x)
    found = mixture(x)
    for token in range(13):
        best = torch.softmax(mixture.router @ x[token], 0).topk(2)
        assert chosen[token].tolist() == best.indices.tolist()
        wanted = torch.zeros(32) if mixture.shared is None else mixture.shared(x[token : token + 1])[0]
        for score, expert in zip(best.values / best.values.sum(), best.indices, strict=True):
            inner = mixture.up[expert] @ x[token]
            inner = torch.nn.functional.silu(inner[:16]) * (inner[16:] if gated else 1.0)
            wanted = wanted + score * (mixture.down[expert] @ inner)
        torch.testing.assert_close(found[token], wanted, rtol=1e-4, atol=1e-5)
    assert torch.allclose(scores.sum(-1), torch.ones(13))


def test_the_grouped_product_gives_the_same() -> None:
    """What runs on a GPU in one call is what runs here expert by expert."""
    mixture = Mixture(small_mixture(), Weights("cpu", torch.bfloat16))
    rows = torch.randn(10, 32, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    ends = torch.tensor([2, 2, 5, 5, 6, 9, 9, 10], dtype=torch.int32)
    torch.testing.assert_close(mixture._grouped(rows, ends), mixture._one_by_one(rows, ends), rtol=0.05, atol=0.05)


def test_random_states_wake_experts_as_chance_would() -> None:
    """Of 64 experts, 16 tokens that take 4 each wake 64 * (1 - (60 / 64) ** 16) = 41.2 on average."""
    mixture = Mixture(small_mixture(num_experts=64, num_experts_per_tok=4, hidden_size=1024), weights())
    made = torch.Generator().manual_seed(4)
    awake = [len(mixture.route(torch.randn(16, 1024, generator=made))[1].unique()) for _ in range(200)]
    assert sum(awake) / len(awake) == pytest.approx(41.2, rel=0.05)


@pytest.mark.parametrize("shape", [small(), small(model_type="phi"), small_mixture(n_shared_experts=2)])
def test_the_architecture_counts_what_is_built(shape: Architecture) -> None:
    """The numbers in a block's tensors, and in the head's, are those that memory is planned by."""
    made = weights()
    assert matrices(Head(shape, made)) == shape.head_weights
    for layer in shape.kinds:
        block = Block(shape, layer, made)
        assert sum(matrices(part) for part in (block._attention, block._network)) == shape.block_weights(layer)


@pytest.mark.parametrize("shape", [small(), small_mixture()])
def test_blocks_keep_the_states_in_size(shape: Architecture) -> None:
    """A deep stack neither dies out nor overflows, which would change what the hardware does."""
    made = Weights("cpu", torch.bfloat16)
    x = made.filled((6, 32))
    keys, values = (made.filled((2, 2, 5, 8)) for _ in range(2))
    for layer in shape.layers * 8:
        x = Block(shape, layer, made)(x, (keys, values))
    assert x.shape == (6, 32)
    assert 0.5 < float(x.float().std()) < 100.0
    assert Head(shape, made)(x).shape == (6,)


def test_noise_is_noise() -> None:
    """Variance 1 / fan-in, also beyond the length at which it repeats; two matrices differ; a seed repeats them."""
    made = weights()
    first, second = made.matrix(2100, 2048), made.matrix(2100, 2048)
    assert float(first.std()) == pytest.approx(1 / math.sqrt(2048), rel=0.01)
    assert not torch.equal(first, second)
    assert torch.equal(first, weights().matrix(2100, 2048))
    assert float(torch.corrcoef(torch.stack([first[:, 0], second[:, 0]]))[0, 1]) == pytest.approx(0.0, abs=0.1)


def test_gate_doubles_the_first_matrix() -> None:
    """A network without a gate has two matrices, one with a gate three."""
    assert matrices(Network(32, 48, gated=True, weights=weights())) == 3 * 32 * 48
    assert matrices(Network(32, 48, gated=False, weights=weights())) == 2 * 32 * 48


def test_attention_shares_keys_between_heads() -> None:
    """Queries of all heads, keys and values of the few are projected at once."""
    assert matrices(Attention(small(), weights())) == 32 * 8 * (2 * 4 + 2 * 2)
