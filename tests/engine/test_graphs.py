"""Graph coverage as adaptk has it, against vLLM's own manager of graphs and its own rules for capture sizes.

No graph is captured: the manager's lists of candidates and its dispatch need numbers only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.config import CUDAGraphMode

from adaptk import Settings
from adaptk.arms import resolve_arms
from adaptk.vllm_plugin import capture, capturesizes, compat, graphs, patches, refusals
from adaptk.vllm_plugin.graphs import Coverage
from tests.engine.conftest import Lines
from tests.engine.driver import build_config
from tests.engine.versions import before, since

pytestmark = since(25, "full graphs under a schedule")

BOTH = CUDAGraphMode.FULL_AND_PIECEWISE
BATCHES = (8, 16, 17, 64, 100, 256, 1024)


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configurations are read as on a GPU with model runner V2."""
    monkeypatch.setattr(compat, "on_cpu", lambda: False)
    monkeypatch.setattr(compat, "runner_v2", lambda _: True)


class Speculative(SimpleNamespace):
    """The parts of vLLM's speculative configuration that graphs depend on."""

    def uses_dynamic_speculative_decoding(self) -> bool:
        return self.num_speculative_tokens_per_batch_size is not None


def configuration(
    k_max: int,
    max_num_seqs: int,
    *,
    schedule: Any = None,
    sizes: list[int] | None = None,
    most: int | None = None,
    mode: CUDAGraphMode = BOTH,
    tokens: int = 8192,
    **parts: Any,
) -> Any:
    """The parts of a ``VllmConfig`` that graphs depend on, as before vLLM sets its capture sizes."""
    compilation = SimpleNamespace(
        cudagraph_mode=mode,
        cudagraph_capture_sizes=sizes,
        max_cudagraph_capture_size=most,
        compile_sizes=None,
        pass_config=SimpleNamespace(enable_sp=False),
        post_init_cudagraph_sizes=lambda: None,
    )
    stub = SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=False, is_moe=False),
        compilation_config=compilation,
        scheduler_config=SimpleNamespace(max_num_seqs=max_num_seqs, max_num_batched_tokens=tokens),
        parallel_config=SimpleNamespace(tensor_parallel_size=1, data_parallel_size=1, pipeline_parallel_size=1),
        speculative_config=Speculative(
            num_speculative_tokens=k_max, num_speculative_tokens_per_batch_size=schedule, method="ngram"
        ),
        cache_config=SimpleNamespace(use_kda_recoverssm=False),
        num_speculative_tokens=k_max,
        uniform_decode_query_len=k_max + 1,
        performance_mode="balanced",
    )
    stub.__dict__.update(parts)
    return stub


def prepare(config: Any, arms: tuple[int, ...] | None = None) -> Any:
    """Let vLLM finish the graphs' part of a configuration as it does with adaptk on."""
    capture.announce(config, Settings(mode="on", arms=arms))
    plain = capturesizes.before_sizes(config)
    compat.set_capture_sizes(config)
    if plain is not None:
        capturesizes.arrange(config, plain)
    return config


def manager(config: Any, width: int | None = None) -> Any:
    """vLLM's manager of the target's graphs, as if all its graphs had been captured."""
    from vllm.v1.worker.gpu.cudagraph_utils import CudaGraphManager

    made = object.__new__(CudaGraphManager)
    made.__dict__.update(
        vllm_config=config,
        compilation_config=config.compilation_config,
        max_num_reqs=config.scheduler_config.max_num_seqs,
        cudagraph_mode=config.compilation_config.cudagraph_mode,
        decode_query_len=width or config.num_speculative_tokens + 1,
        varlen_decode=False,
        use_breakable_cg=False,  # which vLLM 0.26 looks at below
        ubatch_runner=None,
        lora_capture_cases=[0],
        _lora_dispatch_map={},
        _max_lora_case=0,
        _candidates={},
        _capture_descs={},
        _graphs_captured=True,
    )
    made._init_candidates()
    return made


