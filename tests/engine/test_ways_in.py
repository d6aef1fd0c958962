"""How an operator's wish reaches the engine: the environment, ``additional_config``, and foreign scheduler classes."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.config import SchedulerConfig, VllmConfig
from vllm.config import utils as config_utils
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import SchedulerInterface
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk.vllm_plugin import adaptive, asked, capture, compat, patches
from adaptk.vllm_plugin.scheduler import AdaptiveMixin
from tests.engine.conftest import Lines
from tests.engine.driver import Worker, build_config, build_scheduler, make_request
from tests.engine.engine import NGRAM
from tests.engine.versions import at_least, since

SCHEDULE = [[1, 8, 3], [9, 16, 1]]


@pytest.fixture(autouse=True)
def _patched() -> Iterator[None]:
    """vLLM as it is once the entry point has entered it."""
    patches.apply()
    yield
    patches.remove()


@pytest.fixture(scope="module")
def mixture(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a small mixture of experts, without weights."""
    folder = tmp_path_factory.mktemp("mixture")
    for file in model.iterdir():
        if file.suffix == ".json":
            (folder / file.name).write_bytes(file.read_bytes())
    shape = json.loads((folder / "config.json").read_text())
    shape |= {"num_local_experts": 4}  # a class other than the model's vLLM would inspect first, for half a minute
    (folder / "config.json").write_text(json.dumps(shape))
    return folder


def configuration(model: Path, schedule: list[list[int]] | None = None, **arguments: Any) -> Any:
    """The ``VllmConfig`` that the front end makes of an operator's arguments."""
    speculative = NGRAM if schedule is None else NGRAM | {"num_speculative_tokens_per_batch_size": schedule}
    given = {"model": str(model), "dtype": "float32", "max_model_len": 256, "max_num_seqs": 16, "seed": 0}
    return EngineArgs(**(given | arguments), speculative_config=speculative).create_engine_config()


def schedule_of(config: Any) -> Any:
    return config.speculative_config.num_speculative_tokens_per_batch_size


def in_its_process(config: Any, independent: bool = True) -> Any:
    """The scheduler that the engine of ``config`` makes, in another process."""
    config = pickle.loads(pickle.dumps(config))
    if independent:  # as vLLM makes the ranks of a dense model
        config.parallel_config.data_parallel_size = 1
    return build_scheduler(config.scheduler_config.get_scheduler_cls(), config)


def first_k(scheduler: Any) -> int:
    scheduler.add_request(make_request("a", 5, 20))
    return int(Worker(scheduler, 0, asynchronous=False).schedule().num_spec_tokens_to_schedule)


