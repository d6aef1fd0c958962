"""Snapshots that cannot be gone on from are refused, saying what is wrong."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk import Controller, Settings
from adaptk.snapshot import SCHEMA_VERSION
from tests.publicengine import ARMS, PUBLIC
from tests.snapshots import damaged, entry, paths, used_snapshot


@pytest.fixture
def used() -> dict[str, Any]:
    return used_snapshot()


@pytest.mark.parametrize(
    "foreign",
    [
        *({}, [], None, "text", 7),
        *({"schema_version": version} for version in (0, 1, 2, 3, True, "2")),
        {"schema_version": 1, "arms": 5},
    ],
)
def test_a_foreign_snapshot_is_refused(foreign: Any) -> None:
    """With a ValueError that says so, whatever it is."""
    with pytest.raises(ValueError, match="snapshot"):
        Controller.restore(foreign, PUBLIC)


def test_a_newer_version_is_named(used: dict[str, Any]) -> None:
    """With the ones that can be read."""
    with pytest.raises(ValueError, match=f"schema_version is 99, this adaptk reads 1 to {SCHEMA_VERSION}"):
        Controller.restore(used | {"schema_version": 99}, PUBLIC)


def test_restore_with_other_arms_is_refused(used: dict[str, Any]) -> None:
    """Whether the settings name them or the snapshot was given others, also as a prior."""
    for as_prior in (False, True):
        with pytest.raises(ValueError, match=r"arms \(0, 1, 3, 5\), settings say \(0, 1, 3\)"):
            Controller.restore(used, PUBLIC, Settings(arms=(0, 1, 3)), as_prior=as_prior)
        for arms in ([0, 1], [0, 1, 3, 5, 7], [], [0, 1, 3, 10**9], [3, 1, 0, 5], [0, 1, 5], [0, 1, 3.0, 5], 5, "0135"):
            with pytest.raises(ValueError, match=r"snapshot|arms"):
                Controller.restore(used | {"arms": arms}, PUBLIC, as_prior=as_prior)
    assert Controller.restore(used, PUBLIC, Settings(arms=ARMS, budget=0.1)).snapshot() == used


def test_a_missing_or_unknown_field_is_named(used: dict[str, Any]) -> None:
    """At every level of the snapshot's mappings."""
    fresh = Controller(PUBLIC, seed=0).snapshot()
    for path in paths(fresh):
        if not all(isinstance(key, str) for key in path):
            continue
        with pytest.raises(ValueError, match=str(path[-1])):
            Controller.restore(damaged(used, path, ...), PUBLIC)
        if isinstance(entry(fresh, path), dict) and path[0] != "identity":
            with pytest.raises(ValueError, match=rf"{path[-1]}\.surprise is unknown"):
                Controller.restore(damaged(used, (*path, "surprise"), 1), PUBLIC)
    with pytest.raises(ValueError, match=r"snapshot\.surprise is unknown"):
        Controller.restore(used | {"surprise": 1}, PUBLIC)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("acceptance", "alpha", 0), math.nan, r"acceptance\.alpha\[0\] is nan, no number"),
        (("latency", "cov", 1, 2), math.inf, r"latency\.cov\[1\]\[2\] is inf, no number"),
        (("latency", "mean", 3), None, r"latency\.mean\[3\] is None, no number"),
        (("_usual_ms",), "7", "_usual_ms is '7', no number"),
        pytest.param(("_seq",), 10**5000, "_seq is an int of .* bits, no number", id="huge"),
        (("_judge",), 1, "_judge is 1, no bool"),
        (("counters", "steps"), True, "counters.steps is True, no number"),
        (("latency",), [], r"latency is \[\], no mapping"),
        (("random", 1), 17, r"random\[1\] is 17, no str"),
        (("random",), "PCG64", r"random is 'PCG64', no list of 5"),
        (("open",), {}, r"open is {}, no list"),
        (("open", 0, 2), math.nan, r"open\[0\]\[2\] is nan, no number"),
        (("settings", "budget"), 2, "budget is 2"),
        (("settings", "min_k"), 6, "min_k is 6"),
        (("identity",), [], r"identity is \[\]"),
        (("identity", "device"), {}, r"identity\['device'\] is {}"),
    ],
)
def test_an_odd_field_is_named_with_its_value(
    used: dict[str, Any], path: tuple[Any, ...], value: Any, says: str
) -> None:
    """Numbers that are none, another type, another length."""
    with pytest.raises(ValueError, match=says):
        Controller.restore(damaged(used, path, value), PUBLIC)


@given(st.data())
@settings(max_examples=150)
def test_whatever_is_changed_in_a_snapshot_is_noticed(data: st.DataObject) -> None:
    """Any entry at any depth, replaced or removed: a ValueError, never a controller that fails in the engine's step."""
    used = used_snapshot()
    path = data.draw(st.sampled_from(list(paths(used))))
    old = entry(used, path)
    odd = st.sampled_from([..., math.nan, -1, 0, 3, 10**400, 0.5, "text", None, True, [], [[]], {}, {"a": [1]}])
    value = data.draw(odd.filter(lambda new: new is ... or type(new) is not type(old) or new != old))
    if isinstance(old, int | float) and not isinstance(value, bool) and value == old:
        return  # 0 for 0.0
    with pytest.raises(ValueError, match=r"\w"):
        Controller.restore(damaged(used, path, value), PUBLIC)


def test_a_store_that_writes_numbers_and_keys_its_own_way_does_no_harm(used: dict[str, Any]) -> None:
    """1 for 1.0, tuples for lists, keys in another order, as other languages and stores do."""

    def rewritten(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rewritten(value[key]) for key in sorted(value)}
        if isinstance(value, list):
            return tuple(map(rewritten, value))
        return int(value) if isinstance(value, float) and value.is_integer() else value

    assert Controller.restore(rewritten(used), PUBLIC).snapshot() == used
