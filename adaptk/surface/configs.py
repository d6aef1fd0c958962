"""A model's config.json, as people name its fields, read into an Architecture."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from adaptk.inputs import InputError, name_of, read_whole
from adaptk.quoted import plain, said, shown
from adaptk.surface.architecture import Architecture, ConfigError
from adaptk.surface.fields import Fields
from adaptk.surface.layerkinds import layer_kinds
from adaptk.surface.unsupported import refuse_families, unsupported

_MAX_BYTES = 8 * 2**20  # the largest configurations have some hundred kB; weights are no JSON
_NO_GATE = frozenset({
    "apertus", "arcee", "biogpt", "gpt_neox", "jais2", "nanochat", "nemotron", "persimmon", "phi", "starcoder2",
})  # fmt: skip
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TAKEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "top_k_experts")
_SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
_SNAPSHOT = re.compile(r"^models--(.+)$")


def read_config(path: str | os.PathLike[str]) -> Architecture:
    """The architecture of a model folder, or of a config.json.

    Raises
    ------
    ConfigError
        If the file is missing, no JSON object, or describes a model that this cannot model.
    """
    file = config_file(path)
    return from_config(_decoded(file), _name(file))


def config_file(path: str | os.PathLike[str]) -> Path:
    """The file that :func:`read_config` reads."""
    place = Path(path)
    return place / "config.json" if place.is_dir() else place


def from_config(config: Mapping[str, Any], name: str) -> Architecture:
    """The architecture that the fields of a config.json describe.

    Raises
    ------
    ConfigError
        If a field is missing, impossible, or tells of something that is not modelled: latent attention, state-space or
        linear-attention layers, encoders, shapes that change from layer to layer.

    Examples
    --------
    >>> tiny = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    ...         "num_key_value_heads": 2, "vocab_size": 100}
    >>> from_config(tiny, "tiny").head_dim
    16
    """
    remarks: list[str] = []
    if "text_config" in config and "hidden_size" not in config:
        if not isinstance(config["text_config"], Mapping):
            inner = shown(config["text_config"])
            raise ConfigError(f"{name}: text_config is {inner}: give the model's own config.json")
        refuse_families(Fields(name, config))  # of the whole, which the part inside need not repeat
        remarks.append("all but the language model")
        config = {**config["text_config"], "quantization_config": config.get("quantization_config")}
    fields = Fields(name, config)
    unsupported(fields)
    hidden = fields.whole("hidden_size")
    heads = fields.whole("num_attention_heads")
    kv_heads = fields.whole("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise ConfigError(
            f"{name}: num_attention_heads is {heads}, no multiple of the {kv_heads} of num_key_value_heads: "
            "check the file"
        )
    layers = layer_kinds(fields, mixture=bool(_experts(fields)))
    remarks += _remarks(fields)
    return Architecture(
        name=name,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(fields, hidden, heads),
        vocab=fields.whole("draft_vocab_size", "vocab_size"),
        layers=layers,
        width=0 if all(layer.mixture for layer in layers) else _dense_width(fields),
        gated=fields.text("model_type") not in _NO_GATE,
        fused=_is_eagle(fields),
        tied=fields.get("tie_word_embeddings") is True,
        dtype=_dtype(fields),
        remarks=tuple(remarks),
        **(_mixture(fields) if any(layer.mixture for layer in layers) else {}),
    )


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if fields.get("head_dim") is not None:
        return fields.whole("head_dim")
    if hidden % heads:
        raise ConfigError(
            f"{fields.name}: hidden_size is {hidden}, no multiple of the {heads} of num_attention_heads, "
            "and head_dim is not given: give head_dim"
        )
    return hidden // heads


def _experts(fields: Fields) -> int:
    experts = fields.whole(*_EXPERTS, default=0, least=0)
    if fields.get("is_moe") is False:
        return 0
    if experts:
        return experts if experts > 1 else 0  # a mixture of one is a dense layer
    if any(field in _EXPERTS for field, _ in fields.items()):  # null, or 0: the dense member of a family
        return 0
    for field, value in fields.items():
        if re.search("expert", field) and isinstance(value, int) and not isinstance(value, bool) and value > 1:
            known = ", ".join(_EXPERTS)
            raise ConfigError(
                f"{fields.name}: {plain(field)} is {shown(value)}, but no field says how many experts there are "
                f"(known are {known}): "
                "give the number under one of these names, or measure the model with adaptk profile"
            )
    return 0


def _dense_width(fields: Fields) -> int:
    return fields.whole("intermediate_size_mlp", "intermediate_size")


def _mixture(fields: Fields) -> dict[str, int]:
    experts, taken = _experts(fields), fields.whole(*_TAKEN)
    if taken > experts:
        raise ConfigError(
            f"{fields.name}: each token takes {taken} experts of {experts}: check {' and '.join(_TAKEN[:2])}"
        )
    width = fields.whole("moe_intermediate_size", "intermediate_size")
    shared = fields.whole(*_SHARED_WIDTH, default=0, least=0)
    if not shared:
        shared = width * fields.whole(*_SHARED, default=0, least=0)
    if not shared and fields.get("intermediate_size_mlp") is not None:  # Llama 4: one of every expert's width
        shared = width
    return {"experts": experts, "experts_per_token": taken, "expert_width": width, "shared_width": shared}


def _is_eagle(fields: Fields) -> bool:
    made = fields.get("architectures")
    named = any("eagle" in str(each).lower() for each in made) if isinstance(made, list) else False
    return named or fields.get("draft_vocab_size") is not None


def _dtype(fields: Fields) -> str | None:
    for field in ("dtype", "torch_dtype"):
        if (text := fields.text(field)) is not None:
            return text.removeprefix("torch.")
    return None


def _remarks(fields: Fields) -> list[str]:
    stored = fields.get("quantization_config")
    if isinstance(stored, Mapping):
        method = stored.get("quant_method")
        kind = plain(method) if isinstance(method, str) else "of an unnamed kind"
        return [f"quantisation ({kind}): weights are timed unquantised"]
    return []


def _decoded(file: Path) -> dict[str, Any]:
    remedy = "give a model's folder or its config.json, or --preset NAME"
    try:
        content = msgspec.json.decode(read_whole(file, _MAX_BYTES))
    except InputError as error:
        raise ConfigError(f"{name_of(file)}: {error}: {remedy}") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{str(file)!r}: is not JSON ({said(error)}): {remedy}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: holds {shown(content)} where an object is expected: {remedy}")
    return content


def _name(file: Path) -> str:
    """The model's name; of a downloaded snapshot, whose folder is a hash, that of its repository."""
    folder = file.absolute().parent
    stored = _SNAPSHOT.match(folder.parent.parent.name) if folder.parent.name == "snapshots" else None
    if stored is not None:
        return stored[1].replace("--", "/", 1)
    return folder.name if file.name == "config.json" and folder.name else file.stem
