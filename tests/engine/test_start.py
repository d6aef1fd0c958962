"""How adaptk starts: what it seeds from, when it stands down, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import CUDAGraphMode
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import Controller, GoodputTable, Settings
from adaptk.trace import TraceWriter
from adaptk.vllm_plugin import adaptive, capture, compat, drafters, refusals, traceheader
from adaptk.vllm_plugin.identity import table_key
from adaptk.vllm_plugin.start import StartError, _described
from adaptk.vllm_plugin.steering import _takes
from tests.engine.conftest import Lines
from tests.engine.driver import Worker, build_config, build_scheduler, cycling, make_request
from tests.engine.versions import since

ON = Settings(mode="on")


def first_k(scheduler: Any) -> int:
    scheduler.add_request(make_request("a", 5, 20))
    return int(Worker(scheduler, 0, asynchronous=False).schedule().num_spec_tokens_to_schedule)


def with_graphs(monkeypatch: pytest.MonkeyPatch, *, v2: bool) -> None:
    """Let vLLM's configuration look like one on a GPU with FULL graphs."""
    monkeypatch.setattr(compat, "full_graphs", lambda _: True)
    monkeypatch.setattr(compat, "runner_v2", lambda _: v2)


class TestClass:
    def test_the_same_base_gives_the_same_class(self) -> None:
        """Classes are cached by base and settings, except around a controller of the caller's."""
        assert adaptive(Scheduler) is adaptive(Scheduler)
        assert adaptive(Scheduler, settings=ON) is adaptive(Scheduler, settings=Settings(mode="on"))
        assert adaptive(Scheduler) is not adaptive(AsyncScheduler)
        assert adaptive(Scheduler) is not adaptive(Scheduler, settings=Settings(mode="shadow"))
        assert adaptive(Scheduler, controller=cycling((1,))) is not adaptive(Scheduler, controller=cycling((1,)))

    def test_an_adaptive_class_is_left_as_it_is(self) -> None:
        """Two layers would ask two controllers."""
        cls = adaptive(AsyncScheduler)
        assert adaptive(cls) is cls
        assert issubclass(cls, AsyncScheduler)

    def test_a_controller_for_an_adaptive_class_is_used(self, model: Path) -> None:
        """It takes the place of the one that the class would have built or had."""
        policy = cycling((1,))
        for cls in (adaptive(Scheduler), adaptive(Scheduler, controller=cycling((3,)))):
            assert build_scheduler(adaptive(cls, controller=policy), build_config(model)).adaptk.controller is policy

    @pytest.mark.parametrize("wrong", [None, "Scheduler", lambda: None, dict])
    def test_anything_else_is_refused(self, wrong: Any) -> None:
        """The error names what was given."""
        with pytest.raises(TypeError, match="give a"):
            adaptive(wrong)


