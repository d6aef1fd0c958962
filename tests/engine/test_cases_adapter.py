"""What people reported of speculative decoding in vLLM, one test per report: the side that reads vLLM's steps."""

from __future__ import annotations

import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import RequestStatus
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

from adaptk import Controller, GoodputTable, Settings
from adaptk.table import TableError
from adaptk.vllm_plugin import adaptive, compat, drafters, patches, refusals
from tests.engine.conftest import Lines
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, cycling, make_request
from tests.engine.versions import since


def engine(
    model: Path, controller: Any, *, asynchronous: bool = False, blocks: int = 400, **config: Any
) -> tuple[Any, Worker]:
    """An adaptive scheduler and the worker that serves it, with every draft accepted."""
    cls = adaptive(AsyncScheduler if asynchronous else Scheduler, controller=controller)
    built = build_config(model, asynchronous=asynchronous, **config)
    scheduler = build_scheduler(cls, built, num_blocks=blocks, v2=False if asynchronous else None)
    return scheduler, Worker(scheduler, 0, asynchronous=asynchronous, accept=1.0)


def add(scheduler: Any, n: int, *, prompt: int = 5, max_tokens: int = 100, first: int = 0) -> None:
    for i in range(first, first + n):
        scheduler.add_request(make_request(f"r{i}", prompt, max_tokens))


def turn(worker: Worker, n: int = 1) -> None:
    for _ in range(n):
        worker.schedule()
        worker.update()


@pytest.mark.parametrize("every", [2, 3, 5])
def test_c02_c03_prefills_beside_decodes(model: Path, every: int) -> None:
    """The chunk of a prompt is prefill, its request no decode, and the decodes' drafts are counted in that step too."""
    policy = cycling((3,))
    scheduler, worker = engine(model, policy, max_num_batched_tokens=256)
    add(scheduler, 4, max_tokens=200)
    turn(worker, 2)
    for step in range(1, 16):
        if step % every == 0:
            scheduler.add_request(make_request(f"late{step}", 200, 1))
        turn(worker)
        record = policy.records[-1]
        mixed = step % every == 0
        assert (record.batch_size, record.prefill_tokens) == ((5, 200) if mixed else (4, 0))
        assert record.decodes == (4 if mixed else None)
        assert sorted(record.drafted, reverse=True)[:4] == [3] * 4


@pytest.mark.parametrize(("deep", "shallow"), [(5, 0), (7, 1), (1, 0)])
def test_c05_acceptance_belongs_to_the_decision_before(model: Path, deep: int, shallow: int) -> None:
    """In the order S0 S1 U0 S2 U1, each step's drafts are those of the K before it, whatever its own field says."""
    policy = cycling((deep, shallow))
    scheduler, worker = engine(model, policy, asynchronous=True)
    add(scheduler, 1)
    worker.schedule()
    for _ in range(12):
        output = worker.schedule()
        if len(policy.chosen) % 2:
            assert output.num_spec_tokens_to_schedule == deep
        worker.update()
    made = [0, *policy.chosen]
    assert [(r.k, sum(r.drafted), sum(r.accepted)) for r in policy.records] == [
        (k, before, before) for k, before in zip(policy.chosen, made, strict=False)
    ][: len(policy.records)]


@since(27, "stale outputs")
@pytest.mark.parametrize("victim", ["r0", "r1", "r2"])
def test_c16_preempted_aborted_and_dropped_in_flight(model: Path, victim: str) -> None:
    """Of a step in flight only what the scheduler still takes in counts, and deciding goes on."""
    policy = cycling((3, 1))
    scheduler, worker = engine(model, policy, asynchronous=True)
    add(scheduler, 5)
    worker.schedule()
    worker.schedule()
    worker.update()
    gone, dropped = (rid for rid in ("r0", "r1", "r2") if rid != victim)
    for rid, drop in ((victim, False), (dropped, True)):
        request = scheduler.requests[rid]
        scheduler.running.remove(request)
        scheduler._preempt_request(request, 0.0, drop_stale_output=drop)
    scheduler.finish_requests(gone, RequestStatus.FINISHED_ABORTED)
    step = worker.update()
    record = policy.records[-1]
    rows = dict(zip(step.output.num_scheduled_tokens, zip(record.drafted, record.emitted, strict=True), strict=True))
    assert rows == {"r3": (3, 4), "r4": (3, 4), victim: (0, 4), gone: (0, 0), dropped: (0, 0)}
    assert record.decodes == 4  # one gave tokens and has drafts that are not counted: none it failed to make
    assert scheduler.adaptk.collector.ignored == 3
    assert 0 <= worker.schedule().num_spec_tokens_to_schedule <= 7
    assert scheduler.adaptk.faults == 0


