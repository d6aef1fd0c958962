"""What one step showed of each draft position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_SHORT = 16  # drafts and accepted drafts below this fit into one byte together


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
    if width < _SHORT and drafted.count(width) == requests:  # the usual step: all requests drafted alike
        # Bytes are counted several times faster than the entries of a list.
        counted = bytes(accepted)
        left = requests
        for j in range(width if width < k_max else k_max):
            present[j] = requests
            failed[j] = counted.count(j)
            left -= failed[j]
            succeeded[j] = left
        return succeeded, failed, present
    if requests and max(drafted) < _SHORT:
        _count_pairs(bytes(drafted), bytes(accepted), succeeded, failed, present)
        return succeeded, failed, present
    for (d, n), times in Counter(zip(drafted, accepted, strict=True)).items():
        for j in range(min(n, k_max)):
            succeeded[j] += times
        if n < d and n < k_max:
            failed[n] += times
        for j in range(min(d, k_max)):
            present[j] += times
    return succeeded, failed, present


def _count_pairs(drafted: bytes, accepted: bytes, succeeded: list[int], failed: list[int], present: list[int]) -> None:
    """Count where requests drafted differently, all of them less than ``_SHORT``.

    A request that accepted ``n`` drafts failed behind them unless it had no more: ``16 n + n`` in one byte. The bytes
    of all requests are put together as two large integers, without a loop over the requests.
    """
    requests = len(drafted)
    mixed = (int.from_bytes(drafted, "big") << 4) + int.from_bytes(accepted, "big")
    pairs = mixed.to_bytes(requests, "big")
    reached = there = requests
    for j in range(len(present)):
        there -= drafted.count(j)
        if there == 0:
            break
        present[j] = there
        ended = accepted.count(j)
        failed[j] = ended - pairs.count(17 * j)
        reached -= ended
        succeeded[j] = reached
