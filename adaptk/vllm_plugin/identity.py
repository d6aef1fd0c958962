"""The key of the engine at hand: what a table must have been measured on for its step times to hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from adaptk.vllm_plugin import compat, drafters

# Where the cache of a model hub keeps a model, to which vLLM sets its name when it is offline.
_CACHED = re.compile(r"models--([^/]+)/snapshots/[^/]+$")


def table_key(config: Any) -> dict[str, Any]:
    """What a ``VllmConfig`` says of itself, under the names of :data:`adaptk.tablekey.FIELDS`.

    Text, whole numbers, a list of numbers, or ``None`` where a part of the configuration is absent or does not say. No
    folder of this machine is in it: of a model that lies in one only the folder's own name is.

    Examples
    --------
    >>> key = table_key(None)  # what can be told without a configuration
    >>> sorted(name for name, value in key.items() if value is not None)
    ['device', 'vllm']
    """
    model = getattr(config, "model_config", None)
    parallel = getattr(config, "parallel_config", None)
    speculative = getattr(config, "speculative_config", None)
    return {
        "model": model_name(getattr(model, "model", None)),
        "drafter": model_name(drafters.draft_model(speculative)),
        "method": getattr(speculative, "method", None),
        "dtype": _dtype(getattr(model, "dtype", None)),
        "quantization": None if model is None else str(getattr(model, "quantization", None) or "none"),
        "kv_cache_dtype": _text(getattr(getattr(config, "cache_config", None), "cache_dtype", None)),
        "device": compat.device_name(),
        "tensor_parallel": getattr(parallel, "tensor_parallel_size", None),
        "pipeline_parallel": getattr(parallel, "pipeline_parallel_size", None),
        "runner": None if config is None else "V2" if compat.runner_v2(config) else "V1",
        "vllm": compat.vllm_version(),
        "graph_mode": compat.graph_mode(config),
        "capture_sizes": None if config is None else sorted(compat.capture_sizes(config)),
    }


def identity(key: dict[str, Any]) -> dict[str, Any]:
    """The part of a key that a controller's snapshot is bound to."""
    return {name: key[name] for name in ("model", "drafter", "device")}


def model_name(path: str | None) -> str | None:
    """A model's name: as on a hub, or the last part of a folder or address.

    Examples
    --------
    >>> model_name("meta-llama/Llama-3.1-8B"), model_name("/data/models/llama-8b/"), model_name("s3://bucket/llama-8b")
    ('meta-llama/Llama-3.1-8B', 'llama-8b', 'llama-8b')
    >>> model_name("/cache/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f2")
    'meta-llama/Llama-3.1-8B'
    """
    if not path:
        return None
    plain = str(path).replace("\\", "/").rstrip("/")
    cached = _CACHED.search(plain)
    if cached:
        return cached[1].replace("--", "/")
    on_a_hub = plain.count("/") <= 1 and not plain.startswith((".", "/", "~")) and not Path(plain).is_dir()
    return (plain if on_a_hub else plain.rsplit("/", 1)[-1]) or None


def _dtype(dtype: Any) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
