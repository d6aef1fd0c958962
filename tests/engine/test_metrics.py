"""Metrics of vLLM's own scheduler, driven by hand: under every mode, fault, exchange and refusal."""

from __future__ import annotations

import gc
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from adaptk import Controller, GoodputTable, Settings
from adaptk.vllm_plugin import adaptive
from adaptk.vllm_plugin.metrics import page
from adaptk.vllm_plugin.metrics.names import BY_NAME
from adaptk.vllm_plugin.start import StartError
from tests.engine.conftest import Lines
from tests.engine.driver import Worker, build_config, build_scheduler, cycling, make_request
from tests.engine.faultyride import write_table
from tests.engine.metricspages import Page, free_port, parsed, scraped

K_MAX = 7


class Driven:
    """A scheduler that serves its metrics, and the worker that makes up its text."""

    def __init__(self, model: Path, cls: type = Scheduler, controller: Any = None, **settings: Any) -> None:
        self.port = free_port()
        options = {"mode": "on", "metrics_port": self.port, **settings}
        asynchronous = cls is AsyncScheduler
        config = build_config(model, k_max=K_MAX, asynchronous=asynchronous)
        config.scheduler_config.async_scheduling = asynchronous
        made = adaptive(cls, controller=controller, settings=Settings(**options))
        self.scheduler = build_scheduler(made, config)
        self.worker = Worker(self.scheduler, 0, asynchronous=asynchronous)
        self.steering = self.scheduler.adaptk
        self.served = 0

    def run(self, requests: int = 4, tokens: int = 20) -> None:
        """Have requests answered in full; their steps stay in the worker's books."""
        for _ in range(requests):
            self.scheduler.add_request(make_request(f"r{self.served}", 10, tokens))
            self.served += 1
        depth = 2 if self.worker.asynchronous else 1
        while self.scheduler.requests or self.worker.in_flight:
            if self.scheduler.requests:
                self.worker.schedule()
            while len(self.worker.in_flight) >= depth or (self.worker.in_flight and not self.scheduler.requests):
                self.worker.update()

    def page(self) -> Page:
        """The page as it is now."""
        return parsed(scraped(f"http://127.0.0.1:{self.port}/metrics"))


@contextmanager
def driven(model: Path, *args: Any, **settings: Any) -> Iterator[Driven]:
    one = Driven(model, *args, **settings)
    try:
        yield one
    finally:
        one.scheduler.shutdown()


PATIENCE_S = page._PATIENCE_S


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that asks is the engine's: nobody else could hand anything over."""
    monkeypatch.setattr(page, "_PATIENCE_S", 0.0)


@pytest.mark.parametrize("cls", [Scheduler, AsyncScheduler])
def test_counts_are_those_of_the_worker(model: Path, cls: type) -> None:
    """Tokens, drafts by position and steps, compared with what the made-up worker knows."""
    with driven(model, cls) as one:
        truth: list[Any] = []
        execute = one.worker.execute
        one.worker.execute = lambda output: truth.append(execute(output)) or truth[-1]  # type: ignore[method-assign,func-returns-value]
        one.run()
        steps = [step for step in truth if step.output.total_num_scheduled_tokens]
        found = one.page()
        assert found.sum("adaptk_steps_total") == len(steps) == found.sum("adaptk_decisions_total")
        assert found.sum("adaptk_tokens_total") <= one.worker.delivered
        untimed = found.value("adaptk_observations_dropped_total", cause="no_time")
        assert found.sum("adaptk_timed_steps_total") == len(steps) - untimed
        if not untimed:
            assert found.sum("adaptk_tokens_total") == one.worker.delivered
        if cls is Scheduler:  # in the other drafts of requests that ended are of no account
            pairs = [(d, step.accepted[rid]) for step in steps for rid, d in step.drafted.items()]
            for j in range(1, K_MAX + 1):
                reached = sum(d >= j and n >= j - 1 for d, n in pairs)
                assert found.value("adaptk_draft_reached_total", position=str(j)) == reached
        for name in ("adaptk_decision_seconds", "adaptk_learning_seconds"):
            counts = [s.value for s in found.samples(name) if s.name.endswith("_count")]
            assert counts == [len(steps)]


