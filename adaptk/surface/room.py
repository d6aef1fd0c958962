"""What fits in memory: which places, how much for caches, how much for layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from adaptk.surface.architecture import Architecture
from adaptk.surface.caches import bytes_of_model, cache_elements_wanted
from adaptk.surface.drafters import drafter_weights
from adaptk.surface.machine import MachineError
from adaptk.surface.plan import Place


class Room(NamedTuple):
    """A division of memory.

    ``places`` fit, in the order in which they were given, ``too_large`` do not; ``cache`` is set aside for keys and
    values, in numbers; ``layers`` is left for the layers that are measured, in bytes; ``model_fits`` says whether the
    whole model would.
    """

    places: list[Place]
    too_large: list[Place]
    cache: int
    layers: int
    model_fits: bool


def divided(
    target: Architecture, drafter: Architecture | None, places: Sequence[Place], k_max: int, free: int, element: int
) -> Room:
    """Divide ``free`` bytes among the heads, the drafter, what is alive in a pass, caches and layers.

    Parameters
    ----------
    target, drafter
        Sizes of both; ``None``: there is no drafter.
    places
        Those that are to be measured.
    k_max
        The most drafts per request.
    free
        Bytes that may be used.
    element
        Bytes of a number.

    Raises
    ------
    MachineError
        If not even a layer of each kind fits, or no place's caches.
    """
    model_fits = element * target.parameters <= free
    # Where the model fits, what no engine could hold beside it is not worth the time; where not, all is a rehearsal.
    fitting = [place for place in places if not model_fits or bytes_of_model(target, place, element) <= free]
    if not fitting:
        raise _no_cache(target)
    tokens = max(place.batch for place in fitting) * (k_max + 1)
    fixed = target.head_weights + target.activation_elements(tokens)
    if drafter is not None:
        fixed += drafter_weights(drafter) + drafter.activation_elements(tokens)
    layer = sum(target.block_weights(kind) for kind in target.kinds)
    rest = free // element - fixed
    if rest <= layer:
        need = (fixed + layer) * element
        raise MachineError(
            f"{target.name}: one layer of each kind, the heads and the drafter need {need / 1e9:.1f} GB at {tokens} "
            f"tokens, and {free / 1e9:.1f} GB are free: give smaller --batches, or --tp for one rank's share"
        )
    shapes = [target] if drafter is None else [target, drafter]
    cache = max(cache_elements_wanted(shape, fitting, rest - layer) for shape in shapes)
    fitting = [place for place in fitting if all(shape.cache_elements(*place) <= cache for shape in shapes)]
    if not fitting:
        raise _no_cache(target)
    too_large = [place for place in places if place not in fitting]
    return Room(fitting, too_large, cache, (rest - cache) * element, model_fits)


def _no_cache(target: Architecture) -> MachineError:
    return MachineError(
        f"{target.name}: the key-value cache of no cell fits in memory: give smaller --batches or --contexts"
    )
