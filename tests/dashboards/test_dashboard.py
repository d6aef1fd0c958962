"""The dashboard for Grafana: whole, of the contract's metrics, and each of its expressions gives something."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from adaptk.vllm_plugin.metrics.names import BASE
from adaptk.vllm_plugin.metrics.names import METRICS as CATALOGUE
from tests.dashboards.contract import ENGINE, METRICS, Metric
from tests.dashboards.promtool import MINUTES, TARGET, judge, needs_promtool, series

DASHBOARD: dict[str, Any] = json.loads((files("adaptk.data") / "grafana-dashboard.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Metrics that stand on a page only when there is something wrong.
SELDOM = {"adaptk_inactive_info": [Metric({"reason": "some reason"}, 1)]}
OF_GRAFANA = {"$__rate_interval": "5m", "$__range": "1h", "$__interval": "5m",
              "$model_name": ".*", "$instance": ".*", "$engine": ".*"}  # fmt: skip


def expressions() -> Iterator[tuple[str, str]]:
    """Where each stands, and itself."""
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        if "expr" in annotation:
            yield f"annotation {annotation['name']}", annotation["expr"]


def test_it_is_a_dashboard_that_can_be_imported_anywhere() -> None:
    """One fixed uid, no id of one Grafana, and data sources by variable alone."""
    assert DASHBOARD["uid"] == "adaptk"
    assert DASHBOARD["id"] is None
    assert DASHBOARD["schemaVersion"] >= 39
    sources = [panel["datasource"] for panel in PANELS]
    sources += [target["datasource"] for panel in PANELS for target in panel["targets"]]
    assert all(source == SOURCE for source in sources)
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "model_name", "instance", "engine"]


def test_panels_have_places_of_their_own() -> None:
    """None lies over another or beyond the 24 columns; each has a name and says what it shows."""
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert max(x for x, _ in cells) < 24, panel["title"]
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
    assert all(panel["title"] and panel["description"] for panel in PANELS)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_the_made_up_engine_has_what_engines_serve() -> None:
    """Each family of the catalogue with the same labels, and no other; histograms in their parts."""
    parts = {"_bucket": ("le",), "_sum": (), "_count": ()}
    served = {
        f"{metric.name}{part}": {*metric.labels, *more}
        for metric in CATALOGUE
        for part, more in (parts if metric.kind == "histogram" else {"": ()}).items()
    }
    assert {name: set(samples[0].labels) for name, samples in (METRICS | SELDOM).items()} == served
    assert set(ENGINE) == set(BASE)


def test_every_metric_is_one_that_engines_have_with_these_labels() -> None:
    """And each selects by the variables, so that a choice above the panels holds for all."""
    known = METRICS | SELDOM
    for place, expression in expressions():
        names = set(re.findall(r"\badaptk_\w+", expression))
        assert names, place
        assert names <= set(known), place
        labels = {*ENGINE, *TARGET, *(label for name in names for sample in known[name] for label in sample.labels)}
        grouped = re.findall(r"\b(?:by|ignoring|on|group_left) \(([^)]*)\)", expression)
        named = {label for group in grouped for label in re.split(r",\s*", group) if label}
        named |= set(re.findall(r'(\w+)=~?"', expression))
        assert named <= labels, place
        for variable in ("$model_name", "$instance", "$engine"):
            assert expression.count(variable) == len(re.findall(r"\badaptk_\w+", expression)), place


def test_every_metric_is_shown_somewhere() -> None:
    """But the count of a histogram, and what says which unit others have."""
    everything = " ".join(expression for _, expression in expressions())
    hidden = {name for name in METRICS if not re.search(rf"\b{name}\b", everything)}
    assert hidden <= {"adaptk_decision_seconds_count", "adaptk_learning_seconds_count"}


@needs_promtool
def test_every_expression_gives_a_series(tmp_path: Path) -> None:
    """On the page of a made-up engine, as Prometheus reads it."""
    asked = []
    for _, expression in expressions():
        for name, value in OF_GRAFANA.items():
            expression = expression.replace(name, value)
        empty = "increase(adaptk_alarms_total" in expression and expression.endswith("> 0")  # no alarm, no mark
        answer = {"labels": "{}", "value": 1}
        asked.append({
            "expr": f"count({expression}) > bool 0",
            "eval_time": f"{MINUTES - 1}m",
            "exp_samples": [] if empty else [answer],
        })  # fmt: skip
    assert judge(tmp_path, [{"interval": "1m", "input_series": series(SELDOM), "promql_expr_test": asked}]) == ""


@needs_promtool
@pytest.mark.parametrize(
    ("title", "share"),
    [("Over no drafts (K=0)", 0.2), ("Over the table", 30 / 29 - 1), ("Over vLLM alone", 30 / 28 - 1)],
)
def test_the_gain_is_what_was_emitted_over_what_would_have_been(title: str, share: float, tmp_path: Path) -> None:
    (panel,) = [panel for panel in PANELS if panel["title"] == title]
    expression = panel["targets"][0]["expr"]
    for name, value in OF_GRAFANA.items():
        expression = expression.replace(name, value)
    asked = {"expr": f"round({expression}, 0.0001)", "eval_time": "90m",
             "exp_samples": [{"labels": "{}", "value": round(share, 4)}]}  # fmt: skip
    assert judge(tmp_path, [{"interval": "1m", "input_series": series(), "promql_expr_test": [asked]}]) == ""
