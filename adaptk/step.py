"""The record of one engine step: the only currency between engine, controller, trace and replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import gt, le
from typing import Any

import msgspec
import numpy as np

from adaptk.quoted import shown

LARGEST_COUNT = 10**12  # of requests or tokens: what lies beyond is a mistake, and would overflow elsewhere


class StepRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one finished engine step did and how long it took.

    Parameters
    ----------
    batch_size
        Requests scheduled in the step, prefills included, ``>= 0``.
    elapsed_ms
        Wall time of the step, milliseconds; ``None`` where unknown. NaN, and what no step can take (see ``evidence``),
        is kept here and treated as unknown by the controller, which counts it.
    k
        Drafts per request that this step was scheduled to make for the next one: what ``choose`` returned.
    drafted
        Drafts verified in this step, shape ``(requests,)``; 0 for requests that had none. Dummy and
        grammar-invalid drafts are not among them.
    accepted
        Drafts of ``drafted`` that were accepted, shape ``(requests,)``, ``0 <= accepted <= drafted``.
    context_tokens
        Tokens in the KV cache before the step, summed over the scheduled requests; ``None`` where unknown.
    prefill_tokens
        Prompt tokens computed in the step.
    device_ms
        The worker's own time for the step, milliseconds, where known; preferred to ``elapsed_ms``.
    draft_k
        Drafts per request made inside ``elapsed_ms`` where that is not ``k`` (an engine that drafts what the previous
        step decided).
    asked
        Drafts per request that were asked for when those verified here were made, where that is not the ``k`` of the
        record before: in a pipeline of several stages each batch comes back only after the others.
    decodes
        Requests of the batch that decode, where prefills are among them; ``None`` means all of them.
    gone
        Requests of ``decodes`` that had ended or been preempted when their output came, so that none of their drafts
        is among ``drafted``. ``None``: as many as the requests without a token make likely.
    verified
        Draft tokens really computed, where padding or a grammar made it differ from ``sum(drafted)``.
    emitted
        Tokens per request that counted, shape ``(requests,)``; drafts accepted beyond a stop do not.
    t_ms
        Clock reading at the end of the step, milliseconds.
    waited
        Whether sampling waited for a grammar to take in the step before (asynchronous scheduling with structured
        output): such steps are a class of their own in time.
    requests
        A number for each request, the same in every step, shape ``(requests,)``; lets a recorded trace be replayed
        request by request. The controller does not look at it.

    Raises
    ------
    ValueError
        If a list is none, the lists differ in length, a request accepted more than it drafted, a count is no whole
        number of at least 0, or a time is no number.

    Examples
    --------
    >>> StepRecord(batch_size=2, elapsed_ms=9.0, k=3, drafted=[3, 1], accepted=[2, 1]).drafted
    [3, 1]
    """

    batch_size: int
    elapsed_ms: float | None
    k: int
    drafted: Sequence[int]
    accepted: Sequence[int]
    context_tokens: int | None = None
    prefill_tokens: int = 0
    device_ms: float | None = None
    draft_k: int | None = None
    asked: int | None = None
    decodes: int | None = None
    gone: int | None = None
    verified: int | None = None
    emitted: Sequence[int] | None = None
    t_ms: float | None = None
    requests: Sequence[int] | None = None
    waited: bool = False

    def __post_init__(self) -> None:
        drafted, accepted, emitted = self.drafted, self.accepted, self.emitted
        # One look that passes for every sound record: this runs in the engine's loop. Reasons are found when it fails.
        try:
            sound = (
                len(drafted) == len(accepted)
                and type(drafted) is type(accepted) is list
                and type(drafts := sum(accepted) + sum(drafted)) is int
                and drafts < LARGEST_COUNT  # and so is each, as none is below 0: cheaper than to look for the largest
                and all(map(le, accepted, drafted))
                and (not accepted or min(accepted) >= 0)
                and (emitted is None or (type(emitted) is list and len(emitted) == len(drafted)))
                and (
                    not emitted
                    or (type(tokens := sum(emitted)) is int and tokens < LARGEST_COUNT and min(emitted) >= 0)
                )
                and self.requests is None  # only traces have them, which are not written at each step's expense
                and type(self.elapsed_ms) is float
                and (self.device_ms is None or type(self.device_ms) is float)
                and (self.t_ms is None or type(self.t_ms) is float)
                and type(self.waited) is bool
                and type(self.batch_size) is type(self.k) is type(self.prefill_tokens) is int
                and 0 <= self.batch_size < LARGEST_COUNT
                and 0 <= self.k < LARGEST_COUNT
                and 0 <= self.prefill_tokens < LARGEST_COUNT
            )
        except (TypeError, ValueError):
            sound = False
        for count in (self.context_tokens, self.draft_k, self.asked, self.decodes, self.gone, self.verified):
            sound = sound and (count is None or (type(count) is int and 0 <= count < LARGEST_COUNT))
        if not sound:
            _refuse(self)
            _make_plain(self)


