"""A trace whose clock went wrong: the report says of it what it says of one with a sound clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from adaptk import StepRecord
from adaptk.cli.main import main
from adaptk.replay.simulator import simulate
from adaptk.trace import TraceRow, TraceWriter
from tests.faults.meddling import Meddle
from tests.publicengine import ARMS, world

STEPS, MIDDLE, HOUR_MS = 1600, 800, 3.6e6


class Cycled:
    """Plays each K for 50 steps."""

    arms = ARMS

    def __init__(self) -> None:
        self._steps = 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        self._steps += 1
        return ARMS[self._steps // 50 % len(ARMS)]

    def observe(self, record: StepRecord) -> None:
        """Nothing is learnt."""


@pytest.fixture(scope="module")
def rows() -> list[TraceRow]:
    """Every K, each long enough to be reported on."""
    return simulate(world(STEPS, 16, k_factor=2.0, seed=1), Cycled(), record=True).rows


def advised(
    rows: list[TraceRow], folder: Path, meddle: Meddle, capsys: pytest.CaptureFixture[str]
) -> tuple[int, float]:
    """The K that the report finds best, and what it gains, of a trace whose steps were meddled with."""
    (folder / "trace.jsonl").unlink(missing_ok=True)
    writer = TraceWriter(folder / "trace.jsonl", {"arms": list(ARMS), "k_max": ARMS[-1], "mode": "shadow"})
    for step, row in enumerate(rows):
        writer.write(meddle(step, row.step), row.decision)
    writer.close(30.0)
    page = str(folder / "page.html")
    assert main(["report", str(folder / "trace.jsonl"), "--out", page, "--json", "--no-simulation"]) == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    return advice["ranges"][0]["k_best"], advice["gain"]["value"]


def moved(by_ms: float) -> Meddle:
    return lambda step, record: replace(record, t_ms=(record.t_ms or 0.0) + (by_ms if step > MIDDLE else 0.0))


def every_50th(change: float) -> Meddle:
    return lambda step, record: replace(record, elapsed_ms=change) if step % 50 == 0 else record


CLOCKS = {
    "back by an hour": moved(-HOUR_MS),
    "ahead by an hour": moved(HOUR_MS),
    "still": lambda _, record: replace(record, t_ms=0.0),
    "negative": every_50th(-9.0),
    "huge": every_50th(1e300),
}


def test_a_trace_of_a_clock_that_went_wrong(
    rows: list[TraceRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Back, ahead, still, negative or huge now and then: the same K is best, and gains as much, give or take 2 %."""
    sound = advised(rows, tmp_path, lambda _, record: record, capsys)
    assert sound[1] > 0.1
    for name, clock in CLOCKS.items():
        met = advised(rows, tmp_path, clock, capsys)
        assert met[0] == sound[0], name
        assert abs(met[1] - sound[1]) < 0.02, name
