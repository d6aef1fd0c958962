"""All checks, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec

from adaptk._version import __version__
from adaptk.doctor import engine, environment, fitness, installation, machine, paths, ports, process, states, tables
from adaptk.doctor.facts import Facts, Question
from adaptk.doctor.finding import Finding, fails
from adaptk.doctor.verdict import verdict

SCHEMA_VERSION = 1
Ask = Callable[[Question, Callable[[str, float], None]], Facts]


class Report(NamedTuple):
    """What was found, and what would happen now."""

    findings: tuple[Finding, ...]
    verdict: str

    @property
    def fails(self) -> bool:
        """Whether anything keeps adaptk from working."""
        return fails(self.findings)

    def document(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "schema_version": SCHEMA_VERSION,
            "adaptk": __version__,
            "fails": self.fails,
            "verdict": _printable(self.verdict),
            "findings": [
                {name: _printable(text) for name, text in msgspec.structs.asdict(finding).items()}
                for finding in self.findings
            ],
        }


def examine(
    arguments: Sequence[str],
    env: Mapping[str, str],
    table: str | None = None,
    waiting: Callable[[str, float], None] = lambda what, seconds: None,
    asking: Ask | None = None,
) -> Report:
    """Look at everything.

    Parameters
    ----------
    arguments
        Those of ``vllm serve``, the model first; may be empty.
    env
        The environment that an engine would have.
    table
        A table that takes the place of the settings'.
    waiting
        Called while vLLM is asked, with what is being done and for how long, in seconds.
    asking
        Gets the facts about vLLM; ``None``: from a process of their own.
    """
    told = environment.read(env)
    facts = None
    if find_spec("vllm") is not None:
        facts = (asking or process.ask)(
            Question(arguments=tuple(arguments), variables=told.variables, table=table), waiting
        )
    found = [*installation.findings(env)]
    found += [fitness.missing()] if facts is None else fitness.findings(facts)
    known = Facts() if facts is None else facts
    settings = told.settings if known.engine is None else known.engine.settings
    ranks = 1 if known.engine is None else known.engine.ranks
    found += machine.findings()
    found += environment.findings(told, known)
    found += paths.findings(settings, ranks)
    key, arms = ({}, ()) if known.engine is None else (known.engine.key, known.engine.outcome.arms)
    found += states.findings(settings, ranks, key, arms)
    found += ports.findings(settings, ranks)
    found += engine.findings(known, env, arguments)
    speculates = known.engine is not None and known.engine.k_max > 0
    if speculates or not arguments or table or settings.table:
        found += tables.findings(settings, known.engine, table)
    found += _unexplained(found, known)
    return Report(tuple(found), verdict(found, told, facts))


def _unexplained(found: Sequence[Finding], facts: Facts) -> list[Finding]:
    """A start that fails with the table alone, where nothing that was found of the table says why."""
    seeded = None if facts.engine is None or not facts.engine.bare.active else facts.engine.seeded
    if seeded is None or seeded.active or any(each.field == "table" and each.status == "fail" for each in found):
        return []
    return [Finding("table.start", "fail", "adaptk would stand down with this table", seeded.reason)]


def _printable(text: str) -> str:
    """Without what is no text: a variable or an argument may hold any bytes."""
    return text.encode("utf-8", "replace").decode()
