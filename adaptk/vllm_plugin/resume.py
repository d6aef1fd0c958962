"""What an engine begins from where ``ADAPTK_STATE`` is set: all of what was learnt, a part of it, or nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from adaptk.controller import Controller
from adaptk.quoted import shown
from adaptk.settings import Settings
from adaptk.snapshot import fingerprint
from adaptk.statefile import ForeignError, State, StateError
from adaptk.tablekey import differences
from adaptk.vllm_plugin import compat, faulttext
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.state import Keeper
from adaptk.vllm_plugin.stateplace import Place
from adaptk.vllm_plugin.steering import Steering

OLD_S = 3600.0  # a state that was saved longer ago is of another load, or of another machine, more often than not


def keep_state(
    steering: Steering,
    path: str,
    key: Mapping[str, Any],
    settings: Settings,
    graphs: Callable[[int, int], bool] | None = None,
) -> None:
    """Let the controller of ``steering`` go on from the state at ``path``, and save it there from now on.

    Parameters
    ----------
    steering
        With a fresh controller of adaptk's, which is exchanged where another one goes on; gets ``state``.
    path
        The state file.
    key
        Of the engine.
    settings
        ``allow_mismatch`` and ``strict`` are used, and what a controller takes.
    graphs
        See ``Controller.limit_to_graphs``.

    Raises
    ------
    StateError, OSError
        Under ``settings.strict``, if the file cannot be read, is none of adaptk's, or cannot be written.
    RuntimeError
        If there can be no further thread.
    """
    fresh = steering.controller
    assert isinstance(fresh, Controller)
    place = Place(Path(path), key, compat.vllm_version())
    try:
        controller = _begun(fresh, place, key, settings)
        if controller is not fresh:
            if graphs is not None:  # it would plan anew
                controller.limit_to_graphs(graphs)
            steering.controller = controller
        _lock(place, settings)
        keeper = Keeper(place, controller, steering)
        keeper.start()
    except BaseException:
        place.release()
        raise
    steering.state = keeper


def _lock(place: Place, settings: Settings) -> None:
    """See who saves here; a folder that cannot be written to now may be so later."""
    try:
        place.lock()
    except OSError as error:
        if settings.strict:
            raise
        told = f"no state can be saved to {place.path} now ({error}); it is tried again"
        place.tell("failed", logging.WARNING, told)


def _begun(fresh: Controller, place: Place, key: Mapping[str, Any], settings: Settings) -> Controller:
    """The controller to begin with; says what it begins from."""
    try:
        state = place.read()
    except ForeignError as error:
        if settings.strict:
            raise
        told = f"it starts afresh: {error}. It is left as it is; nothing is saved before it is moved away"
        place.tell("failed", logging.WARNING, told)
        return fresh
    except StateError as error:
        logger.warning("adaptk starts afresh: %s. It is moved aside before the first save", error)
        return fresh
    if state is None:
        logger.info("adaptk starts afresh: there is no state at %s yet; it will be saved there", place.path)
        return fresh
    try:
        return _gone_on(fresh, place, state, key, settings)
    except Exception as error:  # whatever the file made fail, another one may not: it is no reason to stand down
        said = str(error) if isinstance(error, ValueError) else faulttext.short(error)
        why = f"the state {place.path} cannot be gone on from ({said})"
        place.refuse(why)
        logger.warning("adaptk starts afresh: %s. It is moved aside before the first save", why)
        return fresh


def _gone_on(fresh: Controller, place: Place, state: State, key: Mapping[str, Any], settings: Settings) -> Controller:
    """A controller that goes on from ``state``, or the fresh one that begins from a part of it."""
    snapshot, named = state.snapshot, f"{place.path}, saved {state.when}"
    differing = differences(state.key, key, "in the state")
    if differing:
        told = f"the state {named}, is of another engine: {'; '.join(differing)}"
        if not settings.allow_mismatch:
            place.refuse("it is of another engine")
            logger.warning("adaptk starts afresh: %s. It is moved aside before the first save; ADAPTK_ALLOW_MISMATCH=1 "
                           "would begin from its acceptance", told)  # fmt: skip
            return fresh
        fresh.begin_from(snapshot, times=False)
        logger.warning("adaptk begins from the acceptance, widened, of another engine: %s", told)
        return fresh
    arms = snapshot.get("arms")
    if isinstance(arms, list) and arms and arms[-1] != fresh.arms[-1]:
        why = f"it is of K up to {shown(arms[-1])}, here it is {fresh.arms[-1]}"
        place.refuse(why)
        logger.warning("adaptk starts afresh: the state %s, is of no use here: %s. It is moved aside before the first "
                       "save; give each num_speculative_tokens an ADAPTK_STATE of its own", named, why)  # fmt: skip
        return fresh
    others = _others(fresh, snapshot)
    if others:
        times = fresh.begin_from(snapshot)
        logger.info("adaptk begins from what the state %s, held of acceptance%s, widened: it had %s", named,
                    " and step times" if times else "", " and ".join(others))  # fmt: skip
        return fresh
    controller = Controller.restore(snapshot, fresh.table, msgspec.structs.replace(settings, arms=fresh.arms))
    controller.identity = fresh.identity  # the same by the key, which is not as strict about names
    if time.time() - state.saved > OLD_S:
        controller.note_long_pause()
    logger.info("adaptk goes on from the state %s, after %d steps", named, controller.counters["steps"])
    return controller


def _others(fresh: Controller, snapshot: Mapping[str, Any]) -> list[str]:
    """What of a snapshot's controller was otherwise, in words; the limits may be."""
    here = {
        "another table": fingerprint(fresh.table),
        "other arms": list(fresh.arms),
        "other capture sizes": list(fresh.capture_sizes),
        "another trust in the table": fresh.trusted,
    }
    there = {
        "another table": snapshot.get("table"),
        "other arms": snapshot.get("arms"),
        "other capture sizes": snapshot.get("capture_sizes", []),
        "another trust in the table": snapshot.get("trusted", True),
    }
    return [what for what in here if here[what] != there[what]]
