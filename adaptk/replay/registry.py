"""Every policy of the replay by name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from adaptk.replay.policies.adaptive import Adaptive
from adaptk.replay.policies.banditspec import BanditSpecPaper, BanditSpecReleased
from adaptk.replay.policies.base import Policy, Setup
from adaptk.replay.policies.bounds import Hindsight, Oracle
from adaptk.replay.policies.depth_ewma import DepthEwma
from adaptk.replay.policies.manager import AcceptanceManager
from adaptk.replay.policies.nightjar_bins import NightjarBins
from adaptk.replay.policies.sglang_ema import SglangEma
from adaptk.replay.policies.sglang_throughput import SglangThroughput
from adaptk.replay.policies.static import FixedK, StaticTable, as_configured
from adaptk.replay.policies.turbospec import TurboSpec
from adaptk.replay.policies.utility_phases import UtilityPhases
from adaptk.replay.policies.window_bandit import EpsilonMean, EpsilonMedian, WindowUcb
from adaptk.replay.simulator import Run

NO_DRAFTER, HINDSIGHT = "no-drafter", "hindsight"
GREEDY = "adaptk-greedy"
_FIXED = re.compile(r"fixed-(\d+)")


class Entry(NamedTuple):
    """A policy: one line about it, and how it is made from a setup and the oracle's run of the same world."""

    about: str
    make: Callable[[Setup, Run], Policy]


def _of(build: Callable[[Setup], Policy]) -> Callable[[Setup, Run], Policy]:
    return lambda setup, _: build(setup)


def _ablation(acceptance: bool, time: bool, draws: bool, ledger: bool) -> Callable[[Setup, Run], Policy]:
    return lambda setup, _: Adaptive(setup, acceptance, time, draws, ledger)


def _ablations() -> dict[str, Entry]:
    """adaptk's parts switched off: what is learnt, how it decides, what bounds it."""
    live = {"": (True, True), "-acceptance": (True, False), "-time": (False, True)}
    entries = {}
    for learnt, parts in live.items():
        for how, draws in (("", True), ("-greedy", False)):
            for bound, ledger in (("", True), ("-unbounded", False)):
                only = f"learns {learnt[1:]} only, " if learnt else "adaptk, "
                about = f"{only}{'draws' if draws else 'argmax'}, {'1 % budget' if ledger else 'no budget'}"
                entries[f"adaptk{learnt}{how}{bound}"] = Entry(about, _ablation(*parts, draws, ledger))
    entries["adaptk"] = Entry("adaptk as shipped", _of(Adaptive))
    return entries


POLICIES: dict[str, Entry] = {
    **_ablations(),
    "oracle": Entry("clairvoyant: plays the best arm of each step", _of(Oracle)),
    HINDSIGHT: Entry("the best static table for this load, made afterwards", Hindsight),
    "table": Entry("vLLM by itself: its seed table, else the largest K (P1)", _of(as_configured)),
    "table-other-drafter": Entry(
        "the same, its acceptance measured with another drafter", _of(lambda s: StaticTable.other_drafter(s, "low"))
    ),
    "table-x1.25": Entry("the same, drafts' cost 1.25 times too high", _of(lambda s: StaticTable.costs_off(s, 1.25))),
    "table-x1.5": Entry("the same, drafts' cost 1.5 times too high", _of(lambda s: StaticTable.costs_off(s, 1.5))),
    "table-x2": Entry("the same, drafts' cost 2 times too high", _of(lambda s: StaticTable.costs_off(s, 2.0))),
    "table-context": Entry("the same, measured at another context length", _of(StaticTable.other_context)),
    "turbospec": Entry("TurboSpec: live acceptance, fitted frozen step times (P2)", _of(TurboSpec)),
    "turbospec-live": Entry(
        "TurboSpec with its disabled live step times (P2+)", _of(lambda s: TurboSpec(s, live_latency=True))
    ),
    "manager": Entry("vLLM #38038: live acceptance over all history (P3)", _of(AcceptanceManager)),
    "manager-forget": Entry("the same with forgetting (P3)", _of(lambda s: AcceptanceManager(s, forget=True))),
    "manager-extrapolate": Entry(
        "the same, undrafted positions extrapolated (P3)", _of(lambda s: AcceptanceManager(s, extrapolate=True))
    ),
    "sglang-ema": Entry("SGLang's adaptive steps: EMA with hysteresis (P4a)", _of(SglangEma)),
    "sglang-throughput": Entry("SGLang's throughput-aware policy (P4b)", _of(SglangThroughput)),
    "window-median": Entry("epsilon-greedy on window medians per batch bin (P5a)", _of(EpsilonMedian)),
    "window-mean": Entry("epsilon-greedy on running means with resets (P5b)", _of(EpsilonMean)),
    "window-ucb": Entry("sliding-window UCB per batch bin (P5c)", _of(WindowUcb)),
    "utility-phases": Entry("test-and-set phases after Cascade (P6)", _of(UtilityPhases)),
    "banditspec": Entry("BanditSpec's UCB as published (P7)", _of(BanditSpecPaper)),
    "banditspec-released": Entry("BanditSpec as released: greedy after its warm-up (P7)", _of(BanditSpecReleased)),
    "nightjar-bins": Entry("Nightjar's bins, a reconstruction", _of(NightjarBins)),
    "depth-ewma": Entry("Ollama's rule for MLX, one state for all batches (P8)", _of(lambda s: DepthEwma(s, "raw"))),
    "depth-ewma-bucketed": Entry(
        "the same per power-of-two batch bucket (P8)", _of(lambda s: DepthEwma(s, "bucketed"))
    ),
    "depth-ewma-seeded": Entry(
        "the same, seeded by the table (P8, the rival to beat)", _of(lambda s: DepthEwma(s, "seeded"))
    ),
    NO_DRAFTER: Entry("no drafter loaded: K=0 without its price", _of(lambda s: FixedK(s, 0))),
}
"""Every policy by name; ``fixed-0``, ``fixed-1``, ... stand beside them."""

USUAL = ("oracle", "hindsight", "table", "adaptk", GREEDY, "depth-ewma-seeded", "turbospec", "manager", NO_DRAFTER)
"""What is compared where no policy is named, every fixed K beside it."""


def entry(name: str) -> Entry:
    """A policy by name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    fixed = _FIXED.fullmatch(name)
    if fixed:
        return Entry(f"K={fixed[1]} at every step", lambda setup, _: FixedK(setup, int(fixed[1])))
    if name not in POLICIES:
        near = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f"did you mean {near[0]}?" if near else "adaptk replay --list names them"
        raise ValueError(f"policy {name!r} is unknown: {hint}")
    return POLICIES[name]


def expand(names: Iterable[str], arms: tuple[int, ...], own: Sequence[str] = ()) -> list[str]:
    """Names in order without repeats; with greedy adaptk beside adaptk, ``usual``, ``all`` and ``fixed`` spelt out.

    ``own`` are policies of the scenario; they belong to the usual ones and to all.

    Raises
    ------
    ValueError
        If a name is unknown.
    """
    fixed = [f"fixed-{k}" for k in arms]
    wanted: list[str] = []
    for name in names:
        more = {
            "all": [*own, *POLICIES, *fixed],
            "fixed": fixed,
            "usual": [*own, *USUAL, *fixed],
            "adaptk": ["adaptk", GREEDY],
        }
        wanted += more.get(name, [name])
    for name in wanted:
        if name not in own:
            entry(name)
    return list(dict.fromkeys(wanted))