def test_beliefs_are_those_of_the_controller_at_rest(model: Path, tmp_path: Path) -> None:
    """Handed over when the last request ended: by the table, by belief, and what is allowed."""
    table = write_table(tmp_path / "table.json")
    with driven(model, table=str(table), budget=0.1) as one:
        one.run()
        found, controller = one.page(), one.steering.controller
        batch = 4  # of which the bin's mean can only be this one, or the requests left at the end
        beliefs = {str(b.k): b for b in controller.belief(batch, round(batch * 20.0))}
        for k, belief in beliefs.items():
            length = found.value("adaptk_acceptance_length_tokens", batch="4-7", k=k)
            assert length == belief.al
        drift = found.by("adaptk_drift_ratio", "batch", "k")
        believed, said = (found.by(f"adaptk_{name}_itl_seconds", "batch", "k") for name in ("believed", "table"))
        assert drift == {at: pytest.approx(believed[at] / said[at]) for at in drift}
        assert found.value("adaptk_config_info", arms="0,1,3,7", table="table.json", runner="V1") == 1
        assert found.value("adaptk_table_k", batch="4-7") in (0, 1, 3, 7)
        tokens = found.sum("adaptk_tokens_total")
        assert found.value("adaptk_reference_tokens_total", policy="adaptk") == tokens
        assert 0 < found.value("adaptk_reference_tokens_total", policy="k0") != tokens
        assert found.value("adaptk_exploration_allowed_seconds_total") == pytest.approx(
            controller.ledger["allowed_ms"] / 1000
        )


def test_shadow_tells_what_would_have_been_chosen(model: Path, tmp_path: Path) -> None:
    """The engine plays its own K; the reference of vLLM's choice is what was emitted, that of adaptk's is another."""
    table = write_table(tmp_path / "table.json")
    with driven(model, table=str(table), mode="shadow", arms=(0, 1, 7)) as one:
        one.steering.controller.choose = lambda *_, choose=one.steering.controller.choose, **__: min(1, choose(1))
        one.run(tokens=60)
        found = one.page()
        assert {k for _, k in found.by("adaptk_steps_total", "batch", "k")} == {"0", "7"}  # 0: the first ones' drafts
        assert found.value("adaptk_mode", mode="shadow") == 1
        assert found.value("adaptk_played_k") == 7
        tokens = found.sum("adaptk_tokens_total")
        assert found.value("adaptk_reference_tokens_total", policy="vllm") == tokens


def test_off_adds_nothing_and_on_goes_on(model: Path) -> None:
    """Steps that were left to vLLM are not seen; what was counted before stays."""
    with driven(model) as one:
        one.run()
        before = one.page()
        one.steering.mode = "off"
        one.run()
        off = one.page()
        assert off.value("adaptk_mode", mode="off") == off.value("adaptk_active") == 1
        assert off.sum("adaptk_steps_total") == before.sum("adaptk_steps_total")
        one.steering.mode = "on"
        one.run()
        after = one.page()
        assert after.sum("adaptk_steps_total") > before.sum("adaptk_steps_total")
        for series, value in before.counters().items():
            assert after.counters()[series] >= value