def full(made: Any, batch: int, k: int) -> bool:
    """Whether vLLM replays a FULL graph for a uniform step."""
    found = made.dispatch(batch, batch * (k + 1), k + 1, 0)
    return bool(found.cg_mode == CUDAGraphMode.FULL)


def scheduled(config: Any) -> list[int]:
    """The numbers of drafts for which vLLM captures."""
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    speculative = config.speculative_config
    most = config.scheduler_config.max_num_seqs
    schedule = speculative.num_speculative_tokens_per_batch_size
    return sorted(set(build_dynamic_sd_schedule_lookup(schedule, most, speculative.num_speculative_tokens)[1:]))


def steps(arms: Sequence[int], max_num_seqs: int) -> Iterator[tuple[int, int]]:
    return ((batch, k) for k in arms for batch in range(1, max_num_seqs + 1))


class TestEveryChoice:
    @pytest.mark.parametrize("max_num_seqs", BATCHES)
    def test_of_the_default_arms_replays_a_graph(self, max_num_seqs: int) -> None:
        """No default arm is left out, and all that fits under vLLM's own ceiling is FULL in vLLM's own dispatch."""
        for k_max in range(1, 16):
            config = prepare(configuration(k_max, max_num_seqs))
            arms = resolve_arms(None, None, k_max)
            found = capturesizes.coverage(config, scheduled(config))
            assert found is not None
            assert capturesizes.playable(arms, found) == arms
            made = manager(config)
            ceiling = max(found.sizes)
            assert ceiling == config.compilation_config.max_cudagraph_capture_size
            assert min(512, max_num_seqs * (k_max + 1)) <= ceiling <= 512
            for batch, k in steps(arms, max_num_seqs):
                fits = batch * (k + 1) <= ceiling
                assert full(made, batch, k) == found(batch, k) == fits, (k_max, batch, k)
            assert found.captures == len(made._capture_descs[CUDAGraphMode.FULL])

    def test_of_explicit_arms_replays_a_graph(self) -> None:
        """Or the arm is left out, with a warning, when too many graphs would be needed."""
        for arms in ((0, 2), (2, 5), (0, 4, 9), (1, 2, 3, 4), (0, 1, 2, 3, 4, 5, 6, 7), tuple(range(16))):
            for max_num_seqs in (8, 48, 256):
                config = prepare(configuration(arms[-1], max_num_seqs), arms)
                found = capturesizes.coverage(config, scheduled(config))
                assert found is not None
                left = capturesizes.playable(arms, found)
                assert left == found.ks
                assert len(left) >= min(len(arms), 6)
                assert arms[-1] in left
                made = manager(config)
                assert len(made._capture_descs[CUDAGraphMode.FULL]) <= graphs.MOST_CAPTURES
                for batch, k in steps(left, max_num_seqs):
                    assert full(made, batch, k) == (batch * (k + 1) <= found.sizes[-1]), (arms, batch, k)

    @since(32, "graphs of a drafter under a schedule")
    def test_of_a_drafters_passes_replays_a_graph(self) -> None:
        """A drafter with weights keeps graphs for the target's widths, padded as the target was, and for one token."""
        config = configuration(5, 64)
        config.speculative_config.method, config.speculative_config.model = "eagle3", "drafter"
        prepare(config)
        made = manager(config)
        for batch, k in steps((0, 1, 3, 5), 64):
            if batch * (k + 1) <= 512:
                padded = made.dispatch(batch, batch * (k + 1), k + 1, 0).num_tokens
                assert made.dispatch(batch, padded, k + 1, 0).cg_mode == CUDAGraphMode.FULL
        later = manager(config, width=1)  # further passes draft one token of each request
        assert all(later.dispatch(b, b, 1, 0).cg_mode == CUDAGraphMode.FULL for b in range(1, 65))