@pytest.mark.parametrize("finding", [4, 1, 0])
def test_c19_a_drafter_that_finds_little(model: Path, finding: int) -> None:
    """Attempts are the drafts that came; a request without any is none that accepted 0."""
    policy = cycling((5,))
    scheduler, worker = engine(model, policy, max_num_seqs=16)
    add(scheduler, 16)
    output = worker.schedule()
    step = worker.in_flight.popleft()
    scheduler.update_from_output(step.output, step.result)
    ids = list(output.num_scheduled_tokens)
    scheduler.update_draft_token_ids(DraftTokenIds(ids, [[9] if i < finding else [] for i in range(16)]))
    turn(worker)
    record = policy.records[1]
    assert sorted(record.drafted) == [0] * (16 - finding) + [1] * finding
    assert record.accepted == record.drafted


@pytest.mark.parametrize(("ranks", "k_max"), [(2, 7), (8, 3)])
def test_c20_ranks_that_must_agree(model: Path, log: Lines, ranks: int, k_max: int) -> None:
    """Experts spread over ranks: every step gets the static number, and one warning says why."""
    config = build_config(model, k_max=k_max)
    config.parallel_config.data_parallel_size = ranks
    policy = cycling((0, 1))
    scheduler = build_scheduler(adaptive(Scheduler, controller=policy), config)
    worker = Worker(scheduler, 0, asynchronous=False)
    add(scheduler, 3)
    for _ in range(20):
        assert worker.schedule().num_spec_tokens_to_schedule == k_max
        worker.update()
    assert policy.chosen == policy.records == []
    assert len(log.having("WARNING")) == len(log.having("data_parallel_size")) == 1


@pytest.mark.parametrize("asynchronous", [False, True])
def test_c21_only_arms_are_played(model: Path, asynchronous: bool) -> None:
    """With a schedule of 0, 1 and 3 no step ever has another K, exploring included."""
    config = build_config(model, k_max=3, schedule=[[1, 2, 3], [3, 6, 1], [7, 16, 0]], asynchronous=asynchronous)
    cls = adaptive(AsyncScheduler if asynchronous else Scheduler, settings=Settings(budget=0.5, seed=1))
    scheduler = build_scheduler(cls, config, v2=False if asynchronous else None)
    worker = Worker(scheduler, 0, asynchronous=asynchronous, accept=0.7)
    played: set[int] = set()
    for step in range(600):
        if len(scheduler.requests) < 1 + step % 9:
            add(scheduler, 1, first=step, max_tokens=30)
        played.add(worker.schedule().num_spec_tokens_to_schedule)
        worker.update()
    assert played <= {0, 1, 3}
    assert len(played) > 1
    assert scheduler.adaptk.controller.arms == (0, 1, 3)


def test_c24_a_full_cache(model: Path) -> None:
    """What resumed requests compute again is prefill: no decode, no drafts, and so no arm's own time."""
    policy = cycling((3,))
    scheduler, worker = engine(model, policy, blocks=14, max_num_batched_tokens=256)
    add(scheduler, 6, prompt=16, max_tokens=60)
    resumed = 0
    for _ in range(200):
        if not scheduler.requests:
            break
        output = worker.schedule()
        back = output.scheduled_cached_reqs.resumed_req_ids
        again = sum(output.num_scheduled_tokens[rid] for rid in back)
        worker.update()
        record = policy.records[-1]
        if back:
            resumed += len(back)
            assert record.prefill_tokens >= again > 16
            assert record.decodes is not None
            assert record.decodes <= record.batch_size - len(back)
            assert sum(drafts > 0 for drafts in record.drafted) <= record.decodes
    assert resumed > 2
    assert not scheduler.requests


@pytest.mark.parametrize("asynchronous", [False, True])
def test_c28_without_statistics(model: Path, asynchronous: bool) -> None:
    """With ``log_stats`` off, as ``LLM()`` has it, the controller learns all the same."""
    controller = Controller(None, arms=(0, 1, 3), k_max=7, seed=0)
    before = controller.belief(2)[1].al
    scheduler, worker = engine(model, controller, asynchronous=asynchronous)
    assert not scheduler.log_stats
    add(scheduler, 2, max_tokens=200)
    while scheduler.requests:
        turn(worker)
    assert controller.counters["steps"] > 20
    assert controller.belief(2)[1].al > before


