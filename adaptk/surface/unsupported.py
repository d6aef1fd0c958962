"""Models that the blocks here cannot stand for, told by the fields of their config.json."""

from __future__ import annotations

from adaptk.quoted import shown
from adaptk.surface.architecture import ConfigError
from adaptk.surface.fields import PROFILE, Fields

# Field -> what a value there (neither null, 0 nor false) means.
_OUTSIDE = {
    "kv_lora_rank": "multi-head latent attention",
    "index_topk": "sparse attention with an index",
    "is_encoder_decoder": "an encoder beside the decoder",
    "encoder_layers": "an encoder beside the decoder",
    "num_encoder_layers": "an encoder beside the decoder",
    "type_vocab_size": "the shape of an encoder",
    "state_size": "state-space layers",
    "ssm_state_size": "state-space layers",
    "ssm_cfg": "state-space layers",
    "mamba_d_state": "state-space layers",
    "mamba_expand": "state-space layers",
    "mamba_num_heads": "state-space layers",
    "hybrid_override_pattern": "state-space layers",
    "attn_layer_period": "state-space layers",
    "linear_num_key_heads": "linear-attention layers",
    "linear_attn_config": "linear-attention layers",
    "lru_width": "recurrent layers",
    "conv_L_cache": "convolution layers",
    "enable_moe_block": "a mixture beside the dense network of the same layer",
    "hidden_size_per_layer_input": "an embedding for each layer",
    "block_configs": "shapes that change from layer to layer",
    "global_head_dim": "shapes that change from layer to layer",
    "num_global_key_value_heads": "shapes that change from layer to layer",
}
_HEADS = ("CausalLM", "ConditionalGeneration", "LMHead", "Eagle", "EAGLE")
# Families -> what their layers are, for files that leave it to the name; small letters and figures alone. Some of these
# files hold every field of a dense decoder, written by a tool that knows no other.
_FAMILIES = {
    "mamba": "state-space layers",
    "bamba": "state-space layers",
    "jamba": "state-space layers",
    "zamba": "state-space layers",
    "hymba": "state-space layers",
    "falconh1": "state-space layers",
    "granitemoehybrid": "state-space layers",
    "nemotronh": "state-space layers",
    "phi4flash": "state-space layers",
    "plamo2": "state-space layers",
    "rwkv": "recurrent layers",
    "xlstm": "recurrent layers",
    "retnet": "recurrent layers",
    "recurrentgemma": "recurrent layers",
    "bailingmoelinear": "linear-attention layers",
    "bailingmoev25": "linear-attention layers",
    "kimilinear": "linear-attention layers",
    "minimaxforcausallm": "linear-attention layers",
    "minimaxm1": "linear-attention layers",
    "minimaxtext01": "linear-attention layers",
    "olmohybrid": "linear-attention layers",
    "qwen35": "linear-attention layers",
    "qwen3next": "linear-attention layers",
    "lfm2": "convolution layers",
}


def unsupported(fields: Fields) -> None:
    """Refuse what the blocks here cannot stand for.

    Raises
    ------
    ConfigError
        Naming the field that tells.
    """
    for field, what in _OUTSIDE.items():
        value = fields.get(field)
        if field == "global_head_dim" and value == fields.get("head_dim"):
            continue
        if value not in (None, False, 0, [], {}):
            raise ConfigError(f"{fields.name}: {field} is {shown(value)}, so it has {what}, not modelled: {PROFILE}")
    refuse_families(fields)
    named = _architectures(fields)
    if named and not any(part in each for each in named for part in _HEADS):
        raise ConfigError(
            f"{fields.name}: architectures is {shown(named)}, no decoder that writes text: give one that does"
        )


def refuse_families(fields: Fields) -> None:
    """Refuse a model whose family alone tells that its layers are no attention.

    Raises
    ------
    ConfigError
        Naming ``model_type`` or ``architectures``, and what the layers are.
    """
    told = [
        ("model_type", fields.text("model_type") or ""),
        *(("architectures", made) for made in _architectures(fields)),
    ]
    for field, value in told:
        plain = "".join(sign for sign in value.lower() if sign.isalnum())
        what = next((what for family, what in _FAMILIES.items() if family in plain), None)
        if what is not None:
            verb = "holds" if field == "architectures" else "is"
            raise ConfigError(
                f"{fields.name}: {field} {verb} {shown(value)}, a family with {what}, not modelled: {PROFILE}"
            )


def _architectures(fields: Fields) -> list[str]:
    made = fields.get("architectures")
    return [each for each in made if isinstance(each, str)] if isinstance(made, list) else []
