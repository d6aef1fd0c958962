"""Which calls into a running engine replace weights or hold up its steps, and who is told of them.

Trainers write new weights into a running engine between two steps: by vLLM's own protocol (``update_weights`` and
``finish_weight_update``), by ``reload_weights``, or by methods of a worker extension of their own, all of which reach
the workers through ``EngineCore.collective_rpc``. The name is what there is to tell them by. Trainers that share the
engine's process also write into the model without vLLM's knowing; but the KV cache of former weights is worthless, so
that all of them have the prefix cache reset, as have sleep and pause. That is a sign too: one that is wrong, where
somebody resets it for another reason, costs a few steps of wider beliefs. A trainer that gives no sign calls
``scheduler.adaptk.note_weights_changed()``, or ``LLM.reset_prefix_cache()`` where the engine is another process.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from adaptk.vllm_plugin.boundary import stand_down

_MARK = "__adaptk_unwatched__"
_ENGINE = "vllm.v1.engine.core"
_WEIGHTS = {"weight", "weights", "param", "params", "parameter", "parameters", "bucket"}
_REPLACES = {
    *("apply", "broadcast", "copy", "fetch", "finish", "import", "load", "process", "pull", "receive", "recv", "refit"),
    *("reload", "replace", "reset", "restore", "set", "swap", "sync", "synchronize", "transfer", "update", "write"),
    "zero",
}
# First words of methods that only look, or that come before the weights.
_ONLY_LOOKS = {
    *("check", "compare", "compute", "count", "get", "has", "init", "initialize", "is", "list", "prepare", "print"),
    *("save", "shutdown", "start", "supports", "verify"),
}


def watch() -> None:
    """See to it that adaptive schedulers hear of new weights; what this vLLM lacks of the methods is left out.

    Does nothing in a process that has no engine. A second call changes nothing.
    """
    engine = getattr(sys.modules.get(_ENGINE), "EngineCore", None)
    for name, replaces in _WATCHED.items():
        original = getattr(engine, name, None)
        if callable(original) and not hasattr(original, _MARK):
            setattr(engine, name, _watched(original, replaces))


def unwatch() -> None:
    """Undo ``watch``."""
    engine = getattr(sys.modules.get(_ENGINE), "EngineCore", None)
    for name in _WATCHED:
        original = getattr(getattr(engine, name, None), _MARK, None)
        if original is not None:
            setattr(engine, name, original)


def replaces_weights(method: str | Callable[..., Any], args: Sequence[Any] = ()) -> bool:
    """Whether a method that is called on all workers replaces weights, as far as its name tells.

    Parameters
    ----------
    method
        The name of a worker's method, or a function of the worker; a lambda has no name and tells nothing.
    args
        What it is called with: ``apply_model`` is told by the function that it is given.

    Examples
    --------
    >>> [replaces_weights(name) for name in ("update_weights", "finish_weight_update", "broadcast_parameter")]
    [True, True, True]
    >>> [replaces_weights(name) for name in ("init_weight_transfer_engine", "check_weights_changed", "add_lora")]
    [False, False, False]
    """
    while isinstance(method, functools.partial):
        method = method.func
    name = method if isinstance(method, str) else getattr(method, "__name__", "")
    if name == "apply_model":
        return bool(args) and replaces_weights(args[0])
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)]
    if not words or words[0] in _ONLY_LOOKS or _REPLACES.isdisjoint(words):
        return False
    return words[-1] == "model" or not _WEIGHTS.isdisjoint(words)


_Replaces = Callable[[Any, Sequence[Any], Mapping[str, Any]], bool]


def _watched(original: Callable[..., Any], replaces: _Replaces) -> Callable[..., Any]:
    @functools.wraps(original)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        new = _guarded(self, lambda _: replaces(self, args, kwargs))
        try:
            return original(self, *args, **kwargs)
        finally:  # also where it failed: some of the weights may be new, and the time is gone all the same
            _guarded(self, lambda steering: steering.held_up(weights_changed=bool(new)))

    setattr(watched, _MARK, original)
    return watched


def _guarded(engine: Any, tell: Callable[[Any], Any]) -> Any:
    """What ``tell`` says of the engine's steering; ``None`` where the engine has none or it failed."""
    scheduler = getattr(engine, "scheduler", None)
    steering = getattr(scheduler, "__dict__", {}).get("adaptk")
    if steering is None or not steering.active:
        return None
    try:
        return tell(steering)
    except Exception as error:
        stand_down(scheduler, error, "noting a call to the engine")
        return None


def _by_rpc(_: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    given = dict(zip(("method", "timeout", "args"), args, strict=False)) | dict(kwargs)
    return replaces_weights(given.get("method", ""), given.get("args") or ())


def _by_version(engine: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return getattr(engine, "_weight_version", None) != (args[0] if args else kwargs.get("weight_version"))


def _by_adapter(_: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """A LoRA adapter that is loaded in place of itself was trained on; any other is one more."""
    return bool(getattr(args[0] if args else kwargs.get("lora_request"), "load_inplace", False))


def _always(_: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return True


def _never(_: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return False


# Methods of the engine that run between its steps, and whether a call of them replaces weights.
_WATCHED: dict[str, _Replaces] = {
    "collective_rpc": _by_rpc,
    "set_weight_version": _by_version,  # came with 0.27
    "reset_prefix_cache": _always,
    "add_lora": _by_adapter,
    "pin_lora": _never,
    "profile": _never,
    "save_sharded_state": _never,
}
