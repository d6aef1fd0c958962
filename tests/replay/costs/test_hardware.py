"""Chips, models and drafters: sizes agree with what their makers print."""

from __future__ import annotations

import pytest

from adaptk.replay.costs.hardware import (
    B200,
    H100,
    H200,
    LLAMA_8B,
    LLAMA_70B,
    QWEN3_30B_A3B,
    Deployment,
    Model,
    eagle,
)


@pytest.mark.parametrize(("model", "billions"), [(LLAMA_8B, 8.03), (LLAMA_70B, 70.55), (QWEN3_30B_A3B, 30.53)])
def test_parameters_are_those_of_the_model_card(model: Model, billions: float) -> None:
    assert model.parameters / 1e9 == pytest.approx(billions, rel=2e-3)


def test_a_token_of_the_mixture_uses_about_three_billion_parameters() -> None:
    """The "A3B" of the name; by hand 3.35e9 with both embeddings, as the model card counts."""
    m = QWEN3_30B_A3B
    assert m.layers * (m.attention + m.top_k * m.mlp) + 2 * m.head == pytest.approx(3.35e9, rel=0.01)


def test_kv_bytes_by_hand() -> None:
    """Keys and values, 80 layers, 8 heads of 128, two bytes: 320 KiB a token."""
    assert LLAMA_70B.kv_bytes == 320 * 1024


def test_each_chip_has_more_bandwidth_than_the_one_before() -> None:
    assert H100.hbm_bytes_s < H200.hbm_bytes_s < B200.hbm_bytes_s
    assert H100.bf16_flops == H200.bf16_flops < B200.bf16_flops


def test_weights_balance_operations_at_the_known_number_of_tokens() -> None:
    """Two bytes and two operations per parameter: 989e12 / 3.35e12 = 295 tokens on the datasheet's H100."""
    assert H100.bf16_flops / H100.hbm_bytes_s == pytest.approx(295, abs=1)
    one = Deployment(H100, LLAMA_8B)
    assert one.flops_ms / one.bytes_ms == pytest.approx(295 * 0.65 / 0.90, rel=0.01)


def test_room_for_the_kv_cache() -> None:
    """By hand: (80e9 x 0.9 - 16.06e9) / 131,072 bytes."""
    assert Deployment(H100, LLAMA_8B).kv_tokens == pytest.approx(426_800, rel=1e-3)
    assert Deployment(H200, LLAMA_70B, chips=4).kv_tokens > Deployment(H200, LLAMA_70B, chips=2).kv_tokens


def test_weights_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"chips is 1: Llama-3.1-70B on 1 x H100 SXM leaves no room"):
        _ = Deployment(H100, LLAMA_70B).kv_tokens


def test_a_drafter_is_one_layer_and_a_head() -> None:
    """By hand for Llama-3.1-8B: 33.6e6 fusion, 41.9e6 attention, 176.2e6 MLP, 131.1e6 head of 32,000 tokens."""
    small = eagle(LLAMA_8B)
    assert small.parameters == pytest.approx(382.7e6, rel=1e-3)
    assert eagle(LLAMA_8B, vocab=128_256).parameters - small.parameters == 4096 * (128_256 - 32_000)
    assert eagle(QWEN3_30B_A3B).intermediate == 8 * 768
