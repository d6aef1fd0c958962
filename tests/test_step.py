from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given

from adaptk.step import StepRecord
from tests.strategies import json_values, step_records, without_infinities

GOOD: dict[str, Any] = {"batch_size": 2, "elapsed_ms": 9.0, "k": 3, "drafted": [3, 1], "accepted": [2, 1]}


EMITTED = [{"emitted": emitted} for emitted in ([10**12, 1], [10**400, 1], [10**12 - 1, 10**12])]
NO_LISTS = {
    "generator": lambda: (count for count in (3, 1)),
    "iterator": lambda: iter([3, 1]),
    "map": lambda: map(int, "31"),
    "number": lambda: 5,
    "set": lambda: {3, 1},
    "mapping": lambda: {3: 1, 1: 2},
    "masked": lambda: np.ma.array([3, 1], mask=[0, 1]),
    "rows": lambda: np.array([[3, 1], [3, 1]]),
    "scalar": lambda: np.array(3),
    "class": lambda: list,
}


def test_optional_fields_are_unknown_by_default() -> None:
    step = StepRecord(**GOOD)
    optional = ("context_tokens", "device_ms", "draft_k", "decodes", "verified", "emitted", "t_ms", "requests")
    assert {getattr(step, name) for name in optional} == {None}
    assert step.prefill_tokens == 0


@pytest.mark.parametrize("elapsed_ms", [None, math.nan, math.inf, 0.0, -1.0, 3, np.float32(2.5)])
def test_any_time_is_kept(elapsed_ms: Any) -> None:
    """Times that cannot be are the controller's to count; the record only carries them, as Python's own floats."""
    kept = StepRecord(**{**GOOD, "elapsed_ms": elapsed_ms}).elapsed_ms
    assert repr(kept) == repr(None if elapsed_ms is None else float(elapsed_ms))


def test_numpy_becomes_plain() -> None:
    """Arrays, tuples and NumPy's numbers turn into lists and Python's own, which JSON bears."""
    step = StepRecord(
        batch_size=np.int64(2),
        elapsed_ms=9.0,
        k=np.uint8(3),
        drafted=np.array([3, 1]),
        accepted=(np.int64(2), 1),
        context_tokens=np.int32(7),
    )
    assert (type(step.batch_size), type(step.k), type(step.context_tokens)) == (int, int, int)
    assert [type(x) for x in (*step.drafted, *step.accepted)] == [int] * 4
    assert step == StepRecord(**GOOD, context_tokens=7)


