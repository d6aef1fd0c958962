"""New weights reach the controller, once per update, and no call into the engine fails or changes through adaptk."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.core import EngineCore, EngineCoreProc

from adaptk import Controller
from adaptk.vllm_plugin import adaptive, weights
from adaptk.vllm_plugin.steering import SAME_UPDATE
from tests.engine.conftest import Lines
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, make_request
from tests.engine.engine import running, scheduler_of
from tests.engine.versions import at_least, since

SELF = {"method": "draft_model", "num_speculative_tokens": 3}


class Executor:
    """Stands for the workers: keeps what it was asked, fails where it should."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    def collective_rpc(self, *args: Any) -> list[str]:
        self.calls.append(args)
        if self.error is not None:
            raise self.error
        return ["done"]

    def add_lora(self, request: Any) -> bool:
        self.calls.append((request,))
        return True


class Engine:
    """An ``EngineCore`` without its set-up, over a driven scheduler with two endless requests."""

    def __init__(self, config: Any, controller: Any, adapted: bool = True) -> None:
        cls = adaptive(Scheduler, controller=controller) if adapted else Scheduler
        self.scheduler = build_scheduler(cls, config, num_blocks=2000)
        self.core = object.__new__(EngineCore)
        self.core.scheduler, self.core.model_executor = self.scheduler, Executor()
        self.core._weight_version = "default"
        self.worker = Worker(self.scheduler, 1, asynchronous=False)
        for name in "ab":
            self.scheduler.add_request(make_request(name, 5, 1900))

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.worker.schedule()
            self.worker.update()


@pytest.fixture(autouse=True)
def _watched() -> Iterator[None]:
    weights.watch()
    yield
    weights.unwatch()


@pytest.fixture
def controller() -> Controller:
    return Controller(None, k_max=3, seed=0)


@pytest.fixture(scope="module")
def config(model: Path) -> Any:
    return build_config(model, k_max=3, max_model_len=2048, max_num_batched_tokens=2048)


@pytest.fixture
def engine(config: Any, controller: Controller) -> Engine:
    return Engine(config, controller)


def noted(controller: Controller) -> int:
    return controller.counters["weights_changed"]


def load_weights(worker: Any) -> None:
    """What a trainer hands to the workers; told by its name alone."""


def count_tokens(worker: Any) -> None:
    """What only looks."""


def versioned(call: Callable[[Any], Any]) -> Any:
    """A case that only vLLMs with weight versions have."""
    return pytest.param(call, marks=since(27, "the weight version"))


