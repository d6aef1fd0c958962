"""Random byte-level models, made in a second: real enough for every path of the engine, and fast.

The drafters among them know the target's embedding and head and nothing of its layers: they draft what the target would
say if it looked at the last token only. Of a target whose layers say ``little`` that is often right.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCABULARY = 512
HEADS = 2


def byte_llama(folder: Path, *, layers: int = 2, hidden: int = 128, seed: int = 0, little: float | None = None) -> Path:
    """Write a float32 model and its tokenizer into ``folder``.

    ``little`` is what the layers add, as a factor; without it they drown the embedding.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    _tokenizer(folder)
    config = LlamaConfig(**_shape(layers, hidden), architectures=["LlamaForCausalLM"])
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).to(torch.float32)
    _spread(model, little)
    model.save_pretrained(folder)
    return folder


def eagle(folder: Path, target: Path) -> Path:
    """Write an EAGLE head of one layer for a ``target`` of ``byte_llama`` into ``folder``."""
    import torch

    weights = _weights(target)
    hidden = weights["model.embed_tokens.weight"].shape[1]
    head = {
        "embed_tokens.weight": weights["model.embed_tokens.weight"],
        "fc.weight": torch.cat([torch.eye(hidden), torch.zeros(hidden, hidden)], dim=1),
        **_silent_layer("layers.0.", hidden, hidden),
    }
    del head["layers.0.input_layernorm.weight"]  # the first layer of such a head has none
    return _save_head(folder, target, head)


def eagle3(folder: Path, target: Path) -> Path:
    """Write an EAGLE-3 head for a ``target`` of ``byte_llama`` with at least four layers into ``folder``.

    It reads three of the target's layers and makes nothing of them. Its attention looks at the newest token only: all
    queries and keys are one vector, which the rotation of positions turns away from itself with the distance.
    """
    import torch

    weights = _weights(target)
    hidden = weights["model.embed_tokens.weight"].shape[1]
    layer = _silent_layer("midlayer.", hidden, 2 * hidden)
    layer |= {f"midlayer.self_attn.{name}_proj.bias": torch.full((hidden,), 4.0) for name in "qk"}
    layer |= {f"midlayer.self_attn.{name}_proj.bias": torch.zeros(hidden) for name in "vo"}
    layer["midlayer.self_attn.v_proj.weight"] = torch.cat([torch.eye(hidden), torch.zeros(hidden, hidden)], dim=1)
    layer["midlayer.self_attn.o_proj.weight"] = torch.eye(hidden)
    head = {
        "fc.weight": torch.zeros(hidden, 3 * hidden),
        "midlayer.hidden_norm.weight": torch.ones(hidden),
        "norm.weight": torch.ones(hidden),
        "lm_head.weight": weights["lm_head.weight"],
        **layer,
    }
    return _save_head(folder, target, head, attention_bias=True, eagle_aux_hidden_state_layer_ids=[1, 2, 3])


def dflash(folder: Path, target: Path) -> Path:
    """Write a block drafter for a ``target`` of ``byte_llama`` with at least four layers into ``folder``.

    It drafts all tokens of a block in one pass from one known token and masks. Each place looks at the one before it
    only, so that the first draft of a block is made as the other drafters make theirs; the rest is always the same.
    """
    import torch

    weights = _weights(target)
    hidden = weights["model.embed_tokens.weight"].shape[1]
    pairs = hidden // HEADS // 2
    angles = 10000.0 ** -(torch.arange(pairs) / pairs)
    layer = _silent_layer("layers.0.", hidden, hidden)
    layer |= {f"layers.0.self_attn.{name}_proj.bias": torch.zeros(hidden) for name in "vo"}
    # All keys are one vector, and all queries are that vector turned back by one place.
    layer["layers.0.self_attn.k_proj.bias"] = torch.cat([torch.ones(pairs), torch.zeros(pairs)]).repeat(HEADS)
    layer["layers.0.self_attn.q_proj.bias"] = torch.cat([angles.cos(), -angles.sin()]).repeat(HEADS)
    layer |= {f"layers.0.self_attn.{name}_norm.weight": torch.full((2 * pairs,), 8.0) for name in "qk"}
    layer |= {f"layers.0.self_attn.{name}_proj.weight": torch.eye(hidden) for name in "vo"}
    head = {
        "fc.weight": torch.zeros(hidden, 3 * hidden),
        "hidden_norm.weight": torch.ones(hidden),
        "norm.weight": torch.ones(hidden),
        **layer,
    }
    return _save_head(
        folder,
        target,
        head,
        model_type="qwen3",
        architectures=["DFlashDraftModel"],
        head_dim=2 * pairs,
        attention_bias=True,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
        dflash_config={"mask_token_id": VOCABULARY - 1, "target_layer_ids": [0, 1, 2], "causal": True},
    )


