"""The seed table: can it be read, was it measured on this engine, does anything in it look wrong."""

from __future__ import annotations

from collections.abc import Iterator

from adaptk.doctor.facts import Engine
from adaptk.doctor.finding import Finding
from adaptk.doctor.paths import filled
from adaptk.settings import Settings
from adaptk.table import GoodputTable

_SHOWN = 2


def findings(settings: Settings, engine: Engine | None, path: str | None = None) -> Iterator[Finding]:
    """What there is to say of the table.

    Parameters
    ----------
    settings
        As the engine will have them.
    engine
        What it is compared with; ``None``: nothing.
    path
        A table that takes the place of the settings'.
    """
    path = path or settings.table
    if path is None:
        yield _none(engine)
        return
    for i, each in enumerate(filled(path, 1 if engine is None else engine.ranks)):
        try:
            table = GoodputTable.load(each)
        except (ValueError, OSError) as error:
            yield Finding("table.file", "fail", f"the table {each} cannot be used", str(error))  # which says what to do
        else:
            found = _of(table, each, settings, engine)
            # Of further ranks' tables what stands in the way is enough.
            yield from (finding for finding in found if i == 0 or finding.status == "fail")


def _none(engine: Engine | None) -> Finding:
    if engine is not None and engine.operators_schedule is not None:
        what = "no table: adaptk starts from your num_speculative_tokens_per_batch_size"
    elif engine is not None and engine.settings.state is not None:
        what = "no table: where adaptk goes on from no state, it starts from K=0 and climbs"
    else:
        what = "no table: adaptk starts from K=0 and climbs"
    return Finding("table.file", "note", what, "a table spares it the search", "measure one by adaptk profile")


def _of(table: GoodputTable, path: str, settings: Settings, engine: Engine | None) -> Iterator[Finding]:
    from adaptk.tabletools.doubts import doubts

    ks = ",".join(map(str, table.ks))
    size = f"{len(table.rows)} rows" if table.has_times else f"{len(table.schedule or ())} ranges, no times"
    yield Finding("table.file", "ok", f"{path}: {size}, K={ks}")
    yield from _key(table, settings, engine)
    guessed = [k for k in (engine.outcome.arms if engine is not None else ()) if not table.knows(k)]
    if guessed and table.has_times:
        named = ", ".join(f"K={k}" for k in guessed)
        yield Finding("table.arms", "note", f"it has no rows for {named}: their times are guessed from the others")
    doubtful = doubts(table)
    if doubtful:
        more = f"; and {len(doubtful) - _SHOWN} more" if len(doubtful) > _SHOWN else ""
        things = "one thing looks" if len(doubtful) == 1 else f"{len(doubtful)} things look"
        detail = "; ".join(doubtful[:_SHOWN]) + more
        yield Finding("table.check", "note", f"{things} odd in it", detail, f"adaptk table check {path}")


def _key(table: GoodputTable, settings: Settings, engine: Engine | None) -> Iterator[Finding]:
    from adaptk.tablekey import differences

    if not table.key:
        what = "it has no key: nobody can tell whether it was measured on this engine"
        yield Finding("table.key", "note", what, remedy="measure it by adaptk profile, which writes one")
        return
    if engine is None:
        yield Finding(
            "table.key", "note", "it is compared with no engine", remedy="give MODEL and vllm serve's arguments"
        )
        return
    differing = differences(table.key, engine.key)
    if not differing:
        yield Finding("table.key", "ok", "its key is this engine's")
        return
    if settings.allow_mismatch:
        detail = f"{'; '.join(differing)}; ADAPTK_ALLOW_MISMATCH takes it as a weak prior"
        yield Finding("table.key", "warn", "it was measured on another engine", detail, "measure one by adaptk profile")
        return
    remedy = "measure one here by adaptk profile, or set ADAPTK_ALLOW_MISMATCH=1 to start from it as a weak prior"
    yield Finding("table.key", "fail", "it was measured on another engine", "; ".join(differing), remedy)
