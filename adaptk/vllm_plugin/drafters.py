"""What each drafter does with K, by model runner and by version of vLLM.

========================================  =====================================  =====================================
drafter                                   model runner V1                        model runner V2
========================================  =====================================  =====================================
ngram                                     looks up, cuts at K                    drafts the maximum
eagle, eagle3, mtp of one module          drafts K                               drafts K (before 0.32 the maximum)
mtp of several modules                    drafts K with the first one            drafts the maximum
mtp of Step-3.5                           drafts K, but 1 where K is 0           drafts the maximum
draft_model                               drafts K                               drafts the maximum
dflash                                    drafts a block of K                    drafts the maximum (0.33: none at 0)
dspark                                    not there                              drafts the maximum (0.33: none at 0)
eagle, draft_model drafting in parallel   mixes requests up unless K is 0 or     not there
                                          the maximum
ngram_gpu                                 asserts the maximum                    drafts the maximum
suffix, medusa                            asserts the maximum                    not there
custom_class                              is not told                            not there
extract_hidden_states                     asserts the maximum, which is 1        hands out hidden states
========================================  =====================================  =====================================

Where the maximum is drafted, the first K are verified: the same drafts for every K, so that acceptance is what it is
anywhere else. On V1 the first forward pass of eagle, mtp and draft_model runs at K=0 as well. A block of K that dflash
drafts on V1 is another input to it than a longer one: its drafts may differ a little between K.
"""

from __future__ import annotations

from typing import Any, Literal

from adaptk.vllm_plugin import compat

# Which decision's drafts an interval between two updates holds: its own, or that of the step before.
DraftCost = Literal["now", "previous"]
# Drafters that model runner V1 hands a number of drafts; its others assert num_speculative_tokens or ignore the number.
_V1_DRAFTERS = frozenset(("ngram", "eagle", "eagle3", "mtp", "draft_model", "dflash"))
_BLOCKS = frozenset(("dflash", "dspark"))
_WITHOUT_WEIGHTS = frozenset(("ngram", "ngram_gpu", "suffix"))
_V2_TOLD = (0, 32)  # the first version in which the drafter on V2 hears of K


def _v1_takes_k(method: str) -> bool:
    """Whether model runner V1 hands this drafter a number of drafts."""
    # No engine on CPU can run ngram_gpu: there it only stands in the configuration of a scheduler driven by hand.
    return method in _V1_DRAFTERS or (method == "ngram_gpu" and compat.on_cpu())


def reason_to_refuse(config: Any, v2: bool) -> str | None:
    """Why this drafter must not be given a K of our own, in the operator's words, or ``None``."""
    speculative = getattr(config, "speculative_config", None)
    method = getattr(speculative, "method", None)
    if method is None:
        return None
    if method == "extract_hidden_states":
        return "the method extract_hidden_states only hands out hidden states, so that there is no K worth choosing"
    # None: vLLM has yet to make up its mind.
    synchronous = getattr(getattr(config, "scheduler_config", None), "async_scheduling", None) is False
    if v2:
        if synchronous and _version() < _V2_TOLD:
            return (
                "without async scheduling model runner V2 of this vLLM verifies num_speculative_tokens drafts whatever "
                "K is; turn async_scheduling on, or use vLLM 0.32 or later"
            )
        return None
    if not _v1_takes_k(method):
        return (
            f"on this model runner the drafter {method} works with num_speculative_tokens drafts only; use another "
            "drafter, or model runner V2 if it supports this one"
        )
    if getattr(speculative, "parallel_drafting", False) and method not in _BLOCKS:
        return (
            "under parallel_drafting vLLM lays its drafts out for num_speculative_tokens, and any other number gives "
            "requests each other's drafts or stops the engine; set parallel_drafting to false"
        )
    if synchronous and _is(speculative, "use_step3p5_mtp"):
        return (
            "without async scheduling the drafter of Step-3.5 has one draft verified where none is asked for; turn "
            "async_scheduling on"
        )
    return None


def draft_cost(v2: bool) -> DraftCost:
    """Which decision's drafts an interval pays for: V2 hands its output out before it drafts, V1 after.

    A drafter that makes the maximum whatever K is costs the same in every interval, so that there too the time is
    wholly that of the K verified, which is the previous decision. All of these are on V2.
    """
    return "previous" if v2 else "now"


def saves_drafting(config: Any, v2: bool) -> bool:
    """Whether every smaller K makes the drafter do less."""
    if not v2:
        return True
    speculative = getattr(config, "speculative_config", None)
    method = getattr(speculative, "method", None)
    if _version() < _V2_TOLD or method not in ("eagle", "eagle3", "mtp"):
        return False
    return _is(speculative, "use_gemma4_mtp") or not _is(speculative, "use_multi_module_mtp")


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
    # A block of dflash begins with one token that is no draft.
    return int(longest) - int(speculative.num_speculative_tokens) - int(speculative.method == "dflash")


def price_notes(config: Any, v2: bool) -> list[str]:
    """What of this version and drafter makes a smaller K save less than it could."""
    if saves_drafting(config, v2):
        return []
    method = getattr(getattr(config, "speculative_config", None), "method", None)
    if method in _BLOCKS:
        except_zero = ", unless it is 0" if _version() >= (0, 33) else ""
        return [
            f"{method} drafts a block of num_speculative_tokens whatever K is{except_zero}: a smaller K cuts what is "
            "verified, and saves nothing else"
        ]
    return [
        "model runner V2 of this vLLM drafts num_speculative_tokens whatever K is, for this drafter: a smaller K "
        "saves verification only"
    ]


def draft_model(speculative: Any) -> str | None:
    """The name of the model whose weights draft; ``None`` for n-grams and suffix trees, which have none."""
    if getattr(speculative, "method", None) in _WITHOUT_WEIGHTS:
        return None
    drafter = getattr(speculative, "draft_model_config", None)
    return getattr(drafter, "model", None) or getattr(speculative, "model", None)


def _version() -> tuple[int, int]:
    return compat.version_tuple(compat.vllm_version())


def _is(speculative: Any, question: str) -> bool:
    """What a ``SpeculativeConfig`` answers to one of its questions; no, where this version does not know it."""
    ask = getattr(speculative, question, None)
    return ask is not None and bool(ask())