class TestDrafterWithGraphs:
    """Graphs of its later passes are one token wide, whatever the schedule; vLLM before 0.32 does not know."""

    @staticmethod
    def scheduled(k_max: int) -> Any:
        config = configuration(k_max, 16, schedule=[[1, 8, k_max], [9, 16, k_max - 1]])
        config.speculative_config.method, config.speculative_config.model = "eagle3", "drafter"
        compat.set_capture_sizes(config)
        return config

    @before(32, "failing of a drafter's graphs under a schedule")
    def test_fails_under_any_schedule(self) -> None:
        """When this fails on a vLLM, ``compat.drafters_graphs_bear_schedule`` is wrong about it."""
        with pytest.raises(ZeroDivisionError):
            manager(self.scheduled(4), width=1)

    @since(32, "graphs of a drafter under a schedule")
    def test_does_not_fail_any_more(self) -> None:
        """When the oldest vLLM that adaptk supports passes this, the refusal can go."""
        made = manager(self.scheduled(4), width=1)
        assert {graph.uniform_token_count for graph in made._capture_descs[CUDAGraphMode.FULL]} == {1}

    @pytest.mark.parametrize(("version", "refused"), [("0.31.0", True), ("0.32.0", False)])
    def test_adaptk_sets_none_where_it_would(
        self, monkeypatch: pytest.MonkeyPatch, version: str, refused: bool
    ) -> None:
        """And the reason names the remedy; a drafter without weights has no graphs."""
        monkeypatch.setattr(compat, "vllm_version", lambda: version)
        config = configuration(4, 16)
        config.speculative_config.method, config.speculative_config.model = "eagle3", "drafter"
        assert ("0.32 or later" in (refusals.graph_reason(config) or "")) is refused
        capture.announce(config, Settings(mode="on"))
        assert (config.speculative_config.num_speculative_tokens_per_batch_size is None) is refused
        assert refusals.graph_reason(configuration(4, 16)) is None


class TestCoverage:
    """What adaptk computes is never more than what vLLM does."""

    @settings(max_examples=60, deadline=None)
    @given(
        sizes=st.sets(st.integers(1, 96), min_size=1, max_size=12),
        ks=st.sets(st.integers(0, 7), min_size=1, max_size=4),
        max_num_seqs=st.integers(1, 40),
        mode=st.sampled_from([BOTH, CUDAGraphMode.FULL_DECODE_ONLY, CUDAGraphMode.FULL]),
    )
    def test_against_dispatch(self, sizes: set[int], ks: set[int], max_num_seqs: int, mode: CUDAGraphMode) -> None:
        """Whatever sizes an operator names, a step that is said to be covered replays a FULL graph."""
        schedule = capture.capture_schedule(sorted(ks), max_num_seqs)
        config = configuration(
            max(1, *ks), max_num_seqs, schedule=schedule, sizes=sorted(sizes), most=max(sizes), mode=mode
        )
        found = capturesizes.coverage(config, scheduled(config))
        assert found is not None
        made = manager(config)
        for batch, k in steps(range(9), max_num_seqs + 2):
            if found(batch, k):
                assert full(made, batch, k), (batch, k)

    def test_a_step_in_the_way_of_a_wider_one(self) -> None:
        """The case of the module's docstring: with widths 4 and 6, a step of 12 tokens ends at the wider graph."""
        found = Coverage([1, 2, 4, 8, 16, 24], (3, 5), 8)
        assert found(4, 3)
        assert not found(3, 3)
        assert found.holes(3)[0] == (3, 3, 12)

    def test_odd_steps(self) -> None:
        """No requests, more than the engine takes, an arm that is none, and no sizes at all."""
        found = Coverage([1, 2, 4], (0, 1), 4)
        assert not any((found(0, 0), found(5, 0), found(1, 2), found(3, 1)))
        assert not Coverage([], (0, 1), 4)(1, 0)
        assert capturesizes.coverage(None, (0, 1)) is None


