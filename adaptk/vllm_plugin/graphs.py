"""Which steps replay a FULL CUDA graph under model runner V2, and capture sizes under which every arm has one.

vLLM captures one uniform graph per capture size and width (drafts + 1), at the size rounded up to a multiple of the
width. A step looks its graph up at the next captured number of tokens, whatever width that was captured for: where it
is no multiple of the step's own width, a graph that lies further up stays out of its reach.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Batch sizes with a graph of their own for every width; further up, sizes grow by multiples that all widths share.
_OWN_GRAPHS = (1, 2, 3, 4, 6)
# Captured numbers of tokens lie about so far apart, as vLLM's own do; further where widths share no multiple so small.
_STEP, _WIDE, _WIDE_STEP = 8, 256, 16
# Graphs of decode steps that adaptk may cause. Each takes memory that the KV cache then lacks, and part of a second.
MOST_CAPTURES = 400


class Hole(NamedTuple):
    """A batch size at which an arm has no graph, though larger ones have.

    ``beyond`` is the captured number of tokens at which the step finds none of its width.
    """

    k: int
    batch: int
    beyond: int


class Coverage:
    """The uniform decode steps that replay a FULL graph.

    vLLM to 0.29 keeps graphs of both modes in one list, so that a PIECEWISE graph, too, can stand in the way of a FULL
    one; later ones keep two. What is covered here is covered under both.

    Parameters
    ----------
    sizes
        ``cudagraph_capture_sizes``, tokens.
    ks
        Drafts per request for which vLLM captures, as its schedule names them.
    max_num_seqs
        Largest batch of the engine.
    uniform
        Whether decode steps have graphs of their own. ``False``: mode FULL, whose graphs take any mix of widths.

    Examples
    --------
    >>> graphs = Coverage([1, 2, 4, 8, 16, 24, 32], (0, 3), max_num_seqs=16)
    >>> graphs(8, 3), graphs(9, 3), graphs(16, 0)
    (True, False, True)
    >>> graphs.reach(3), graphs.captures
    (8, 10)
    """

    def __init__(self, sizes: Iterable[int], ks: Iterable[int], max_num_seqs: int, uniform: bool = True) -> None:
        self.sizes = tuple(sorted(set(sizes)))
        self.ks = tuple(sorted(set(ks)))
        self.max_num_seqs = max_num_seqs
        self._uniform = uniform
        self._most = self.sizes[-1] if self.sizes else 0
        widest = max_num_seqs * (self.ks[-1] + 1) if self.ks else 0
        self._graphs: dict[int, set[int]] = {}
        for k in self.ks if uniform else ():
            rounded = {_up(size, k + 1) for size in self.sizes}
            self._graphs[k] = {n for n in rounded if n <= min(self._most, widest) and n // (k + 1) <= max_num_seqs}
        self._tokens = sorted(set(self.sizes).union(*self._graphs.values()))

    def __call__(self, batch: int, k: int) -> bool:
        """Whether a step that verifies ``k`` drafts of each of ``batch`` requests replays a FULL graph."""
        tokens = batch * (k + 1)
        if not 0 < batch <= self.max_num_seqs or tokens > self._most or k not in self.ks:
            return False
        return not self._uniform or self._tokens[bisect_left(self._tokens, tokens)] in self._graphs[k]

    @property
    def padded(self) -> tuple[int, ...]:
        """Numbers of tokens that steps are padded to, rising."""
        return tuple(self._tokens)

    @property
    def captures(self) -> int:
        """Graphs of decode steps that are captured, for one LoRA case."""
        return sum(map(len, self._graphs.values())) if self._uniform else len(self.sizes)

    def reach(self, k: int) -> int:
        """Largest batch at which an arm fits under the largest capture size."""
        return min(self.max_num_seqs, self._most // (k + 1))

    def holes(self, k: int) -> list[Hole]:
        """Where an arm has no graph within its reach, batch sizes rising."""
        missed = [batch for batch in range(1, self.reach(k) + 1) if not self(batch, k)]
        return [Hole(k, batch, self._tokens[bisect_left(self._tokens, batch * (k + 1))]) for batch in missed]

    def whole(self, k: int) -> bool:
        """Whether an arm has a graph at every batch within its reach, and any reach at all."""
        return k in self.ks and self.reach(k) > 0 and not self.holes(k)


def arranged(sizes: Sequence[int], ks: Sequence[int], max_num_seqs: int) -> list[int]:
    """Capture sizes under which every arm has a graph at every batch within its reach, up to the same ceiling.

    vLLM's own sizes where they do: always where all widths are powers of two. Else sizes that the widths share, about
    as far apart as vLLM's, and below the first of these one for each of a few small batches and what must lie between.

    Parameters
    ----------
    sizes
        Capture sizes as vLLM would have them, tokens; the largest one is the ceiling.
    ks
        Drafts per request of the arms.
    max_num_seqs
        Largest batch of the engine.

    Examples
    --------
    >>> arranged([1, 2, 4, 8, 16], (0, 1, 3), 4)
    [1, 2, 4, 8, 16]
    >>> arranged([1, 2, 4, 8, 16, 24], (0, 2), 8)
    [1, 2, 3, 4, 6, 8, 9, 12, 15, 18, 21, 24]
    """
    found = Coverage(sizes, ks, max_num_seqs)
    if not sizes or all(map(found.whole, ks)):
        return list(found.sizes)
    ceiling = found.sizes[-1]
    chosen = {ceiling}
    for k in ks:
        reach = found.reach(k)
        chosen.update(batch * (k + 1) for batch in (*_OWN_GRAPHS, reach) if 0 < batch <= reach)
    shared = math.lcm(*(k + 1 for k in ks))
    size = shared
    while size <= ceiling:
        chosen.add(size)
        size += shared * max(1, (_STEP if size < _WIDE else _WIDE_STEP) // shared)
    return _closed(chosen, ks, max_num_seqs)


def kept(sizes: Sequence[int], ks: Sequence[int], max_num_seqs: int, fixed: bool) -> tuple[int, ...]:
    """The arms that can all have their graphs: the deepest, and from the shallowest on each that goes with these.

    One whose width exceeds the largest capture size never has any.

    Parameters
    ----------
    sizes, ks, max_num_seqs
        As in ``arranged``.
    fixed
        Whether the sizes must stay, so that an arm fits in if no arm so far loses a graph by it. Otherwise one fits in
        if ``arranged`` sizes make no more than ``MOST_CAPTURES`` graphs.

    Examples
    --------
    >>> kept([1, 2, 4, 8, 16, 24, 32], (0, 1, 2, 3), 8, fixed=True)
    (0, 1, 3)
    """

    def fit(arms: Sequence[int]) -> bool:
        found = Coverage(sizes if fixed else arranged(sizes, arms, max_num_seqs), arms, max_num_seqs)
        return all(map(found.whole, arms)) and (fixed or found.captures <= MOST_CAPTURES)

    if fit(ks):
        return tuple(sorted(ks))
    found = Coverage(sizes, ks, max_num_seqs)
    deepest_first = sorted((k for k in ks if found.reach(k) > 0), reverse=True)
    arms = deepest_first[:1]
    for k in sorted(deepest_first[1:]):
        if fit((*arms, k)):
            arms.append(k)
    return tuple(sorted(arms))


def _closed(sizes: set[int], ks: Sequence[int], max_num_seqs: int) -> list[int]:
    """Add the size that fills each hole, from the top down; none lies above the ceiling, so that it comes to an end."""
    sizes = set(sizes)
    while True:
        found = Coverage(sizes, ks, max_num_seqs)
        if found.captures > MOST_CAPTURES:  # too many as it is: whoever wants them has to leave an arm out
            return list(found.sizes)
        # Of each arm the last hole before a graph that stands in the way; filling it may open others below only.
        holes = [hole for k in ks for hole in found.holes(k)[-1:]]
        if not holes:
            return list(found.sizes)
        for k, _, beyond in holes:
            sizes.add(min(beyond // (k + 1), found.reach(k)) * (k + 1))


def _up(size: int, width: int) -> int:
    return -(-size // width) * width