def mimo(folder: Path, *, hidden: int = 128, seed: int = 0, little: float | None = None) -> Path:
    """Write a model of the MiMo family, which predicts one token more, and its tokenizer into ``folder``."""
    import torch
    from safetensors.torch import save_file
    from transformers import Qwen2Config, Qwen2ForCausalLM

    _tokenizer(folder)
    config = Qwen2Config(**_shape(2, hidden), architectures=["MiMoForCausalLM"], num_nextn_predict_layers=1)
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config).to(torch.float32)
    _spread(model, little)
    layer = "model.mtp_layers.0."
    extra = {
        f"{layer}{norm}_layernorm.weight": torch.ones(hidden) for norm in ("token", "hidden", "final")
    } | _silent_layer(layer, hidden, hidden)
    extra[f"{layer}input_proj.weight"] = torch.cat([torch.zeros(hidden, hidden), torch.eye(hidden)], dim=1)
    extra |= {f"{layer}self_attn.{name}_proj.bias": torch.zeros(hidden) for name in "qkv"}
    for name in "kv":  # as many heads as the target's
        for end in ("weight", "bias"):
            extra[f"{layer}self_attn.{name}_proj.{end}"] = extra[f"{layer}self_attn.{name}_proj.{end}"][
                : hidden // HEADS
            ]
    config.save_pretrained(folder)
    save_file({k: v.contiguous() for k, v in {**model.state_dict(), **extra}.items()}, folder / "model.safetensors")
    return folder


def _shape(layers: int, hidden: int) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "tie_word_embeddings": False,
        "dtype": "float32",
    }


def _tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = ["<s>", "</s>", *alphabet]
    words += [f"<unused{i}>" for i in range(VOCABULARY - len(words))]
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)


def _spread(model: Any, little: float | None) -> None:
    import torch

    with torch.no_grad():
        # A flat random model repeats one token for ever; a larger spread gives it some variety.
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
                if little is not None and name.endswith(("o_proj.weight", "down_proj.weight")):
                    parameter.mul_(little)


def _weights(target: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(target / "model.safetensors"))


def _silent_layer(prefix: str, hidden: int, inputs: int) -> dict[str, Any]:
    """A decoder layer that adds nothing, with as many heads of keys as of queries."""
    import torch

    layer = {f"self_attn.{name}_proj.weight": torch.zeros(hidden, inputs) for name in "qkv"}
    layer["self_attn.o_proj.weight"] = torch.zeros(hidden, hidden)
    layer |= {f"mlp.{name}_proj.weight": torch.zeros(2 * hidden, hidden) for name in ("gate", "up")}
    layer["mlp.down_proj.weight"] = torch.zeros(hidden, 2 * hidden)
    layer |= {f"{norm}_layernorm.weight": torch.ones(hidden) for norm in ("input", "post_attention")}
    return {prefix + name: tensor for name, tensor in layer.items()}


def _save_head(folder: Path, target: Path, weights: dict[str, Any], **changes: Any) -> Path:
    from safetensors.torch import save_file

    config = json.loads((target / "config.json").read_text())
    config |= {"num_hidden_layers": 1, "num_key_value_heads": HEADS, **changes}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    return folder