class TestOperatorsSizes:
    def test_stay_as_they_are(self, log: Lines) -> None:
        """Arms that cannot have a graph everywhere are left out and named, with the remedy."""
        sizes = [1, 2, 4, *range(8, 129, 8)]
        config = prepare(configuration(7, 64, sizes=list(sizes)), (0, 1, 2, 3, 7))
        assert config.compilation_config.cudagraph_capture_sizes == sizes
        assert scheduled(config) == [0, 1, 3, 7]
        assert log.having("leaves out K=2:")
        assert log.having("multiples of 24")
        made = manager(config)
        assert all(full(made, b, k) for b, k in steps((0, 1, 3, 7), 64) if b * (k + 1) <= 128)

    def test_that_fit_only_the_deepest_arm(self, log: Lines) -> None:
        """Then K is static, as it would be without adaptk, and has the graphs that it would have."""
        config = prepare(configuration(4, 32, sizes=[1, 2, 4, *range(8, 129, 8)]))
        assert scheduled(config) == [4]
        plain = configuration(4, 32, sizes=[1, 2, 4, *range(8, 129, 8)])
        compat.set_capture_sizes(plain)
        assert manager(config)._capture_descs == manager(plain)._capture_descs
        assert log.having("leaves out K=0, 1, 3")

    def test_an_arm_that_is_wider_than_every_graph(self, log: Lines) -> None:
        """It has none at any batch."""
        config = prepare(configuration(15, 8, sizes=[1, 2, 4, 8]))
        assert scheduled(config) == [0, 1, 3, 7]
        assert log.having("leaves out K=15")

    def test_a_ceiling_of_the_operators(self) -> None:
        """Sizes are arranged under it."""
        config = prepare(configuration(5, 64, most=120))
        assert max(config.compilation_config.cudagraph_capture_sizes) == 120
        made = manager(config)
        assert all(full(made, b, k) == (b * (k + 1) <= 120) for b, k in steps((0, 1, 3, 5), 64))

    def test_few_batched_tokens(self) -> None:
        """``max_num_batched_tokens`` is a ceiling, too."""
        config = prepare(configuration(5, 64, tokens=100))
        assert config.compilation_config.max_cudagraph_capture_size == 100
        assert config.compilation_config.cudagraph_capture_sizes[-1] == 100

    @pytest.mark.parametrize("bound", ["compile_sizes", "sequence parallelism"])
    def test_sizes_that_something_else_depends_on(self, bound: str) -> None:
        """Compiled sizes and those of sequence parallelism stay vLLM's."""
        config, plain = configuration(5, 64), configuration(5, 64)
        for each in (config, plain):
            if bound == "compile_sizes":
                each.compilation_config.compile_sizes = [8]
            else:
                each.compilation_config.pass_config.enable_sp = True
                each.parallel_config.tensor_parallel_size = 2
                each.update_sizes_for_sequence_parallelism = lambda sizes: [s for s in sizes if s % 2 == 0]
        plain.speculative_config.num_speculative_tokens_per_batch_size = capture.capture_schedule((0, 1, 3, 5), 64)
        compat.set_capture_sizes(plain)
        prepare(config)
        assert config.compilation_config.cudagraph_capture_sizes == plain.compilation_config.cudagraph_capture_sizes


class TestOperatorsSchedule:
    SCHEDULE = ((1, 8, 6), (9, 32, 4), (33, 128, 3))

    def test_gets_its_graphs(self, log: Lines) -> None:
        """Under vLLM's own sizes some of its steps have none; the schedule stays as it is."""
        schedule = [list(entry) for entry in self.SCHEDULE]
        config = prepare(configuration(7, 128, schedule=schedule))
        assert config.speculative_config.num_speculative_tokens_per_batch_size is schedule
        made = manager(config)
        assert all(full(made, b, k) for b, k in steps((3, 4, 6), 128) if b * (k + 1) <= 512)
        assert log.having("Capture sizes are adaptk's")

    def test_with_the_operators_sizes(self, log: Lines) -> None:
        """Nothing changes; only arms without holes are played, all of them where none is without."""
        schedule = [[1, 8, 5], [9, 64, 3]]
        config = prepare(configuration(7, 64, schedule=schedule, sizes=[1, 2, 4, 8, 16, 24, 32]))
        assert config.compilation_config.cudagraph_capture_sizes == [1, 2, 4, 8, 16, 24, 32]
        found = capturesizes.coverage(config, scheduled(config))
        assert found is not None
        assert capturesizes.playable((0, 1, 3, 7), found) == (3,)
        assert log.having("plays only (3,) of its arms (0, 1, 3, 7)")


