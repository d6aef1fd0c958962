"""The guest in vLLM's process: nothing is imported before it is asked for, nothing acts unless an operator asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptk.vllm_plugin.plugin import register
    from adaptk.vllm_plugin.scheduler import adaptive

__all__ = ["adaptive", "register"]


def __getattr__(name: str) -> Any:
    if name == "adaptive":
        from adaptk.vllm_plugin.scheduler import adaptive

        return adaptive
    if name == "register":
        from adaptk.vllm_plugin.plugin import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
