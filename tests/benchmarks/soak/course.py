"""The course of a soak: rounds of turns, switching, counting, the end, and the start from what was kept."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.benchmarks.soak import books, load, sides, times, watch
from tests.benchmarks.soak.books import Check, Span
from tests.benchmarks.soak.client import Turn, drive
from tests.benchmarks.soak.compare import Compared, compared
from tests.engine.metricspages import parsed, scraped
from tests.engine.servers import stop

MODES = ("on", "shadow")
SETTLES_S = 3.0  # the trace's last rows reach the file within one
_HEAD = (
    f"{'round':>5}  {'server':<7} {'requests':>8} {'faults':>6} {'tok/s':>7} {'steps':>6} {'p50 ms':>7} {'p99 ms':>7}"
)


class Row(NamedTuple):
    """A turn on one server."""

    round: int
    server: str
    requests: int
    faults: int
    seconds: float
    tokens: int
    steps: int
    p50_ms: float
    p99_ms: float

    def __str__(self) -> str:
        return (
            f"{self.round:>5}  {self.server:<7} {self.requests:>8} {self.faults:>6} {self.tokens / self.seconds:>7.1f} "
            f"{self.steps:>6} {self.p50_ms:>7.1f} {self.p99_ms:>7.1f}"
        )


class Course:
    """Runs a soak and keeps what was found.

    Parameters
    ----------
    folder
        For logs, trace and state.
    quick
        Two short rounds, whatever minutes are asked for.
    pinned
        Only K=7 may be chosen.
    """

    def __init__(self, folder: Path, quick: bool, pinned: bool) -> None:
        self.rows: list[Row] = []
        self.checks: list[Check] = []
        self._folder, self._quick = folder, quick
        self._files = sides.Files(folder, "7" if pinned else None)
        self._sizes = load.QUICK_BURSTS if quick else load.BURSTS
        self._turns: list[Turn] = []
        self._times: dict[str, list[np.ndarray]] = {"on": [], "shadow": [], "plain": []}
        self._same = {mode: Compared(0, 0, ()) for mode in MODES}
        self._off: list[Span] = []

    def run(self, seconds: float) -> None:
        """Everything in turn; ``seconds`` of load for the server under adaptk."""
        with ExitStack() as cleanup:
            self._adaptive = cleanup.enter_context(sides.adaptive(self._folder, self._files))
            self._plain = cleanup.enter_context(sides.plain(self._folder))
            self._warm_up()
            scraper = watch.Scraper(self._files.metrics)
            cleanup.callback(scraper.stop)
            top = watch.Top(self._files.metrics)
            before = [watch.size(side.process.pid) for side in (self._adaptive, self._plain)]
            self._rounds(seconds)
            self._twice()
            self._switching()
            self._count_exactly()
            after = [watch.size(side.process.pid) for side in (self._adaptive, self._plain)]
            for name, first, last in zip(("adaptk", "plain"), before, after, strict=True):
                print(f"the processes of {name} held {first} after warming up, {last} in the end", flush=True)
            self._attached(scraper, top)
            self._alive()
            time.sleep(SETTLES_S)
            page = self._files.page()
            self._keep(*books.metrics_are_well(page))
            self._end()
            self._books(int(page.value("adaptk_trace_dropped_rows_total")))
        self._judge()
        self._restart()

    def _warm_up(self) -> None:
        """What is made only once is made here, grammars among it."""
        for side in (self._plain, self._adaptive):
            self._turns.append(drive(side.address, load.turn(-1, (8, 2))))

    def _rounds(self, seconds: float) -> None:
        print(_HEAD, flush=True)
        had, round_ = 0.0, 0
        while had < seconds and not (self._quick and round_ == 2):
            order = ("on", "plain", "shadow") if round_ % 2 == 0 else ("shadow", "plain", "on")
            turns = {}
            for server in order:
                turns[server] = self._turn(round_, server)
                had += (turns[server].ended - turns[server].begun) * (server != "plain")
            for mode in MODES:
                self._same[mode] += compared(turns[mode], turns["plain"], self._plain.address)
            round_ += 1

    def _turn(self, round_: int, server: str) -> Turn:
        """The round's load on one server, the one under adaptk being in the mode ``server``."""
        side = self._plain if server == "plain" else self._adaptive
        if server != "plain":
            self._files.switch(server)
        turn = drive(side.address, load.turn(round_, self._sizes))
        found = side.steps().between(turn.begun, turn.ended)
        ms = found.timed()
        self._times[server].append(ms)
        self._turns.append(turn)
        p50, p99 = np.percentile(ms, [50, 99])
        faults = turn.faults()
        row = Row(round_, server, len(turn.outcomes), len(faults), turn.ended - turn.begun, int(found.emitted.sum()),
                  len(ms), float(p50), float(p99))  # fmt: skip
        self.rows.append(row)
        print("\n".join([str(row), *faults]), flush=True)
        return turn

    def _twice(self) -> None:
        """Plain vLLM once more on the first round's load: how much it is like itself."""
        first = self._turns_of("plain", 0)
        again = drive(self._plain.address, load.turn(0, self._sizes))
        self._turns.append(again)
        self._itself = compared(again, first, self._plain.address)

    def _turns_of(self, server: str, round_: int) -> Turn:
        places = [i for i, row in enumerate(self.rows) if (row.server, row.round) == (server, round_)]
        return self._turns[2 + places[0]]  # two turns warm up

    def _switching(self) -> None:
        """All modes in mid-work."""
        with ThreadPoolExecutor(1) as pool:
            turn = pool.submit(drive, self._adaptive.address, load.turn(1_000, self._sizes))
            for mode in ("off", "shadow", "on", "off", "on"):
                time.sleep(2.0 if self._quick else 5.0)
                begun = time.perf_counter()
                self._files.switch(mode)
                if mode == "off":
                    self._off.append((begun, float("inf")))
                elif self._off and self._off[-1][1] == float("inf"):
                    self._off[-1] = (self._off[-1][0], time.perf_counter())
            done = turn.result()
        self._turns.append(done)
        self._check(
            "every answer is right while the mode is switched",
            not done.faults(),
            f"{len(done.outcomes)} requests; {done.faults() or 'no fault'}",
        )

    def _count_exactly(self) -> None:
        """What clients got, the engine made."""
        begun = time.perf_counter()
        turn = drive(self._adaptive.address, load.plain(2_000, self._sizes))
        self._turns.append(turn)
        made = int(self._adaptive.steps().between(begun, time.perf_counter()).emitted.sum())
        self._check(
            "the engine made the tokens that clients counted",
            made == turn.tokens and made > 0,
            f"{turn.tokens} tokens of {len(turn.outcomes)} answers, {made} noted",
        )

    def _attached(self, scraper: watch.Scraper, top: watch.Top) -> None:
        scraper.stop()
        took = f"{len(scraper.ms)} pages, median {np.median(scraper.ms):.0f} ms, longest {max(scraper.ms):.0f} ms"
        held = not scraper.faults and bool(scraper.ms)
        self._check("every page was served", held, f"{took}; {scraper.faults[:3] or 'no fault'}")
        alive, screen = top.alive, top.screen()
        text = "\n".join(screen)
        sane = alive and str(self._files.port) in text and "Traceback" not in text
        status = top.quit()
        (self._folder / "top.txt").write_text(text)
        self._check(
            "adaptk top lived and ends with q",
            sane and status == 0,
            f"alive {alive}, status {status}; its first line: {screen[0]!r}",
        )

    def _alive(self) -> None:
        """Nothing is left in either server, and both answer."""
        left = {}
        for name, side in (("adaptk", self._adaptive), ("plain", self._plain)):
            deadline = time.monotonic() + 60
            while (busy := _busy(side.address)) and time.monotonic() < deadline:
                time.sleep(0.5)
            left[name] = busy
        last = drive(self._adaptive.address, load.plain(3_000, (2,)))
        held = not any(left.values()) and not last.faults() and self._adaptive.process.poll() is None
        self._check("the server lives and holds nothing back", held, f"requests left: {left}")
        self._turns.append(last)

    def _end(self) -> None:
        begun = time.monotonic()
        status = stop(self._adaptive.process)
        took, plain = time.monotonic() - begun, stop(self._plain.process)
        self._check(
            "SIGTERM ends it as it ends plain vLLM",
            status == plain,
            f"status {status} after {took:.1f} s, plain's {plain}",
        )

    def _books(self, dropped: int) -> None:
        steps = self._adaptive.steps()
        self._keep(*books.trace_holds_every_step(self._files.trace, steps, self._off, dropped))
        self._keep(books.state_restores(self._files.state))
        log = self._adaptive.log.read_text(errors="replace")
        loud = [line for line in log.splitlines() if "adaptk" in line and ("ERROR" in line or "stands down" in line)]
        self._check("its log has no error of adaptk's", not loud, "; ".join(loud[:3]) or "none")

    def _judge(self) -> None:
        kinds: Counter[str] = sum((turn.kinds() for turn in self._turns), Counter())
        faults = [fault for turn in self._turns for fault in turn.faults()]
        asked = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        said = f"{kinds.total()} requests ({asked}); {faults[:5] or 'no fault'}"
        self._check("every request was answered right, or refused as it should", not faults, said)
        print(f"greedy answers, plain again against plain: {self._itself}")
        for mode, same in self._same.items():
            self._check(
                f"greedy answers in mode {mode} are plain vLLM's, up to rounding", not same.unexplained, str(same)
            )
        for mode in MODES:
            turns = times.Turns(self._times[mode], self._times["plain"])
            print("\n".join(times.report(mode, turns)), flush=True)
            found = turns.by_turn(99)
            name = f"p99 in mode {mode} is not above {times.ALLOWED} times plain vLLM's"
            few = f", open: fewer than {times.TURNS} turns have no interval" if found.pairs < times.TURNS else ""
            self._check(name, times.allowed(turns), f"[{found.low:.3f},{found.high:.3f}]{few}")

    def _restart(self) -> None:
        """It goes on from its state, and adds to no trace of another run."""
        with sides.adaptive(self._folder, self._files, "again") as side:
            turn = drive(side.address, load.plain(4_000, (2,)))
            log = side.log.read_text(errors="replace")
        said = [line for line in log.splitlines() if "adaptk goes on from the state" in line]
        self._check(
            "started again it goes on from its state",
            not turn.faults() and bool(said),
            said[0].partition("adaptk")[2].strip() if said else "its log does not say so",
        )

    def _check(self, name: str, held: bool, said: str) -> None:
        self._keep(Check(name, held, said))

    def _keep(self, *checks: Check) -> None:
        self.checks += checks
        print("\n".join(map(str, checks)), flush=True)


def _busy(address: str) -> int:
    """Requests that a server has not done with."""
    page = parsed(scraped(f"{address}/metrics"))
    return int(page.sum("vllm:num_requests_running") + page.sum("vllm:num_requests_waiting"))
