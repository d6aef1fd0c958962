"""Facts as the process with vLLM in it would send them, made up."""

from __future__ import annotations

from typing import Any

import msgspec

from adaptk.doctor.facts import Engine, Facts, Installed, Outcome
from adaptk.doctor.finding import Finding
from adaptk.settings import Settings

GPU = Installed(version="0.32.0", platform="cuda", device="NVIDIA H100")
KEY = {"model": "Llama-3.1-8B", "method": "eagle3", "device": "NVIDIA H100"}
STARTS = Outcome(active=True, arms=(0, 1, 3, 7))


def made_engine(**changes: Any) -> Engine:
    """An engine on a GPU in which adaptk starts."""
    whole = Engine(
        model="Llama-3.1-8B",
        settings=Settings(mode="on"),
        dtype="bfloat16",
        max_num_seqs=256,
        v2=True,
        asynchronous=True,
        scheduler="AsyncScheduler",
        method="eagle3",
        drafter="EAGLE3-8B",
        k_max=7,
        graph_mode="FULL_AND_PIECEWISE",
        key=KEY,
        bare=STARTS,
    )
    return msgspec.structs.replace(whole, **changes)


def made_facts(**changes: Any) -> Facts:
    """Those of that engine."""
    return Facts(installed=GPU, engine=made_engine(**changes))


def by_id(findings: Any) -> dict[str, Finding]:
    """Findings by their ids, each of which must come once."""
    found = list(findings)
    named = {finding.id: finding for finding in found}
    assert len(named) == len(found)
    return named
