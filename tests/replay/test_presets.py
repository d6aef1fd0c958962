"""Presets: each name gives a whole engine."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk.replay.presets import PRESETS, preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_whole(name: str) -> None:
    """As many positions as K, each a probability; step times between 1 ms and a second; a note that says what it is."""
    surface, acceptance, note, kv_tokens = preset(name)
    assert kv_tokens is None or kv_tokens > 100_000
    assert len(acceptance) == surface.k_max
    assert all(0.0 < a < 1.0 for a in acceptance)
    assert surface.max_batch >= 256
    grid = surface.itl_grid()[1:]
    assert 1.0 < grid.min() < grid.max() < 1000.0
    assert np.all(surface.without_drafter().itl_grid() <= surface.itl_grid()[:, :1])
    assert any(word in note for word in ("not measured", "pull request"))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_the_same_each_time(name: str) -> None:
    first, second = preset(name), preset(name)
    assert np.array_equal(first.surface.verify_ms, second.surface.verify_ms)
    assert first.surface.verify_ms is not second.surface.verify_ms


def test_the_70b_and_the_mixture_say_on_how_many_gpus() -> None:
    assert "4 x H200" in preset("h200-70b").note
    assert "1 x B200" in preset("b200-moe").note
    assert "2 x B200" in preset("b200-70b").note


def test_each_gpu_with_each_model() -> None:
    """A newer GPU is quicker at every batch size, if it is as many."""
    for model in ("8b", "moe"):
        old, mid, new = (preset(f"{chip}-{model}").surface.itl_grid()[1:] for chip in ("h100", "h200", "b200"))
        assert np.all(new < mid)
        assert np.all(mid < old)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"preset is 'h100': give one of h100-8b, h100-70b, .*p32374"):
        preset("h100")
