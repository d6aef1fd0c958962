"""The one sentence at the end: what would happen if it were started now."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.doctor import states
from adaptk.doctor.environment import Environment, asked_mode
from adaptk.doctor.facts import Engine, Facts
from adaptk.doctor.finding import Finding, fails
from adaptk.doctor.switch import switch


def verdict(findings: Sequence[Finding], environment: Environment, facts: Facts | None) -> str:
    """What would happen.

    Parameters
    ----------
    findings
        All of them.
    facts
        ``None`` where there is no vLLM to ask.
    """
    if facts is None:
        return "Nothing can be started: this Python has no vLLM."
    if facts.installed is None or facts.refused:
        return "vLLM itself would not start; what it says stands above."
    if fails(findings):
        return _failing(findings, environment, facts)
    if facts.fault:
        return "What would happen with these arguments cannot be told."
    engine = facts.engine
    if engine is None:
        return "adaptk can enter this vLLM; name MODEL and the arguments of vllm serve to see what it would do."
    acts = _acts(engine)
    if not _asked(environment, facts):
        return f"Started now, vLLM would serve without adaptk; with ADAPTK=on it would {acts}."
    return f"Started now, adaptk would {acts}."


def _acts(engine: Engine) -> str:
    """What adaptk would do there, in the mode of its start or the one that a control file switches it to at once."""
    switched = switch(engine.settings, engine)
    mode = engine.settings.mode if switched is None else switched.mode
    ks = ", ".join(map(str, engine.outcome.arms))
    start = _start(engine)
    acts = {
        "on": f"choose K from {ks} at every step, starting {start}",
        "shadow": f"decide among K = {ks} and record it, starting {start}, while vLLM plays its own K",
        "off": "leave K to vLLM until it is switched on",
    }[mode]
    return acts if switched is None else f"{acts}, as {switched.path} says {mode}"


def _start(engine: Engine) -> str:
    """What it would begin from."""
    path, kept = states.begins(engine.settings, engine.key, engine.outcome.arms)
    if kept == "all":
        own = "the same schedule" if engine.operators_schedule is not None else "no table, either"
        return f"from the state {path}, if that is of {'the same table' if engine.seeded is not None else own}"
    table = "from the table" if engine.seeded is not None else "without a table"
    if kept == "acceptance":
        return f"{table} and with the acceptance of the state {path}"
    return table if engine.settings.state is None else f"afresh {table}"


def _failing(findings: Sequence[Finding], environment: Environment, facts: Facts) -> str:
    failed = [finding for finding in findings if finding.status == "fail"]
    settings = environment.settings if facts.engine is None else facts.engine.settings
    if settings.strict and not _ignored(failed, facts.engine):
        happens = "vLLM would stop at its start (ADAPTK_STRICT)"
    else:
        happens = f"adaptk would stay out, and vLLM would {_vllms_own(facts.engine)}"
    if not _asked(environment, facts):
        happens = f"vLLM would serve without adaptk; with ADAPTK=on {happens}"
    many = f"{len(failed)} things" if len(failed) > 1 else "one thing"
    return f"Started now, {happens}: {many} above must be mended."


def _asked(environment: Environment, facts: Facts) -> bool:
    """Whether anything asks for adaptk: a mode, or a variable that is meant to hold one."""
    if any(finding.id == "settings.ADAPTK" for finding in environment.wrong):
        return True
    return asked_mode(environment.mode, facts.options.mode) in ("on", "shadow")


def _ignored(failed: Sequence[Finding], engine: Engine | None) -> bool:
    """Whether the start would not come to what fails: without drafts it looks at nothing but settings and metrics."""
    if engine is None or engine.k_max:
        return False
    return all(finding.field not in ("settings", "metrics") for finding in failed)


def _vllms_own(engine: Engine | None) -> str:
    if engine is None:
        return "play its own K"
    if not engine.k_max:
        return "serve without drafts"
    return f"play K={engine.k_max} throughout" if engine.operators_schedule is None else "play your schedule"