CHANGES: list[Any] = [
    lambda core: core.collective_rpc("update_weights", kwargs={"update_info": {}}),
    lambda core: core.collective_rpc(method="reload_weights"),
    lambda core: core.collective_rpc("update_weights_from_ipc", None, ("handle",)),
    lambda core: core.collective_rpc("broadcastParameter"),
    lambda core: core.collective_rpc(load_weights),
    lambda core: core.collective_rpc(functools.partial(functools.partial(load_weights), 1)),
    lambda core: core.collective_rpc("apply_model", args=(load_weights,)),
    lambda core: core.collective_rpc("apply_model", None, (load_weights,)),
    lambda core: core.reset_prefix_cache(),
    versioned(lambda core: core.set_weight_version("7")),
    versioned(lambda core: core.set_weight_version(weight_version="7")),
    lambda core: core.add_lora(type("LoRARequest", (), {"load_inplace": True})()),
]
LOOKS: list[Any] = [
    lambda core: core.collective_rpc("check_weights_changed"),
    lambda core: core.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": {}}),
    lambda core: core.collective_rpc("start_weight_update"),
    lambda core: core.collective_rpc("compute_weight_checksums"),
    lambda core: core.collective_rpc("synchronize_device"),
    lambda core: core.collective_rpc("update_max_model_len", None, (8,)),
    lambda core: core.collective_rpc(lambda worker: None),
    lambda core: core.collective_rpc("apply_model", None, (count_tokens,)),
    lambda core: core.collective_rpc("apply_model"),
    lambda core: core.collective_rpc(""),
    lambda core: core.collective_rpc(None),
    versioned(lambda core: core.set_weight_version("default")),
    lambda core: core.add_lora(object()),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_replaces_weights_is_told(engine: Engine, controller: Controller, change: Callable[[Any], Any]) -> None:
    """By vLLM's protocol, a worker extension's method, a function, a version, a reloaded adapter or a dropped cache."""
    engine.steps(10)
    change(engine.core)
    engine.steps(3)
    assert noted(controller) == 1


@pytest.mark.parametrize("look", LOOKS)
def test_what_only_looks_is_not(engine: Engine, controller: Controller, look: Callable[[Any], Any]) -> None:
    """Nor is what comes before the weights, the same version again, or another adapter."""
    engine.steps(10)
    look(engine.core)
    engine.steps(3)
    assert noted(controller) == 0


@pytest.mark.parametrize("between", [0, 1])
def test_an_update_in_many_calls_is_one(engine: Engine, controller: Controller, between: int) -> None:
    """300 buckets with no step between them, or with one each; a second update after a rollout is another."""
    for update in (1, 2):
        engine.steps(20)
        engine.core.collective_rpc("start_weight_update")
        for _ in range(300):
            engine.core.collective_rpc("update_weights", None, (b"bucket",))
            engine.steps(between)
        engine.core.collective_rpc("finish_weight_update")
        if at_least(27):
            engine.core.set_weight_version(str(update))
        engine.core.reset_prefix_cache()
        assert noted(controller) == update
    assert not engine.scheduler.adaptk.faults


@pytest.mark.parametrize("steps", [2, 3, 5, 7])
def test_updates_after_short_rollouts_are_told(engine: Engine, controller: Controller, steps: int) -> None:
    """Though not each of them: the beliefs that one has widened are still wide."""
    engine.steps(10)
    for _ in range(40):
        engine.core.collective_rpc("update_weights")
        engine.steps(steps)
    assert 40 * steps // (SAME_UPDATE + steps) <= noted(controller) <= 40 * steps // SAME_UPDATE + 1


def test_a_trainer_can_tell_by_itself(engine: Engine, controller: Controller) -> None:
    """Through the scheduler; parameters that it names one after the other are one update."""
    engine.steps(10)
    for _ in range(5):
        engine.scheduler.adaptk.note_weights_changed()
    assert noted(controller) == 1


def test_results_and_errors_pass_untouched(engine: Engine, controller: Controller) -> None:
    """A failed update may have replaced some weights, so it is told all the same."""
    assert engine.core.collective_rpc("update_weights", 2.0, ("a",), {"b": 1}) == ["done"]
    assert engine.core.model_executor.calls == [("update_weights", 2.0, ("a",), {"b": 1})]
    engine.steps(10)
    engine.core.model_executor.error = error = RuntimeError("no such bucket")
    with pytest.raises(RuntimeError) as raised:
        engine.core.collective_rpc("update_weights")
    assert raised.value is error
    assert noted(controller) == 2
    assert engine.scheduler.adaptk.active


def test_a_fault_of_ours_breaks_no_update(engine: Engine, controller: Controller, log: Lines) -> None:
    """The call is answered; adaptk stands down with one line, and vLLM's own K is back."""
    controller._acceptance = None  # type: ignore[assignment]
    assert engine.core.collective_rpc("update_weights") == ["done"]
    assert engine.core.collective_rpc("update_weights") == ["done"]
    assert not engine.scheduler.adaptk.active
    assert (engine.scheduler.adaptk.faults, len(log.having("stands down"))) == (1, 1)
    assert engine.worker.schedule().num_spec_tokens_to_schedule == 3


def test_a_controller_that_does_not_care_is_left_alone(config: Any) -> None:
    """One that only chooses and observes, as a profile's."""
    engine = Engine(config, Policy(lambda _: 1))
    engine.core.collective_rpc("update_weights")
    engine.steps(2)
    assert engine.scheduler.adaptk.active


def test_other_engines_are_left_alone(config: Any) -> None:
    """One whose scheduler is not adaptive, and one that has none yet."""
    engine = Engine(config, None, adapted=False)
    assert engine.core.collective_rpc("update_weights") == ["done"]
    engine.steps(2)
    assert not hasattr(engine.scheduler, "adaptk")
    bare = object.__new__(EngineCore)
    bare.model_executor = Executor()
    assert bare.collective_rpc("update_weights") == ["done"]


def test_methods_look_as_before_and_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM reads their signatures to decode arguments; a version that lacks one is no error; twice is as once."""
    weights.unwatch()
    before = {name: vars(EngineCore)[name] for name in weights._WATCHED if name in vars(EngineCore)}
    monkeypatch.delattr(EngineCore, "pin_lora")
    weights.watch()
    weights.watch()
    for name in before.keys() - {"pin_lora"}:
        assert getattr(EngineCore, name) is not before[name]
        assert inspect.signature(getattr(EngineCore, name)) == inspect.signature(before[name])
    assert not hasattr(EngineCore, "pin_lora")
    assert EngineCoreProc.collective_rpc is EngineCore.collective_rpc
    weights.unwatch()
    assert all(vars(EngineCore)[name] is before[name] for name in before.keys() - {"pin_lora"})


def test_a_real_engine_tells(model: Path) -> None:
    """In-process, as trainers run it: weights written by a function, then the cache reset, twice."""

    def load_weights(module: Any) -> int:
        return len([parameter.data.mul_(1.0) for parameter in module.parameters()])

    from vllm import SamplingParams

    params = SamplingParams(max_tokens=24, temperature=1.0, ignore_eos=True, seed=0)
    with running(model, SELF | {"model": str(model)}, ADAPTK="on", VLLM_ALLOW_INSECURE_SERIALIZATION="1") as llm:
        weights.watch()
        controller = scheduler_of(llm).adaptk.controller
        for update in range(3):
            assert controller.counters["weights_changed"] == update
            llm.generate(["adaptk " * 4] * 4, params, use_tqdm=False)
            assert llm.apply_model(load_weights)[0] > 0
            llm.reset_prefix_cache()
        assert scheduler_of(llm).adaptk.faults == 0
