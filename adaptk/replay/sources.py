"""What can be replayed: named scenarios, a recorded trace, a request log."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from adaptk.replay.evaluate import Row
from adaptk.replay.fleet import workload_scenario
from adaptk.replay.scenarios import Scenario
from adaptk.replay.sweep import chosen
from adaptk.replay.traces.traced import RECORDED, traced_scenario
from adaptk.replay.views.aggregate import Summary
from adaptk.replay.views.files import read_rows
from adaptk.table import GoodputTable


class Source(NamedTuple):
    """What is to be replayed, with what is to be said about it.

    ``skipped`` counts lines of the input that could not be read; ``measured_tokens_per_s`` is of a trace; ``rows`` are
    there where everything has been replayed before.
    """

    scenarios: list[Scenario]
    policies: list[str]
    notes: list[str]
    skipped: int = 0
    measured_tokens_per_s: float | None = None
    rows: list[Row] | None = None


def from_rows(paths: Sequence[Path]) -> Source:
    """Rows that earlier replays of named scenarios wrote, put together.

    Raises
    ------
    ValueError
        If a file holds no rows, or one of a scenario that is not known.
    """
    rows = read_rows(paths)
    place = {scenario.name: i for i, scenario in enumerate(chosen(["all"]))}
    for row in rows:
        if row.scenario not in place:
            raise ValueError(
                f"scenario {row.scenario!r} of the rows is unknown: rows of traces and workloads stand alone"
            )
    rows.sort(key=lambda row: (place[row.scenario], row.seed))
    names = list(dict.fromkeys(row.scenario for row in rows))
    return Source(chosen(names), list(dict.fromkeys(row.policy for row in rows)), [], rows=rows)


def from_scenarios(names: Sequence[str], policies: Sequence[str]) -> Source:
    """Scenarios by name or group.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    return Source(chosen(names), list(policies), [])


def from_trace(
    path: str | os.PathLike[str],
    policies: Sequence[str],
    table: GoodputTable | None = None,
    arms: Sequence[int] | None = None,
    lenient: bool = False,
) -> Source:
    """A trace; the policy that was recorded always runs, so that simulated and measured speed can be compared.

    Parameters and errors are those of :func:`adaptk.replay.traces.traced.traced_scenario`.
    """
    traced = traced_scenario(path, table, arms, lenient)
    notes = [f"{note[0].upper()}{note[1:]}." for note in traced.notes]
    return Source([traced.scenario], [RECORDED, *policies], notes, traced.skipped, traced.measured_tokens_per_s)


def from_workload(
    path: str | os.PathLike[str],
    policies: Sequence[str],
    engine: str,
    table: GoodputTable | None = None,
    arms: Sequence[int] | None = None,
    rate: float | None = None,
    requests: int | None = None,
    lenient: bool = False,
    acceptance: Sequence[float] | None = None,
) -> Source:
    """A request log; parameters and errors are those of :func:`adaptk.replay.fleet.workload_scenario`."""
    fleet = workload_scenario(path, engine, table, arms, 1.0 if rate is None else rate, requests, lenient, acceptance)
    return Source([fleet.scenario], list(policies), fleet.notes, fleet.skipped)


def measured_beside_simulated(source: Source, parts: Sequence[Summary]) -> list[str]:
    """For a trace, how fast it was and how fast the recorded policy is in the simulation."""
    measured = source.measured_tokens_per_s
    if measured is None:
        return []
    said = f"Measured when the trace was recorded: {measured:.1f} tok/s."
    for part in parts:
        if part.policy == RECORDED:
            off = part.tokens_per_s / measured - 1.0
            said += f" Simulated under the recorded policy: {part.tokens_per_s:.1f} tok/s ({100.0 * off:+.1f} %)."
    return [said]
