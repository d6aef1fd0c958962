"""What one metrics page says of one engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

_NONE: Mapping[Any, Any] = {}


class Cell(NamedTuple):
    """A range of batch sizes, in the words of the page (``"4-7"``), and drafts per request."""

    batch: str
    k: int


class CellBelief(msgspec.Struct, frozen=True, kw_only=True):
    """What is believed of a cell, times in seconds, intervals of 90 %; ``None`` where the page does not say.

    ``al`` is the acceptance length, tokens per request and step; ``goodput`` tokens per request and second; ``p_best``
    the probability that this K is the best there; ``drift`` the believed step time over the table's.
    """

    al: float | None = None
    itl: float | None = None
    itl_low: float | None = None
    itl_high: float | None = None
    table_itl: float | None = None
    drift: float | None = None
    goodput: float | None = None
    p_best: float | None = None


class PositionBelief(msgspec.Struct, frozen=True, kw_only=True):
    """Conditional acceptance of a draft position as believed, with its interval of 90 %."""

    ratio: float | None = None
    low: float | None = None
    high: float | None = None


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine has counted, since its start or over a span; every field maps a key to a count.

    ``steps``, ``timed_steps``, ``seconds`` and ``tokens`` are by cell, ``decisions`` by K and reason, ``switches`` by
    reason, ``reached`` and ``accepted`` drafts by position, ``reference`` tokens by policy and how many of them are
    ``unknown`` (taken as emitted), ``exploration`` seconds ``allowed`` and ``spent``, ``alarms`` by kind, ``dropped``
    observations by cause, ``events`` what has no label of its own, ``clocked`` the ``sum`` (seconds) and ``count`` of
    timed decisions.
    """

    steps: Mapping[Cell, float] = _NONE
    timed_steps: Mapping[Cell, float] = _NONE
    seconds: Mapping[Cell, float] = _NONE
    tokens: Mapping[Cell, float] = _NONE
    decisions: Mapping[tuple[int, str], float] = _NONE
    switches: Mapping[str, float] = _NONE
    reached: Mapping[int, float] = _NONE
    accepted: Mapping[int, float] = _NONE
    reference: Mapping[str, float] = _NONE
    unknown: Mapping[str, float] = _NONE
    exploration: Mapping[str, float] = _NONE
    alarms: Mapping[str, float] = _NONE
    dropped: Mapping[str, float] = _NONE
    events: Mapping[str, float] = _NONE
    clocked: Mapping[str, float] = _NONE


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One engine as its page shows it; ``None`` and empty where the page does not say.

    ``mode`` is on, shadow or off; ``inactive_reason`` why adaptk stands aside; ``batch``, ``chosen_k`` and ``played_k``
    are of the last step; ``last_step_at`` and ``beliefs_at`` are Unix times, seconds; ``balance`` is what exploring may
    still cost now, seconds; ``table_k`` what the table or schedule would play by range of batch sizes; ``baseline`` the
    operator's schedule as text; ``skipped`` how many lines about adaptk could not be understood.
    """

    model: str
    engine: str
    instance: str = ""
    version: str = ""
    vllm_version: str = ""
    arms: str = ""
    table: str = ""
    runner: str = ""
    baseline: str = ""
    mode: str | None = None
    active: bool | None = None
    inactive_reason: str = ""
    batch: float | None = None
    chosen_k: int | None = None
    played_k: int | None = None
    last_step_at: float | None = None
    beliefs_at: float | None = None
    balance: float | None = None
    drafter_dead: bool = False
    timing_untrusted: bool = False
    table_k: Mapping[str, int] = _NONE
    cells: Mapping[Cell, CellBelief] = _NONE
    positions: Mapping[int, PositionBelief] = _NONE
    counts: Counts = Counts()
    skipped: int = 0


def batch_order(batch: str) -> tuple[int, str]:
    """The key that sorts ranges of batch sizes by size; what is no range comes last.

    Examples
    --------
    >>> sorted(["16-31", "2-3", "1", "many"], key=batch_order)
    ['1', '2-3', '16-31', 'many']
    """
    first = batch.partition("-")[0]
    return (int(first) if first.isascii() and first.isdigit() and len(first) < 19 else 1 << 63, batch)