class TestAdditionalConfig:
    def test_it_is_enough(self, model: Path) -> None:
        """Without a variable the schedule is set, and the settings reach the engine's process."""
        config = configuration(model, additional_config={"adaptk": {"arms": [0, 2, 5], "seed": 3}})
        assert schedule_of(config) == [(1, 1, 5), (2, 2, 2), (3, 16, 0)]
        scheduler = in_its_process(config)
        assert scheduler.adaptk.active
        assert scheduler.adaptk.controller.arms == (0, 2, 5)
        assert scheduler.adaptk.mode == "on"

    @pytest.mark.parametrize("additional", [{}, {"other": {"adaptk": {}}}, {"adaptk": {"mode": "off"}}])
    def test_where_it_does_not_ask_vllm_is_untouched(self, model: Path, additional: dict[str, Any]) -> None:
        """Also in a process where another engine has asked."""
        config = configuration(model, additional_config=additional)
        assert schedule_of(config) is None
        assert type(in_its_process(config)) is Scheduler

    def test_off_in_the_environment_is_stronger(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADAPTK", "off")
        config = configuration(model, additional_config={"adaptk": {"mode": "on"}})
        assert schedule_of(config) is None
        assert type(in_its_process(config)) is Scheduler

    def test_the_environment_fills_in(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Shadow here, a budget there."""
        monkeypatch.setenv("ADAPTK", "shadow")
        monkeypatch.setenv("ADAPTK_ARMS", "0,7")
        monkeypatch.setenv("ADAPTK_MIN_K", "3")
        steering = in_its_process(configuration(model, additional_config={"adaptk": {"arms": [0, 3, 7]}})).adaptk
        assert steering.mode == "shadow"
        assert steering.controller.arms == (0, 3, 7)
        assert steering.controller.settings.min_k == 3

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"budget": 2}, "additional_config adaptk.budget=2 is refused"),
            ({"budgte": 0.1}, "did you mean budget?"),
            ("on", "give an object of settings"),
        ],
    )
    def test_what_is_refused_is_told_once(self, model: Path, log: Lines, options: Any, told: str) -> None:
        """In the engine's process, which then is vLLM's; nothing was set before."""
        config = configuration(model, additional_config={"adaptk": options})
        assert schedule_of(config) is None
        assert not log.lines
        assert type(in_its_process(config)) is Scheduler
        assert len(log.lines) == len(log.having(told)) == 1

    @pytest.mark.parametrize("strict", [True, "on", 1])
    def test_strict_refuses_the_start(self, model: Path, strict: Any) -> None:
        """Before an engine's process is made; also where it is an option itself."""
        with pytest.raises(ValueError, match=r"additional_config adaptk\.budget=2 is refused"):
            configuration(model, additional_config={"adaptk": {"strict": strict, "budget": 2}})

    def test_another_environment_does_not_part_the_processes(
        self, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An actor on another machine has vLLM's variables only; unsteered it would follow the capture schedule."""
        monkeypatch.setenv("ADAPTK", "on")
        monkeypatch.setenv("ADAPTK_ARMS", "0,5")
        config = configuration(model)
        assert isinstance(schedule_of(config), capture.CaptureSchedule)
        monkeypatch.delenv("ADAPTK")
        monkeypatch.delenv("ADAPTK_ARMS")
        assert in_its_process(config).adaptk.controller.arms == (0, 5)

    @pytest.mark.parametrize("there", [{"ADAPTK": "off"}, {"ADAPTK": "maybe"}, {"ADAPTK_SEED": "3"}])
    @pytest.mark.parametrize("entered", [True, False])
    def test_where_the_engines_process_says_off_nobody_follows_the_capture_schedule(
        self, model: Path, monkeypatch: pytest.MonkeyPatch, there: dict[str, str], entered: bool
    ) -> None:
        """Its own variables count there; switched off, not even the entry point enters it."""
        monkeypatch.setenv("ADAPTK", "on")
        config = configuration(model)
        assert isinstance(schedule_of(config), capture.CaptureSchedule)
        monkeypatch.delenv("ADAPTK")
        for name, text in there.items():
            monkeypatch.setenv(name, text)
        if not entered:
            if there.get("ADAPTK") != "off":
                return
            patches.remove()
        scheduler = in_its_process(config)
        assert type(scheduler) is Scheduler
        assert set((scheduler.dynamic_sd_lookup or [7])[1:] or [7]) == {7}
        assert first_k(scheduler) == 7

    def test_a_drafters_own_configuration_takes_nothing_back(self, model: Path) -> None:
        """It is made around the same parts, without ``additional_config``, before the scheduler is chosen."""
        config = configuration(model, additional_config={"adaptk": {"arms": [0, 5]}})
        assert schedule_of(config) is not None
        VllmConfig(
            model_config=config.model_config,
            speculative_config=config.speculative_config,
            scheduler_config=config.scheduler_config,
        )
        assert in_its_process(config).adaptk.controller.arms == (0, 5)

    def test_a_configuration_from_before_is_noted_late(self, model: Path) -> None:
        """An engine whose front end did not know of adaptk starts it where its graphs allow."""
        patches.remove()
        config = configuration(model, additional_config={"adaptk": {"seed": 1}})
        assert schedule_of(config) is None
        patches.apply()
        for caller in (config, EngineArgs(model=str(model)), {"additional_config": {"adaptk": {}}}, None, 3):
            asked.note_missed(caller)
        assert in_its_process(config).adaptk.active


class TestCopies:
    """Whoever copies a part of a configuration must be able to, and lose nothing by it."""

    def test_a_part_with_notes_can_be_replaced(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """vLLM's own ``replace`` refuses attributes that are no fields."""
        monkeypatch.setenv("ADAPTK", "on")
        config = build_config(model).scheduler_config
        assert [name for name in config.__dict__ if name.startswith("_adaptk_")]
        copied = config_utils.replace(config, max_num_seqs=3, max_model_len=256, is_encoder_decoder=False)
        assert copied.max_num_seqs == 3
        assert issubclass(copied.get_scheduler_cls(), AdaptiveMixin)

    def test_a_copied_schedule_is_still_adaptks(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A checked copy is a plain list: it must not seed the controller, nor be followed."""
        monkeypatch.setenv("ADAPTK", "on")
        config = build_config(model)
        ours = list(config.speculative_config.num_speculative_tokens_per_batch_size)
        config.speculative_config.num_speculative_tokens_per_batch_size = ours
        assert capture.own_schedule(config)
        assert capture.operators_schedule(config) is None
        scheduler = build_scheduler(adaptive(Scheduler), config)
        assert scheduler.adaptk.controller.table is None
        assert set(scheduler.dynamic_sd_lookup) == {7}

    def test_explicit_off_is_stronger_than_a_factory(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A scheduler_cls that calls ``adaptive`` can be switched off like everything else."""
        monkeypatch.setenv("ADAPTK", "off")
        scheduler = build_scheduler(adaptive(Scheduler), build_config(model))
        assert not scheduler.adaptk.active
        assert scheduler.adaptk.reason == "ADAPTK is off"


class TestDataParallel:
    def test_dense_ranks_are_steered_each_on_its_own(self, model: Path, tmp_path: Path) -> None:
        """vLLM drops every schedule here; adaptk's stands, and each rank has its own files."""
        options = {"trace": str(tmp_path / "trace-{rank}.jsonl")}
        config = configuration(model, data_parallel_size=2, additional_config={"adaptk": options})
        assert isinstance(schedule_of(config), capture.CaptureSchedule)
        for rank in (0, 1):
            config.parallel_config.data_parallel_index = rank
            scheduler = in_its_process(config)
            assert scheduler.adaptk.active
            assert set(scheduler.dynamic_sd_lookup) == {7}
            scheduler.shutdown()
            assert (tmp_path / f"trace-{rank}.jsonl").exists()

    def test_an_operators_schedule_stays_as_seed_and_fallback(
        self, model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And what was kept is told."""
        monkeypatch.setenv("ADAPTK", "on")
        config = configuration(model, SCHEDULE, data_parallel_size=2)
        assert capture.operators_schedule(config) == SCHEDULE
        told = log.having("[[1, 8, 3], [9, 16, 1]] under data parallelism, where vLLM itself drops it")
        assert len(told) == at_least(26)  # before, vLLM left it
        scheduler = in_its_process(config)
        assert first_k(scheduler) == 3
        scheduler.adaptk.mode = "off"
        assert first_k(in_its_process(config)) == 3

    @since(26, "dropping a schedule under data parallelism")
    @pytest.mark.parametrize("mode", [None, "off", "shadow"])
    def test_where_adaptk_does_not_act_vllm_drops_it_as_ever(
        self, model: Path, monkeypatch: pytest.MonkeyPatch, mode: str | None
    ) -> None:
        """Shadow changes nothing."""
        if mode is not None:
            monkeypatch.setenv("ADAPTK", mode)
        assert schedule_of(configuration(model, SCHEDULE, data_parallel_size=2)) is None

    @pytest.mark.parametrize(
        "schedule", [None, pytest.param(SCHEDULE, marks=since(26, "dropping a schedule under data parallelism"))]
    )
    def test_a_mixture_of_experts_keeps_the_static_k(
        self, mixture: Path, log: Lines, monkeypatch: pytest.MonkeyPatch, schedule: list[list[int]] | None
    ) -> None:
        """Its ranks step together and must agree: always num_speculative_tokens, and one warning."""
        monkeypatch.setenv("ADAPTK", "on")
        config = configuration(mixture, schedule, data_parallel_size=2)
        assert config.model_config.is_moe
        assert schedule_of(config) is None
        assert not log.lines
        scheduler = in_its_process(config, independent=False)
        assert not scheduler.adaptk.active
        (line,) = log.lines
        assert line.startswith("WARNING")
        assert "ranks must agree" in line
        assert {first_k(scheduler), scheduler.num_spec_tokens} == {7}

    def test_a_mixture_on_one_rank_is_steered(self, mixture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """There is nobody to agree with."""
        monkeypatch.setenv("ADAPTK", "on")
        assert in_its_process(configuration(mixture)).adaptk.active

    @pytest.mark.parametrize(
        ("parts", "told"),
        [
            ({"distributed_executor_backend": "external_launcher", "world_size": 2}, "external_launcher"),
            ({"enable_elastic_ep": True}, "enable_elastic_ep"),
            ({"data_parallel_size": 2}, "data_parallel_size"),
        ],
    )
    def test_whatever_else_couples_schedulers(
        self, model: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], told: str
    ) -> None:
        """Schedulers that must decide alike, without word of each other, cannot go by their own clocks."""
        monkeypatch.setenv("ADAPTK", "on")
        config = configuration(model)
        for name, value in parts.items():
            setattr(config.parallel_config, name, value)
        scheduler = in_its_process(config, independent=False)
        assert not scheduler.adaptk.active
        assert told in scheduler.adaptk.reason
        assert first_k(scheduler) == 7

    def test_one_rank_of_an_external_launcher_is_alone(self, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADAPTK", "on")
        config = configuration(model)
        config.parallel_config.distributed_executor_backend = "external_launcher"
        assert in_its_process(config).adaptk.active


class Mine(Scheduler):
    """Another project's."""

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Count, and do as vLLM does."""
        self.steps = getattr(self, "steps", 0) + 1
        return super().schedule(*args, **kwargs)


def factory(**kwargs: Any) -> Any:
    """A function in the place of a class."""
    return Mine(**kwargs)


def adaptive_factory(**kwargs: Any) -> Any:
    """One that has heard of adaptk."""
    return adaptive(Mine)(**kwargs)


class Slots(Scheduler):
    """Its attributes do not all lie in one dictionary."""

    __slots__ = ("extra",)


def slotted(**kwargs: Any) -> Any:
    """Makes what adaptk cannot stand for."""
    return Slots(**kwargs)


class Foreign:
    """A scheduler that shares no code with vLLM's."""

    def __init__(self, **kwargs: Any) -> None:
        self.vllm_config = kwargs["vllm_config"]
        self.num_spec_tokens = 7
        self.dynamic_sd_lookup = [0, 7, 3, 1, 0]

    schedule = update_from_output = SchedulerInterface.schedule


class TestForeignSchedulers:
    @pytest.fixture(autouse=True)
    def _on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADAPTK", "on")

    @pytest.mark.parametrize("name", ["Mine", "factory", "adaptive_factory"])
    def test_by_name_it_is_wrapped(self, model: Path, name: str) -> None:
        """Whether the name is a class's or a function's: its own code runs, and K is adaptk's."""
        scheduler = in_its_process(configuration(model, scheduler_cls=f"{__name__}.{name}"))
        assert isinstance(scheduler, Mine)
        assert isinstance(scheduler, AdaptiveMixin)
        assert scheduler.adaptk.active
        assert type(scheduler).__mro__.count(AdaptiveMixin) == 1
        scheduler.adaptk.controller.choose = lambda *_, **__: 1
        assert first_k(scheduler) == 1
        assert scheduler.steps == 1
        scheduler.shutdown()

    def test_a_class_itself_is_wrapped(self, model: Path) -> None:
        """As platforms set it."""
        config = configuration(model)
        config.scheduler_config.scheduler_cls = Mine
        assert issubclass(config.scheduler_config.get_scheduler_cls(), Mine)
        config.scheduler_config.scheduler_cls = adaptive(Mine)
        assert config.scheduler_config.get_scheduler_cls() is adaptive(Mine)

    @pytest.mark.parametrize("cls", [slotted, Foreign])
    def test_what_cannot_be_steered_is_left_and_told(self, model: Path, log: Lines, cls: Any) -> None:
        """It must not follow the schedule that is there for capture only."""
        scheduler = in_its_process(configuration(model, scheduler_cls=f"{__name__}.{cls.__name__}"))
        assert not hasattr(scheduler, "adaptk")
        assert set(scheduler.dynamic_sd_lookup) == {7}
        (line,) = log.having("is inactive")
        assert "__slots__" in line or "_update_after_schedule" in line

    @pytest.mark.parametrize("cls", [slotted, Foreign])
    def test_or_refused_under_strict(self, model: Path, monkeypatch: pytest.MonkeyPatch, cls: Any) -> None:
        """As anything that keeps adaptk out."""
        monkeypatch.setenv("ADAPTK_STRICT", "1")
        with pytest.raises(TypeError, match=r"__slots__|_update_after_schedule"):
            in_its_process(configuration(model, scheduler_cls=f"{__name__}.{cls.__name__}"))

    @pytest.mark.parametrize("first", ["theirs", "ours"])
    def test_another_plugin_patches_the_same_place(
        self, model: Path, monkeypatch: pytest.MonkeyPatch, first: str
    ) -> None:
        """In either order both are there, and both can be taken off."""
        patches.remove()
        untouched = SchedulerConfig.get_scheduler_cls
        if first == "ours":
            patches.apply()
        before = SchedulerConfig.get_scheduler_cls

        def theirs(self: Any) -> Any:
            return type("Theirs", (before(self),), {"mark": True})

        monkeypatch.setattr(SchedulerConfig, "get_scheduler_cls", theirs)
        if first == "theirs":
            patches.apply()
        config = configuration(model)
        scheduler = build_scheduler(config.scheduler_config.get_scheduler_cls(), config)
        assert scheduler.mark
        assert scheduler.adaptk.active
        patches.remove()
        assert SchedulerConfig.get_scheduler_cls is theirs
        monkeypatch.undo()
        patches.remove()
        assert SchedulerConfig.get_scheduler_cls is untouched

    def test_the_error_of_a_scheduler_is_its_own(self, model: Path) -> None:
        """What vLLM itself raises passes, once."""
        config = configuration(model)
        config.scheduler_config.scheduler_cls = "no.such.module.Scheduler"
        with pytest.raises(ModuleNotFoundError, match="no"):
            config.scheduler_config.get_scheduler_cls()


class TestOtherRefusals:
    @pytest.fixture(autouse=True)
    def _on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ADAPTK", "on")

    def test_adaptive_verification_keeps_the_operators_k(self, model: Path, log: Lines) -> None:
        """One line with the reason; the operator's schedule goes on."""
        config = configuration(model, SCHEDULE)
        config.speculative_config.enable_adaptive_verification = True
        scheduler = in_its_process(config)
        assert first_k(scheduler) == 3
        (line,) = log.having("is inactive")
        assert "enable_adaptive_verification" in line
        assert "your num_speculative_tokens_per_batch_size" in line

    def test_after_a_refused_table_the_line_says_what_is_in_force(
        self, model: Path, tmp_path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The log has told of a schedule by then, which is not followed."""
        monkeypatch.setenv("ADAPTK_TABLE", str(tmp_path / "missing.json"))
        scheduler = in_its_process(configuration(model))
        (line,) = log.having("adaptk set num_speculative_tokens_per_batch_size")
        assert "No step follows it: K is adaptk's in mode on and vLLM's own, 7, in shadow." in line
        (line,) = log.having("is inactive")
        assert line.endswith("The number of drafts is num_speculative_tokens, 7, throughout")
        assert first_k(scheduler) == 7

    def test_a_fault_before_the_engine_is_told_once_and_leaves_it_to_vllm(
        self, model: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whatever fails as the configuration is made."""

        def fail(*_: Any, **__: Any) -> Any:
            raise KeyError

        with monkeypatch.context() as patch:
            patch.setattr(compat, "full_graphs", fail)
            patch.setattr(capture, "announce", fail)
            config = configuration(model)
        scheduler = in_its_process(config)
        assert not hasattr(scheduler, "adaptk")
        assert first_k(scheduler) == 7
        assert len(log.having("is inactive: KeyError")) == len(log.lines) == 1

    def test_the_base_is_chosen_by_vllm(self, model: Path) -> None:
        """In the engine's process, where it knows whether it schedules asynchronously."""
        config = configuration(model).scheduler_config
        for asynchronous, base in ((False, Scheduler), (True, AsyncScheduler)):
            config.async_scheduling = asynchronous
            assert config.get_scheduler_cls().__mro__[2] is base
