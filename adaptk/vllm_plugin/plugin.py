"""The entry point of group ``vllm.general_plugins``: decides whether adaptk enters vLLM at all, and where."""

from __future__ import annotations

import os

_registered = False


def register() -> None:
    """Enter vLLM if ``ADAPTK`` is ``on`` or ``shadow``; otherwise return without importing anything.

    vLLM calls this in every process of an engine, outside any ``try``. So it never raises, except under
    ``ADAPTK_STRICT=1``; it may be called again; and it looks at every hook before it touches the first one.

    Raises
    ------
    adaptk.settings.SettingsError
        Under ``ADAPTK_STRICT=1``, for a variable that adaptk refuses.
    RuntimeError
        Under ``ADAPTK_STRICT=1``, if this vLLM lacks something that adaptk needs.
    """
    global _registered
    if _registered or not asked_for():
        return
    try:
        _enter()
    except Exception as error:
        if strict():
            raise
        from adaptk.vllm_plugin.log import logger

        logger.error("adaptk is inactive: %s", error)
    _registered = True


def asked_for() -> bool:
    """Whether ``ADAPTK`` is set to anything but ``off``."""
    return os.environ.get("ADAPTK", "").strip().lower() not in ("", "off", "0")


def strict() -> bool:
    """Whether ``ADAPTK_STRICT`` is set, read without the checks of ``Settings``, which may be what failed."""
    return os.environ.get("ADAPTK_STRICT", "").strip().lower() in ("1", "true", "on")


def _enter() -> None:
    from adaptk.settings import Settings
    from adaptk.vllm_plugin import compat, patches

    Settings.from_env()
    missing = compat.missing_hooks()
    if missing:
        raise RuntimeError(
            f"vLLM {compat.vllm_version()} lacks {', '.join(missing)}. Nothing was changed. adaptk needs vLLM 0.24 or "
            f"later: use a vLLM that it supports, a newer adaptk, or unset ADAPTK"
        )
    patches.apply()
