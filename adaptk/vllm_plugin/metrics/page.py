"""The page of one engine's metrics, made when somebody asks for it."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.metrics.beliefs import GIVE_WAY_S, Beliefs
from adaptk.vllm_plugin.metrics.names import BASE, METRICS
from adaptk.vllm_plugin.metrics.rows import Rows, belief_rows, count_rows, state_rows, step_rows
from adaptk.vllm_plugin.metrics.sums import BOUNDS, Cells, Histogram, Sums

# How long a page waits for an engine at work to hand over what is believed, which it does after a step: longer than
# most steps, and short of the two seconds in which who asks wants the page.
_PATIENCE_S = 1.0
_LOOK_S = 0.005
_LONGEST = 1_000  # signs of a label
_OPENMETRICS = "application/openmetrics-text"
# What each form is asked for with; a client's own words, its version among them, would make forms without end.
_ASKED = {"": "", _OPENMETRICS: f"{_OPENMETRICS}; version=1.0.0"}


class Page:
    """Makes the page of one steering, of which it keeps nothing alive but the sums.

    Parameters
    ----------
    steering
        Active or not.
    sums
        Where its steps are added up; ``None`` where it never has any.
    base
        Values of the labels that all samples carry.
    about
        Rows that never change.
    """

    def __init__(self, steering: Any, sums: Sums | None, base: tuple[str, ...], about: Rows) -> None:
        self._steering = weakref.ref(steering)
        self._sums = sums
        self._base = base
        self._about = about
        self._beliefs = Beliefs()
        self._most: dict[str, float] = {}
        self._lock = threading.Lock()
        self._told: set[str] = set()

    def __call__(self, form: str) -> tuple[str, bytes]:
        """Content type and text in one of the forms of :meth:`form`."""
        from prometheus_client.exposition import choose_encoder

        self._wait()
        with self._lock:
            rows = self._rows()
        encoder, kind = choose_encoder(_ASKED[form])
        return kind, encoder(_Families(rows, self._base))

    @staticmethod
    def form(accept: str) -> str:
        """Which of the two forms an Accept header prefers: OpenMetrics's, or Prometheus's own, an empty text."""
        from prometheus_client.exposition import choose_encoder

        try:
            kind = choose_encoder(accept)[1]
        except (TypeError, ValueError):  # a version that is no number
            return ""
        return _OPENMETRICS if kind.startswith(_OPENMETRICS) else ""

    def _rows(self) -> Rows:
        steering, sums = self._steering(), self._sums
        rows: Rows = dict(self._about)
        if steering is None:
            return rows
        parts: dict[str, Callable[[], Rows]] = {"its state": lambda: state_rows(steering)}
        if sums is not None:
            cells = sums.copied()
            parts["steps"] = lambda: step_rows(sums, cells)
            parts["counts"] = lambda: count_rows(steering, sums, self._most)
            parts["beliefs"] = lambda: self._believed(sums, cells)
        for name, part in parts.items():
            try:
                rows |= part()
            except Exception:  # one part less is better than no page
                if name not in self._told:
                    self._told.add(name)
                    logger.exception("adaptk's metrics lack %s; the engine goes on", name)
        return rows

    def _wait(self) -> None:
        """Have what is believed copied by the engine's thread, which comes by after a step, if it is at work."""
        steering, sums = self._steering(), self._sums
        if steering is None or sums is None or sums.peeked_after == sums.steps:
            return
        sums.wanted = True
        until = time.monotonic() + _PATIENCE_S
        while sums.wanted and steering.mode != "off" and steering.at_work and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def _believed(self, sums: Sums, cells: Cells) -> Rows:
        self._beliefs.look(sums.peek, cells)
        return belief_rows(self._beliefs)


class _Families:
    """What an encoder takes for a registry."""

    def __init__(self, rows: Rows, base: tuple[str, ...]) -> None:
        self._rows = rows
        self._base = base

    def collect(self) -> Iterator[Any]:
        """The families that have samples, in the order of their catalogue, with pauses."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for metric in METRICS:
            found = self._rows.get(metric.name)
            if not found:
                continue
            labels = (*BASE, *metric.labels)
            if metric.kind == "histogram":
                family = HistogramMetricFamily(metric.name, metric.help, labels=labels)
            elif metric.kind == "counter":
                family = CounterMetricFamily(metric.name, metric.help, labels=labels)
            else:
                family = GaugeMetricFamily(metric.name, metric.help, labels=labels)
            for values, value in found:
                texts = [_encodable(text) for text in (*self._base, *values)]
                if isinstance(value, Histogram):
                    family.add_metric(texts, _buckets(value), value.sum_s)
                else:
                    family.add_metric(texts, value)
            yield family
            time.sleep(GIVE_WAY_S)


def _encodable(text: str) -> str:
    """The text in bounds, without what stands for bytes of a path that are no UTF-8: one such would cost the page."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper edge."""
    total, buckets = 0, []
    for edge, count in zip((*map(str, BOUNDS), "+Inf"), histogram.counts.copy(), strict=True):
        total += count
        buckets.append((edge, float(total)))
    return buckets
