"""``adaptk grafana``: the dashboard and the alert rules that go with adaptk's metrics."""

from __future__ import annotations

import argparse
from importlib.resources import files
from pathlib import Path

from adaptk.cli import options
from adaptk.cli.console import accept_any_sign, failing, guarded, print_text
from adaptk.outputs import check_outputs, write_whole

NAME = "grafana"
HELP = "give the dashboard for Grafana, or alert rules for Prometheus, as a file"
DASHBOARD, RULES = "grafana-dashboard.json", "prometheus-rules.yml"
EXAMPLE = """\
Example:
  adaptk grafana --out adaptk-dashboard.json
  adaptk grafana --rules --out adaptk-rules.yml
In Grafana: Dashboards, New, Import; it asks for the file and, at the top of the
dashboard, for the Prometheus data source. Prometheus takes rules by rule_files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    options.add_example(parser, EXAMPLE)
    parser.add_argument("--rules", action="store_true", help="the alert rules in place of the dashboard")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it (default: print it)")


def run(arguments: argparse.Namespace) -> int:
    """Print or write it; 0, or 1 if it cannot be written."""
    accept_any_sign()
    return guarded(lambda: _give(arguments.rules, arguments.out), failing(NAME))


def _give(rules: bool, out: Path | None) -> int:
    text = (files("adaptk.data") / (RULES if rules else DASHBOARD)).read_text(encoding="utf-8")
    if out is None:
        print_text(text.rstrip("\n"))
        return 0
    check_outputs({"--out": out}, {})
    write_whole(out, text.encode())
    print_text(f"{'Alert rules' if rules else 'Dashboard'}: {out}")
    return 0
