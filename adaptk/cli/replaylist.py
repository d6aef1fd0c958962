"""What ``adaptk replay --list`` names: scenarios, policies and presets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from adaptk.cli import options
from adaptk.cli.console import print_json, print_lines, write_json

_GROUPS = {"cases": "Cases", "core": "Worlds, the core", "apart": "Worlds judged apart"}


class Named(NamedTuple):
    """A name and what it is."""

    name: str
    about: str


def give_list(json: Path | str | None) -> int:
    """Print it, or as ``json`` says; 0."""
    from adaptk.replay.registry import USUAL
    from adaptk.replay.views import terminal
    from adaptk.textlines import Line, wrapped

    scenarios, policies, presets = _scenarios(), _policies(), _presets()
    if json is not None:
        document: dict[str, Any] = {
            "scenarios": {group: _plain(named) for group, named in scenarios.items()},
            "policies": _plain(policies),
            "presets": _plain(presets),
            "usual": list(USUAL),
        }
        if json == options.STDOUT:
            print_json(document)
            return 0
        write_json(Path(json), document)
    groups = {_GROUPS[group]: named for group, named in scenarios.items()} | {"Policies": policies, "Presets": presets}
    lines: list[Line] = []
    for title, entries in groups.items():
        lines += [Line(title, "title"), *map(Line, terminal.listing(entries)), Line("")]
    print_lines([*lines, *map(Line, wrapped(f"usual: {', '.join(USUAL)}, and every fixed K"))])
    return 0


def _scenarios() -> dict[str, list[Named]]:
    from adaptk.replay.scenarios import scenarios

    known = scenarios().values()
    return {group: [Named(each.name, each.about) for each in known if each.group == group] for group in _GROUPS}


def _policies() -> list[Named]:
    from adaptk.replay.registry import POLICIES
    from adaptk.replay.traces.traced import RECORDED

    return [
        *(Named(name, entry.about) for name, entry in POLICIES.items()),
        Named("fixed-K", "the same K at every step: fixed-0, fixed-1, ..."),
        Named(RECORDED, "with --trace: what was recorded"),
    ]


def _presets() -> list[Named]:
    from adaptk.replay.presets import PRESETS

    return [Named(name, make().surface.name) for name, make in PRESETS.items()]


def _plain(named: list[Named]) -> list[dict[str, str]]:
    return [each._asdict() for each in named]
