"""Configurations of many families, and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adaptk.surface.architecture import ConfigError, Layer
from adaptk.surface.configs import from_config, read_config
from adaptk.surface.presets import PRESETS, preset
from tests.surface.small import DENSE, MIXTURE, small, small_mixture

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN2_7B = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False,
    "sliding_window": 131072, "use_sliding_window": False, "max_window_layers": 28,
}  # fmt: skip
SMOLLM2 = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
    "num_experts_per_tok": 2, "sliding_window": None,
}  # fmt: skip
QWEN3_30B = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "vocab_size": 151936, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "tie_word_embeddings": False, "use_sliding_window": False, "sliding_window": None,
}  # fmt: skip
QWEN15_MOE = {
    "model_type": "qwen2_moe", "hidden_size": 2048, "intermediate_size": 5632, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_key_value_heads": 16, "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936,
}  # fmt: skip
DEEPSEEK_MOE_16B = {
    "model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16, "n_routed_experts": 64,
    "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "vocab_size": 102400,
}  # fmt: skip
GPT_OSS_20B = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "num_local_experts": 32,
    "num_experts_per_tok": 4, "experts_per_token": 4, "vocab_size": 201088, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip
GEMMA2_2B = {
    "model_type": "gemma2", "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 256000,
    "sliding_window": 4096, "tie_word_embeddings": True,
}  # fmt: skip
STARCODER2_3B = {
    "model_type": "starcoder2", "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 30,
    "num_attention_heads": 24, "num_key_value_heads": 2, "vocab_size": 49152, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (LLAMA_8B, 8.03), (QWEN2_7B, 7.62), (SMOLLM2, 0.1345), (MIXTRAL, 46.7), (QWEN3_30B, 30.5), (QWEN15_MOE, 14.3),
        (DEEPSEEK_MOE_16B, 16.4), (GPT_OSS_20B, 20.9), (GEMMA2_2B, 2.61), (STARCODER2_3B, 3.03),
    ],
)  # fmt: skip
def test_published_sizes(config: dict[str, Any], billions: float) -> None:
    """Parameters are those that the models' cards tell, within 2 %: every matrix was read from the right field."""
    assert from_config(config, "model").parameters == pytest.approx(billions * 1e9, rel=0.02)


def test_presets_are_of_the_sizes_in_their_names() -> None:
    """8, 70 and 30 thousand millions of parameters; an unknown name lists the known ones."""
    sizes = {name: preset(name).parameters / 1e9 for name in PRESETS}
    assert sizes == pytest.approx({"llama-8b": 8.03, "dense-70b": 70.6, "moe-30b-a3b": 30.5}, rel=0.02)
    with pytest.raises(ConfigError, match="give one of llama-8b, dense-70b, moe-30b-a3b"):
        preset("llama")


def test_defaults_of_older_files() -> None:
    """Without key-value heads every head has its own; without a head size the hidden one is divided."""
    read = from_config({k: v for k, v in DENSE.items() if k != "num_key_value_heads"}, "old")
    assert (read.kv_heads, read.head_dim, read.dtype, read.remarks) == (4, 8, None, ())
    assert small(head_dim=16).head_dim == 16
    assert small(torch_dtype="torch.float16").dtype == small(dtype="float16").dtype == "float16"


@pytest.mark.parametrize(
    ("fields", "windows"),
    [
        ({"sliding_window": 8}, [8, 8, 8]),
        ({"sliding_window": 8, "use_sliding_window": False}, [None] * 3),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 2}, [None, None, 8]),
        ({"sliding_window": 8, "sliding_window_pattern": 3}, [8, 8, None]),
        ({"sliding_window": 8, "model_type": "gemma2"}, [8, None, 8]),
        ({"sliding_window": 8, "layer_types": ["full_attention", *["sliding_attention"] * 2]}, [None, 8, 8]),
        ({"attention_chunk_size": 64, "layer_types": ["chunked_attention"] * 3}, [64] * 3),
    ],
)  # fmt: skip
def test_windows(fields: dict[str, Any], windows: list[int | None]) -> None:
    """Each way in which families say which layers look back only so far."""
    assert [layer.window for layer in small(**fields).layers] == windows


