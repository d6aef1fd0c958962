"""What a siege of the metrics port costs the engine's steps.

    python -m tests.benchmarks.siege [--rounds N] [--clients N] [--batch B]

A thousand clients come to the port: a third says nothing, a third never ends its headers, a third asks for the page
and comes back at once. One engine, a real one with a random model, answers the same requests three times a round:
while nobody comes, while the thousand besiege another process of this machine that serves a page of the same kind, and
while they besiege its own port. The machine has the same work in the last two, so that their ratio is what adaptk
passes on to the engine. All the while a sober client asks for the page twice a second, and is counted. Ends with
status 1 if the interval of that ratio lies below 0.98, if the sober client was ever left without an answer, or if there
is no page afterwards.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

from adaptk.cli import options
from tests.benchmarks.besiegers import Besiegers
from tests.benchmarks.pairs import machine, ratio
from tests.benchmarks.presence import WARM
from tests.benchmarks.presence_engine import Job, PresenceEngine
from tests.engine.metricspages import free_port, scraped

LEAST = 0.98
ASKS_S = 0.5
PATIENCE_S = 10.0  # of the sober client, as Prometheus's


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where the engine felt it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--rounds", type=options.count, default=30)
    parser.add_argument("--clients", type=options.count, default=1000)
    parser.add_argument("--batch", type=options.count, default=8, help="requests at once (default %(default)s)")
    given = parser.parse_args(argv)
    print(machine(), flush=True)
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        from tests.engine.models import byte_llama

        here = free_port()
        engine = PresenceEngine(
            byte_llama(folder), "float32", adaptk=True, log=folder / "log", ADAPTK_METRICS_PORT=str(here)
        )
        cleanup.callback(engine.close)
        besiegers = Besiegers(given.clients)
        cleanup.callback(besiegers.close)
        elsewhere = cleanup.enter_context(_Elsewhere())
        return measure(given, engine, besiegers, {"quiet": None, "elsewhere": elsewhere.port, "here": here})


def measure(
    given: argparse.Namespace, engine: PresenceEngine, besiegers: Besiegers, places: dict[str, int | None]
) -> int:
    """All rounds; what they say."""
    speeds: dict[str, list[float]] = {name: [] for name in places}
    crowds: dict[str, Counter[str]] = {name: Counter() for name in places}
    here = places["here"]
    assert here is not None
    sober = Sober(here)
    engine.run(Job(0, given.batch, given.batch))  # until it is there
    for number in range(given.rounds + WARM):
        for name in [*places][number % 3 :] + [*places][: number % 3]:
            port = places[name]
            if port is not None:
                besiegers.go(port)
                time.sleep(0.5)  # until they are there
            with sober.asking(name):
                turn = engine.run(Job(number, 4 * given.batch, given.batch))
            if port is not None:
                crowds[name].update(dict(zip(("let in", "pages"), besiegers.back(), strict=True)))
            if number >= WARM:
                speeds[name].append(turn.steps / turn.seconds)
    for name in places:
        steps = sorted(1e3 / speed for speed in speeds[name])
        seen = ", ".join(f"{count} {what}" for what, count in crowds[name].items()) or "nobody"
        print(f"{name:<10} a step takes {steps[len(steps) // 2]:.2f} ms; besiegers: {seen}; {sober.told(name)}")
    within = ratio(speeds["here"], speeds["elsewhere"])
    print(f"besieged here over elsewhere: {within}")
    print(f"besieged here over nobody: {ratio(speeds['here'], speeds['quiet'])}")
    gone = "adaptk_active" not in scraped(f"http://127.0.0.1:{here}/metrics")
    return int(within.high < LEAST or sober.unanswered > 0 or gone)


class Sober:
    """Somebody who asks for the page now and then, as Prometheus does."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._seen: dict[str, list[float]] = {}
        self._refused: dict[str, Counter[str]] = {}
        self.unanswered = 0

    def asking(self, name: str) -> _Asking:
        """Ask within this."""
        return _Asking(lambda: self._ask(name))

    def told(self, name: str) -> str:
        """How it fared."""
        took = sorted(self._seen.get(name, ()))
        middle = f"{1e3 * took[len(took) // 2]:.0f} ms, {1e3 * took[-1]:.0f} at most" if took else "never"
        refused = ", ".join(f"{count} {why}" for why, count in self._refused.get(name, Counter()).items())
        return f"sober client: {len(took)} pages ({middle}), refused: {refused or 'never'}"

    def _ask(self, name: str) -> None:
        began = time.monotonic()
        try:
            with urllib.request.urlopen(self._url, timeout=PATIENCE_S) as answer:
                answer.read()
            self._seen.setdefault(name, []).append(time.monotonic() - began)
        except OSError as error:
            # It was told to come again, or the connection was ended; or nothing came.
            cause = getattr(error, "reason", error)
            status = error.code if isinstance(error, urllib.error.HTTPError) else None
            if status == 503 or isinstance(cause, ConnectionError):
                self._refused.setdefault(name, Counter())[str(status or type(cause).__name__)] += 1
            else:
                self.unanswered += 1
                print(f"{name}: {error!r} after {time.monotonic() - began:.1f} s", flush=True)


class _Asking:
    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._ask()
            if self._over.wait(ASKS_S):
                return


class _Elsewhere:
    """Another process with a metrics server of the same kind."""

    def __enter__(self) -> _Elsewhere:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve_elsewhere, args=(theirs,), daemon=True)
        self._process.start()
        self.port = int(ours.recv())
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join(20)


def _serve_elsewhere(told: Connection) -> None:
    from adaptk.vllm_plugin.metrics.server import MetricsServer

    def answer(_: str) -> tuple[str, bytes]:
        ends = time.thread_time() + 0.01  # about what a page costs
        while time.thread_time() < ends:
            pass
        return "text/plain", b"x" * 100_000

    told.send(MetricsServer("127.0.0.1", 0, answer, str).port)
    threading.Event().wait()


if __name__ == "__main__":
    sys.exit(main())