_REQUIRED = ("batch_size", "k", "prefill_tokens")
_LISTS_NEEDED = ("drafted", "accepted")
_COUNTS = (*_REQUIRED, "context_tokens", "draft_k", "asked", "decodes", "gone", "verified")


def _refuse(record: StepRecord) -> None:
    """Say what is wrong with a record, if anything is."""
    drafted, accepted, emitted, numbers = record.drafted, record.accepted, record.emitted, record.requests
    for name, values in (("drafted", drafted), ("accepted", accepted), ("emitted", emitted), ("requests", numbers)):
        if not (_is_list(values) or (values is None and name not in _LISTS_NEEDED)):
            raise ValueError(f"{name} is {shown(values)}: give a list with a whole number per request")
    if len(drafted) != len(accepted):
        raise ValueError(f"accepted has {len(accepted)} entries, drafted {len(drafted)}: give one per request")
    for name in ("emitted", "requests"):
        values = getattr(record, name)
        if values is not None and len(values) != len(drafted):
            raise ValueError(f"{name} has {len(values)} entries, drafted {len(drafted)}: give one per request")
    for name in _COUNTS:
        value = getattr(record, name)
        if (value is not None or name in _REQUIRED) and not _is_count(value):
            raise ValueError(f"{name} is {shown(value)}: give a whole number from 0 to 10**12")
    for name in ("elapsed_ms", "device_ms", "t_ms"):
        value = getattr(record, name)
        if value is not None and type(value) is not float and not _is_time(value):
            raise ValueError(f"{name} is {shown(value)}: give milliseconds, or None where unknown")
    if not isinstance(record.waited, (bool, np.bool_)):
        raise ValueError(f"waited is {shown(record.waited)}: give True or False")
    for name, values in (("drafted", drafted), ("accepted", accepted), ("emitted", emitted), ("requests", numbers)):
        if values is not None and not _whole(values):
            raise ValueError(f"{name} is {shown(values)}: give a whole number per request")
    for name, values in (("accepted", accepted), ("emitted", emitted), ("requests", numbers)):
        if values is not None and len(values) > 0 and not 0 <= min(values) <= max(values) < LARGEST_COUNT:
            raise ValueError(f"{name} is {shown(values)}: give numbers from 0 to 10**12")
    if any(map(gt, accepted, drafted)):
        d, a = next((d, a) for d, a in zip(drafted, accepted, strict=True) if a > d)
        raise ValueError(f"accepted {shown(a)} of {shown(d)} drafted: need 0 <= accepted <= drafted for each request")
    if len(drafted) > 0 and max(drafted) >= LARGEST_COUNT:
        raise ValueError(f"drafted holds {shown(max(drafted))}: give numbers from 0 to 10**12")


def _make_plain(record: StepRecord) -> None:
    """Turn arrays, tuples and NumPy's numbers into lists and Python's own, which neither overflow nor refuse JSON."""
    for name in ("drafted", "accepted", "emitted", "requests"):
        values = getattr(record, name)
        if values is not None:
            msgspec.structs.force_setattr(record, name, [int(value) for value in values])
    for name in _COUNTS:
        value = getattr(record, name)
        msgspec.structs.force_setattr(record, name, None if value is None else int(value))
    for name in ("elapsed_ms", "device_ms", "t_ms"):
        value = getattr(record, name)
        msgspec.structs.force_setattr(record, name, None if value is None else float(value))
    msgspec.structs.force_setattr(record, "waited", bool(record.waited))


def _is_list(values: Any) -> bool:
    """Whether there is a first entry, a second one and so on, all known: a generator would be empty the next time."""
    if isinstance(values, np.ndarray):
        return values.ndim == 1 and not np.ma.is_masked(values)
    if isinstance(values, Mapping) or not hasattr(values, "__getitem__"):
        return False
    try:
        return len(values) >= 0
    except TypeError:
        return False


def _whole(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "iu"
    # A sum is an int only if all entries are, which is far cheaper than to look at each: this runs once per step.
    try:
        return type(sum(values)) is int or all(isinstance(value, (int, np.integer)) for value in values)
    except TypeError:
        return False


def _is_count(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and 0 <= int(value) < LARGEST_COUNT


def _is_time(value: object) -> bool:
    if not isinstance(value, (int, float, np.integer, np.floating)):
        return False
    try:
        float(value)
    except OverflowError:  # an int that no float can hold
        return False
    return True
