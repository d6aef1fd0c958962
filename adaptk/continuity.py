"""What of a controller is written down, and how another one goes on from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adaptk.decision import Decision, Reason
from adaptk.quoted import said, shown
from adaptk.rehearsal import rehearse
from adaptk.settings import Settings
from adaptk.snapshot import (
    SCHEMA_VERSION,
    START,
    Identity,
    brought_up_to_date,
    check_fields,
    check_seal,
    check_shape,
    copied,
    differing,
    fingerprint,
    random_state,
    read_identity,
    seal,
    set_random_state,
    version_of,
)
from adaptk.table import GoodputTable

if TYPE_CHECKING:
    from adaptk.controller import Controller

COUNTERS = (
    *("steps", "switches", "explored", "acceptance_alarms", "time_alarms", "times_refused"),
    *("drafter_dead", "weights_changed", "timing_untrusted"),
)
_HEADER = ("schema_version", "identity", "arms", "capture_sizes", "table", "trusted", "settings", "digest")
_LIMITS = ("min_k", "max_itl_ms", "budget")
_PARTS = ("acceptance", "latency", "prefill", "waits", "planner", "load")
_STATE = ("_seq", "_last_k", "_asked", "_usual_ms", "_visit_end", "_judge", "_dead", "_explored", "_unsettled")


def taken(controller: Controller) -> dict[str, Any]:
    """Everything that a controller consists of, as plain data."""
    return completed(controller, changing(controller))


def changing(controller: Controller) -> dict[str, Any]:
    """A copy of what choosing and learning change, on the thread that does both: the quick half of ``taken``."""
    return {
        "random": random_state(controller._rng),
        **{name: getattr(controller, f"_{name}").snapshot() for name in _PARTS},
        "open": [[d.seq, d.k, d.propensity, d.reason.value] for d in controller._open],
        "counters": dict(controller.counters),
        **{name: getattr(controller, name) for name in _STATE},
    }


def completed(controller: Controller, changed: Mapping[str, Any]) -> dict[str, Any]:
    """What ``changing`` gave, with what never changes and the seal: the slow half, on any thread."""
    data = {
        "schema_version": SCHEMA_VERSION,
        "identity": dict(controller.identity),
        "arms": list(controller.arms),
        "capture_sizes": list(controller.capture_sizes),
        "table": fingerprint(controller.table),
        "settings": {name: getattr(controller.settings, name) for name in _LIMITS},
        **changed,
    }
    if not controller.trusted:
        data["trusted"] = False  # a snapshot without it is of a table that is believed, as all were once
    return seal(data)


def take(controller: Controller, data: Mapping[str, Any]) -> None:
    """Become what ``taken`` wrote down of a controller with the same arms and table."""
    set_random_state(controller._rng, data["random"])
    for name in _PARTS:
        getattr(controller, f"_{name}").load(data[name])
    controller._open.clear()
    for seq, k, propensity, reason in data["open"]:
        decision = Decision(seq=seq, k=k, propensity=propensity, reason=Reason(reason), arms=controller.arms)
        controller._open.append(decision)
    controller.counters.update(data["counters"])
    for name in _STATE:
        setattr(controller, name, data[name])


def restored(
    cls: type[Controller],
    snapshot: Mapping[str, Any],
    table: GoodputTable | None,
    settings: Settings | None,
    identity: Identity | None,
    as_prior: bool,
) -> Controller:
    """The controller that ``Controller.restore`` describes; another one like it has played some steps before."""
    try:
        rehearse(_restored(cls, snapshot, table, settings, identity, as_prior))
    except RecursionError:
        raise ValueError(f"snapshot is nested too deeply: {START}") from None
    return _restored(cls, snapshot, table, settings, identity, as_prior)


def _restored(
    cls: type[Controller],
    snapshot: Mapping[str, Any],
    table: GoodputTable | None,
    settings: Settings | None,
    identity: Identity | None,
    as_prior: bool,
) -> Controller:
    version = version_of(snapshot)
    now, then = read_identity(identity), read_identity(snapshot.get("identity"), "snapshot identity")
    same_table = snapshot.get("table") == fingerprint(table)
    if not as_prior:
        _refuse_another(then, now, same_table)
    try:
        arms, limits = _arms(snapshot, settings), Settings(**{name: snapshot["settings"][name] for name in _LIMITS})
        sizes = snapshot.get("capture_sizes", ())  # an older version knew of none
        identity = now if as_prior else then | now
        trusted = snapshot.get("trusted", True) is not False or not same_table
        controller = cls(table, arms, settings or limits, capture_sizes=sizes, identity=identity, trusted=trusted)
        fresh = taken(controller)
        if snapshot.get("trusted") is False:
            fresh["trusted"] = False  # also where another table, which is trusted, takes the place of that one
        data = _checked(fresh, snapshot, version)
        if as_prior:
            _take_as_prior(controller, data, same_table)
            return controller
        take(controller, data)
    except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise ValueError(f"snapshot is incomplete ({type(error).__name__}: {said(error)}): {START}") from None
    if version < SCHEMA_VERSION:
        controller.note_engine_restarted()  # another version of adaptk is another process
    if version < SCHEMA_VERSION or fresh["settings"] != snapshot["settings"]:
        controller._forget_visit()
        controller._planner.limits_changed()
    return controller


def begin_from(controller: Controller, snapshot: Mapping[str, Any], times: bool) -> bool:
    """What ``Controller.begin_from`` describes."""
    source = restored(type(controller), snapshot, controller.table, None, None, as_prior=True)
    if source.arms[-1] != controller.arms[-1]:
        raise ValueError(
            f"snapshot is of up to {source.arms[-1]} drafts, here are up to {controller.arms[-1]}: {START}"
        )
    controller._acceptance.load(source._acceptance.snapshot())
    same = times and snapshot["table"] == fingerprint(controller.table) and source.trusted == controller.trusted
    if same and source.arms == controller.arms and source.capture_sizes == controller.capture_sizes:
        controller._latency.load(source._latency.snapshot())
        return True
    return False


def _refuse_another(then: Mapping[str, Any], now: Mapping[str, Any], same_table: bool) -> None:
    """Refuse to go on from a snapshot that was taken elsewhere, naming what differs."""
    remedy = f"{START}, or restore with as_prior=True to begin from what it believed, widened"
    changed = differing(then, now)
    if changed:
        raise ValueError(f"snapshot was taken with another identity ({changed}): {remedy}")
    if not same_table:
        raise ValueError(f"snapshot was taken around another table: give that table, {remedy}")


def _arms(snapshot: Mapping[str, Any], settings: Settings | None) -> tuple[int, ...]:
    """The snapshot's arms; what cannot have been a controller's is refused before anything is built as large."""
    arms = tuple(snapshot["arms"])
    positions = len(snapshot["acceptance"]["alpha"])
    if not arms or max(arms) != positions:
        raise ValueError(f"snapshot is of arms {shown(arms)} and {positions} draft positions: {START}")
    if settings is not None and settings.arms is not None and settings.arms != arms:
        raise ValueError(f"snapshot is of arms {arms}, settings say {settings.arms}: {START}")
    return arms


def _checked(fresh: Mapping[str, Any], snapshot: Mapping[str, Any], version: int) -> dict[str, Any]:
    """What a snapshot holds apart from its header, in today's shape."""
    own = {name: value for name, value in fresh.items() if name not in _HEADER}
    data = {name: copied(value) for name, value in snapshot.items() if name not in _HEADER}
    if version < SCHEMA_VERSION:
        data = brought_up_to_date(own, data)
    check_shape("snapshot", own, data)
    if version == SCHEMA_VERSION:
        check_fields("snapshot", fresh, snapshot)
        check_fields("snapshot.settings", fresh["settings"], snapshot["settings"])
        check_seal(snapshot)
    return data


def _take_as_prior(controller: Controller, data: Mapping[str, Any], same_table: bool) -> None:
    """Begin from what was believed, widened; step times only where they are deviations from the same table."""
    controller._acceptance.load(data["acceptance"])
    controller._acceptance.note_weights_changed()
    if same_table:
        controller._latency.load(data["latency"])
        controller._latency.flush()
        controller._latency.widen()
