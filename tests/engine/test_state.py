"""What an engine begins from where ``ADAPTK_STATE`` is set, and what it leaves behind."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from adaptk import Controller, GoodputTable, Settings
from adaptk.statefile import State, read_state, state_bytes
from adaptk.vllm_plugin import adaptive, resume, state, stateplace
from adaptk.vllm_plugin.graphs import Coverage
from adaptk.vllm_plugin.metrics.rows import state_rows
from adaptk.vllm_plugin.start import StartError
from tests.engine.conftest import Lines
from tests.engine.driver import Worker, build_config, build_scheduler, cycling, make_request
from tests.engine.metricspages import free_port
from tests.engine.test_faults import fail

ARMS = (0, 1, 3, 7)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


def started(model: Path, path: Path, *, k_max: int = 7, **settings: Any) -> Any:
    """A scheduler whose adaptk keeps its state at ``path``."""
    given = Settings(mode="on", state=str(path), **settings)
    return build_scheduler(adaptive(Scheduler, settings=given), build_config(model, k_max=k_max))


def serve(scheduler: Any, requests: int = 24, accept: float = 0.95) -> None:
    """Some requests, from the first to the last token."""
    worker = Worker(scheduler, 0, asynchronous=False, accept=accept)
    for i in range(requests):
        scheduler.add_request(make_request(f"{scheduler.adaptk._steps}-{i}", 10, 60))
    while scheduler.requests:
        worker.schedule()
        worker.update()


def learnt(model: Path, path: Path, **settings: Any) -> dict[str, Any]:
    """The snapshot that an engine left at ``path``."""
    scheduler = started(model, path, **settings)
    serve(scheduler)
    scheduler.shutdown()
    return saved(path).snapshot


def saved(path: Path) -> State:
    found = read_state(path)
    assert found is not None
    return found


def rewritten(path: Path, **changed: Any) -> None:
    """The file with other fields; of ``key`` those named."""
    state = saved(path)
    if "key" in changed:
        changed["key"] = state.key | changed["key"]
    path.write_bytes(state_bytes(msgspec.structs.replace(state, **changed)))


def table(tmp_path: Path, ms: float = 10.0) -> str:
    rows = [{"batch": b, "k": k, "itl_ms": ms + 0.1 * b + k, "n": 9} for b in (1, 4, 16) for k in ARMS]
    path = tmp_path / f"table-{ms}.json"
    GoodputTable.from_rows(rows, [0.5] * 7).save(path)
    return str(path)


def acceptance(controller: Controller) -> float:
    return controller.positions()[0].mean


def taken_over(controller: Controller, snapshot: dict[str, Any]) -> bool:
    """Whether the acceptance that was learnt is believed, and not the one that a fresh controller has."""
    before = acceptance(Controller.restore(snapshot, None, as_prior=True))
    fresh = acceptance(Controller(controller.table, controller.arms, trusted=controller.trusted))
    assert abs(before - fresh) > 0.1
    return acceptance(controller) == pytest.approx(before)


class TestGoingOn:
    def test_an_engine_goes_on_where_the_one_before_it_ended(self, model: Path, path: Path, log: Lines) -> None:
        """Beliefs, counts and ledger to the last bit; only what was in flight is given up."""
        scheduler = started(model, path)
        serve(scheduler)
        first = scheduler.adaptk.controller
        scheduler.shutdown()
        assert saved(path).snapshot == first.snapshot()
        again = started(model, path).adaptk.controller
        first.note_engine_restarted()
        assert again.snapshot() == first.snapshot()
        assert again.belief(8) == first.belief(8)
        assert again.counters["steps"] > 20
        assert len(log.having("there is no state at")) == 1
        assert len(log.having(f"adaptk goes on from the state {path}, saved 20")) == 1

    def test_of_an_old_state_step_times_are_believed_widely(self, model: Path, path: Path) -> None:
        """The load or the machine may be another by now; the means and the acceptance stay."""
        scheduler = started(model, path)
        serve(scheduler)
        before = scheduler.adaptk.controller.belief(8)
        scheduler.shutdown()
        rewritten(path, saved=saved(path).saved - 2 * resume.OLD_S)
        again = started(model, path).adaptk.controller.belief(8)
        for old, new in zip(before, again, strict=True):
            assert new.al == old.al
            assert new.itl_low < old.itl_low < old.itl_high < new.itl_high

    def test_its_first_k_is_the_learnt_one(self, model: Path, path: Path) -> None:
        """Where a fresh engine without a table starts at the cheapest arm and climbs."""
        scheduler = started(model, path)
        for _ in range(12):
            serve(scheduler)
        learnt = scheduler.adaptk.controller.arms[scheduler.adaptk.controller._planner.arm]
        scheduler.shutdown()
        for where, expected in ((path, learnt), (path.with_name("other"), 0)):
            scheduler = started(model, where, budget=0.0)
            for i in range(8):
                scheduler.add_request(make_request(str(i), 10, 60))
            output = Worker(scheduler, 0, asynchronous=False).schedule()
            assert output.num_spec_tokens_to_schedule == expected
        assert learnt > 0

    def test_limits_that_were_changed_are_obeyed(self, model: Path, path: Path) -> None:
        """From the first step on, with what was learnt under others."""
        scheduler = started(model, path)
        serve(scheduler, accept=0.0)
        scheduler.shutdown()
        unlimited = started(model, path, budget=0.0).adaptk.controller
        assert min(unlimited.choose(8) for _ in range(100)) < 7
        controller = started(model, path, min_k=7, budget=0.0).adaptk.controller
        assert controller.counters["steps"] > 20
        assert {controller.choose(8) for _ in range(100)} == {7}

    def test_the_limits_of_graphs_are_the_engines(
        self, model: Path, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are in no state: a restored controller has those of the engine that it is in now."""
        covered = Coverage((8, 16), {0, 1, 3, 7}, 16, True)
        monkeypatch.setattr("adaptk.vllm_plugin.start.capturesizes.coverage", lambda *_: covered)
        monkeypatch.setattr("adaptk.vllm_plugin.start.capturesizes.playable", lambda arms, _: arms)
        learnt(model, path)
        controller = started(model, path).adaptk.controller
        assert controller.counters["steps"] > 20
        assert controller.peek().covered is covered

    def test_it_goes_on_over_many_restarts(self, model: Path, path: Path) -> None:
        """Each engine's steps are added."""
        steps = [learnt(model, path)["counters"]["steps"] for _ in range(4)]
        assert all(later > earlier + 10 for earlier, later in itertools.pairwise(steps)), steps

    def test_shadow_learns_too_and_off_leaves_the_file_alone(self, model: Path, path: Path) -> None:
        """Off neither reads nor writes, nor makes a lock."""
        given = Settings(mode="off", state=str(path))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ADAPTK", "off")
            scheduler = build_scheduler(adaptive(Scheduler), build_config(model))
        assert scheduler.adaptk.state is None
        assert given.state is not None
        assert not list(path.parent.iterdir())
        scheduler = build_scheduler(
            adaptive(Scheduler, settings=Settings(mode="shadow", state=str(path))), build_config(model)
        )
        serve(scheduler)
        scheduler.shutdown()
        assert saved(path).snapshot["counters"]["steps"] > 20

    def test_each_rank_has_its_own(self, model: Path, tmp_path: Path) -> None:
        """``{rank}`` stands for the data-parallel rank."""
        config = build_config(model)
        config.parallel_config.data_parallel_index = 3
        given = Settings(mode="on", state=str(tmp_path / "state-{rank}.json"))
        scheduler = build_scheduler(adaptive(Scheduler, settings=given), config)
        serve(scheduler)
        scheduler.shutdown()
        assert (tmp_path / "state-3.json").exists()


