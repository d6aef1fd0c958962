"""What one step showed of each draft position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def cascade_counts(
    drafted: Sequence[int], accepted: Sequence[int], k_max: int
) -> tuple[list[int], list[int], list[int]]:
    """Successes, failures and drafts per position of one step.

    A request with ``d`` drafts of which ``n`` were accepted shows successes at positions 1..n and, if ``n < d``, one
    failure at n+1; later positions were not observed.

    Returns
    -------
    succeeded, failed, present
        Each of shape ``(k_max,)``: accepted there, rejected there, requests that had a draft there.

    Examples
    --------
    >>> cascade_counts([3, 3, 1], [1, 3, 1], k_max=3)
    ([3, 1, 1], [0, 1, 0], [3, 2, 2])
    """
    succeeded, failed, present = [0] * k_max, [0] * k_max, [0] * k_max
    requests = len(drafted)
    width = drafted[0] if requests else 0
    if 0 < width <= k_max and drafted.count(width) == requests:  # the usual step: all requests drafted alike
        left = requests
        for j in range(width):
            present[j] = requests
            failed[j] = accepted.count(j)
            left -= failed[j]
            succeeded[j] = left
        return succeeded, failed, present
    for (d, n), times in Counter(zip(drafted, accepted, strict=True)).items():
        for j in range(min(n, k_max)):
            succeeded[j] += times
        if n < d and n < k_max:
            failed[n] += times
        for j in range(min(d, k_max)):
            present[j] += times
    return succeeded, failed, present
