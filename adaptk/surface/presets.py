"""Sizes that are built in, in the fields of a config.json."""

from __future__ import annotations

from typing import Any

from adaptk.surface.architecture import Architecture, ConfigError
from adaptk.surface.configs import from_config

PRESETS: dict[str, dict[str, Any]] = {
    # Llama 3.1 8B
    "llama-8b": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "vocab_size": 128256,
    },
    # Llama 3.1 70B
    "dense-70b": {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "num_hidden_layers": 80,
        "vocab_size": 128256,
    },
    # Qwen3 30B-A3B
    "moe-30b-a3b": {
        "hidden_size": 2048,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_hidden_layers": 48,
        "vocab_size": 151936,
    },
}


def preset(name: str) -> Architecture:
    """The architecture of that name.

    Raises
    ------
    ConfigError
        If there is none.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset {name!r:.40} is not known: give one of {', '.join(PRESETS)}")
    return from_config(PRESETS[name], name)
