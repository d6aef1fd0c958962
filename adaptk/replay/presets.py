"""Engines to replay on: a cost surface and a drafter's acceptance under a name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from adaptk.replay.costs import calibrated
from adaptk.replay.costs.hardware import B200, H100, H200, LLAMA_8B, LLAMA_70B, QWEN3_30B_A3B, Deployment
from adaptk.replay.costs.p32374 import ACCEPTANCE, p32374_surface
from adaptk.replay.costs.rooflines import roofline_surface
from adaptk.replay.drafter import EAGLE3
from adaptk.replay.surface import CostSurface


class Preset(NamedTuple):
    """What a replay needs of an engine, and where it is from."""

    surface: CostSurface
    acceptance: tuple[float, ...]  # conditional per draft position, as many as the surface has
    note: str
    kv_tokens: int | None = None  # that the KV cache holds; None: not known


def preset(name: str) -> Preset:
    """Build a preset of :data:`PRESETS`.

    Raises
    ------
    ValueError
        If there is none of that name.

    Examples
    --------
    >>> preset("p32374").surface.itl_ms(1, 0)
    6.521
    """
    if name not in PRESETS:
        raise ValueError(f"preset is {name!r}: give one of {', '.join(PRESETS)}")
    return PRESETS[name]()


def _roofline(deployment: Deployment, max_batch: int) -> Preset:
    note = f"{deployment.name}: roofline from datasheets, not measured; EAGLE-3-like drafter"
    return Preset(roofline_surface(deployment, max_batch=max_batch), EAGLE3, note, deployment.kv_tokens)


def _dense() -> Preset:
    note = "dense 100B class: calibrated on published ratios, not measured"
    return Preset(calibrated.dense_surface(), calibrated.DENSE_ACCEPTANCE, note)


def _moe() -> Preset:
    note = "mixture of experts: calibrated on published ratios, not measured; for K of 0, 1, 2, 3 and 5"
    return Preset(calibrated.moe_surface(), calibrated.MOE_ACCEPTANCE, note)


def _p32374() -> Preset:
    note = (
        "Llama-3.1-8B with EAGLE on an H100: step times of vLLM pull request 32374; what of them is drafting is assumed"
    )
    return Preset(p32374_surface(), ACCEPTANCE, note, Deployment(H100, LLAMA_8B).kv_tokens)


def _rooflines() -> dict[str, Callable[[], Preset]]:
    """Each GPU with each model; the 70B on as many GPUs as leave room for its KV cache."""
    made: dict[str, Callable[[], Preset]] = {}
    for chip, large in ((H100, 4), (H200, 4), (B200, 2)):
        short = chip.name.split()[0].lower()
        for model, name, gpus, batch in (
            (LLAMA_8B, "8b", 1, 256), (LLAMA_70B, "70b", large, 256), (QWEN3_30B_A3B, "moe", 1, 512),
        ):  # fmt: skip
            made[f"{short}-{name}"] = partial(_roofline, Deployment(chip, model, gpus), batch)
    return made


PRESETS: dict[str, Callable[[], Preset]] = {
    **_rooflines(),
    "dense-100b-calibrated": _dense,
    "moe-calibrated": _moe,
    "p32374": _p32374,
}
"""Every preset by name; each call builds a new one."""
