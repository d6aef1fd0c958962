"""The hook table against the vLLM that is installed, and the schedule that adaptk writes against vLLM's own rules."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import vllm
from hypothesis import given
from hypothesis import strategies as st
from vllm.config import SchedulerConfig, VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

from adaptk import Settings
from adaptk.settings import SettingsError
from adaptk.vllm_plugin import capture, compat, patches
from tests.engine.conftest import Lines
from tests.engine.driver import build_config, build_scheduler
from tests.engine.versions import since


@pytest.fixture
def patched() -> Any:
    """Both patches, for one test."""
    patches.apply()
    yield
    patches.remove()


class TestHooks:
    def test_this_vllm_has_every_hook(self) -> None:
        """A release that drops one is noticed here first."""
        assert compat.missing_hooks() == []

    def test_missing_things_are_named(self) -> None:
        """Modules, classes and attributes alike."""
        hooks = (
            ("vllm.no_such_module", "Thing", ("a",)),
            ("vllm.config", "NoSuchConfig", ("a",)),
            ("vllm.config", "SchedulerConfig", ("get_scheduler_cls", "no_such_method")),
        )
        expected = ["vllm.no_such_module.Thing", "vllm.config.NoSuchConfig", "SchedulerConfig.no_such_method"]
        assert compat.missing_hooks(hooks) == expected

    def test_a_version_that_is_too_old_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever its names, a vLLM before dynamic speculative decoding does not do."""
        monkeypatch.setattr(vllm, "__version__", "0.23.1")
        assert compat.missing_hooks(()) == ["what came with 0.24"]
        monkeypatch.setattr(vllm, "__version__", "0.24.0")
        assert compat.missing_hooks(()) == []

    def test_what_the_operator_reads_of_an_unfit_vllm(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Which version, what it lacks and what to do; nothing where all is there."""
        assert compat.unfit_reason() is None
        monkeypatch.setattr(vllm, "__version__", "0.23.1")
        assert compat.unfit_reason() == (
            "vLLM 0.23.1 lacks what came with 0.24. adaptk needs vLLM 0.24 or later: use a vLLM that it supports, a "
            "newer adaptk, or unset ADAPTK"
        )

    def test_patches_go_on_once_and_come_off(self) -> None:
        """A second call adds no layer."""
        originals = (SchedulerConfig.get_scheduler_cls, getattr(VllmConfig, compat.SCHEDULE_HOOK))
        patches.apply()
        once = (SchedulerConfig.get_scheduler_cls, getattr(VllmConfig, compat.SCHEDULE_HOOK))
        patches.apply()
        assert (SchedulerConfig.get_scheduler_cls, getattr(VllmConfig, compat.SCHEDULE_HOOK)) == once
        assert once != originals
        patches.remove()
        assert (SchedulerConfig.get_scheduler_cls, getattr(VllmConfig, compat.SCHEDULE_HOOK)) == originals


class TestCaptureSchedule:
    @given(
        arms=st.sets(st.integers(0, 12), min_size=1, max_size=6),
        max_num_seqs=st.integers(1, 600),
    )
    def test_vllm_takes_it_and_knows_every_arm(self, arms: set[int], max_num_seqs: int) -> None:
        """It is valid under vLLM's own reader, and names each arm as far as there are batch sizes for them."""
        k_max = max(max(arms), 1)
        schedule = capture.capture_schedule(sorted(arms), max_num_seqs)
        lookup = build_dynamic_sd_schedule_lookup(schedule, max_num_seqs, k_max)
        known = set(lookup[1:])
        assert known <= arms
        assert len(known) == min(len(arms), max_num_seqs)
        assert max(arms) in known
        assert min(arms) in known or max_num_seqs == 1

    def test_its_mark_survives_the_way_to_the_engines_process(self) -> None:
        """Pickled and copied it is still known as adaptk's own."""
        schedule = capture.capture_schedule((0, 1, 3), 8)
        for other in (pickle.loads(pickle.dumps(schedule)), copy.deepcopy(schedule)):
            assert isinstance(other, capture.CaptureSchedule)
            assert other == schedule


class TestConfiguration:
    def test_the_schedule_is_set_where_there_is_none(
        self, model: Path, patched: None, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each arm is named once, and the log says what was set."""
        monkeypatch.setenv("ADAPTK", "on")
        schedule = build_config(model).speculative_config.num_speculative_tokens_per_batch_size
        assert isinstance(schedule, capture.CaptureSchedule)
        assert schedule == [(1, 1, 7), (2, 2, 3), (3, 3, 1), (4, 16, 0)]
        assert len(log.having("[[1, 1, 7], [2, 2, 3], [3, 3, 1], [4, 16, 0]]")) == 1

    def test_the_operators_schedule_is_kept(self, model: Path, patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """adaptk never overwrites it."""
        monkeypatch.setenv("ADAPTK", "on")
        config = build_config(model, schedule=[[1, 8, 3], [9, 16, 1]])
        assert capture.operators_schedule(config) == [[1, 8, 3], [9, 16, 1]]

    @pytest.mark.parametrize("mode", ["off", "shadow"])
    def test_nothing_is_set_where_adaptk_does_not_act(
        self, model: Path, patched: None, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        """Shadow and off leave the configuration as it was."""
        monkeypatch.setenv("ADAPTK", mode)
        assert build_config(model).speculative_config.num_speculative_tokens_per_batch_size is None

    @since(25, "model runner V2 that keeps its full graphs under a schedule")
    def test_nothing_is_set_where_it_would_cost_the_full_graphs(
        self, model: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On runner V1 with FULL graphs the user would lose by it."""
        config = build_config(model)
        monkeypatch.setattr(compat, "full_graphs", lambda _: True)
        capture.announce(config, Settings(mode="on"))
        assert config.speculative_config.num_speculative_tokens_per_batch_size is None
        monkeypatch.setattr(compat, "runner_v2", lambda _: True)
        capture.announce(config, Settings(mode="on"))
        assert config.speculative_config.num_speculative_tokens_per_batch_size is not None


class TestSchedulerClass:
    @pytest.mark.parametrize(("asynchronous", "base"), [(False, Scheduler), (True, AsyncScheduler)])
    def test_the_base_follows_async_scheduling(
        self, model: Path, patched: None, monkeypatch: pytest.MonkeyPatch, asynchronous: bool, base: type
    ) -> None:
        """vLLM chooses, in the engine's process; adaptk wraps what it chose."""
        monkeypatch.setenv("ADAPTK", "on")
        config = build_config(model).scheduler_config
        config.async_scheduling = asynchronous
        cls = config.get_scheduler_cls()
        assert cls.__mro__[2] is base

    def test_a_configured_class_is_wrapped(self, model: Path, patched: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other projects own scheduler_cls too."""

        class Mine(Scheduler):
            pass

        monkeypatch.setenv("ADAPTK", "on")
        config = build_config(model).scheduler_config
        config.scheduler_cls = Mine
        assert issubclass(config.get_scheduler_cls(), Mine)

    def test_off_gives_vllms_own_class(self, model: Path, patched: None) -> None:
        """Even where the patches are on."""
        assert build_config(model).scheduler_config.get_scheduler_cls() is Scheduler

    def test_settings_that_go_bad_later_do_not_stop_the_engine(
        self, model: Path, patched: None, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The entry point has looked at them, but a second engine of the process may find others."""
        monkeypatch.setenv("ADAPTK", "on")
        monkeypatch.setenv("ADAPTK_BUDGET", "much")
        config = build_config(model)
        assert config.speculative_config.num_speculative_tokens_per_batch_size is None
        scheduler = build_scheduler(config.scheduler_config.get_scheduler_cls(), config)
        assert type(scheduler) is Scheduler
        assert len(log.having("ADAPTK_BUDGET='much' is refused")) == 1
        monkeypatch.setenv("ADAPTK_STRICT", "1")
        with pytest.raises(SettingsError, match="ADAPTK_BUDGET"):
            config.scheduler_config.get_scheduler_cls()