class TestSeed:
    def test_without_a_table_the_operators_schedule_is_the_seed(self, model: Path) -> None:
        """The first choices are the schedule's, and it is the table of the controller."""
        config = build_config(model, schedule=[[1, 8, 3], [9, 16, 1]])
        scheduler = build_scheduler(adaptive(Scheduler), config)
        controller = scheduler.adaptk.controller
        assert isinstance(controller, Controller)
        assert controller.table is not None
        assert controller.table.best_k(4) == 3
        assert first_k(scheduler) == 3

    def test_without_table_or_schedule_it_starts_with_neither(self, model: Path) -> None:
        """There the arms are the default ones, cut at the engine's maximum."""
        scheduler = build_scheduler(adaptive(Scheduler), build_config(model, k_max=5))
        assert scheduler.adaptk.controller.table is None
        assert scheduler.adaptk.controller.arms == (0, 1, 3, 5)

    def test_the_capture_schedule_is_no_seed(self, model: Path) -> None:
        """adaptk does not learn from the schedule that it wrote itself, and vLLM's lookup no longer follows it."""
        config = build_config(model)
        config.speculative_config.num_speculative_tokens_per_batch_size = capture.capture_schedule((0, 1, 3, 7), 16)
        scheduler = build_scheduler(adaptive(Scheduler), config)
        assert scheduler.adaptk.controller.table is None
        assert set(scheduler.dynamic_sd_lookup) == {7}

    def test_a_table_is_loaded_and_named(self, model: Path, tmp_path: Path, log: Lines) -> None:
        """The first line says versions, mode, arms, table and schedule."""
        rows = [{"batch": b, "k": k, "itl_ms": 10.0 + k, "context": None, "n": 9} for b in (1, 16) for k in (0, 1, 3)]
        path = tmp_path / "table-0.json"
        GoodputTable.from_rows(rows, [0.8, 0.7, 0.6], {"name": "bench", "model": "tiny"}).save(path)
        settings = Settings(mode="on", table=str(tmp_path / "table-{rank}.json"), arms=(0, 1, 3))
        scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
        assert scheduler.adaptk.controller.table.best_k(1) == 3
        (line,) = log.having("on vLLM")
        for part in (
            "adaptk 0.",
            f"vLLM {compat.vllm_version()}",
            "mode on, arms (0, 1, 3)",
            f"(0, 1, 3), table {path} (model=tiny, name=bench)",
            "none",
        ):
            assert part in line

    def test_the_first_line_tells_whose_schedule_it_is(self, model: Path, log: Lines) -> None:
        """An operator sees the resolved schedule and that it is their own."""
        build_scheduler(adaptive(Scheduler), build_config(model, schedule=[[1, 8, 3], [9, 16, 1]]))
        assert log.having("[[1, 8, 3], [9, 16, 1]] (the operator's)")

    def test_the_trace_is_written_and_closed(self, model: Path, tmp_path: Path) -> None:
        """Steps reach the file named by the settings, the rank filled in."""
        settings = Settings(mode="on", trace=str(tmp_path / "trace-{rank}.jsonl"))
        scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
        assert isinstance(scheduler.adaptk.writer, TraceWriter)
        first_k(scheduler)
        scheduler.shutdown()
        assert scheduler.adaptk.writer is None
        assert '"mode":"on"' in (tmp_path / "trace-0.jsonl").read_text()

    def test_a_given_controller_needs_no_table(self, model: Path, log: Lines) -> None:
        """Settings that only concern the Controller adaptk would build do not stand in its way."""
        settings = Settings(mode="on", table="absent.json", arms=(0, 99))
        cls = adaptive(Scheduler, controller=cycling((1,)), settings=settings)
        assert build_scheduler(cls, build_config(model)).adaptk.active
        assert log.having("table of the given controller")


