"""The key of a table: what must be the same for its step times to hold, and what differs between two keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adaptk.quoted import plain, shown

_MOST_SIGNS = 1_000  # of a key in one line
_MOST_TEXT = 200  # signs of one text, as a path
_MOST_NAMES = 40  # that it is made of

FIELDS = (
    "model",
    "drafter",
    "method",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "device",
    "tensor_parallel",
    "pipeline_parallel",
    "runner",
    "vllm",
    "graph_mode",
    "capture_sizes",
)
"""Names that a key written here holds; text, numbers, or lists of numbers. Others may be added by hand."""


def differences(table: Mapping[str, Any], here: Mapping[str, Any], where: str = "in the table") -> list[str]:
    """What differs between a table's key and another one; empty where nothing does.

    Only fields that both name are compared: a key that leaves something out was written by hand, and forbids nothing.
    Of a model's name the last part of the path counts, as the same weights lie in other folders elsewhere; of vLLM's
    version what follows ``+`` does not, which names a build; of capture sizes those count that both engines could have,
    as how far they go follows the largest batch. ``where`` says in the message what the key stands in.

    Examples
    --------
    >>> differences({"model": "meta-llama/Llama-3.1-8B", "device": "H100"}, {"model": "Llama-3.1-8B", "device": "H200"})
    ["device: 'H100' in the table, 'H200' here"]
    """
    return [
        f"{plain(name)}: {shown(table[name])} {where}, {shown(here[name])} here"
        for name in (*FIELDS, *(name for name in table if name not in FIELDS))
        if table.get(name) is not None and here.get(name) is not None and not _same(name, table[name], here[name])
    ]


def summary(key: Mapping[str, Any]) -> str:
    """A key in one line, the lists left out; short, and without signs that steer, whatever a file has for one.

    Examples
    --------
    >>> summary({"model": "SmolLM2", "method": "ngram", "capture_sizes": [1, 2, 4]})
    'model=SmolLM2, method=ngram'
    """
    known = [name for name in FIELDS if name in key] + [name for name in key if name not in FIELDS]
    told = [name for name in known if key[name] is not None and not isinstance(key[name], list)]
    parts = [f"{plain(name)}={_plain(key[name])}" for name in told[:_MOST_NAMES]]
    return plain(", ".join([*parts, *(["..."] if len(told) > _MOST_NAMES else [])]), _MOST_SIGNS)


def _plain(value: Any) -> str:
    return plain(value, _MOST_TEXT) if isinstance(value, str) else shown(value)


def _same(name: str, table: Any, here: Any) -> bool:
    if table == here:
        return True
    if name == "capture_sizes" and isinstance(table, list) and isinstance(here, list) and table and here:
        try:
            most = min(max(table), max(here))
            return {size for size in table if size <= most} == {size for size in here if size <= most}
        except TypeError:  # written by hand
            return False
    return bool(_canonical(name, table) == _canonical(name, here))


def _canonical(name: str, value: Any) -> Any:
    if name in ("model", "drafter") and isinstance(value, str):
        return value.rstrip("/").rsplit("/", 1)[-1]
    if name == "vllm" and isinstance(value, str):
        return value.partition("+")[0]
    return value
