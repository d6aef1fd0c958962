"""An engine of these arguments: how vLLM would run it, and what adaptk's start in it comes to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from adaptk.doctor.facts import Engine, Facts
from adaptk.doctor.finding import Finding
from adaptk.doctor.graphcover import graphs
from adaptk.textlines import shortened

_EXAMPLE = """--speculative-config '{"method": "ngram", "num_speculative_tokens": 7}'"""
_RUNNER = "VLLM_USE_V2_MODEL_RUNNER"


def findings(facts: Facts, env: Mapping[str, str], arguments: Sequence[str] = ()) -> Iterator[Finding]:
    """What there is to say of it; nothing where no configuration was asked for."""
    if facts.refused:
        what, remedy = "vLLM takes no engine of these arguments", _no_such_folder(arguments)
        yield Finding("engine.configuration", "fail", what, facts.refused, remedy)
    if facts.fault:
        what = "vLLM takes these arguments; what adaptk would do in that engine cannot be told"
        yield Finding("engine.rehearsal", "warn", what, facts.fault, "please report it, with the arguments")
    engine = facts.engine
    if engine is None:
        return
    what = f"{engine.model}, {engine.dtype}, up to {engine.max_num_seqs} requests at once"
    yield Finding("engine.configuration", "ok", what)
    if engine.k_max <= 0:
        what = "no speculative decoding is configured, so there is nothing to choose"
        yield Finding("engine.drafter", "fail", what, remedy=f"add for example {_EXAMPLE}")
        return
    yield _drafter(engine)
    yield _runner(engine, env)
    yield _scheduling(engine)
    yield from _parallel(engine)
    if engine.operators_schedule is not None:
        schedule = [list(triple) for triple in engine.operators_schedule]
        what = "your num_speculative_tokens_per_batch_size is what adaptk is measured against, and falls back to"
        yield Finding("engine.schedule", "ok", what, shortened(str(schedule), 160))
    yield from graphs(engine)
    yield from _start(engine)


def _no_such_folder(arguments: Sequence[str]) -> str:
    """What to do about a model that is named by a folder which is not there: vLLM takes it for a name on a hub."""
    for name in arguments[:1]:
        folder = name.startswith(("/", "./", "../", "~")) or name.count("/") > 1
        if folder and not Path(name).expanduser().exists():
            return f"there is no folder {name} here: check the path"
    return ""


def _drafter(engine: Engine) -> Finding:
    named = f"{engine.method}{f' ({engine.drafter})' if engine.drafter else ''}"
    what = f"the drafter {named} makes up to {engine.k_max} drafts"
    if engine.price_notes:
        return Finding("engine.drafter", "note", what, "; ".join(engine.price_notes))
    return Finding("engine.drafter", "ok", what, "a smaller K saves drafting and verification")


def _runner(engine: Engine, env: Mapping[str, str]) -> Finding:
    why = _said(engine.notes, "odel runner") or _said(engine.notes, "odel Runner")
    if env.get(_RUNNER, "").strip():
        why = f"{_RUNNER} is {env[_RUNNER].strip()}"
    return Finding("engine.runner", "ok", f"model runner {'V2' if engine.v2 else 'V1'}", why)


def _scheduling(engine: Engine) -> Finding:
    kind = "asynchronous" if engine.asynchronous else "synchronous"
    why = "" if engine.asynchronous else _said(engine.notes, "sync scheduling")
    return Finding("engine.scheduling", "ok", f"{kind} scheduling, {engine.scheduler}", why)


def _said(notes: Sequence[str], about: str) -> str:
    """vLLM's own line about something; what it advises against adaptk's own schedule is none of these."""
    found = next((note for note in notes if about in note and "ynamic speculative" not in note), "")
    return f"vLLM: {found}" if found else ""


def _parallel(engine: Engine) -> Iterator[Finding]:
    if engine.ranks > 1:
        what = f"{engine.ranks} data-parallel engines, of which each learns for itself"
        yield Finding("engine.parallel", "ok", what, "{rank} in a path, and the port counted up, tell them apart")
    sizes = {"tensor": engine.tensor_parallel, "pipeline": engine.pipeline_parallel}
    shown = ", ".join(f"{name} parallel {size}" for name, size in sizes.items() if size > 1)
    if shown:
        what = f"{shown}: one scheduler, and one adaptk, for all workers"
        yield Finding("engine.workers", "ok", what)


def _start(engine: Engine) -> Iterator[Finding]:
    for i, text in enumerate(_warnings(engine), start=1):
        yield Finding(f"engine.warning_{i}", "warn", text)
    if not engine.bare.active:
        yield Finding("engine.start", "fail", "adaptk would stand down, and leave K to vLLM", engine.bare.reason)
    elif engine.outcome.active:  # else it is the table that stands in the way, which is told there
        ks = ", ".join(map(str, engine.outcome.arms))
        yield Finding("engine.start", "ok", f"adaptk starts, and chooses from K = {ks}")
    if engine.bare.active and engine.switched is not None and not engine.switched.active:
        what = "adaptk watches only: the control file cannot switch it on here"
        yield Finding("engine.switch", "warn", what, engine.switched.reason)


def _warnings(engine: Engine) -> list[str]:
    """What adaptk itself would log as a warning, but for what is told elsewhere."""
    told = [*engine.preparing, *engine.bare.told, *(engine.seeded.told if engine.seeded else ())]
    known = ("is inactive", "was measured on another engine", *engine.price_notes)
    texts = [line.text for line in told if line.level >= logging.WARNING]
    kept = [text for text in texts if not any(part in text for part in known)]
    return list(dict.fromkeys(text.removeprefix("adaptk: ") for text in kept))
