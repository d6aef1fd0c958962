"""The published shapes that adaptk set out from, as the simulator gives them: calibrated, not measured."""

from __future__ import annotations

from functools import cache

import pytest

from adaptk.replay.evaluate import Bench
from adaptk.replay.presets import preset
from adaptk.replay.scenarios import find


@cache
def speed(scenario: str, policy: str) -> float:
    """Tokens per second over 12,000 steps, the same noise for every policy."""
    return bench(scenario).run(policy).row.tokens_per_s


@cache
def bench(scenario: str) -> Bench:
    return Bench(find(scenario), 0)


@pytest.mark.parametrize("batch", [128, 256])
def test_dynamic_k_over_fixed_three(batch: int) -> None:
    """+23 % at both, within 2 points; and fixed K=3 is slower than no drafts at all."""
    name = f"seed-dense-{batch}"
    assert speed(name, "table") / speed(name, "fixed-3") == pytest.approx(1.23, abs=0.02)
    assert speed(name, "fixed-3") < min(speed(name, "fixed-0"), speed(name, "no-drafter"))


@pytest.mark.parametrize(("batch", "gain"), [(128, 1.075), (256, 1.018)])
def test_dynamic_k_over_no_speculation(batch: int, gain: float) -> None:
    """+7.5 % and +1.8 %, within 2 points, against an engine without drafter and against in-engine K=0."""
    name = f"seed-dense-{batch}"
    for nothing in ("no-drafter", "fixed-0"):
        assert speed(name, "table") / speed(name, nothing) == pytest.approx(gain, abs=0.02)


def test_a_mixture_of_experts_wants_three_nearly_everywhere() -> None:
    """Five at batch 16 to 32, where it brings no speed."""
    p = preset("moe-calibrated")
    table = p.surface.to_table((0, 1, 2, 3, 5), p.acceptance, range(1, 513))
    best = {batch: table.best_k(batch) for batch in range(1, 513)}
    assert {k: [b for b in best if best[b] == k] for k in set(best.values()) - {3}} == {5: list(range(16, 33))}
    assert speed("seed-moe-24", "fixed-5") / speed("seed-moe-24", "fixed-3") == pytest.approx(1.0, abs=0.01)
    assert speed("seed-moe-24", "fixed-3") / speed("seed-moe-24", "no-drafter") > 1.5