class TestAnother:
    def test_of_another_table_the_acceptance_is_taken_over(
        self, model: Path, path: Path, tmp_path: Path, log: Lines
    ) -> None:
        """Widened; times are by the new table."""
        snapshot = learnt(model, path, table=table(tmp_path))
        controller = started(model, path, table=table(tmp_path, 20.0)).adaptk.controller
        assert controller.counters["steps"] == 0
        assert taken_over(controller, snapshot)
        believed = controller.belief(4)[0]
        assert believed.itl_ms == pytest.approx(20.4, rel=0.01)
        assert snapshot["counters"]["steps"] > 20
        assert len(log.having("held of acceptance, widened: it had another table")) == 1

    def test_of_other_arms_the_acceptance_is_taken_over(self, model: Path, path: Path, log: Lines) -> None:
        """As it is of draft positions, whichever arms reach them."""
        snapshot = learnt(model, path)
        controller = started(model, path, arms=(0, 2, 5, 7)).adaptk.controller
        assert controller.arms == (0, 2, 5, 7)
        assert taken_over(controller, snapshot)
        assert len(log.having("it had other arms")) == 1

    def test_of_fewer_drafts_nothing_is_taken_over_and_nothing_lost(self, model: Path, path: Path, log: Lines) -> None:
        """It is moved aside at the first save."""
        before = (learnt(model, path), path.read_bytes())[1]
        scheduler = started(model, path, k_max=5)
        assert scheduler.adaptk.controller.counters["steps"] == 0
        (line,) = log.having("it is of K up to 7, here it is 5")
        assert "give each num_speculative_tokens an ADAPTK_STATE of its own" in line
        serve(scheduler)
        scheduler.shutdown()
        assert saved(path).snapshot["arms"] == [0, 1, 3, 5]
        assert path.with_name("state.json.1").read_bytes() == before

    def test_another_engines_is_not_used(self, model: Path, path: Path, log: Lines) -> None:
        """One warning names what differs; it is moved aside at the first save."""
        learnt(model, path)
        rewritten(path, key={"device": "H100", "model": "other"})
        before = path.read_bytes()
        scheduler = started(model, path)
        assert scheduler.adaptk.controller.counters["steps"] == 0
        assert not taken_over(scheduler.adaptk.controller, saved(path).snapshot)
        (line,) = log.having("WARNING")
        assert "model: 'other' in the state" in line
        assert "device: 'H100' in the state" in line
        assert path.read_bytes() == before
        serve(scheduler)
        scheduler.shutdown()
        assert path.with_name("state.json.1").read_bytes() == before
        assert len(log.having("WARNING")) == 2

    def test_another_engines_acceptance_may_be_asked_for(
        self, model: Path, path: Path, tmp_path: Path, log: Lines
    ) -> None:
        """Not its times, though the table is the same."""
        snapshot = learnt(model, path, table=table(tmp_path))
        rewritten(path, key={"device": "H100"})
        controller = started(model, path, table=table(tmp_path), allow_mismatch=True).adaptk.controller
        assert taken_over(controller, snapshot)
        assert controller.belief(4)[0].itl_ms == pytest.approx(10.4, rel=0.01)
        assert len(log.having("WARNING adaptk begins from the acceptance, widened, of another engine")) == 1

    def test_a_weakly_believed_table_is_not_a_believed_one(self, model: Path, path: Path, tmp_path: Path) -> None:
        """Times that were learnt around the shape of a table are no deviations from its times."""
        name = table(tmp_path)
        snapshot = learnt(model, path, table=name)
        content = json.loads(Path(name).read_text())
        content["meta"]["key"] = {"device": "H100"}
        Path(name).write_text(json.dumps(content))
        controller = started(model, path, table=name, allow_mismatch=True).adaptk.controller
        assert not controller.trusted
        assert controller.counters["steps"] == 0
        assert taken_over(controller, snapshot)

    @pytest.mark.parametrize("what", ["seal", "fault", "cut"])
    def test_a_damaged_one_is_moved_aside(
        self, model: Path, path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        """Whatever is wrong with it, and whatever it makes fail: the engine starts afresh, and nothing is lost."""
        snapshot = learnt(model, path)
        if what == "seal":
            rewritten(path, snapshot=snapshot | {"_seq": 3})
        elif what == "cut":
            path.write_bytes(path.read_bytes()[:-500])
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            if what == "fault":
                patch.setattr(Controller, "restore", fail)
            scheduler = started(model, path)
        assert scheduler.adaptk.active
        assert scheduler.adaptk.controller.counters["steps"] == 0
        assert len(log.having("adaptk starts afresh")) == 2
        serve(scheduler)
        scheduler.shutdown()
        assert path.with_name("state.json.1").read_bytes() == before
        assert saved(path).snapshot["counters"]["steps"] > 20

    def test_what_is_no_state_is_left_alone(self, model: Path, path: Path, tmp_path: Path, log: Lines) -> None:
        """A table, by mistake: served on, said at the start, and the file stays as it is."""
        name = Path(table(tmp_path))
        before = name.read_bytes()
        scheduler = started(model, name)
        serve(scheduler)
        failures = scheduler.adaptk.state
        scheduler.shutdown()
        assert failures.failures == 1
        assert scheduler.adaptk.active
        assert name.read_bytes() == before
        assert len(log.having("is no state of adaptk's. It is left as it is")) == 1

    def test_an_older_adaptks_state_is_gone_on_from(self, model: Path, path: Path) -> None:
        """By the rule of older snapshots: beliefs are kept, what is new starts fresh."""
        snapshot = learnt(model, path)
        old = {name: value for name, value in snapshot.items() if name not in ("digest", "waits")}
        rewritten(path, snapshot=old | {"schema_version": 2})
        controller = started(model, path).adaptk.controller
        assert controller.counters["steps"] == snapshot["counters"]["steps"]
        assert taken_over(controller, snapshot)


class TestStart:
    def test_a_given_controller_is_neither_read_nor_written(self, model: Path, path: Path, log: Lines) -> None:
        """It is its owner's."""
        learnt(model, path)
        before, policy = path.stat(), cycling((1,))
        given = adaptive(Scheduler, policy, Settings(mode="on", state=str(path)))
        scheduler = build_scheduler(given, build_config(model))
        assert scheduler.adaptk.controller is policy
        serve(scheduler)
        scheduler.shutdown()
        assert path.stat() == before
        assert len(log.having("the controller was given")) == 1

    @pytest.mark.parametrize("where", ["folder/state.json", "pipe", "table.json"])
    @pytest.mark.parametrize("strict", [False, True])
    def test_a_path_that_cannot_be_used(
        self, model: Path, tmp_path: Path, log: Lines, where: str, strict: bool
    ) -> None:
        """Served on with one warning at the start, or none where it is asked for."""
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "table.json").write_text("{}")
        if strict:
            with pytest.raises(StartError):
                started(model, tmp_path / where, strict=True)
            return
        scheduler = started(model, tmp_path / where)
        assert scheduler.adaptk.active
        assert len(log.having("WARNING")) == 1
        serve(scheduler)
        scheduler.shutdown()
        assert scheduler.adaptk.active
        assert len(log.having("stands down")) == 0

    def test_two_engines_of_one_process(self, model: Path, path: Path, log: Lines) -> None:
        """The second one reads and waits; with the first one gone it saves."""
        learnt(model, path)
        one, other = started(model, path), started(model, path)
        assert one.adaptk.controller.counters["steps"] == other.adaptk.controller.counters["steps"] > 20
        serve(other, requests=2)
        serve(one)
        one.shutdown()
        steps = saved(path).snapshot["counters"]["steps"]
        assert steps == one.adaptk.controller.counters["steps"]
        other.shutdown()
        assert saved(path).snapshot["counters"]["steps"] == other.adaptk.controller.counters["steps"] != steps
        assert len(log.having("another engine saves its state")) == 1

    def test_a_start_that_fails_later_leaves_no_lock(self, model: Path, path: Path, monkeypatch: Any) -> None:
        """Nor a thread: the next engine is the one that saves."""
        with monkeypatch.context() as patch:
            patch.setattr("adaptk.vllm_plugin.start._announce", fail)
            assert not started(model, path).adaptk.active
        scheduler = started(model, path)
        assert scheduler.adaptk.state.place.lock()
        scheduler.shutdown()

    def test_after_a_fault_the_last_good_state_stays(
        self, model: Path, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is believed then may be wrong; the lock goes to who wants it."""
        learnt(model, path)
        before = path.read_bytes()
        scheduler = started(model, path)
        serve(scheduler)
        monkeypatch.setattr(scheduler.adaptk.controller, "choose", fail)
        serve(scheduler)
        assert not scheduler.adaptk.active
        scheduler.adaptk.state._thread.join(20)
        other = started(model, path)
        assert other.adaptk.state.place.lock()
        scheduler.shutdown()
        other.shutdown()
        assert path.read_bytes() == before

    def test_an_engine_without_requests_has_handed_over_its_last_step(
        self, model: Path, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However it came to rest, by answers or by aborts: nobody comes by to copy while it waits for requests."""
        monkeypatch.setattr(state, "REST", 0.0)
        scheduler = started(model, path)
        keeper, controller = scheduler.adaptk.state, scheduler.adaptk.controller
        serve(scheduler, requests=2)
        assert keeper._copy["counters"]["steps"] == controller.counters["steps"] > 10
        worker = Worker(scheduler, 0, asynchronous=False)
        scheduler.add_request(make_request("gone", 10, 60))
        for _ in range(5):
            worker.schedule()
            worker.update()
        scheduler.finish_requests(["gone"], RequestStatus.FINISHED_ABORTED)
        worker.schedule()
        worker.update()
        assert keeper._copy["counters"]["steps"] == controller.counters["steps"]
        scheduler.shutdown()

    def test_its_metrics(self, model: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the file was saved, by whichever engine; what this one saved and could not save."""
        names = ("adaptk_state_saves_total", "adaptk_state_failures_total", "adaptk_state_timestamp_seconds")

        def served(steering: Any) -> list[float | None]:
            rows = state_rows(steering)
            return [rows[name][0][1] if name in rows else None for name in names]

        first = started(model, path)
        assert served(first.adaptk) == [0.0, 0.0, None]
        serve(first)
        first.shutdown()
        assert served(first.adaptk) == [None] * 3
        scheduler = started(model, path)
        assert served(scheduler.adaptk) == [0.0, 0.0, round(saved(path).saved, 3)]
        keeper = scheduler.adaptk.state
        for failing, expected in ((False, [1.0, 0.0]), (True, [1.0, 1.0])):
            serve(scheduler)
            keeper.take(scheduler.adaptk.controller)
            with monkeypatch.context() as patch:
                if failing:
                    patch.setattr(stateplace, "write_whole", fail)
                keeper._save()
            assert served(scheduler.adaptk) == [*expected, round(saved(path).saved, 3)]
        scheduler.shutdown()

    def test_copies_are_made_where_learning_is(self, model: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """While a step's model runs, and never in a choice; saved while the engine serves on."""
        for name, seconds in {"INTERVAL_S": 0.01, "QUIET_S": 0.01, "_LOOK_S": 0.001, "_SHORT_S": 0.001}.items():
            monkeypatch.setattr(state, name, seconds)
        scheduler = started(model, path)
        keeper = scheduler.adaptk.state
        worker = Worker(scheduler, 0, asynchronous=False)
        copied: list[str] = []
        take = keeper.take
        doing = ""

        def taking(controller: Any) -> None:
            copied.append(doing)
            take(controller)

        monkeypatch.setattr(keeper, "take", taking)
        requests = 0
        while keeper.saves < 3 or scheduler.requests:
            if len(scheduler.requests) < 8 and keeper.saves < 3:
                scheduler.add_request(make_request(str(requests), 10, 200))
                requests += 1
            doing = "scheduling"
            output = worker.schedule()
            doing = "its model runs"
            scheduler.get_grammar_bitmask(output)
            doing = "updating"
            worker.update()
        assert "scheduling" not in copied
        assert copied.count("its model runs") >= len(copied) - 2  # the last steps have none after them
        scheduler.shutdown()


class TestTurns:
    """By which a thread that copies at the end sees that the engine's learns."""

    @pytest.mark.parametrize("metrics", [False, True])
    def test_the_controller_changes_within_turns_alone(
        self, model: Path, path: Path, monkeypatch: pytest.MonkeyPatch, metrics: bool
    ) -> None:
        """Whatever is asked of it or told to it, the number is odd meanwhile, and another even one afterwards."""
        scheduler = started(model, path, **({"metrics_port": free_port()} if metrics else {}))
        steering = scheduler.adaptk
        names = ("choose", "observe", "note_weights_changed", "note_engine_restarted")
        met: Counter[tuple[str, bool]] = Counter()
        turns: list[int] = []

        def watched(name: str, real: Any) -> Any:
            def method(*args: Any, **words: Any) -> Any:
                met[name, steering.turn % 2 == 1] += 1
                turns.append(steering.turn)
                return real(*args, **words)

            return method

        for name in names:
            monkeypatch.setattr(Controller, name, watched(name, getattr(Controller, name)))
        serve(scheduler)
        steering.note_weights_changed()
        steering.controller = steering.controller
        assert set(met) == {(name, True) for name in names}
        assert met["choose", True] > 20
        assert len(set(turns)) == len(turns)
        assert steering.turn % 2 == 0
        scheduler.shutdown()

    @pytest.mark.parametrize("what", ["choose", "observe"])
    def test_an_interrupt_in_a_step_is_seen_at_the_exit(
        self, model: Path, path: Path, monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        """What was handed over before is saved then; if it serves on, what it goes on from is."""
        monkeypatch.setattr(state, "REST", 0.0)
        scheduler = started(model, path)
        keeper, controller = scheduler.adaptk.state, scheduler.adaptk.controller
        serve(scheduler)
        before = controller.snapshot()
        scheduler.add_request(make_request("interrupted", 10, 60))
        worker = Worker(scheduler, 0, asynchronous=False)

        def step() -> None:
            worker.schedule()
            worker.update()

        step()
        with monkeypatch.context() as patch:
            patch.setattr(Controller, what, interrupt)
            with pytest.raises(KeyboardInterrupt):
                step()
        keeper._at_exit()
        assert saved(path).snapshot == before
        assert scheduler.adaptk.turn % 2 == 1
        serve(scheduler, requests=2)
        assert scheduler.adaptk.turn % 2 == 0


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
