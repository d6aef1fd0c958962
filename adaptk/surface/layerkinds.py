"""Which layers of a model are mixtures, and which attend only to a window."""

from __future__ import annotations

from typing import Any

from adaptk.quoted import shown
from adaptk.surface.architecture import ConfigError, Layer
from adaptk.surface.fields import Fields

_MOST_LAYERS = 4096
_FULL = frozenset({"full_attention", "attention", "global_attention", "full"})
_WINDOWED = {"sliding_attention": "sliding_window", "sliding": "sliding_window"}
_CHUNKED = {"chunked_attention": "attention_chunk_size"}


def layer_kinds(fields: Fields, mixture: bool) -> tuple[Layer, ...]:
    """One :class:`Layer` per decoder layer.

    Parameters
    ----------
    fields
        The model's configuration.
    mixture
        Whether it has experts at all.

    Raises
    ------
    ConfigError
        If a layer is of a kind that is not modelled, or a field of layers does not fit their number.
    """
    count = fields.whole("num_hidden_layers")
    if count > _MOST_LAYERS:
        raise ConfigError(f"{fields.name}: num_hidden_layers is {count}, more than {_MOST_LAYERS}: check the file")
    windows = _windows(fields, count)
    routed = _routed(fields, count) if mixture else [False] * count
    return tuple(Layer(*pair) for pair in zip(routed, windows, strict=True))


def _windows(fields: Fields, count: int) -> list[int | None]:
    kinds = fields.entries("layer_types", count)
    if kinds is not None:
        return [_window_of(fields, kind if isinstance(kind, str) else shown(kind)) for kind in kinds]
    if fields.get("sliding_window") is None or fields.get("use_sliding_window") is False:
        return [None] * count
    window = fields.whole("sliding_window")
    every = fields.whole("sliding_window_pattern", "_sliding_window_pattern", default=0, least=0)
    if not every and fields.text("model_type") == "gemma2":  # older files leave unsaid that layers take turns
        every = 2
    first = fields.whole("max_window_layers", default=0, least=0) if fields.get("use_sliding_window") else 0
    return [None if i < first or (every and (i + 1) % every == 0) else window for i in range(count)]


def _window_of(fields: Fields, kind: str) -> int | None:
    if kind in _FULL:
        return None
    field = {**_WINDOWED, **_CHUNKED}.get(kind)
    if field is None:
        raise ConfigError(
            f"{fields.name}: layer_types holds {shown(kind)}, a layer that is not modelled: "
            "measure this model with adaptk profile"
        )
    return fields.whole(field)


def _routed(fields: Fields, count: int) -> list[bool]:
    """Which layers are mixtures, by the several ways in which families say it; all of them where none is said."""
    named = fields.entries("mlp_layer_types", count)
    if named is not None:
        return [kind == "sparse" for kind in named]
    frequency = fields.get("moe_layer_freq")
    if isinstance(frequency, list):
        return [bool(each) for each in fields.entries("moe_layer_freq", count) or []]
    listed = fields.get("moe_layers")
    if isinstance(listed, list) and listed:
        routed = _places(listed)
        return [i in routed for i in range(count)]
    step = fields.whole("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1)
    every = fields.whole("moe_layer_freq", default=1)
    first = fields.whole("first_k_dense_replace", "moe_layer_start_index", default=0, least=0)
    last = fields.get("moe_layer_end_index")
    end = last if isinstance(last, int) and last >= 0 else count - 1
    dense = _places(fields.get("mlp_only_layers"))
    return [first <= i <= end and i % every == 0 and (i + 1) % step == 0 and i not in dense for i in range(count)]


def _places(listed: Any) -> frozenset[int]:
    """Numbers of layers in a list, which may be long: it is asked for each layer."""
    return frozenset(each for each in listed if isinstance(each, int)) if isinstance(listed, list) else frozenset()
