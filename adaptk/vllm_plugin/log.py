"""The logger of the plugin: a child of vLLM's, so that it shows wherever vLLM's own lines do."""

from __future__ import annotations

import logging

logger = logging.getLogger("vllm.adaptk")
