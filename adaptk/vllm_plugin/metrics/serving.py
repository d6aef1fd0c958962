"""Serving an engine's metrics: on a port of its own, by threads of its own, off the path of its steps."""

from __future__ import annotations

import errno
import json
import socket
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptk._version import __version__
from adaptk.settings import Settings
from adaptk.vllm_plugin import capture, compat
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.metrics.carried import ours
from adaptk.vllm_plugin.metrics.page import Page
from adaptk.vllm_plugin.metrics.rows import Rows
from adaptk.vllm_plugin.metrics.server import MetricsServer
from adaptk.vllm_plugin.metrics.sums import Sums

if TYPE_CHECKING:
    from adaptk.vllm_plugin.steering import Steering

_HIGHEST_PORT = 65535
_NO_HOST = (errno.EADDRNOTAVAIL, errno.EINVAL)  # an address of another machine, or without its scope


class MetricsError(RuntimeError):
    """Metrics cannot be served as they were asked for; the message says why and what to do."""


def serve(steering: Steering, settings: Settings, config: Any, *, rank: int, v2: bool) -> None:
    """Serve the metrics of ``steering`` from now on, until its ``metrics`` are stopped or it is gone.

    Parameters
    ----------
    steering
        Active or not; gets ``sums``, where its steps are added up, and ``metrics``.
    settings
        Name host and port; the port of rank 0.
    config
        vLLM's configuration of the engine, or ``None``.
    rank
        The engine's data-parallel index, which is added to the port.
    v2
        Whether the model runner is V2.

    Raises
    ------
    MetricsError
        If prometheus_client is not installed, or the port cannot be had.
    """
    try:
        import prometheus_client  # noqa: F401  # vLLM brings it; what else it may lack shows here
    except ImportError:
        raise MetricsError("prometheus_client is not installed: pip install prometheus-client") from None
    assert settings.metrics_port is not None
    host, port = settings.metrics_host, settings.metrics_port + rank
    if port > _HIGHEST_PORT:
        raise MetricsError(
            f"ADAPTK_METRICS_PORT={settings.metrics_port} leaves no port for rank {rank}: give a lower one"
        )
    sums = None
    if steering.controller is not None:
        sums = Sums(steering.k_max, steering.collector)
        sums.carried.meet(steering.controller)
        sums.hand_over(steering.controller)
    own = ours(steering.controller)
    arms = "" if own is None else ",".join(map(str, own.arms))
    configured = (arms, _table(steering.controller, settings), "V2" if v2 else "V1", _schedule(config))
    about: Rows = {
        "adaptk_build_info": [((__version__, compat.vllm_version()), 1.0)],
        "adaptk_config_info": [(configured, 1.0)],
    }
    try:
        page = Page(steering, sums, (_model(config), str(rank)), about)
        server = MetricsServer(host, port, page, Page.form)
    except (OSError, UnicodeError) as error:  # the latter of a host that can be no name
        raise MetricsError(_refused(host, port, error)) from None
    steering.sums, steering.metrics = sums, server
    weakref.finalize(steering, server.stop).atexit = False
    logger.info("adaptk serves its metrics at %s", server.url)


def _refused(host: str, port: int, error: OSError | UnicodeError) -> str:
    """Which of the two cannot be had, and what to give instead."""
    why = getattr(error, "strerror", None) or error
    if isinstance(error, (socket.gaierror, UnicodeError)) or error.errno in _NO_HOST:
        return f"ADAPTK_METRICS_HOST={host} is no address of this machine ({why}): give one, as 127.0.0.1 or 0.0.0.0"
    return (
        f"ADAPTK_METRICS_PORT: {host}:{port} cannot be had ({why}): give each engine on a host a free port of its own"
    )


def _model(config: Any) -> str:
    """The name that vLLM's own metrics carry."""
    model = getattr(config, "model_config", None)
    name = getattr(model, "served_model_name", None) or getattr(model, "model", None) or ""
    return str(name[0] if isinstance(name, (list, tuple)) else name)


def _table(controller: Any, settings: Settings) -> str:
    """A short name of the seed table."""
    own = ours(controller)
    if own is None or own.table is None:
        return "none"
    table = own.table
    if table.schedule is not None:
        return "schedule"
    name = table.meta.get("name") or (Path(settings.table).name if settings.table else "given")
    return str(name)


def _schedule(config: Any) -> str:
    schedule = capture.operators_schedule(config)
    return "" if schedule is None else json.dumps(schedule, separators=(",", ":"))