@pytest.mark.parametrize("pause", [0.02, 30.0, 86_400.0])
def test_c30_idle_time(model: Path, monkeypatch: pytest.MonkeyPatch, pause: float) -> None:
    """A pause, empty steps and a paused scheduler lie between steps, and in none."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    policy = cycling((1,))
    scheduler, worker = engine(model, policy)
    add(scheduler, 1)

    def step(scheduled: float, updated: float) -> None:
        now[0] = 100.0 + scheduled
        worker.schedule()
        now[0] = 100.0 + updated
        worker.update()

    step(0.0, 0.010)
    step(pause + 0.010, pause + 0.022)
    scheduler.set_pause_state(PauseState.PAUSED_ALL)
    for i in range(5):
        step(2 * pause + i * 0.001, 2 * pause + i * 0.001)
    scheduler.set_pause_state(PauseState.UNPAUSED)
    step(2 * pause + 0.006, 2 * pause + 0.018)
    times = [record.elapsed_ms for record in policy.records]
    assert len(times) == 3
    assert all(ms is None or ms == pytest.approx(want) for ms, want in zip(times, (10.0, 12.0, 12.0), strict=True))
    assert times[0] is not None


def random_schedule(rng: random.Random) -> list[tuple[int, int, int]]:
    schedule, start = [], 1
    for _ in range(rng.randint(1, 6)):
        end = start + rng.randint(0, 40)
        schedule.append((start, end, rng.randint(0, 9)))
        start = end + 1 + rng.choice((0, 0, rng.randint(1, 20)))
    rng.shuffle(schedule)
    return schedule


@pytest.mark.parametrize("seed", range(20))
def test_c31_a_schedule_means_what_it_means_to_vllm(seed: int) -> None:
    """Gaps, tails, shuffled entries and K above the maximum give the same K at every batch size."""
    rng = random.Random(seed)
    schedule = random_schedule(rng) if seed else [(1, 16, 3), (32, 128, 2)]
    largest, k_max = rng.choice((1, 7, 64, 300)), rng.randint(1, 9)
    lookup = build_dynamic_sd_schedule_lookup(schedule, largest, k_max)
    table = GoodputTable.from_schedule([[first, last, min(k, k_max)] for first, last, k in schedule])
    assert [table.best_k(batch) for batch in range(1, largest + 1)] == list(lookup[1:])


@pytest.mark.parametrize("schedule", [[[2, 4, 3]], [[1, 4, 3], [4, 8, 1]], [[1, 4, -1]], [[4, 1, 2]], [], [[1, 2]]])
def test_c31_what_vllm_refuses_is_refused(schedule: list[list[int]]) -> None:
    """A schedule that vLLM's own lookup does not take seeds no table."""
    with pytest.raises(ValueError, match=r"(?i)batch.size"):
        build_dynamic_sd_schedule_lookup(schedule, 8, 7)
    with pytest.raises(TableError):
        GoodputTable.from_schedule(schedule)


class TestC32Versions:
    """Refusals and warnings where a version of vLLM does less than the one at hand."""

    @pytest.mark.parametrize("version", ["0.23.0", "0.10.2", "0.23.1rc1+cpu"])
    def test_before_dynamic_speculation(self, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
        """An older one lacks what is needed, and is named."""
        import vllm

        monkeypatch.setattr(vllm, "__version__", version)
        assert any("0.24" in missing for missing in compat.missing_hooks())

    def test_a_field_that_is_not_there(self) -> None:
        """A missing field is a missing hook, not a crash."""
        module = "vllm.v1.core.sched.output"
        assert compat.missing_hooks(((module, "SchedulerOutput", ("num_spec_tokens_to_schedul",)),)) == [
            "SchedulerOutput.num_spec_tokens_to_schedul"
        ]

    @pytest.mark.parametrize("version", ["0.24.0", "0.28.0", "0.31.0"])
    @pytest.mark.parametrize("method", ["eagle3", "mtp", "draft_model"])
    def test_v2_drafts_the_maximum(self, monkeypatch: pytest.MonkeyPatch, version: str, method: str) -> None:
        """Up to 0.31 V2 drafts as much whatever K is, which is told."""
        import vllm

        monkeypatch.setattr(vllm, "__version__", version)
        config = SimpleNamespace(speculative_config=SimpleNamespace(method=method))
        assert drafters.price_notes(config, True)
        assert not drafters.price_notes(config, False)

    @pytest.mark.parametrize("method", ["suffix", "custom_class", "medusa"])
    def test_v1_drafters_without_a_schedule(self, method: str) -> None:
        """Where vLLM drops the schedule because V1's drafter takes no K, adaptk stands aside with the reason."""
        config = SimpleNamespace(
            speculative_config=SimpleNamespace(method=method, enable_adaptive_verification=False),
            parallel_config=SimpleNamespace(data_parallel_size=1, pipeline_parallel_size=1),
            use_v2_model_runner=False,
        )
        assert method in str(refusals.inert_reason(config))


class TestC33TheBaseClass:
    """A synchronous scheduler under asynchronous scheduling gets no drafts at all."""

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_the_base_is_vllms_choice(self, model: Path, monkeypatch: pytest.MonkeyPatch, asynchronous: bool) -> None:
        """The class that is made adaptive is the one that vLLM picks for its mode."""
        monkeypatch.setenv("ADAPTK", "on")
        config = build_config(model).scheduler_config
        config.async_scheduling = asynchronous
        patches.apply()
        try:
            cls = config.get_scheduler_cls()
        finally:
            patches.remove()
        assert issubclass(cls, AsyncScheduler) is asynchronous
        assert hasattr(cls, "adaptk")

    def test_a_synchronous_base_is_refused(self, model: Path, log: Lines) -> None:
        """It stays as it is, and the log says what to derive it from."""
        config = build_config(model)
        config.scheduler_config.async_scheduling = True
        scheduler = build_scheduler(adaptive(Scheduler, controller=Policy(lambda _: 1)), config)
        assert not scheduler.adaptk.active
        assert len(log.having("AsyncScheduler")) == 1
