"""Which cells are measured, in which order, and how many layers stand for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_REAL_BYTES = 2**26  # of weights: fewer would come out of a cache, as those of a whole model never do


class Place(NamedTuple):
    """A batch size and a context, tokens per request: all K are measured there side by side."""

    batch: int
    context: int


def coarse_first(batches: Sequence[int], contexts: Sequence[int]) -> list[Place]:
    """All places, the corners of the grid first, then what halves the gaps: a table at whatever point it ends.

    Examples
    --------
    >>> [place.batch for place in coarse_first([1, 2, 4, 8, 16], [1024])]
    [1, 16, 4, 2, 8]
    """
    batch_depths, context_depths = _depths(batches), _depths(contexts)
    places = [Place(batch, context) for context in context_depths for batch in batch_depths]
    return sorted(
        places,
        key=lambda place: (batch_depths[place.batch] + context_depths[place.context], place.context, place.batch),
    )


def _depths(values: Sequence[int]) -> dict[int, int]:
    """How many halvings it takes until each value is among the chosen ones; the ends come first."""
    ordered = sorted(set(values))
    depths = {ordered[0]: 0, ordered[-1]: 0}
    gaps, depth = [(0, len(ordered) - 1)], 0
    while gaps:
        depth += 1
        halves = []
        for low, high in gaps:
            if high - low > 1:
                middle = (low + high) // 2
                depths[ordered[middle]] = depth
                halves += [(low, middle), (middle, high)]
        gaps = halves
    return depths


class Share(NamedTuple):
    """Layers of one kind: how many there are, the bytes of one, and the seconds that one costs in a whole round."""

    layers: int
    layer_bytes: int
    seconds: float


def layers_to_measure(shares: Sequence[Share], free_bytes: int, seconds: float) -> list[int]:
    """How many layers of each kind to build: all, or as many of each as memory and time allow.

    At least one, and at least what a cache cannot hold, even where the time is short: the cells come coarse first.
    Where not even one of each fits, none of any. Shape ``(kinds,)``.

    Examples
    --------
    >>> layers_to_measure([Share(32, 2**29, 0.1)], free_bytes=2**40, seconds=60.0)
    [32]
    >>> layers_to_measure([Share(80, 2**30, 1.0)], free_bytes=2**35, seconds=10.0)
    [10]
    """
    if sum(share.layer_bytes for share in shares) > free_bytes:
        return [0] * len(shares)
    least = [min(share.layers, max(1, -(-_REAL_BYTES // max(1, share.layer_bytes)))) for share in shares]
    best = [1] * len(shares)
    for most in range(1, max(share.layers for share in shares) + 1):
        counts = [min(share.layers, most) for share in shares]
        pairs = list(zip(counts, shares, strict=True))
        if sum(count * share.layer_bytes for count, share in pairs) > free_bytes:
            break
        enough = all(count >= wanted for count, wanted in zip(best, least, strict=True))
        if enough and sum(count * share.seconds for count, share in pairs) > seconds:
            break
        best = counts
    return best
