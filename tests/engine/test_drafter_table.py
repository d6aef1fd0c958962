"""What each drafter does with K, as vLLM's source has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from adaptk.vllm_plugin import compat, drafters, refusals


class TestDrafters:
    @pytest.mark.parametrize("method", ["medusa", "suffix", "ngram_gpu", "custom_class", "mlp_speculator"])
    def test_those_that_take_one_k_only(self, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        """On runner V1 another K trips an assertion in the worker, or is ignored; V2 takes any."""
        config = SimpleNamespace(speculative_config=SimpleNamespace(method=method))
        monkeypatch.setattr(compat, "on_cpu", lambda: False)
        assert f"the drafter {method} works with num_speculative_tokens drafts only" in str(
            refusals.inert_reason(config)
        )
        config.use_v2_model_runner = True
        assert refusals.inert_reason(config) is None

    @pytest.mark.parametrize("method", ["ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash", None])
    def test_those_that_take_any(self, monkeypatch: pytest.MonkeyPatch, method: str | None) -> None:
        """Nothing is refused for a drafter that obeys, nor where none is named."""
        monkeypatch.setattr(compat, "on_cpu", lambda: False)
        assert refusals.inert_reason(SimpleNamespace(speculative_config=SimpleNamespace(method=method))) is None

    def test_one_that_speculates_nothing(self) -> None:
        """With K=0 the hidden states that the user is after would not come."""
        config = SimpleNamespace(speculative_config=SimpleNamespace(method="extract_hidden_states"))
        config.use_v2_model_runner = True
        assert "extract_hidden_states" in str(refusals.inert_reason(config))

    def test_those_that_save_nothing_when_they_draft_less(self) -> None:
        """On V2 only some stop early."""

        def config(method: str, modules: bool = False) -> Any:
            speculative = SimpleNamespace(method=method, use_multi_module_mtp=lambda: modules)
            return SimpleNamespace(speculative_config=speculative)

        assert all(drafters.saves_drafting(config(method), v2=True) for method in ("eagle", "eagle3", "mtp"))
        assert not drafters.saves_drafting(config("mtp", modules=True), v2=True)
        assert not drafters.saves_drafting(config("draft_model"), v2=True)
        assert drafters.saves_drafting(config("draft_model"), v2=False)
