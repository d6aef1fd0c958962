"""Pages of metrics read with Prometheus's own parser."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, tuple[tuple[str, str], ...]]


class Page(NamedTuple):
    """Families by the name in the catalogue, which for counters ends in ``_total``."""

    families: dict[str, Any]

    def samples(self, name: str, **labels: str) -> list[Any]:
        """Samples of a family whose labels are these."""
        found = self.families[name].samples if name in self.families else []
        return [s for s in found if labels.items() <= s.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        """The only such sample."""
        (sample,) = self.samples(name, **labels)
        return float(sample.value)

    def sum(self, name: str, **labels: str) -> float:
        """All such samples together."""
        return float(sum(sample.value for sample in self.samples(name, **labels)))

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        """Values by the values of ``labels``."""
        return {tuple(s.labels[label] for label in labels): s.value for s in self.samples(name)}

    def counters(self) -> dict[Series, float]:
        """Everything that must not fall, parts of histograms included."""
        return {
            (s.name, tuple(sorted(s.labels.items()))): s.value
            for family in self.families.values()
            if family.type != "gauge"
            for s in family.samples
        }


def parsed(text: str) -> Page:
    """A page in Prometheus's text format."""
    families = {}
    for family in text_string_to_metric_families(text):
        families[family.name + ("_total" if family.type == "counter" else "")] = family
    return Page(families)


def scraped(url: str, **headers: str) -> str:
    """What is served at ``url``."""
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return str(answer.read().decode())


def free_port(ranks: int = 1) -> int:
    """A loopback port that nobody has, and so are those after it of further ranks."""
    while True:
        with ExitStack() as held:
            probes = [held.enter_context(socket.socket()) for _ in range(ranks)]
            probes[0].bind(("127.0.0.1", 0))
            first = int(probes[0].getsockname()[1])
            with suppress(OSError, OverflowError):  # one of them is taken, or beyond the last port
                for rank, probe in enumerate(probes[1:], start=1):
                    probe.bind(("127.0.0.1", first + rank))
                return first
