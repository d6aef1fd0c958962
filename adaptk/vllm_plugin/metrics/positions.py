"""Drafts accepted and rejected by position, summed over the steps."""

from __future__ import annotations

# Steps that are added up at once: the same numbers at a third of what it costs to add them one by one.
_TOGETHER = 64


class Positions:
    """Sums of what steps showed of each draft position; one thread takes, any may ask.

    Parameters
    ----------
    k_max
        Draft positions, ``>= 0``.

    Examples
    --------
    >>> positions = Positions(2)
    >>> positions.take([3, 1], [0, 2])
    >>> positions.take([1, 1], [1, 0])
    >>> positions.totals()
    [4, 2, 1, 2]
    """

    def __init__(self, k_max: int) -> None:
        # What is added up, and what is not yet: replaced together, so that no reader counts a step twice.
        self._state: tuple[list[int], list[list[int]]] = ([0] * (2 * k_max), [])

    def take(self, accepted: list[int], rejected: list[int]) -> None:
        """Take in one step; each of shape ``(k_max,)``."""
        late = self._state[1]
        late.append(accepted + rejected)
        if len(late) >= _TOGETHER:
            self._state = self.totals(), []

    def totals(self) -> list[int]:
        """Accepted by position, then rejected by position, shape ``(2 * k_max,)``."""
        settled, late = self._state
        return list(map(sum, zip(settled, *late.copy(), strict=True)))
