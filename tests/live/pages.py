"""Metrics pages as an engine serves them, made with prometheus_client, and a server for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

BATCHES = ("1", "2-3", "4-7", "8-15")
ARMS = (0, 1, 3, 7)
NOW = 4_000_000_000.0  # the wall clock of the last step: in the future, so that nobody is idle by the real clock
REAL_S = 0.010  # of a step at the smallest batch, K=0; the table says less by the drift


class Engine:
    """An engine's figures; change them, then make the page.

    After ``steps`` steps: three of four at batch 8-15 with K=3, the others at batch 1 with K=7.
    """

    def __init__(self, model: str = "org/model", engine: str = "0", steps: int = 400, mode: str = "on") -> None:
        self.labels = {"model_name": model, "engine": engine}
        self.steps, self.mode = steps, mode
        self.drift = 1.05
        self.gauges: dict[str, float] = {
            "active": 1, "chosen_k": 3, "played_k": 3 if mode == "on" else 1, "batch_size": 12, "drafter_dead": 0,
            "timing_untrusted": 0, "last_step_timestamp_seconds": NOW, "beliefs_timestamp_seconds": NOW,
            "exploration_balance_seconds": 0.25, "state_timestamp_seconds": NOW,
        }  # fmt: skip
        self.counters: dict[str, float] = {"faults": 0, "weights_changes": 0, "trace_dropped_rows": 0}
        self.counters |= {"trace_rows": 400, "trace_written_bytes": 120_000, "trace_removed_rows": 0}
        self.counters |= {"trace_failures": 0, "state_saves": 2, "state_failures": 0}
        self.reference = {"played": 1.0, "k0": 0.8, "table": 0.9, "vllm": 1.0, "adaptk": 1.0 if mode == "on" else 1.2}
        self.alarms = {"acceptance": 0.0, "time": 0.0}
        self.inactive: str | None = None
        self.visits = 20.0  # timed steps of the cells that no step was counted in; 0: never
        self.unknown = 0.0  # share of the reference tokens that are taken as emitted
        self.baseline = ""

    def families(self) -> Iterator[Metric]:
        """All families of the contract."""
        yield self._of("build_info", {"version": "0.1.0", "vllm_version": "0.32.0"})
        configured = {"arms": "0,1,3,7", "table": "H100", "runner": "V2", "baseline_schedule": self.baseline}
        yield self._of("config_info", configured)
        yield self._each("mode", ("mode",), {(mode,): float(mode == self.mode) for mode in ("on", "shadow", "off")})
        if self.inactive is not None:
            yield self._of("inactive_info", {"reason": self.inactive})
        for name, value in self.gauges.items():
            yield self._each(name, (), {(): value})
        for name, value in self.counters.items():
            yield self._count(name, (), {(): value})
        yield from self._cells()
        yield from self._drafts()
        n = float(self.steps)
        yield self._count("decisions", ("k", "reason"), {("3", "exploit"): 0.9 * n, ("7", "explore"): 0.1 * n})
        yield self._count("switches", ("reason",), {("exploit",): 4.0, ("explore",): 5.0})
        tokens = 30.0 * n
        policies = {(policy,): share * tokens for policy, share in self.reference.items()}
        yield self._count("reference_tokens", ("policy",), policies)
        unknown = {policy: self.unknown * count for policy, count in policies.items()}
        yield self._count("reference_unknown_tokens", ("policy",), unknown)
        yield self._count("exploration_allowed_seconds", (), {(): 0.5})
        yield self._count("exploration_spent_seconds", (), {(): 0.25})
        yield self._count("alarms", ("kind",), {(kind,): count for kind, count in self.alarms.items()})
        yield self._count("observations_dropped", ("cause",), {("no_time",): 7.0, ("lost",): 0.0})

    def _cells(self) -> Iterator[Metric]:
        cells = {("8-15", "3"): 0.75 * self.steps, ("1", "7"): 0.25 * self.steps}
        yield self._count("steps", ("batch", "k"), cells)
        visited = {(batch, str(k)): self.visits for batch in BATCHES for k in ARMS if self.visits}
        yield self._count("timed_steps", ("batch", "k"), visited | cells)
        yield self._count("step_seconds", ("batch", "k"), {cell: 0.02 * count for cell, count in cells.items()})
        tokens = {("8-15", "3"): 29.0 * self.steps, ("1", "7"): 1.0 * self.steps}
        yield self._count("tokens", ("batch", "k"), tokens)
        both = [(batch, k) for batch in range(len(BATCHES)) for k in ARMS]
        al = {cell: 1.0 + 0.3 * cell[1] for cell in both}
        itl = {cell: REAL_S * (1 + 0.2 * cell[0] + 0.1 * cell[1]) for cell in both}
        shown: dict[str, Callable[[tuple[int, int]], float]] = {
            "acceptance_length_tokens": lambda cell: al[cell],
            "believed_itl_seconds": lambda cell: itl[cell],
            "believed_itl_seconds_low": lambda cell: 0.99 * itl[cell],
            "believed_itl_seconds_high": lambda cell: 1.01 * itl[cell],
            "table_itl_seconds": lambda cell: itl[cell] / self.drift,
            "drift_ratio": lambda _: self.drift,
            "goodput_tokens_per_second": lambda cell: al[cell] / itl[cell],
            "best_probability_ratio": lambda cell: 0.85 if cell[1] == 3 else 0.05,
        }
        for name, value in shown.items():
            yield self._each(name, ("batch", "k"), {(BATCHES[b], str(k)): value((b, k)) for b, k in both})
        yield self._each("table_k", ("batch",), {(batch,): 1.0 for batch in BATCHES})

    def _drafts(self) -> Iterator[Metric]:
        positions = range(1, max(ARMS) + 1)
        yield self._count("draft_reached", ("position",), {(str(p),): 1000.0 for p in positions})
        yield self._count("draft_accepted", ("position",), {(str(p),): 800.0 - 10.0 * p for p in positions})
        for name, by in (("", 0.0), ("_low", -0.03), ("_high", 0.03)):
            values = {(str(p),): 0.8 - 0.01 * p + by for p in positions}
            yield self._each(f"acceptance_ratio{name}", ("position",), values)

    def _of(self, name: str, words: Mapping[str, str]) -> Metric:
        return self._each(name, tuple(words), {tuple(words.values()): 1.0})

    def _each(self, name: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> Metric:
        return self._filled(GaugeMetricFamily(f"adaptk_{name}", name, labels=[*labels, *self.labels]), values)

    def _count(self, name: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]) -> Metric:
        return self._filled(CounterMetricFamily(f"adaptk_{name}", name, labels=[*labels, *self.labels]), values)

    def _filled(self, family: Metric, values: Mapping[tuple[str, ...], float]) -> Metric:
        for key, value in values.items():
            family.add_metric([*key, *self.labels.values()], value)  # type: ignore[attr-defined]
        return family


def page(*engines: Engine, openmetrics: bool = False) -> str:
    """The page of some engines, usually one."""
    registry = CollectorRegistry()
    families: dict[str, Metric] = {}
    for engine in engines or (Engine(),):
        for family in engine.families():
            if family.name in families:
                families[family.name].samples += family.samples
            else:
                families[family.name] = family
    merged = list(families.values())

    class All:
        def collect(self) -> list[Metric]:
            return merged

    registry.register(All())  # type: ignore[arg-type]
    return (generate_openmetrics if openmetrics else generate_latest)(registry).decode()


Answer = Callable[[], tuple[int, Mapping[str, str], bytes]]


@contextmanager
def served(answer: Answer | str) -> Iterator[str]:
    """A server on this machine whose every page is what ``answer`` gives or is; its HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = (200, {}, answer.encode()) if isinstance(answer, str) else answer()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