class TestInert:
    def check(self, scheduler: Any, log: Lines, reason: str, level: str) -> None:
        """vLLM's K, and exactly one line that says why."""
        assert not scheduler.adaptk.active
        assert reason in scheduler.adaptk.reason
        assert first_k(scheduler) == 7
        (line,) = log.having("is inactive")
        assert line.startswith(level)
        assert reason in line

    def test_data_parallel_ranks_must_agree(self, model: Path, log: Lines) -> None:
        """Inside the engine more than one rank means a mixture of experts: static K, one warning."""
        config = build_config(model)
        config.parallel_config.data_parallel_size = 2
        self.check(build_scheduler(adaptive(Scheduler), config), log, "data_parallel_size", "WARNING")

    def test_pipeline_parallel(self, model: Path, log: Lines) -> None:
        """Steps overlap in ways that adaptk cannot time."""
        config = build_config(model)
        config.parallel_config.pipeline_parallel_size = 2
        self.check(build_scheduler(adaptive(Scheduler), config), log, "pipeline_parallel_size", "WARNING")

    def test_adaptive_verification(self, model: Path, log: Lines) -> None:
        """vLLM's own control of the width would be learnt as if it were the arm's cost."""
        config = build_config(model)
        config.speculative_config.enable_adaptive_verification = True
        self.check(build_scheduler(adaptive(Scheduler), config), log, "enable_adaptive_verification", "WARNING")

    def test_no_drafter(self, model: Path, log: Lines) -> None:
        """Nothing to choose is no error."""
        scheduler = build_scheduler(adaptive(Scheduler), build_config(model, drafter=False))
        assert first_k(scheduler) == 0
        (line,) = log.having("is inactive")
        assert line.startswith("INFO")

    def test_a_synchronous_base_under_asynchronous_scheduling(self, model: Path, log: Lines) -> None:
        """vLLM makes no drafts at all there, which must not pass for steering."""
        config = build_config(model)
        config.scheduler_config.async_scheduling = True
        self.check(build_scheduler(adaptive(Scheduler), config), log, "Scheduler is no AsyncScheduler", "ERROR")
        assert build_scheduler(adaptive(AsyncScheduler), config, v2=False).adaptk.active

    def test_inert_with_the_capture_schedule_set(self, model: Path, log: Lines) -> None:
        """Where adaptk stands down after all, its own schedule is not followed either."""
        config = build_config(model)
        config.speculative_config.num_speculative_tokens_per_batch_size = capture.capture_schedule((0, 1, 3, 7), 16)
        config.parallel_config.pipeline_parallel_size = 2
        self.check(build_scheduler(adaptive(Scheduler), config), log, "pipeline_parallel_size", "WARNING")

    @pytest.mark.parametrize(
        ("settings", "reason"),
        [
            ({"table": "absent.json"}, "absent.json"),
            ({"arms": (0, 9)}, "ADAPTK_ARMS: arms holds 9, k_max is 7"),
            ({"min_k": 8}, "min_k is 8"),
        ],
    )
    def test_bad_settings(self, model: Path, log: Lines, settings: dict[str, Any], reason: str) -> None:
        """Inactive with the reason, or, under strict, no engine at all."""
        config = build_config(model)
        scheduler = build_scheduler(adaptive(Scheduler, settings=Settings(mode="on", **settings)), config)
        self.check(scheduler, log, reason, "ERROR")
        strict = Settings(mode="on", strict=True, **settings)
        with pytest.raises(StartError, match="adaptk cannot start"):
            build_scheduler(adaptive(Scheduler, settings=strict), config)

    def test_a_drafter_that_takes_one_k_only(self, model: Path, log: Lines) -> None:
        """Another K would kill the worker."""
        config = build_config(model)
        config.speculative_config.method = "suffix"
        self.check(build_scheduler(adaptive(Scheduler), config), log, "the drafter suffix", "WARNING")

    def test_strict_refuses_what_adaptk_is_not_for(self, model: Path) -> None:
        """Raise instead of standing down: also where nothing is wrong with the settings."""
        config = build_config(model)
        config.parallel_config.data_parallel_size = 2
        with pytest.raises(StartError, match="data_parallel_size"):
            build_scheduler(adaptive(Scheduler, settings=Settings(mode="on", strict=True)), config)

    def test_whatever_else_fails(self, model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
        """A configuration that adaptk cannot read is no reason for vLLM not to start."""

        def fail(*_: Any) -> Any:
            raise AttributeError("no such field")

        for room, name in ((drafters, "dummy_limit"), (refusals, "inert_reason")):
            with monkeypatch.context() as patch:
                patch.setattr(room, name, fail)
                scheduler = build_scheduler(adaptive(Scheduler), build_config(model))
            self.check(scheduler, log, "no such field", "ERROR")
            log.lines.clear()

    def test_strict_without_init_is_logged(self, model: Path, log: Lines) -> None:
        """Such an object starts within a step, where an error would stop the engine."""
        settings = Settings(mode="on", strict=True, arms=(0, 9))
        plain = build_scheduler(Scheduler, build_config(model))
        scheduler = object.__new__(adaptive(Scheduler, settings=settings))
        scheduler.__dict__.update(plain.__dict__)
        self.check(scheduler, log, "ADAPTK_ARMS", "ERROR")

    def test_shutdown_starts_nothing(self, model: Path) -> None:
        """An object that never took a step has nothing to close."""
        scheduler = object.__new__(adaptive(Scheduler))
        scheduler.__dict__.update(build_scheduler(Scheduler, build_config(model)).__dict__)
        scheduler.shutdown()
        assert "adaptk" not in scheduler.__dict__

    def test_full_graphs_of_runner_v1_have_a_price(
        self, model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a schedule of the operator's adaptk refuses there and names the price."""
        config = build_config(model)
        with_graphs(monkeypatch, v2=False)
        self.check(build_scheduler(adaptive(Scheduler), config), log, "PIECEWISE", "ERROR")

    @since(32, "model runner V2 that obeys K without async scheduling")
    def test_full_graphs_of_runner_v2_without_a_schedule(
        self, model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A dropped schedule means that only K_max was captured."""
        config = build_config(model)
        with_graphs(monkeypatch, v2=True)
        self.check(build_scheduler(adaptive(Scheduler), config), log, "vLLM dropped the schedule", "ERROR")

    def test_shadow_needs_no_graphs(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who does not act pays no price."""
        config = build_config(model)
        with_graphs(monkeypatch, v2=False)
        shadow = adaptive(Scheduler, settings=Settings(mode="shadow"))
        assert build_scheduler(shadow, config).adaptk.active


class TestArms:
    @since(32, "model runner V2 that obeys K without async scheduling")
    def test_full_graphs_limit_the_arms(self, model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
        """With FULL graphs only the numbers of drafts in the operator's schedule are played."""
        config = build_config(model, schedule=[[1, 8, 3], [9, 16, 0]])
        with_graphs(monkeypatch, v2=True)
        scheduler = build_scheduler(adaptive(Scheduler), config)
        assert scheduler.adaptk.controller.arms == (0, 3)
        assert log.having("plays only (0, 3) of its arms (0, 1, 3, 7)")

    @since(32, "model runner V2 that obeys K without async scheduling")
    def test_a_schedule_without_any_of_the_arms(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then the arms are the schedule's."""
        config = build_config(model, schedule=[[1, 8, 5], [9, 16, 2]])
        with_graphs(monkeypatch, v2=True)
        scheduler = build_scheduler(adaptive(Scheduler), config)
        assert scheduler.adaptk.controller.arms == (2, 5)

    def test_the_controller_knows_what_steps_are_padded_to(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where graphs are replayed; on CPU vLLM lists sizes, too, and uses none."""
        config = build_config(model)
        config.compilation_config.cudagraph_mode = CUDAGraphMode.PIECEWISE
        config.compilation_config.cudagraph_capture_sizes = [16, 1, 8]
        assert build_scheduler(adaptive(Scheduler), config).adaptk.controller.capture_sizes == ()
        monkeypatch.setattr(compat, "on_cpu", lambda: False)
        assert build_scheduler(adaptive(Scheduler), config).adaptk.controller.capture_sizes == (1, 8, 16)
        config.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
        assert build_scheduler(adaptive(Scheduler), config).adaptk.controller.capture_sizes == ()

    @pytest.mark.parametrize(
        ("graphs", "arms"),
        [
            pytest.param(True, (2, 5), marks=since(32, "model runner V2 that obeys K without async scheduling")),
            (False, (0, 1, 2, 3, 5, 7)),
        ],
    )
    def test_a_measured_table_does_not_hide_the_schedule(
        self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graphs: bool, arms: tuple[int, ...]
    ) -> None:
        """What the operator named, and vLLM captured, can be played whatever the table measured."""
        rows = [{"batch": b, "k": k, "itl_ms": 10.0 + k, "context": None, "n": 9} for b in (1, 16) for k in (0, 1, 3)]
        path = tmp_path / "table.json"
        GoodputTable.from_rows(rows, [0.8, 0.7, 0.6]).save(path)
        config = build_config(model, schedule=[[1, 8, 5], [9, 16, 2]])
        if graphs:
            with_graphs(monkeypatch, v2=True)
        cls = adaptive(Scheduler, settings=Settings(mode="on", table=str(path)))
        assert build_scheduler(cls, config).adaptk.controller.arms == arms

    def test_without_graphs_the_schedule_limits_nothing(self, model: Path) -> None:
        """On CPU every K runs the same code."""
        scheduler = build_scheduler(adaptive(Scheduler), build_config(model, schedule=[[1, 8, 3], [9, 16, 0]]))
        assert set(scheduler.adaptk.controller.arms) == {0, 1, 3, 7}


class TestRunnerV2:
    @staticmethod
    def paid_for(config: Any) -> list[int | None]:
        """The drafts that each of three intervals paid for, by the records, under K = 0, 3, 0."""
        policy = cycling((0, 3))
        scheduler = build_scheduler(adaptive(Scheduler, controller=policy), config)
        del scheduler.__dict__["adaptk"]
        scheduler.use_v2_model_runner = True
        worker = Worker(scheduler, 0, asynchronous=False)
        scheduler.add_request(make_request("a", 5, 60))
        for _ in range(3):
            worker.schedule()
            worker.update()
        return [r.draft_k for r in policy.records]

    def test_drafts_paid_in_an_interval_are_the_previous_decisions(self, model: Path) -> None:
        """V2 hands its output out before it drafts."""
        config = build_config(model)
        config.speculative_config.method = "eagle"
        assert self.paid_for(config) == [0, 0, 3]

    def test_drafters_that_ignore_k_cost_the_same_in_every_step(self, model: Path, log: Lines) -> None:
        """The time is wholly that of the K verified; a smaller one saves verification only, and adaptk says so."""
        assert self.paid_for(build_config(model)) == [0, 0, 3]
        assert log.having("a smaller K saves verification only")

    def test_v2_has_no_dummies_near_the_length_limit(self) -> None:
        """The rule is V1's."""
        config = SimpleNamespace(
            speculative_config=SimpleNamespace(num_speculative_tokens=7, method="dflash", draft_model_config=None),
            model_config=SimpleNamespace(max_model_len=100),
        )
        assert drafters.dummy_limit(config, v2=True) is None
        assert drafters.dummy_limit(config, v2=False) == 92


class TestTableOfAnotherEngine:
    """A table that says what it was measured on is held against the engine."""

    @staticmethod
    def saved(folder: Path, key: dict[str, Any]) -> str:
        rows = [{"batch": b, "k": k, "itl_ms": 10.0 + 0.1 * k} for b in (1, 16) for k in (0, 1, 3, 7)]
        path = folder / "table.json"
        GoodputTable.from_rows(rows, [0.9], {"key": key}).save(path)
        return str(path)

    def test_the_engines_own_is_used(self, model: Path, tmp_path: Path, log: Lines) -> None:
        """With its key it is trusted, and so is one that names only part of it."""
        for key in (table_key(build_config(model)), {"method": "ngram"}, {}):
            settings = Settings(mode="on", table=self.saved(tmp_path, key))
            scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
            assert scheduler.adaptk.controller.trusted
            assert first_k(scheduler) == 7
        assert not log.having("another engine")
        assert log.having("method=ngram")

    def test_another_one_is_refused_naming_what_differs_and_the_remedies(
        self, model: Path, tmp_path: Path, log: Lines
    ) -> None:
        """Inactive with one line; under strict no engine at all."""
        key = table_key(build_config(model)) | {"device": "H100", "method": "eagle"}
        table = self.saved(tmp_path, key)
        scheduler = build_scheduler(adaptive(Scheduler, settings=Settings(mode="on", table=table)), build_config(model))
        assert not scheduler.adaptk.active
        assert first_k(scheduler) == 7
        (line,) = log.having("is inactive")
        for part in (
            "ERROR",
            "device: 'H100' in the table, ",
            "method: 'eagle' in the table, 'ngram' here",
            "`adaptk profile`",
            "ADAPTK_ALLOW_MISMATCH=1",
            table,
        ):
            assert part in line
        assert "model" not in line.partition("another engine")[2].partition("Measure")[0]
        with pytest.raises(StartError, match="measured on another engine"):
            build_scheduler(
                adaptive(Scheduler, settings=Settings(mode="on", table=table, strict=True)), build_config(model)
            )

    def test_allowed_it_is_a_weak_prior_with_a_warning(self, model: Path, tmp_path: Path, log: Lines) -> None:
        """The table's K is not what it starts with."""
        table = self.saved(tmp_path, {"device": "H100"})
        settings = Settings(mode="on", table=table, allow_mismatch=True, strict=True)
        scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
        assert scheduler.adaptk.active
        assert not scheduler.adaptk.controller.trusted
        assert first_k(scheduler) == 0
        (line,) = log.having("another engine")
        assert line.startswith("WARNING")
        assert "device: 'H100' in the table" in line
        assert "weak prior" in line
        assert log.having("device=H100")

    def test_allowing_changes_nothing_for_the_engines_own(self, model: Path, tmp_path: Path, log: Lines) -> None:
        table = self.saved(tmp_path, table_key(build_config(model)))
        settings = Settings(mode="on", table=table, allow_mismatch=True)
        scheduler = build_scheduler(adaptive(Scheduler, settings=settings), build_config(model))
        assert scheduler.adaptk.controller.trusted
        assert not log.having("WARNING")

    def test_the_trace_holds_the_engines_key_and_the_controller_its_identity(self, model: Path, tmp_path: Path) -> None:
        """Also where the caller's own controller is driven."""
        settings = Settings(mode="on", trace=str(tmp_path / "trace.jsonl"))
        for policy in (None, cycling((1,))):
            config = build_config(model)
            scheduler = build_scheduler(adaptive(Scheduler, controller=policy, settings=settings), config)
            first_k(scheduler)
            scheduler.shutdown()
            text = (tmp_path / "trace.jsonl").read_text()
            assert json.dumps(table_key(config), separators=(",", ":"), ensure_ascii=False) in text.splitlines()[0]
            (tmp_path / "trace.jsonl").unlink()
            if policy is None:
                assert scheduler.adaptk.controller.identity["model"] == model.name


def test_the_key_of_a_table_is_shown() -> None:
    """What was measured stands under ``key`` or beside it."""

    def described(meta: dict[str, Any]) -> str:
        return _described(GoodputTable.from_schedule([[1, 8, 1]], meta=meta))

    assert described({"name": "bench", "key": {"model": "tiny", "gpu": "none"}, "rows": [1]}) == (
        "model=tiny, name=bench, gpu=none"
    )
    assert described({"key": "tiny/none"}) == "key=tiny/none"
    assert described({"provenance": {"machine": "a"}}) == described({}) == "no meta"


def test_decodes_are_told_to_who_can_take_them_by_name() -> None:
    """A stand-in for a Controller may know nothing of them."""
    assert _takes(Controller(None, k_max=3).choose, "decodes")
    assert _takes(lambda batch_size, **hints: 0, "decodes")
    assert not _takes(lambda batch_size, context_tokens=None: 0, "decodes")
    assert not _takes(lambda batch_size, context_tokens, decodes, /: 0, "decodes")


class TestTraceHeader:
    """The first line of a trace says what a reader needs to go on from."""

    @staticmethod
    def header(model: Path, folder: Path, config: Any = None, controller: Any = None, **settings: Any) -> Any:
        given = Settings(mode="on", trace=str(folder / "trace.jsonl"), **settings)
        cls = adaptive(Scheduler, controller=controller, settings=given)
        build_scheduler(cls, config or build_config(model)).shutdown()
        return json.loads((folder / "trace.jsonl").read_text().splitlines()[0])

    def test_the_seed_table_can_be_made_again(self, model: Path, tmp_path: Path) -> None:
        """From its fields, which are those of a table's file."""
        rows = [{"batch": b, "k": k, "itl_ms": 10.0 + k, "n": 9, "low_ms": 9.0} for b in (1, 16) for k in (0, 1, 3)]
        table = GoodputTable.from_rows(rows, [0.8, 0.7], {"name": "bench"}, supply=[0.9, 0.5])
        table.save(tmp_path / "table.json")
        header = self.header(model, tmp_path, table=str(tmp_path / "table.json"))
        assert (header["k_max"], header["rank"], header["trusted"]) == (7, 0, True)
        assert GoodputTable.from_rows(**header["seed_table"]) == table

    def test_a_schedule_is_one_too(self, model: Path, tmp_path: Path) -> None:
        header = self.header(model, tmp_path, build_config(model, schedule=[[1, 8, 3], [9, 16, 1]]))
        assert GoodputTable.from_schedule(**header["seed_table"]).schedule == ((1, 8, 3), (9, 16, 1))

    def test_without_a_table_there_is_none(self, model: Path, tmp_path: Path) -> None:
        """Nor where a policy has none, or what it calls so is no table of ours."""
        assert self.header(model, tmp_path)["seed_table"] is None
        policy = cycling((1,))
        policy.table = [[1, 2, 3]]  # type: ignore[attr-defined]
        assert self.header(model, tmp_path, controller=policy)["seed_table"] is None

    def test_a_huge_table_is_left_out(self, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A trace's first line is read by everything that reads the trace."""
        controller = Controller(GoodputTable.from_schedule([[1, 8, 3]]), seed=0)
        assert self.header(model, tmp_path, controller=controller)["seed_table"] is not None
        monkeypatch.setattr(traceheader, "_MOST_BYTES", 20)
        assert self.header(model, tmp_path, controller=controller)["seed_table"] is None

    def test_a_table_of_another_engine_is_not_trusted(self, model: Path, tmp_path: Path) -> None:
        table = TestTableOfAnotherEngine.saved(tmp_path, {"device": "H100"})
        header = self.header(model, tmp_path, table=table, allow_mismatch=True)
        assert header["trusted"] is False
        assert header["seed_table"]["meta"]["key"] == {"device": "H100"}
