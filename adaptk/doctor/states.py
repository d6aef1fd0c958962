"""The file of ``ADAPTK_STATE``: what an engine would begin from, and whether it could save there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from adaptk.doctor.finding import Finding, Status
from adaptk.doctor.paths import filled, unwritable
from adaptk.quoted import shown
from adaptk.settings import Settings
from adaptk.statefile import ForeignError, State, StateError, read_state
from adaptk.tablekey import differences

Kept = Literal["all", "acceptance", "nothing"]

_NAME = "paths.state"


def findings(settings: Settings, ranks: int, key: Mapping[str, Any], arms: Sequence[int] = ()) -> Iterator[Finding]:
    """What of ``state`` works, its ranks filled in.

    Parameters
    ----------
    settings
        As the engine will have them.
    ranks
        Data-parallel engines, ``>= 1``.
    key
        Of the engine; empty where it is not known.
    arms
        Values of K that it would choose from, rising; empty where they are not known.
    """
    if settings.state is None:
        return
    found = [_state_of(Path(each), settings, key, arms) for each in filled(settings.state, ranks)]
    yield found[0]
    for finding in found[1:]:
        if finding.status != found[0].status:  # else it is the same again, with another number
            yield finding
    if ranks > 1 and "{rank}" not in settings.state:
        what = f"{ranks} engines share the state {settings.state}"
        yield Finding(_NAME, "warn", what, "one of them saves, all begin from it", "put {rank} into its name")


def _state_of(path: Path, settings: Settings, key: Mapping[str, Any], arms: Sequence[int]) -> Finding:
    from adaptk.vllm_plugin.statelock import held, lock_of

    trouble: Status = "fail" if settings.strict else "warn"
    try:
        state = read_state(path)
    except ForeignError as error:
        what = "no state would be kept: what is there is never replaced"
        return Finding(_NAME, trouble, what, str(error), "give another ADAPTK_STATE, or move the file away")
    except StateError as error:
        what = f"an engine would start afresh, and move {path} aside"
        return Finding(_NAME, "warn", what, str(error), "nothing, or put a state that is whole in its place")
    why = unwritable(path)
    if why is not None:
        return Finding(_NAME, trouble, f"no state can be saved to {path}", why, "give another ADAPTK_STATE")
    if state is None:
        found = Finding(_NAME, "ok", f"{path} is not there yet: an engine starts afresh and saves its state there")
    else:
        found = _usable(path, state, settings, key, arms)
    if held(lock_of(path)):
        beside = f"another engine saves its state to {path} now; this one does once that one has ended"
        return Finding(_NAME, "note" if found.status == "ok" else found.status, beside, found.what, found.remedy)
    return found


def _usable(path: Path, state: State, settings: Settings, key: Mapping[str, Any], arms: Sequence[int]) -> Finding:
    differing = differences(state.key, key, "in the state")
    kept = _kept(state, settings, key, arms)
    theirs = state.snapshot.get("arms")
    if kept == "all":
        what = f"an engine with the same table and K goes on from {path}"
        return Finding(_NAME, "ok", what, f"saved {state.when} by adaptk {state.adaptk}")
    if kept == "acceptance" and differing:
        what = f"of {path} the acceptance would be taken over, widened, from another engine"
        return Finding(_NAME, "warn", what, "; ".join(differing))
    why = f"it is of K = {shown(theirs)}, here K is of {list(arms)}"
    if kept == "acceptance":
        return Finding(_NAME, "note", f"of {path} the acceptance would be taken over, widened", why)
    if _reaches(state, arms):
        what = f"{path} is of another engine: it is not used, and moved aside when this one saves"
        remedy = "give another ADAPTK_STATE, or set ADAPTK_ALLOW_MISMATCH=1 to begin from its acceptance"
        return Finding(_NAME, "warn", what, "; ".join(differing), remedy)
    what = f"{path} is not used, and moved aside when this engine saves"
    remedy = "give each num_speculative_tokens an ADAPTK_STATE of its own"
    return Finding(_NAME, "warn", what, f"{why}: the largest must be the same", remedy)


def _kept(state: State, settings: Settings, key: Mapping[str, Any], arms: Sequence[int]) -> Kept:
    if not _reaches(state, arms):
        return "nothing"
    if differences(state.key, key, "in the state"):
        return "acceptance" if settings.allow_mismatch else "nothing"
    return "acceptance" if arms and state.snapshot.get("arms") != list(arms) else "all"


def _reaches(state: State, arms: Sequence[int]) -> bool:
    """Whether it is of as many drafts, as far as both are known."""
    theirs = state.snapshot.get("arms")
    return not arms or not isinstance(theirs, list) or theirs[-1:] == [arms[-1]]


def begins(settings: Settings, key: Mapping[str, Any], arms: Sequence[int]) -> tuple[str, Kept]:
    """The first rank's state file, and what an engine of this key and these arms would begin from; see ``findings``."""
    path = (settings.state or "").replace("{rank}", "0")
    try:
        state = read_state(Path(path)) if path else None
    except StateError:  # told where the files are
        return path, "nothing"
    return path, "nothing" if state is None else _kept(state, settings, key, arms)