@pytest.mark.parametrize("change", [{"batch_size": 10**12}, {"k": 10**300}, {"drafted": [10**12, 1]}, *EMITTED])
def test_absurd_counts_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"10\*\*12"):
        StepRecord(**{**GOOD, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"batch_size": 0, "drafted": [], "accepted": []},
        {"drafted": (3, 1), "accepted": (3, 0)},
        {"drafted": np.array([3, 1]), "accepted": np.array([3, 1])},
        {"drafted": [np.int64(3), 1], "accepted": [np.int64(3), 0]},
        {"drafted": [0, 0], "accepted": [0, 0], "emitted": [1, 1]},
        {"emitted": [0, 5], "decodes": 1, "verified": 4, "draft_k": 0, "context_tokens": 0, "prefill_tokens": 512},
        {"batch_size": np.int32(2), "k": np.int8(3)},
        {"requests": [7, 3]},
        {"requests": (np.int64(7), 3)},
    ],
)
def test_accepts(change: dict[str, Any]) -> None:
    step = StepRecord(**{**GOOD, **change})
    assert step.batch_size == change.get("batch_size", 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accepted": [2]}, "accepted has 1 entries, drafted 2"),
        ({"emitted": [1, 2, 3]}, "emitted has 3 entries, drafted 2"),
        ({"requests": [1]}, "requests has 1 entries, drafted 2"),
        ({"requests": [1, -1]}, r"requests is \[1, -1\]"),
        ({"requests": ["a", "b"]}, r"requests is \['a', 'b'\]"),
        ({"accepted": [2, 2]}, "accepted 2 of 1 drafted"),
        ({"accepted": [-1, 0]}, r"accepted is \[-1, 0\]"),
        ({"drafted": [-1, 1], "accepted": [-1, 1]}, r"accepted is \[-1, 1\]"),
        ({"drafted": [-1, 1], "accepted": [0, 1]}, "accepted 0 of -1 drafted"),
        ({"emitted": [1, -2]}, r"emitted is \[1, -2\]"),
        ({"drafted": [3.5, 1]}, r"drafted is \[3\.5, 1\]"),
        ({"accepted": [math.nan, 1]}, r"accepted is \[nan, 1\]"),
        ({"drafted": ["3", "1"]}, r"drafted is \['3', '1'\]"),
        ({"drafted": np.array([3.0, 1.0])}, "drafted is array"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"batch_size": 2.0}, r"batch_size is 2\.0"),
        ({"batch_size": None}, "batch_size is None"),
        ({"k": -3}, "k is -3"),
        ({"k": None}, "k is None"),
        ({"k": "3"}, "k is '3'"),
        ({"prefill_tokens": -1}, "prefill_tokens is -1"),
        ({"prefill_tokens": None}, "prefill_tokens is None"),
        ({"context_tokens": -1}, "context_tokens is -1"),
        ({"context_tokens": math.nan}, "context_tokens is nan"),
        ({"draft_k": -1}, "draft_k is -1"),
        ({"decodes": -1}, "decodes is -1"),
        ({"verified": -1}, "verified is -1"),
        ({"elapsed_ms": "9"}, "elapsed_ms is '9'"),
        ({"device_ms": [1]}, r"device_ms is \[1\]"),
        ({"t_ms": 10**400}, "t_ms is 1000"),
    ],
)
def test_refusals_name_field_and_value(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepRecord(**{**GOOD, **change})


@pytest.mark.parametrize("field", ["drafted", "accepted", "emitted", "requests"])
@pytest.mark.parametrize("make", NO_LISTS.values(), ids=NO_LISTS)
def test_what_is_no_list_is_refused_by_name(make: Callable[[], Any], field: str) -> None:
    """Before anything is taken from it: a generator would be empty for whoever reads it next."""
    with pytest.raises(ValueError, match=rf"^{field} is (.|\n)*: give a list with a whole number per request$"):
        StepRecord(**{**GOOD, field: make()})


@pytest.mark.parametrize("field", ["drafted", "accepted"])
def test_lists_that_are_needed_are_not_none(field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} is None: give a list with a whole number per request$"):
        StepRecord(**{**GOOD, field: None})


def test_a_masked_array_without_a_mask_is_an_array() -> None:
    assert StepRecord(**{**GOOD, "drafted": np.ma.array([3, 1])}) == StepRecord(**GOOD)


def test_counts_whose_sum_alone_is_beyond_are_taken() -> None:
    """The limit is on each of them."""
    most = [10**12 - 1] * 2
    step = StepRecord(**{**GOOD, "drafted": most, "accepted": most, "emitted": most})
    assert step.drafted == step.accepted == step.emitted == most


def test_is_frozen_and_refuses_unknown_fields() -> None:
    step = StepRecord(**GOOD)
    with pytest.raises(AttributeError):
        step.k = 1  # type: ignore[misc]
    with pytest.raises(TypeError, match="tokens"):
        StepRecord(**GOOD, tokens=3)


@given(step_records())
def test_json_round_trip(step: StepRecord) -> None:
    """Numbers that are not finite come back as unknown; all else is the same."""
    again = msgspec.json.decode(msgspec.json.encode(step), type=StepRecord)
    assert again == without_infinities(step)


@given(json_values, json_values, json_values)
def test_any_values_are_taken_or_refused(drafted: Any, accepted: Any, count: Any) -> None:
    try:
        step = StepRecord(**{**GOOD, "drafted": drafted, "accepted": accepted, "batch_size": count})
    except (ValueError, TypeError):
        return
    assert all(0 <= a <= d for d, a in zip(step.drafted, step.accepted, strict=True))