@pytest.mark.parametrize(
    ("fields", "routed"),
    [
        ({}, "+++"),
        ({"first_k_dense_replace": 1}, "-++"),
        ({"moe_layer_freq": 2}, "+-+"),
        ({"moe_layer_freq": [0, 1, 1]}, "-++"),
        ({"decoder_sparse_step": 2}, "-+-"),
        ({"mlp_only_layers": [2]}, "++-"),
        ({"interleave_moe_layer_step": 2}, "-+-"),
        ({"moe_layers": [1]}, "-+-"),
        ({"mlp_layer_types": ["dense", "sparse", "dense"]}, "-+-"),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 1}, "-+-"),
        ({"num_experts": None}, "---"),
        ({"num_experts": 1}, "---"),
    ],
)
def test_which_layers_are_mixtures(fields: dict[str, Any], routed: str) -> None:
    """Each way in which families say it; a mixture of one, or of none, is a dense model."""
    assert "".join("+" if layer.mixture else "-" for layer in small_mixture(**fields).layers) == routed


@pytest.mark.parametrize(
    ("fields", "shared"),
    [
        ({}, 0),
        ({"n_shared_experts": 2}, 32),
        ({"shared_expert_intermediate_size": 40}, 40),
        ({"intermediate_size_mlp": 64}, 16),
    ],
)
def test_experts_that_every_token_takes(fields: dict[str, Any], shared: int) -> None:
    """As a width, as a number, or by the family."""
    assert small_mixture(**fields).shared_width == shared


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"kv_lora_rank": 512}, "kv_lora_rank is 512, so it has multi-head latent attention"),
        ({"mamba_d_state": 16}, "mamba_d_state is 16, so it has state-space layers"),
        ({"model_type": "mamba2"}, "model_type is 'mamba2', a family with state-space layers, not modelled: measure"),
        (
            {"architectures": ["Mamba2ForCausalLM"]},
            "architectures holds 'Mamba2ForCausalLM', a family with state-space",
        ),
        ({"model_type": "falcon_mamba"}, "a family with state-space layers"),
        ({"model_type": "nemotron_h"}, "a family with state-space layers"),
        ({"model_type": "rwkv6"}, "a family with recurrent layers"),
        ({"architectures": ["Qwen3NextForCausalLM"]}, "a family with linear-attention layers"),
        ({"model_type": "lfm2_moe"}, "a family with convolution layers"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder is True, so it has an encoder beside"),
        ({"type_vocab_size": 2}, "type_vocab_size is 2, so it has the shape of an encoder"),
        ({"layer_types": ["linear_attention"] * 3}, "layer_types holds 'linear_attention'"),
        ({"layer_types": ["full_attention"]}, "layer_types is .*each of the 3 layers"),
        ({"layer_types": ["sliding_attention"] * 3}, "sliding_window is missing"),
        ({"architectures": ["BertForMaskedLM"]}, "no decoder that writes text"),
        ({"hidden_size": None}, "hidden_size is missing: add it"),
        ({"hidden_size": "32"}, "hidden_size is '32': one whole number"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": 2**40}, "hidden_size is 1099511627776"),
        ({"hidden_size": 30}, "no multiple of the 4 of num_attention_heads"),
        ({"intermediate_size": [48, 48, 48]}, "intermediate_size is \\[48"),
        ({"num_key_value_heads": 3}, "no multiple of the 3 of num_key_value_heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_hidden_layers": 5000}, "num_hidden_layers is 5000, more than"),
        ({"router_experts": 8}, "router_experts is 8, but no field says how many"),
        ({"num_experts": 8}, "num_experts_per_tok and .* are missing"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "takes 9 experts of 8"),
        ({"vocab_size": float("nan")}, "vocab_size is nan"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, Any], told: str) -> None:
    """What cannot be modelled, and what is no configuration, is refused by model, field and value."""
    with pytest.raises(ConfigError, match=f"^small: .*{told}"):
        small(**fields)