def test_after_a_fault_it_is_still_served(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inactive, with the reason, its fault counted, and the last values."""
    with driven(model) as one:
        one.run()
        before = one.page()
        monkeypatch.setattr(one.steering.controller, "choose", lambda *_, **__: 1 / 0)
        one.run()
        after = one.page()
        assert after.value("adaptk_active") == 0
        assert after.value("adaptk_faults_total") == 1
        assert after.value("adaptk_mode", mode="off") == 1
        (info,) = after.samples("adaptk_inactive_info")
        assert "a fault while choosing K: ZeroDivisionError" in info.labels["reason"]
        assert after.sum("adaptk_steps_total") == before.sum("adaptk_steps_total")


def test_controllers_that_take_turns_make_one_count(model: Path) -> None:
    """Nothing falls, a restored one brings no old counts along, and beliefs are the new one's."""
    with driven(model) as one:
        one.run()
        before = one.page()
        one.steering.controller = Controller.restore(one.steering.controller.snapshot(), None)
        same = one.page()
        one.run()
        one.steering.controller = Controller(None, arms=(0, 1), seed=0)
        one.run()
        after = one.page()
        names = [name for name, metric in BY_NAME.items() if metric.kind == "counter" and name in before.families]
        for name in names:
            assert same.sum(name) == before.sum(name)
        for series, value in before.counters().items():
            assert after.counters()[series] >= value, series
        assert {k for _, k in after.by("adaptk_acceptance_length_tokens", "batch", "k")} == {"0", "1"}
        explored = after.value("adaptk_exploration_allowed_seconds_total")
        assert explored >= 1e-3 * one.steering.controller.ledger["allowed_ms"] > 0


def test_of_a_policy_there_is_what_it_has(model: Path) -> None:
    """No beliefs, no reasons, no ledger, no alarms; steps, tokens and drafts all the same."""
    with driven(model, Scheduler, cycling((0, 1, 3))) as one:
        one.run()
        found = one.page()
        assert found.sum("adaptk_draft_reached_total") > 0
        assert {k for _, k in found.by("adaptk_steps_total", "batch", "k")} == {"0", "1", "3"}
        lacking = {name for name in BY_NAME if name not in found.families}
        assert lacking >= {
            *("adaptk_decisions_total", "adaptk_switches_total", "adaptk_alarms_total", "adaptk_drafter_dead"),
            *("adaptk_acceptance_ratio", "adaptk_believed_itl_seconds", "adaptk_reference_tokens_total"),
            *("adaptk_exploration_spent_seconds_total", "adaptk_exploration_balance_seconds"),
        }
        assert found.value("adaptk_config_info", arms="", table="none") == 1


def test_the_page_is_made_while_a_policy_has_names_of_its_own(model: Path) -> None:
    """What a Controller counts and believes may be anything there; and tokens that it played have a reference later."""

    def named(**values: Any) -> Any:
        policy = cycling((0, 1, 3))
        vars(policy).update(values)
        return policy

    policy = named(counters=7, counted=3, ledger="all", unlearnt=[1], table=5, peek=lambda n: n, drafter_dead="no")
    with driven(model, Scheduler, policy) as one:
        one.run()
        found = one.page()
        assert one.steering.active
        assert found.sum("adaptk_steps_total") > 0
        one.steering.controller = Controller(None, arms=(0, 1), seed=0)
        one.run()
        after = one.page()
        assert after.value("adaptk_reference_tokens_total", policy="played") == after.sum("adaptk_tokens_total")
        unknown = after.value("adaptk_reference_unknown_tokens_total", policy="k0")
        assert 0 < unknown < after.sum("adaptk_tokens_total")


def test_one_learning_moment_hands_over(model: Path) -> None:
    """Between two steps, if somebody waits for it; the copy is then as new as the sums."""
    with driven(model) as one:
        sums = one.steering.sums
        for i in range(3):
            one.scheduler.add_request(make_request(f"x{i}", 10, 30))
        for _ in range(6):
            one.worker.schedule()
            one.worker.update()
        first = sums.peek
        assert sums.peeked_after == 0
        sums.wanted = True
        one.worker.schedule()
        one.worker.update()
        assert sums.peek is not first
        assert sums.peeked_after == sums.steps == 7
        assert not sums.wanted


class TestAge:
    """How old is what is believed where somebody asks for it."""

    def test_slow_steps_are_waited_for(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Asked as a step of 0.3 s begins, and by two at once: what is believed was copied after that, for both."""
        monkeypatch.setattr(page, "_PATIENCE_S", PATIENCE_S)
        with driven(model) as one, ThreadPoolExecutor(2) as pool:
            one.scheduler.add_request(make_request("x", 10, 100))
            for _ in range(3):
                one.worker.schedule()
                one.worker.update()
            assert one.steering.sums.peeked_after == 0
            asked = time.time()
            one.worker.schedule()
            pages = [pool.submit(one.page) for _ in range(2)]
            time.sleep(0.3)
            one.worker.update()
            for found in (answer.result() for answer in pages):
                assert found.value("adaptk_beliefs_timestamp_seconds") >= round(asked, 3)
                assert found.sum("adaptk_steps_total") == 4

    def test_nobody_waits_for_an_engine_without_steps(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With all patience: once between two steps, where the engine does not come back."""
        monkeypatch.setattr(page, "_PATIENCE_S", math.inf)
        with driven(model) as one:
            one.scheduler.add_request(make_request("x", 10, 100))
            for _ in range(3):
                one.worker.schedule()
                one.worker.update()
            assert one.page().sum("adaptk_steps_total") == 3
            assert one.steering.sums.wanted

    def test_what_is_believed_at_the_end_is_handed_over(self, model: Path) -> None:
        """Unasked: after the last token, and after the last request was aborted between two steps."""
        with driven(model) as one:
            one.run()
            sums = one.steering.sums
            assert sums.peeked_after == sums.steps > 0
            one.scheduler.add_request(make_request("x", 10, 100))
            for _ in range(3):
                one.worker.schedule()
                one.worker.update()
            assert sums.peeked_after == sums.steps - 3
            one.scheduler.finish_requests("x", RequestStatus.FINISHED_ABORTED)
            one.worker.schedule()
            one.worker.update()
            assert sums.peeked_after == sums.steps


class TestPages:
    def test_it_passes_the_lint_of_prometheus(self, model: Path, tmp_path: Path) -> None:
        """Names, units and help texts; and OpenMetrics has the same samples."""
        with driven(model, table=str(write_table(tmp_path / "table.json"))) as one:
            one.run()
            url = f"http://127.0.0.1:{one.port}/metrics"
            plain = scraped(url)
            other = list(open_families(scraped(url, Accept="application/openmetrics-text; version=1.0.0")))
        assert {f.name + "_total" * (f.type == "counter") for f in other} == set(parsed(plain).families)
        promtool = shutil.which("promtool")
        if promtool is None:
            pytest.skip("promtool is not installed: apt-get install prometheus")
        done = subprocess.run([promtool, "check", "metrics"], input=plain, text=True, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")

    def test_no_name_costs_the_page(self, model: Path) -> None:
        """A path may hold bytes that are no UTF-8, and a name whatever it likes."""
        for name, shown in (('a"b\\c\nd', 'a"b\\c\nd'), ("\udcff/é", "?/é")):
            config = build_config(model)
            config.model_config.served_model_name = name
            settings = Settings(mode="on", metrics_port=free_port())
            scheduler = build_scheduler(adaptive(Scheduler, settings=settings), config)
            url = f"http://127.0.0.1:{settings.metrics_port}/metrics"
            for accept in ("", "application/openmetrics-text; version=x"):
                (sample,) = parsed(scraped(url, Accept=accept)).samples("adaptk_active")
                assert sample.labels["model_name"] == shown
            scheduler.shutdown()

    def test_a_part_that_fails_is_left_out_and_told_once(
        self, model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The others are there, and adaptk stays at work."""

        def fail(*_: Any) -> Any:
            raise RuntimeError("no rows")

        with driven(model) as one:
            one.run()
            monkeypatch.setattr(page, "belief_rows", fail)
            for _ in range(2):
                found = one.page()
            assert found.sum("adaptk_steps_total") > 0
            assert "adaptk_acceptance_ratio" not in found.families
            assert len(log.having("metrics lack beliefs")) == 1
            assert one.steering.active


class TestStarting:
    def test_one_line_says_where(self, model: Path, log: Lines) -> None:
        with driven(model) as one:
            assert log.having(f"INFO adaptk serves its metrics at http://127.0.0.1:{one.port}/metrics")

    def test_ranks_have_ports_of_their_own(self, model: Path, log: Lines) -> None:
        """The index is added, and stands in a label as in vLLM's own."""
        port = free_port(ranks=3)
        config = build_config(model)
        config.parallel_config.data_parallel_index = 2
        settings = Settings(mode="on", metrics_port=port)
        scheduler = build_scheduler(adaptive(Scheduler, settings=settings), config)
        assert f'engine="2"' in scraped(f"http://127.0.0.1:{port + 2}/metrics")  # noqa: F541
        scheduler.shutdown()
        config.parallel_config.data_parallel_index = 40_000
        scheduler = build_scheduler(adaptive(Scheduler, settings=Settings(mode="on", metrics_port=40_000)), config)
        assert log.having("adaptk serves no metrics: ADAPTK_METRICS_PORT=40000 leaves no port for rank 40000")
        scheduler.shutdown()

    def test_a_taken_port_costs_the_metrics_only(self, model: Path, log: Lines) -> None:
        """One warning that names it and the remedy; under strict there is no engine."""
        with driven(model) as one:
            settings = {"mode": "on", "metrics_port": one.port}
            other = build_scheduler(adaptive(Scheduler, settings=Settings(**settings)), build_config(model))
            assert other.adaptk.active
            assert other.adaptk.sums is None
            (line,) = log.having("serves no metrics")
            assert line.startswith(
                f"WARNING adaptk serves no metrics: ADAPTK_METRICS_PORT: 127.0.0.1:{one.port} cannot"
            )
            assert "a free port of its own" in line
            strict = adaptive(Scheduler, settings=Settings(**settings, strict=True))
            with pytest.raises(StartError, match="ADAPTK_METRICS_PORT"):
                build_scheduler(strict, build_config(model))
            other.shutdown()

    @pytest.mark.parametrize("host", ["[::1]", "203.0.113.7", "a" * 300])
    def test_another_machines_host_costs_the_metrics_only(self, model: Path, log: Lines, host: str) -> None:
        """It is the host that is named, not the port."""
        settings = Settings(mode="on", metrics_port=free_port(), metrics_host=host)
        scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
        assert scheduler.adaptk.active
        (line,) = log.having("serves no metrics")
        assert f"ADAPTK_METRICS_HOST={host} is no address of this machine (" in line
        scheduler.shutdown()

    def test_without_prometheus_client(self, model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "prometheus_client", None)
        settings = Settings(mode="on", metrics_port=free_port())
        scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
        assert scheduler.adaptk.active
        assert log.having("pip install prometheus-client")

    def test_an_inert_engine_says_so(self, model: Path) -> None:
        """A dashboard sees an engine that was meant to be steered, and why it is not."""
        port = free_port()
        config = build_config(model)
        config.speculative_config.method = "suffix"
        scheduler = build_scheduler(adaptive(Scheduler, settings=Settings(mode="on", metrics_port=port)), config)
        found = parsed(scraped(f"http://127.0.0.1:{port}/metrics"))
        scheduler.shutdown()
        assert found.value("adaptk_active") == 0
        (info,) = found.samples("adaptk_inactive_info")
        assert "the drafter suffix" in info.labels["reason"]
        assert found.value("adaptk_build_info") == 1
        assert "adaptk_steps_total" not in found.families

    def test_switched_off_nothing_is_served(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """``ADAPTK=off`` is the switch that nothing else turns on."""
        port = free_port()
        monkeypatch.setenv("ADAPTK", "off")
        monkeypatch.setenv("ADAPTK_METRICS_PORT", str(port))
        scheduler = build_scheduler(adaptive(Scheduler), build_config(model))
        with pytest.raises(OSError, match="refused"):
            scraped(f"http://127.0.0.1:{port}/metrics")
        scheduler.shutdown()


class TestEnding:
    def test_a_second_engine_may_have_the_port(self, model: Path) -> None:
        """After the first one's shutdown, and its counters start at 0."""
        port = free_port()
        for _ in range(2):
            settings = Settings(mode="on", metrics_port=port)
            scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
            found = parsed(scraped(f"http://127.0.0.1:{port}/metrics"))
            assert found.sum("adaptk_steps_total") == 0
            assert scheduler.adaptk.metrics is not None
            scheduler.shutdown()
            with pytest.raises(OSError, match="refused"):
                scraped(f"http://127.0.0.1:{port}/metrics")

    def test_it_keeps_no_engine_alive(self, model: Path) -> None:
        """One that is dropped without a shutdown gives the port back, too."""
        one = Driven(model)
        url = f"http://127.0.0.1:{one.port}/metrics"
        one.run(1)
        assert "adaptk_steps_total" in scraped(url)
        del one
        gc.collect()
        with pytest.raises(OSError, match="refused"):
            scraped(url)


def test_where_nobody_asked_for_metrics_nothing_is_added_up(model: Path) -> None:
    """The step pays for nothing."""
    scheduler = build_scheduler(adaptive(Scheduler, settings=Settings(mode="on")), build_config(model))
    assert scheduler.adaptk.sums is scheduler.adaptk.metrics is None


def test_the_seed_table_is_shown_by_its_name(model: Path) -> None:
    """Its own, else its file's; a schedule and none have words of their own."""
    from adaptk.vllm_plugin.metrics.serving import _table

    rows = [{"batch": 1, "k": k, "itl_ms": 5.0 + k} for k in (0, 1)]
    plain, named = (GoodputTable.from_rows(rows, meta=meta) for meta in (None, {"name": "bench"}))
    schedule = GoodputTable.from_schedule([[1, 8, 1]])
    given = Settings(table="some/where/b.json")
    shown = [_table(Controller(table, seed=0, k_max=1), given) for table in (plain, named, schedule, None)]
    assert shown == ["b.json", "bench", "schedule", "none"]
    assert _table(Controller(plain, seed=0), Settings()) == "given"
