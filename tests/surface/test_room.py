"""How memory is divided."""

from __future__ import annotations

import pytest

from adaptk.surface.drafters import eagle_shape
from adaptk.surface.machine import MachineError
from adaptk.surface.plan import Place
from adaptk.surface.presets import preset
from adaptk.surface.room import divided
from tests.surface.small import small

GB = 10**9


def test_an_8b_model_on_a_large_card() -> None:
    """Beside 16 GB of weights in 120 GB: 64 requests of 8,192 tokens fit (69 GB), 128 do not; all layers have room."""
    target = preset("llama-8b")
    places = [Place(1, 1024), Place(64, 8192), Place(128, 8192)]
    room = divided(target, eagle_shape(target), places, 7, 120 * GB, 2)
    assert room.places == places[:2]
    assert room.too_large == [Place(128, 8192)]
    assert room.model_fits
    assert room.layers > 2 * 32 * target.block_weights(target.layers[0])
    assert room.cache >= target.cache_elements(64, 8192)


def test_what_is_divided_is_no_more_than_there_is() -> None:
    """Caches, layers, heads and what is alive together stay within the free bytes."""
    target = preset("moe-30b-a3b")
    room = divided(target, None, [Place(32, 4096)], 3, 20 * GB, 2)
    assert not room.model_fits
    fixed = target.head_weights + target.activation_elements(32 * 4)
    assert 2 * (room.cache + fixed) + room.layers <= 20 * GB
    assert room.layers >= 2 * target.block_weights(target.layers[0])


def test_a_single_cache_too_large_is_named() -> None:
    """Where the model does not fit, only what cannot be measured at all is left out."""
    target = preset("dense-70b")
    places = [Place(1, 1024), Place(256, 100_000)]
    assert divided(target, None, places, 0, 20 * GB, 2).too_large == [Place(256, 100_000)]


def test_errors_say_what_to_give() -> None:
    """No layer, or no cache: both name the options."""
    with pytest.raises(MachineError, match=r"0\.0 GB are free: give smaller --batches, or --tp"):
        divided(small(), None, [Place(1, 8)], 3, 1000, 4)
    with pytest.raises(MachineError, match="no cell fits in memory: give smaller --batches or --contexts"):
        divided(small(), None, [Place(1, 10**6)], 3, 10**6, 4)
