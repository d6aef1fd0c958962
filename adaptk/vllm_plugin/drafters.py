"""What each drafter does with K, by model runner and by version of vLLM."""

from __future__ import annotations

from typing import Any, Literal

from adaptk.vllm_plugin import compat

# Which decision's drafts an interval between two updates holds: its own, or that of the step before.
DraftCost = Literal["now", "previous"]
# Drafters that model runner V1 hands a number of drafts; its others assert num_speculative_tokens or ignore the number.
_V1_DRAFTERS = frozenset(("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"))
_WITHOUT_WEIGHTS = frozenset(("ngram", "ngram_gpu", "suffix"))


def v1_takes_k(method: str) -> bool:
    """Whether model runner V1 hands this drafter a number of drafts."""
    # No engine on CPU can run ngram_gpu: there it only stands in the configuration of a scheduler driven by hand.
    return method in _V1_DRAFTERS or (method == "ngram_gpu" and compat.on_cpu())


def draft_cost(v2: bool) -> DraftCost:
    """Which decision's drafts an interval pays for: V2 hands its output out before it drafts, V1 after.

    A drafter that makes the maximum whatever K is costs the same in every interval, so that there too the time is
    wholly that of the K verified, which is the previous decision.
    """
    return "previous" if v2 else "now"


def saves_drafting(config: Any, v2: bool) -> bool:
    """Whether a smaller K makes the drafter do less."""
    if not v2:
        return True
    speculative = getattr(config, "speculative_config", None)
    method = getattr(speculative, "method", None)
    if compat.version_tuple(compat.vllm_version()) < (0, 32) or method not in ("eagle", "eagle3", "mtp"):
        return False
    many_modules = getattr(speculative, "use_multi_module_mtp", None)
    return not (many_modules is not None and many_modules())


def dummy_limit(config: Any, v2: bool) -> int | None:
    """Longest sequence that still gets real drafts, tokens; beyond it V1 fills every request with dummies.

    ``None`` where there is no such rule.
    """
    speculative = getattr(config, "speculative_config", None)
    if v2 or speculative is None:
        return None
    drafter = getattr(getattr(speculative, "draft_model_config", None), "max_model_len", None)
    longest = drafter or getattr(getattr(config, "model_config", None), "max_model_len", None)
    if longest is None:
        return None
    return int(longest) - int(speculative.num_speculative_tokens) - int(speculative.method == "dflash")


def price_notes(config: Any, v2: bool) -> list[str]:
    """What of this version and drafter makes a smaller K save less than it could."""
    if not saves_drafting(config, v2):
        return [
            "model runner V2 of this vLLM drafts num_speculative_tokens whatever K is, for this drafter: a smaller K "
            "saves verification only"
        ]
    return []


def draft_model(speculative: Any) -> str | None:
    """The name of the model whose weights draft; ``None`` for n-grams and suffix trees, which have none."""
    if getattr(speculative, "method", None) in _WITHOUT_WEIGHTS:
        return None
    drafter = getattr(speculative, "draft_model_config", None)
    return getattr(drafter, "model", None) or getattr(speculative, "model", None)
