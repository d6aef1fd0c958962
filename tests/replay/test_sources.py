"""What is replayed, and what is said about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.replay import scenarios as known
from adaptk.replay.sources import Source, from_scenarios, from_trace, from_workload, measured_beside_simulated
from adaptk.replay.views.aggregate import summaries
from tests.replay.recordings import step, write
from tests.replay.tiny import row, tiny


def test_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tiny()
    monkeypatch.setattr(known, "scenarios", lambda: {"T1": made})
    assert from_scenarios(["t1"], ["table"]) == Source([made], ["table"], [])


def test_the_policy_of_a_trace_always_runs(tmp_path: Path) -> None:
    """Its notes are sentences."""
    path = write(tmp_path / "t.jsonl", [step([3], [1])] * 20)
    source = from_trace(path, ["table"], arms=(3,))
    assert (source.policies, source.skipped) == (["recorded", "table"], 0)
    assert source.measured_tokens_per_s == pytest.approx(200.0)
    assert source.scenarios[0].world(0).surface.name == "step times fitted to t.jsonl"
    assert source.notes
    assert all(note[0].upper() == note[0] and note.endswith(".") for note in source.notes)


def test_a_request_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 5, "output_length": 5}\n' * 3 + "broken\n")
    source = from_workload(path, ["table"], "p32374", rate=2.0, requests=2, lenient=True, acceptance=(0.5,))
    assert (source.policies, source.skipped, source.measured_tokens_per_s) == (["table"], 1, None)
    assert source.scenarios[0].about == "2 requests on p32374, 2 times as fast"


def test_measured_stands_beside_simulated() -> None:
    source = Source([], [], [], measured_tokens_per_s=80.0)
    parts = summaries([row("t", "recorded", tokens_per_s=100.0), row("t", "table", tokens_per_s=1.0)])
    assert measured_beside_simulated(source, parts) == [
        "Measured when the trace was recorded: 80.0 tok/s. Simulated under the recorded policy: 100.0 tok/s (+25.0 %)."
    ]
    assert measured_beside_simulated(source, []) == ["Measured when the trace was recorded: 80.0 tok/s."]
    assert measured_beside_simulated(Source([], [], []), parts) == []
