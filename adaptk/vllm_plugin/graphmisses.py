"""Steps that ran without the CUDA graph that their shape otherwise has, where vLLM reports its graphs."""

from __future__ import annotations

from typing import Any

_MODES = ("NONE", "PIECEWISE", "FULL")  # the cheapest to run last
# A miss is an exception where fewer than one in ten of the shape's steps miss; after three in a row it is the rule.
_USUAL, _RATE = 0.9, 0.05
_MOST_SHAPES = 4096


class GraphMisses:
    """Tells a miss that is an exception, whose time is no arm's, from what the arm really costs at that batch size.

    vLLM reports the mode of each step's graph with ``--cudagraph-metrics``; without that nothing is counted here.

    Examples
    --------
    >>> misses = GraphMisses()
    >>> [misses.exceptional(64, 3, mode) for mode in ("FULL", "PIECEWISE", "FULL")]
    [False, True, False]
    >>> misses.count
    1
    """

    def __init__(self) -> None:
        self.count = 0  # exceptional misses
        # Of each (batch, drafts): the best mode seen, and the share of steps that had it.
        self._shapes: dict[tuple[int, int], tuple[int, float]] = {}

    def exceptional(self, batch: int, drafts: int, mode: str) -> bool:
        """Whether a step of decodes missed a graph that nearly all such steps have.

        Parameters
        ----------
        batch
            Requests in the step, all of which decode.
        drafts
            Most drafts of any of them.
        mode
            What the step replayed: ``FULL``, ``PIECEWISE`` or ``NONE``; another name counts as ``NONE``.
        """
        level = _MODES.index(mode) if mode in _MODES else 0
        best, share = self._shapes.get((batch, drafts), (level, 1.0))
        if level > best:
            best, share = level, 1.0
        missed = level < best and share > _USUAL
        if len(self._shapes) >= _MOST_SHAPES:
            self._shapes.clear()
        self._shapes[batch, drafts] = best, share + _RATE * ((level == best) - share)
        self.count += missed
        return missed


def mode_of(result: Any) -> str | None:
    """What the step of a ``ModelRunnerOutput`` replayed; ``None`` where vLLM does not report it."""
    stats = getattr(result, "cudagraph_stats", None)
    return None if stats is None else str(stats.runtime_mode)
