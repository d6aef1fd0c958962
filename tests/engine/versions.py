"""What tests of one vLLM version must know of the others: bounds for skipping, told with their reason."""

from __future__ import annotations

import importlib.util

import pytest

from adaptk.vllm_plugin import compat


def at_least(minor: int) -> bool:
    """Whether the vLLM at hand is 0.``minor`` or later.

    Parameters
    ----------
    minor
        The second number of the version, as ``27`` for 0.27.
    """
    return compat.version_tuple(compat.vllm_version()) >= (0, minor)


def since(minor: int, what: str) -> pytest.MarkDecorator:
    """A mark that skips a test on every vLLM before 0.``minor``, because ``what`` came with that.

    Examples
    --------
    >>> since(25, "padding of new requests").kwargs["reason"].startswith("padding of new requests came with vLLM 0.25")
    True
    """
    return pytest.mark.skipif(
        not at_least(minor), reason=f"{what} came with vLLM 0.{minor}; this is {compat.vllm_version()}"
    )


def before(minor: int, what: str) -> pytest.MarkDecorator:
    """A mark that skips a test on vLLM 0.``minor`` and later, because ``what`` ended there."""
    return pytest.mark.skipif(
        at_least(minor), reason=f"{what} ended with vLLM 0.{minor}; this is {compat.vllm_version()}"
    )


def need_engine() -> None:
    """Skip where vLLM's compiled part is missing: of a version unpacked from its wheel only the sources are kept."""
    if importlib.util.find_spec("vllm._C") is None:
        pytest.skip(f"no engine can start: vLLM {compat.vllm_version()} is here as sources only")