@pytest.mark.parametrize(
    "model_type",
    ["llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "nemotron", "falcon", "plamo3", "phi3", "granitemoe", "olmo2",
     "minimax_m2", "gemma3_text", "glm4", "bailing_moe", "phimoe"],
)  # fmt: skip
def test_families_of_decoders_are_taken(model_type: str) -> None:
    """Also those whose names begin as a refused one's."""
    assert small(model_type=model_type).hidden == 32
    made = model_type.title().replace("_", "") + "ForCausalLM"
    assert small(model_type=model_type, architectures=[made]).hidden == 32


def test_a_family_is_known_by_what_stands_around_it() -> None:
    """Where the language model is one part of a file, the outer names count as well."""
    outer = {"text_config": DENSE, "model_type": "lfm2_vl", "architectures": ["Lfm2VlForConditionalGeneration"]}
    with pytest.raises(ConfigError, match="model_type is 'lfm2_vl', a family with convolution layers"):
        from_config(outer, "seeing")


def test_language_model_inside_another() -> None:
    """Of a model that also sees, the part that writes is read, and what is left out is said."""
    outer = {"text_config": DENSE, "vision_config": {"hidden_size": 7}, "quantization_config": {"quant_method": "awq"}}
    read = from_config(outer, "seeing")
    assert read.hidden == 32
    assert read.remarks == (
        "all but the language model",
        "quantisation (awq): weights are timed unquantised",
    )
    with pytest.raises(ConfigError, match="text_config is 'here'"):
        from_config({"text_config": "here"}, "odd")


def test_draft_heads_are_told_apart() -> None:
    """A head that drafts for a larger model joins two inputs, and has a vocabulary of its own."""
    head = small(architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=50)
    assert head.fused
    assert head.vocab == 50
    assert not small().fused


def test_shares_of_a_rank() -> None:
    """Heads, widths and vocabulary are divided; few key-value heads are held twice; odd numbers are refused."""
    share = small_mixture(n_shared_experts=1).divided(2)
    assert (share.heads, share.kv_heads, share.expert_width, share.shared_width, share.vocab) == (2, 1, 8, 8, 49)
    assert (share.experts, share.hidden, share.head_dim) == (8, 32, 8)
    assert small().divided(4).kv_heads == 1
    assert small().divided(1) == small()
    with pytest.raises(ConfigError, match="heads is 4, which 3 ranks cannot share"):
        small().divided(3)
    with pytest.raises(ConfigError, match="width is 50, which 4 ranks"):
        small(intermediate_size=50).divided(4)


def test_cache_sizes() -> None:
    """Keys and values of a layer, and of all: those with a window keep no more."""
    shape = small(sliding_window=8, layer_types=["full_attention", "sliding_attention", "full_attention"])
    assert shape.cache_elements(3, 100) == 2 * 3 * 100 * 2 * 8
    assert shape.all_cache_elements(3, 100) == 2 * 3 * (100 + 8 + 100) * 2 * 8
    assert shape.kinds == {Layer(): 2, Layer(window=8): 1}


def test_names_of_files(tmp_path: Path) -> None:
    """A model is called as its folder; of a downloaded snapshot, whose folder is a hash, as its repository."""
    for place, name in (("tiny", "tiny"), ("models--some--tiny-7B/snapshots/0ab1", "some/tiny-7B")):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(MIXTURE))
        assert read_config(folder).name == read_config(folder / "config.json").name == name
    other = tmp_path / "größe.json"
    other.write_text(json.dumps(DENSE))
    assert read_config(other).name == "größe"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is not JSON"),
        (b'{"hidden_size": 3', "is not JSON"),
        (b"[1, 2]", "holds \\[1, 2\\] where an object"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b" " * (8 * 2**20 + 1), "more than 8388608"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: bytes, told: str) -> None:
    """Every fault of the file is an error that names it and says what to give."""
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{told}.*give a model's folder or its config.json") as raised:
        read_config(file)
    assert str(file) in str(raised.value)


def test_missing_files(tmp_path: Path) -> None:
    """A folder without a configuration, and a name from a hub that is no folder here."""
    for place in (tmp_path, Path("meta-llama/Llama-3.1-8B")):
        with pytest.raises(ConfigError, match="there is no such file: give a model's folder"):
            read_config(place)
