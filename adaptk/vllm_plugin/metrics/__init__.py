"""An engine's metrics, added up on its thread and served by others."""

from adaptk.vllm_plugin.metrics.serving import MetricsError, serve

__all__ = ["MetricsError", "serve"]
