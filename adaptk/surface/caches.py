"""Key-value caches of many shapes in one piece of memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptk.surface.architecture import Architecture
from adaptk.surface.plan import Place
from adaptk.surface.weights import Weights

if TYPE_CHECKING:
    import torch

Cache = tuple["torch.Tensor", "torch.Tensor"]


class Caches:
    """Memory that the layers of a place take turns in where it does not hold one cache for each.

    Parameters
    ----------
    elements
        Size of the memory, in numbers.
    weights
        Fills it with noise.
    """

    def __init__(self, elements: int, weights: Weights) -> None:
        self._memory = weights.filled((elements,))

    def of(self, shape: Architecture, place: Place, count: int) -> list[Cache]:
        """Keys and values for ``count`` layers in turn, each of shape ``(batch, kv_heads, context, head_dim)``.

        Layers have caches of their own as far as the memory goes, so that small ones are not read from a
        processor's cache.
        """
        half = shape.cache_elements(*place) // 2
        slots = self._memory.numel() // (2 * half)
        size = (place.batch, shape.kv_heads, place.context, shape.head_dim)
        pieces = [self._memory[i * half : (i + 1) * half].view(size) for i in range(2 * min(slots, count))]
        pairs = list(zip(pieces[::2], pieces[1::2], strict=True))
        return [pairs[i % len(pairs)] for i in range(count)]


def cut(cache: Cache, place: Place, window: int | None) -> Cache:
    """The newest tokens of ``cache``, as many as a layer with ``window`` reads."""
    if window is None or window >= place.context:
        return cache
    return cache[0][:, :, -window:], cache[1][:, :, -window:]


def cache_elements_wanted(shape: Architecture, places: list[Place], most: int) -> int:
    """Numbers to set aside, at most ``most``: a cache for every layer of the largest place, or as much as there is.

    A quarter of ``most`` is enough for many layers to take turns; more is taken only where one cache needs it.
    """
    sizes = [(shape.cache_elements(*place), shape.all_cache_elements(*place)) for place in places]
    whole = max((every for _, every in sizes), default=0)
    single = max((one for one, _ in sizes if one <= most), default=0)
    return max(1, min(max(whole, single), max(most // 4, single)))


def bytes_of_model(shape: Architecture, place: Place, element: int) -> int:
    """Bytes of all weights and of all caches at ``place``."""
    return element * (shape.parameters + shape.all_cache_elements(*place))
