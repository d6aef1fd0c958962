"""Fields of a config.json, read with errors that name them, and the ones that tell of models outside our reach."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping
from typing import Any

from adaptk.surface.architecture import ConfigError

_MOST = 2**24  # of any size: more is a slip, and would only end in an error of memory
_PROFILE = "measure this model with adaptk profile"

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


class Fields:
    """Reads one configuration; every error begins with the model's ``name``."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        self.name = name
        self._config = config

    def get(self, field: str) -> Any:
        """The value, ``None`` where there is none."""
        return self._config.get(field)

    def items(self) -> ItemsView[str, Any]:
        """All fields."""
        return self._config.items()

    def whole(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The first of ``names`` that has a value, as a whole number of at least ``least``.

        Raises
        ------
        ConfigError
            If none has a value and there is no default, or the value is no such number.
        """
        for field in names:
            value = self.get(field)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
                raise ConfigError(
                    f"{self.name}: {field} is {value!r:.60}: one whole number from {least} to {_MOST} can be "
                    f"modelled; correct it, or {_PROFILE}"
                )
            return value
        if default is None:
            raise ConfigError(
                f"{self.name}: {' and '.join(names)} {'are' if len(names) > 1 else 'is'} missing: add "
                f"{'one of them' if len(names) > 1 else 'it'} to the file, or {_PROFILE}"
            )
        return default

    def text(self, field: str) -> str | None:
        """The value if it is text, else ``None``."""
        value = self.get(field)
        return value if isinstance(value, str) else None

    def entries(self, field: str, length: int) -> list[Any] | None:
        """A list with one entry per layer; ``None`` where the field has no value.

        Raises
        ------
        ConfigError
            If it is no list, or of another length.
        """
        value = self.get(field)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) < length:
            raise ConfigError(
                f"{self.name}: {field} is {value!r:.60}: a list with an entry for each of the {length} layers is "
                "expected; correct it, or leave it out"
            )
        return value[:length]


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
            raise ConfigError(f"{fields.name}: {field} is {value!r:.60}, so it has {what}, not modelled: {_PROFILE}")
    made = fields.get("architectures")
    named = [str(each) for each in made] if isinstance(made, list) else []
    if named and not any(part in each for each in named for part in _HEADS):
        raise ConfigError(f"{fields.name}: architectures is {named}, no decoder that writes text: give one that does")
