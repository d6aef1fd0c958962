"""What each drafter does with K, as vLLM's source has it."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adaptk.vllm_plugin import compat, drafters, refusals
from tests.engine.versions import at_least

V1_DRAFTERS = ("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash")


def config_of(method: str | None, *, v2: bool = False, asynchronous: bool | None = None, **speculative: Any) -> Any:
    """As much of a ``VllmConfig`` as the drafters are judged by."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(method=method, **speculative),
        scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
        use_v2_model_runner=v2,
    )


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator, where model runner V2 and ngram_gpu run."""
    monkeypatch.setattr(compat, "on_cpu", lambda: False)


def as_version(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(compat, "vllm_version", lambda: version)


@pytest.mark.usefixtures("on_gpu")
class TestRefusals:
    @pytest.mark.parametrize("method", ["medusa", "suffix", "ngram_gpu", "custom_class", "mlp_speculator", "dspark"])
    def test_those_that_take_one_k_only(self, method: str) -> None:
        """On runner V1 another K trips an assertion in the worker, or is ignored; V2 takes any."""
        reason = refusals.inert_reason(config_of(method))
        assert f"the drafter {method} works with num_speculative_tokens drafts only" in str(reason)
        assert refusals.inert_reason(config_of(method, v2=True)) is None

    @pytest.mark.parametrize("method", [*V1_DRAFTERS, None])
    def test_those_that_take_any(self, method: str | None) -> None:
        """Nothing is refused for a drafter that obeys, nor where none is named."""
        assert refusals.inert_reason(config_of(method)) is None

    def test_one_that_speculates_nothing(self) -> None:
        """With K=0 the hidden states that the user is after would not come."""
        reason = refusals.inert_reason(config_of("extract_hidden_states", v2=True))
        assert "extract_hidden_states" in str(reason)

    @pytest.mark.parametrize("method", ["eagle", "eagle3", "draft_model"])
    def test_parallel_drafts(self, method: str) -> None:
        """Laid out for the maximum on V1; a block drafter, which sets the same flag, is laid out for K."""
        reason = str(refusals.inert_reason(config_of(method, parallel_drafting=True)))
        assert "set parallel_drafting to false" in reason
        assert refusals.inert_reason(config_of("dflash", parallel_drafting=True)) is None

    def test_a_draft_that_nobody_asked_for(self) -> None:
        """Step-3.5's drafter on V1 returns one draft at K=0, which an asynchronous scheduler does not take."""
        step = {"use_step3p5_mtp": lambda: True}
        assert "async_scheduling on" in str(refusals.inert_reason(config_of("mtp", asynchronous=False, **step)))
        assert refusals.inert_reason(config_of("mtp", asynchronous=True, **step)) is None
        assert refusals.inert_reason(config_of("mtp", asynchronous=False, use_step3p5_mtp=lambda: False)) is None

    def test_runner_v2_before_it_was_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before 0.32 a synchronous V2 verifies all it drafted; an undecided configuration is not refused."""
        for version, asynchronous, refused in (
            ("0.31.0", False, True),
            ("0.31.0", True, False),
            ("0.31.0", None, False),
            ("0.32.0", False, False),
        ):
            as_version(monkeypatch, version)
            reason = refusals.inert_reason(config_of("eagle", v2=True, asynchronous=asynchronous))
            assert (reason is not None) is refused, (version, asynchronous)


class TestPrice:
    """What a smaller K saves."""

    def test_runner_v1_drafts_less(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every drafter that V1 gives K to makes fewer drafts for it, in all versions."""
        for version in ("0.24.0", "0.32.0", "0.33.0"):
            as_version(monkeypatch, version)
            assert all(not drafters.price_notes(config_of(method), v2=False) for method in V1_DRAFTERS)

    def test_of_runner_v2_some_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From 0.32 on those that run one module step by step; the note says which kind of saving is lost."""
        as_version(monkeypatch, "0.32.0")
        one, many = {"use_multi_module_mtp": lambda: False}, {"use_multi_module_mtp": lambda: True}
        assert all(drafters.saves_drafting(config_of(method, **one), v2=True) for method in ("eagle", "eagle3", "mtp"))
        assert not drafters.saves_drafting(config_of("mtp", **many), v2=True)
        # Gemma's drafter is looked for before that of several modules.
        assert drafters.saves_drafting(config_of("mtp", use_gemma4_mtp=lambda: True, **many), v2=True)
        for method in ("draft_model", "ngram", "ngram_gpu"):
            (note,) = drafters.price_notes(config_of(method), v2=True)
            assert "saves verification only" in note

    def test_of_runner_v2_none_did(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before 0.32 it never heard of K."""
        as_version(monkeypatch, "0.31.0")
        assert not any(drafters.saves_drafting(config_of(method), v2=True) for method in V1_DRAFTERS)

    @pytest.mark.parametrize("method", ["dflash", "dspark"])
    def test_blocks(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        """A block is drafted whole; from 0.33 on not at all for K=0."""
        for version, zero in (("0.32.0", False), ("0.33.0", True)):
            as_version(monkeypatch, version)
            (note,) = drafters.price_notes(config_of(method), v2=True)
            assert "cuts what is verified" in note
            assert ("unless it is 0" in note) is zero

    def test_whose_drafts_a_step_pays_for(self) -> None:
        """V1's updates come after the drafts of their step, V2's before."""
        assert (drafters.draft_cost(v2=False), drafters.draft_cost(v2=True)) == ("now", "previous")


class TestDummyLimit:
    @pytest.mark.parametrize(
        ("method", "drafter", "limit"),
        [("eagle", 2048, 2041), ("eagle", None, 4089), ("dflash", 2048, 2040), ("ngram", 4096, 4089)],
    )
    def test_the_drafters_length_counts(self, method: str, drafter: int | None, limit: int) -> None:
        """V1 stops drafting for everybody where one sequence and its drafts would not fit."""
        config = config_of(method, num_speculative_tokens=7, draft_model_config=SimpleNamespace(max_model_len=drafter))
        config.model_config = SimpleNamespace(max_model_len=4096)
        assert drafters.dummy_limit(config, v2=False) == limit
        assert drafters.dummy_limit(config, v2=True) is None

    def test_nothing_known(self) -> None:
        """Parts that a configuration lacks make no rule."""
        assert drafters.dummy_limit(SimpleNamespace(), v2=False) is None
        assert drafters.dummy_limit(config_of("suffix", num_speculative_tokens=7), v2=False) is None


def source(module: str, name: str) -> str:
    """The source of a method or class in ``vllm``, read without importing what holds it."""
    (package,) = importlib.util.find_spec("vllm").submodule_search_locations or ()
    text = Path(package, *module.split(".")).with_suffix(".py").read_text()
    node: Any = ast.parse(text)
    for part in name.split("."):
        node = next(inner for inner in node.body if getattr(inner, "name", None) == part)
    return str(ast.get_source_segment(text, node))


class TestSource:
    """The table as vLLM's source has it: where one of these fails, vLLM has changed and a row may go."""

    @pytest.mark.parametrize(
        ("module", "name"),
        [
            ("ngram_proposer_gpu", "NgramProposerGPU"),
            ("suffix_decoding", "SuffixDecodingProposer"),
            ("extract_hidden_states", "ExtractHiddenStatesProposer"),
            *([] if at_least(33) else [("medusa", "MedusaProposer")]),
        ],
    )
    def test_some_assert_the_maximum(self, module: str, name: str) -> None:
        """A K of our own would stop the engine."""
        text = source(f"v1.spec_decode.{module}", f"{name}.propose")
        assert "assert num_speculative_tokens == self." in text

    def test_a_class_of_the_users_is_not_told(self) -> None:
        """V1 calls it without a number."""
        text = source("v1.worker.gpu_model_runner", "GPUModelRunner.propose_draft_token_ids")
        call = text.partition('"custom_class"')[2].partition("elif")[0]
        assert "propose(" in call
        assert "num_spec_tokens_to_schedule" not in call

    def test_parallel_drafts_are_laid_out_once(self) -> None:
        """The slots of parallel drafts are counted when the drafter is made, and not again for each K."""
        drafter, assigned = "SpecDecodeBaseProposer", "self.extra_slots_per_request ="
        assert source("v1.spec_decode.llm_base_proposer", drafter).count(assigned) == 1
        assert assigned in source("v1.spec_decode.llm_base_proposer", f"{drafter}.__init__")

    def test_the_drafter_of_step_ignores_zero(self) -> None:
        """All other model drafters look for it."""
        ask = "self.num_speculative_tokens == 0"
        assert ask in source("v1.spec_decode.llm_base_proposer", "SpecDecodeBaseProposer.propose")
        assert ask not in source("v1.spec_decode.step3p5", "Step3p5MTPProposer.propose")

    def test_a_block_is_as_long_as_k_on_v1(self) -> None:
        """So that dflash obeys there."""
        text = source("v1.spec_decode.dflash", "DFlashProposer.set_inputs_first_pass")
        assert "num_query_per_req = 1 + self.num_speculative_tokens" in text

    @pytest.mark.skipif(not at_least(32), reason="before vLLM 0.32 model runner V2 knows no K")
    def test_runner_v2_cuts_for_all(self) -> None:
        """What a drafter made too much is not handed on."""
        text = source("v1.worker.gpu.model_runner", "GPUModelRunner.sample_tokens")
        assert "draft_tokens[:, num_spec_tokens:] = -1" in text
        # The output is on its way before the drafter begins.
        assert text.index("AsyncOutput(") < text.index("speculator.propose(")