class TestCost:
    @since(29, "sizes that follow the schedule")
    def test_is_told_in_one_line(self, log: Lines) -> None:
        """How far each arm's graphs reach, and the graphs with and without adaptk."""
        prepare(configuration(7, 512))
        told = log.having("FULL CUDA graphs for")
        assert len(told) == 1
        assert (
            "K=0 up to 512 requests, K=1 up to 256 requests, K=3 up to 128 requests, K=7 up to 64 requests" in told[0]
        )
        assert "200 graphs of decode steps and 52 for mixed ones, without adaptk 48 and 51" in told[0]

    def test_is_told_once(self, log: Lines) -> None:
        """Some engines finish their configuration a second time."""
        config = prepare(configuration(5, 64))
        sizes = list(config.compilation_config.cudagraph_capture_sizes)
        prepare(config)
        assert config.compilation_config.cudagraph_capture_sizes == sizes
        assert len(log.having("FULL CUDA graphs for")) == 1

    @since(29, "sizes that end at max_num_seqs")
    def test_vllms_sizes_stay_where_they_do(self) -> None:
        """Widths that are powers of two have all their graphs under them."""
        for k_max in (1, 3, 7, 15):
            config, plain = prepare(configuration(k_max, 100)), configuration(k_max, 100)
            plain.speculative_config = config.speculative_config
            compat.set_capture_sizes(plain)
            assert config.compilation_config.cudagraph_capture_sizes == plain.compilation_config.cudagraph_capture_sizes

    @pytest.mark.parametrize("case", ["V1", "eager", "PIECEWISE", "no speculation"])
    def test_is_none_where_no_graph_depends_on_k(self, case: str, monkeypatch: pytest.MonkeyPatch, log: Lines) -> None:
        """Then vLLM's sizes stay vLLM's."""
        config = configuration(5, 64, mode=CUDAGraphMode.PIECEWISE if case == "PIECEWISE" else BOTH)
        if case == "V1":
            monkeypatch.setattr(compat, "runner_v2", lambda _: False)
        if case == "eager":
            config.model_config.enforce_eager = True
        if case == "no speculation":
            config.speculative_config = None
        prepare(config)
        assert not log.having("FULL CUDA graphs for")


class TestHook:
    """Where the arranging enters a real ``VllmConfig``."""

    @pytest.fixture
    def called(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
        """What ``arrange`` was called with, patches being on."""
        calls: list[Any] = []
        monkeypatch.setattr(compat, "on_cpu", lambda: True)
        monkeypatch.setattr(compat, "runner_v2", lambda _: False)
        monkeypatch.setattr(capturesizes, "before_sizes", lambda _: "before")
        monkeypatch.setattr(capturesizes, "arrange", lambda config, plain: calls.append((config, plain)))
        patches.apply()
        yield calls
        patches.remove()

    @pytest.mark.parametrize(
        ("mode", "control", "expected"), [("on", "", 1), ("shadow", "", 0), ("shadow", "mode.txt", 1), ("off", "", 0)]
    )
    def test_where_adaptk_may_act(
        self, model: Path, monkeypatch: pytest.MonkeyPatch, called: list[Any], mode: str, control: str, expected: int
    ) -> None:
        """Shadow mode leaves vLLM's captures alone, unless the engine may be switched on."""
        monkeypatch.setenv("ADAPTK", mode)
        monkeypatch.setenv("ADAPTK_CONTROL", control)
        config = build_config(model)
        config._set_cudagraph_sizes()  # on CPU vLLM has no use for it
        assert called == [(config, "before")] * expected

    def test_a_fault_leaves_vllms_sizes(
        self, model: Path, monkeypatch: pytest.MonkeyPatch, called: list[Any], log: Lines
    ) -> None:
        """It is told once, and the configuration is finished."""
        monkeypatch.setenv("ADAPTK", "on")

        def fail(*_: Any) -> None:
            raise ValueError("no sizes today")

        monkeypatch.setattr(capturesizes, "arrange", fail)
        config = build_config(model)
        config._set_cudagraph_sizes()
        assert config.compilation_config.cudagraph_capture_sizes is not None
        assert len(log.having("no sizes today")) == 1
