"""Faults from outside. Files named ``test_engine_*`` drive vLLM, set up as in ``tests/engine``."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.engine.conftest import _no_settings, log, model

__all__ = ["_no_settings", "log", "model"]

# Without vLLM there is nothing to drive.
collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_engine_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What drives vLLM is marked."""
    for item in items:
        path = Path(item.path)
        if Path(__file__).parent in path.parents and path.name.startswith("test_engine_"):
            item.add_marker(pytest.mark.engine)
