"""Models, their caches and drafters, and the parts that make up a step."""

from __future__ import annotations

from typing import Any

import pytest

from adaptk.surface import model as models
from adaptk.surface.caches import Caches, cache_elements_wanted, cut
from adaptk.surface.drafters import Drafter, drafter_weights, eagle_shape
from adaptk.surface.measure import Measurement
from adaptk.surface.model import Model
from adaptk.surface.plan import Place
from adaptk.surface.timing import WallTimer
from adaptk.surface.weights import Weights
from tests.surface.small import Clock, small, small_mixture

torch = pytest.importorskip("torch")


def weights() -> Weights:
    return Weights("cpu", torch.float32)


def test_layers_have_caches_of_their_own_as_far_as_memory_goes() -> None:
    """Four places in memory: the first four layers share nothing, the fifth takes the first's place."""
    shape, place = small(), Place(2, 5)
    caches = Caches(4 * shape.cache_elements(*place) + 3, weights()).of(shape, place, 5)
    places = [(keys.data_ptr(), values.data_ptr()) for keys, values in caches]
    assert len({each for pair in places[:4] for each in pair}) == 8
    assert places[4] == places[0]
    assert {keys.shape for keys, _ in caches} == {(2, 2, 5, 8)}
    assert all(keys.is_contiguous() for keys, _ in caches)


def test_a_window_cuts_the_cache() -> None:
    """A layer with a window reads its newest tokens, one without, or with a wider one, all."""
    cache = Caches(10_000, weights()).of(small(), Place(2, 5), 1)[0]
    assert cut(cache, Place(2, 5), 3)[0].shape == (2, 2, 3, 8)
    assert cut(cache, Place(2, 5), 3)[1][0, 0, -1, 0] == cache[1][0, 0, -1, 0]
    assert cut(cache, Place(2, 5), None)[0].shape == cut(cache, Place(2, 5), 9)[0].shape == (2, 2, 5, 8)


def test_memory_for_caches_is_bounded() -> None:
    """All layers of the largest place, but no more than a quarter, unless one layer needs that."""
    shape = small()
    one = shape.cache_elements(8, 100)
    places = [Place(1, 100), Place(8, 100)]
    assert cache_elements_wanted(shape, places, most=100 * one) == 3 * one
    assert cache_elements_wanted(shape, places, most=8 * one) == 2 * one
    assert cache_elements_wanted(shape, places, most=one) == one
    assert cache_elements_wanted(shape, places, most=one - 1) < one


def passes(monkeypatch: pytest.MonkeyPatch, clock: Clock, block_ms: float) -> list[int]:
    """Let each block take ``block_ms``; the numbers of tokens that come by are kept."""
    seen: list[int] = []

    def call(_: Any, x: Any, cache: Any) -> Any:
        seen.append(len(x))
        clock.wait(block_ms)
        return x

    monkeypatch.setattr(models.Block, "__call__", call)
    return seen


@pytest.mark.parametrize("counts", [[1], [2], [5]])
def test_few_layers_stand_for_all(monkeypatch: pytest.MonkeyPatch, counts: list[int]) -> None:
    """Blocks are scaled by how many there are, the head is not: on a steady clock the sum is exact."""
    clock = Clock()
    passes(monkeypatch, clock, 3.0)
    monkeypatch.setattr(models.Head, "__call__", lambda _, x: clock.wait(11.0))
    shape = small(num_hidden_layers=5)
    model, place = Model(shape, counts, weights()), Place(2, 4)
    caches, timer = Caches(10_000, weights()), WallTimer(clock)
    x = torch.zeros(4, 32)
    took = sum(part.factor * timer.prepare(part.run)() for part in model.parts(x, place, caches))
    assert took == pytest.approx(5 * 3.0 + 11.0)
    assert model.complete == (counts == [5])


def test_kinds_are_scaled_each_by_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one dense layer and eleven mixtures, with one and two built: each counts as often as it is there."""
    clock = Clock()
    shape = small_mixture(num_hidden_layers=12, first_k_dense_replace=1)

    def call(block: Any, x: Any, cache: Any) -> Any:
        clock.wait(100.0 if block.layer.mixture else 7.0)
        return x

    monkeypatch.setattr(models.Block, "__call__", call)
    monkeypatch.setattr(models.Head, "__call__", lambda _, x: clock.wait(1.0))
    model = Model(shape, [1, 2], weights())

    class Load:
        def parts(self, place: Place, k: int) -> list[models.Part]:
            return model.parts(torch.zeros(2, 32), place, Caches(10_000, weights()))

    left = Clock()
    measured = Measurement(Load(), lambda: WallTimer(clock), [0], lambda: 1.0 - left(), lambda place: 1.0)
    measured.run([Place(2, 4)], lambda place: left.wait(2000.0))
    ((found),) = measured.rows().values()
    assert found.median_ms == pytest.approx(7.0 + 11 * 100.0 + 1.0)
    assert found.spread_ms == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("k", "tokens"), [(0, [4]), (1, [8]), (3, [16, 4, 4])])
def test_drafting_passes(monkeypatch: pytest.MonkeyPatch, k: int, tokens: list[int]) -> None:
    """The first pass takes all tokens of the step, the others one per request; K=0 has the first, too, but no head."""
    clock = Clock()
    seen = passes(monkeypatch, clock, 1.0)
    heads: list[int] = []
    monkeypatch.setattr(models.Head, "__call__", lambda _, x: heads.append(len(x)))
    shape = eagle_shape(small())
    drafter = Drafter(shape, weights())
    part = drafter.part(torch.zeros(4 * (k + 1), 32), k, Place(4, 5), Caches(10_000, weights()))
    part.run()
    assert seen == tokens
    assert heads == [4] * k
    assert part.factor == 1.0


def test_eagle_heads() -> None:
    """One dense block with a reduced vocabulary; for a mixture as wide as what one token takes."""
    dense = eagle_shape(small(vocab_size=128_256))
    assert (len(dense.layers), dense.width, dense.vocab, dense.fused) == (1, 48, 32_000, True)
    routed = eagle_shape(small_mixture(n_shared_experts=1))
    assert (routed.width, routed.experts, routed.vocab, routed.layers[0].mixture) == (2 * 16 + 16, 0, 97, False)


def test_a_whole_model_as_drafter_runs_for_real() -> None:
    """All its layers, and no joining of inputs; its weights are those that memory is planned by."""
    shape = small(num_hidden_layers=2, vocab_size=50)
    drafter = Drafter(shape, weights())
    with torch.inference_mode():
        drafter.part(torch.zeros(6, 32), 2, Place(2, 5), Caches(10_000, weights())).run()
    assert drafter_weights(shape) == 2 * shape.block_weights(shape.layers[0]) + 32 * 50
    assert drafter_weights(eagle_shape(shape)) == shape.block_weights(shape.layers[0]) + 32 * 50 + 2 * 32 * 32
