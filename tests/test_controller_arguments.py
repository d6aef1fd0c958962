"""What may be given to a controller: whole numbers of whatever type; all else is refused with its name."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from adaptk import Controller, Settings
from adaptk.quoted import MOST_SIGNS, shown
from tests.publicengine import ARMS, PUBLIC

WHOLE = (
    *(np.int32(7), np.uint8(7), np.uint64(7), np.float64(7.0), np.float32(7.0), np.array(7)),
    *(7.0, Decimal(7), Decimal("7.00"), Fraction(14, 2)),
)
NONE = (
    *(0.5, 7.5, -0.5, math.nan, math.inf, -math.inf, "7", b"7", [7], (7,), {}, 7j, object),
    *(Decimal("0.5"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Fraction(1, 2)),
    *(np.float64(0.3), np.float32("nan"), np.array([7]), np.array(7.5), np.complex64(7)),
)
ASKED: dict[str, Callable[[Controller, Any], object]] = {
    "choose batch_size": lambda controller, value: controller.choose(value),
    "choose context_tokens": lambda controller, value: controller.choose(8, context_tokens=value),
    "choose decodes": lambda controller, value: controller.choose(8, decodes=value),
    "belief batch_size": lambda controller, value: controller.belief(value),
    "belief context_tokens": lambda controller, value: controller.belief(8, value),
}


@pytest.mark.parametrize("call", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("value", WHOLE, ids=repr)
def test_a_whole_number_of_any_type_is_that_number(value: Any, call: Callable[[Controller, Any], object]) -> None:
    """The answer, and what is left behind, are those of 7."""
    one, other = Controller(PUBLIC, seed=0), Controller(PUBLIC, seed=0)
    assert call(one, value) == call(other, 7)
    assert one.snapshot() == other.snapshot()


@pytest.mark.parametrize("call", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("value", [True, np.True_], ids=repr)
def test_true_counts_as_one(value: Any, call: Callable[[Controller, Any], object]) -> None:
    """As it does for Python."""
    assert call(Controller(PUBLIC, seed=0), value) == call(Controller(PUBLIC, seed=0), 1)


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("value", NONE, ids=repr)
def test_all_else_is_refused_by_name(value: Any, name: str) -> None:
    """With the value and the remedy, and nothing is changed by it."""
    controller = Controller(PUBLIC, seed=0)
    before = controller.snapshot()
    with pytest.raises(ValueError, match="give a whole number of at least") as refused:
        ASKED[name](controller, value)
    assert str(refused.value).startswith(f"{name.split()[1]} is {shown(value)}: ")
    assert controller.snapshot() == before


@pytest.mark.parametrize("call", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("value", [10**400, 1e300, Decimal("1e999999999")], ids=["int", "float", "Decimal"])
def test_a_number_beyond_everything_is_the_largest(value: Any, call: Callable[[Controller, Any], object]) -> None:
    """It costs neither time nor memory."""
    assert call(Controller(PUBLIC, seed=0), value) == call(Controller(PUBLIC, seed=0), 10**12)


@pytest.mark.parametrize("value", [-1, np.int8(-1), -(10**400), -1e300], ids=["int", "int8", "huge", "float"])
def test_a_batch_below_nothing_is_refused(value: Any) -> None:
    """A belief is of at least one request."""
    controller = Controller(PUBLIC, seed=0)
    with pytest.raises(ValueError, match=r"batch_size is .*: give a whole number of at least 0$"):
        controller.choose(value)
    for batch in (value, 0):
        with pytest.raises(ValueError, match=r"batch_size is .*: give a whole number of at least 1$"):
            controller.belief(batch)


@pytest.mark.parametrize("nothing", [0, 0.0, np.int64(0), False], ids=repr)
def test_no_requests_are_no_decision(nothing: Any) -> None:
    controller = Controller(PUBLIC, seed=0)
    before = controller.snapshot()
    assert controller.choose(nothing) == 0
    assert controller.snapshot() == before


HUGE = 10**400
MADE: dict[str, tuple[dict[str, Any], str]] = {
    "seed below 0": ({"seed": -1}, "seed is -1: give a whole number of at least 0"),
    "seed of half": ({"seed": 1.5}, "seed is 1.5: give a whole number of at least 0"),
    "seed in words": ({"seed": "x"}, "seed is 'x': give a whole number of at least 0"),
    "settings as a mapping": ({"settings": {"min_k": 1}}, "settings is {'min_k': 1}: give Settings(...)"),
    "table as rows": ({"table": [{"batch": HUGE}] * 99}, "table is [{'batch': 1"),
    "arms as a number": ({"arms": 5}, "arms is 5: give a sequence of whole numbers"),
    "arms beyond": ({"arms": [0, HUGE]}, "arms go up to 1000"),
    "arms beyond k_max": ({"arms": [HUGE], "k_max": HUGE - 1}, "arms holds 1000"),
    "k_max of digits": ({"k_max": -HUGE * HUGE}, "k_max is -1000"),
    "min_k beyond": ({"settings": Settings(min_k=HUGE)}, "min_k is 1000"),
    "min_k beyond many arms": ({"settings": Settings(min_k=99), "arms": range(65)}, "min_k is 99: no arm of (0, 1, 2"),
    "capture_sizes as a number": ({"capture_sizes": 5}, "capture_sizes are 5: give numbers of tokens"),
    "capture_sizes beyond": ({"capture_sizes": [1, HUGE]}, "capture_sizes are [1, 1000"),
    "capture_sizes of all kinds": ({"capture_sizes": [1, "a", []]}, "capture_sizes are [1, 'a', []]: give numbers"),
    "capture_sizes many": ({"capture_sizes": [0, *range(99_999)]}, "capture_sizes are [0, 0, 1, 2"),
}


@pytest.mark.parametrize(("given", "says"), MADE.values(), ids=MADE)
def test_what_no_controller_can_be_made_of(given: dict[str, Any], says: str) -> None:
    """One short line that names the field, the value and the remedy."""
    with pytest.raises((ValueError, TypeError)) as refused:
        Controller(**{"table": PUBLIC, **given})
    told = str(refused.value)
    assert told.startswith(says)
    assert ": " in told
    assert "\n" not in told
    assert len(told) < 3 * MOST_SIGNS


def test_a_seed_of_numpys_is_that_seed() -> None:
    """The same draws."""
    assert Controller(PUBLIC, ARMS, seed=np.uint16(3)).snapshot() == Controller(PUBLIC, ARMS, seed=3).snapshot()
