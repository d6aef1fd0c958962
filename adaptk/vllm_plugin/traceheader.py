"""The first line of a trace: what a reader needs to know of the engine and of what its controller started from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from adaptk._version import __version__
from adaptk.settings import Settings
from adaptk.table import GoodputTable
from adaptk.vllm_plugin import capture, compat

_MOST_BYTES = 2**20  # of a seed table; a larger one is left out


def trace_header(
    config: Any,
    settings: Settings,
    controller: Any,
    *,
    arms: Sequence[int],
    k_max: int,
    rank: int,
    table: str,
    key: dict[str, Any],
) -> dict[str, Any]:
    """Plain data for a ``TraceWriter``.

    Parameters
    ----------
    config
        vLLM's configuration of the engine.
    controller
        Its table and whether that is trusted go in, where it has them.
    k_max
        The engine's ``num_speculative_tokens``.
    rank
        The engine's data-parallel index.
    table, key
        The table in words, and the key of the engine.
    """
    return {
        "adaptk": __version__,
        "vllm": compat.vllm_version(),
        "mode": settings.mode,
        "arms": list(arms),
        "k_max": k_max,
        "rank": rank,
        "table": table,
        "trusted": bool(getattr(controller, "trusted", True)),
        "seed_table": _fields(getattr(controller, "table", None)),
        "key": key,
        "schedule": capture.operators_schedule(config),
    }


def _fields(table: Any) -> dict[str, Any] | None:
    """A table as the fields of its file; ``None`` where there is none or it is too large for a header."""
    if not isinstance(table, GoodputTable):
        return None
    fields: dict[str, Any] = {
        "meta": table.meta,
        "acceptance": table.acceptance,
        "acceptance_counts": table.acceptance_counts,
        "supply": table.supply,
        "schedule": table.schedule,
        "rows": table.rows or None,
    }
    written = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
    return None if len(written) > _MOST_BYTES else msgspec.json.decode(written)
