"""The alert rules: silent while all is well, loud when it is not."""

from __future__ import annotations

import re
import subprocess
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from tests.dashboards.contract import CELL, ENGINE, METRICS, Metric
from tests.dashboards.promtool import TARGET, judge, needs_promtool, series

SOURCE = files("adaptk.data") / "prometheus-rules.yml"
TEXT = SOURCE.read_text(encoding="utf-8")
ALERTS = re.findall(r"- alert: (\w+)", TEXT)
LABELS = TARGET | ENGINE

BAD: dict[str, tuple[dict[str, list[Metric]], dict[str, str]]] = {
    "AdaptkInactive": ({"adaptk_active": [Metric({}, 0)], "adaptk_faults_total": [Metric({}, 1)],
                        "adaptk_inactive_info": [Metric({"reason": "a fault in choosing K"}, 1)]}, LABELS),
    "AdaptkInert": ({"adaptk_inactive_info": [Metric({"reason": "no drafter"}, 1)], "adaptk_active": [Metric({}, 0)]},
                    LABELS | {"reason": "no drafter"}),
    "AdaptkFault": ({"adaptk_faults_total": [Metric({}, 0, 0.1)]}, LABELS),
    "AdaptkDrafterDead": ({"adaptk_drafter_dead": [Metric({}, 1)]}, LABELS),
    "AdaptkTableOff": ({"adaptk_believed_itl_seconds_low": [Metric(CELL, 0.0245)],
                        "adaptk_believed_itl_seconds_high": [Metric(CELL, 0.027)]}, LABELS),
    "AdaptkLedgerEmpty": ({"adaptk_exploration_balance_seconds": [Metric({}, 0.5)]}, LABELS),
    "AdaptkTimingUntrusted": ({"adaptk_timing_untrusted": [Metric({}, 1)]}, LABELS),
    "AdaptkNoStepTimes": ({"adaptk_timed_steps_total": [Metric(CELL, 0, 20)]}, LABELS),
    "AdaptkStateNotSaved": ({"adaptk_state_failures_total": [Metric({}, 0, 2)]}, LABELS),
    "AdaptkTraceRowsDropped": ({"adaptk_trace_dropped_rows_total": [Metric({}, 0, 5)]}, LABELS),
    "AdaptkDown": ({"up": [Metric({}, 0)]}, TARGET),
}  # fmt: skip


def silent(world: str, changed: dict[str, list[Metric]]) -> dict[str, Any]:
    """A test that no alert is there after an hour and a half in which some metrics are other than all is well."""
    return {
        "name": world,
        "interval": "1m",
        "input_series": series({"up": [Metric({}, 1)]} | changed),
        "alert_rule_test": [{"eval_time": "90m", "alertname": name, "exp_alerts": []} for name in ALERTS],
    }


def test_each_alert_says_what_is_wrong_and_what_to_do() -> None:
    """In a summary and a description; on metrics that engines have."""
    assert len(ALERTS) == len(set(ALERTS)) == TEXT.count("summary: ") == TEXT.count("description: ")
    assert set(BAD) == set(ALERTS)
    assert set(re.findall(r"\badaptk_\w+", TEXT)) <= {*METRICS, "adaptk_inactive_info"}


@needs_promtool
def test_prometheus_reads_them() -> None:
    with as_file(SOURCE) as path:
        done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@needs_promtool
def test_while_all_is_well_they_are_silent(tmp_path: Path) -> None:
    """And where there is no reason: an interval that reaches the bound, few steps, no budget, nothing to do."""
    itl, steps = "adaptk_believed_itl_seconds", "adaptk_steps_total"
    allowed, left = "adaptk_exploration_allowed_seconds_total", "adaptk_exploration_balance_seconds"
    timed = "adaptk_timed_steps_total"
    worlds: list[dict[str, list[Metric]]] = [
        {},
        {f"{itl}_low": [Metric(CELL, 0.0235)], f"{itl}_high": [Metric(CELL, 0.030)]},
        {f"{itl}_low": [Metric(CELL, 0.0150)], f"{itl}_high": [Metric(CELL, 0.0155)]},
        {f"{itl}_low": [Metric(CELL, 0.0245)], timed: [Metric(CELL, 0, 5)], steps: [Metric(CELL, 0, 5)]},
        {left: [Metric({}, 0)], allowed: [Metric({}, 0)]},
        {steps: [Metric(CELL, 5000)], timed: [Metric(CELL, 0)]},
        {"adaptk_state_failures_total": [Metric({}, 7)], "adaptk_trace_dropped_rows_total": [Metric({}, 9)]},
    ]
    with as_file(SOURCE) as path:
        assert judge(tmp_path, [silent(str(i), changed) for i, changed in enumerate(worlds)], path) == ""


@needs_promtool
def test_each_alert_comes_when_it_should(tmp_path: Path) -> None:
    """With the labels that lead to the engine; the others are silent."""
    with as_file(SOURCE) as path:
        said = judge(tmp_path, [silent(name, changed) for name, (changed, _) in BAD.items()], path)
    there = dict(re.findall(r"alertname: *(\w+),.*?got:(.*?Labels:.*?\n)", said, re.DOTALL))
    assert set(there) == set(BAD), said
    assert said.count("alertname:") == len(BAD)
    for name, (_, labels) in BAD.items():
        assert all(f'{label}="{value}"' in there[name] for label, value in labels.items()), there[name]
