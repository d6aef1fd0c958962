"""A batch of fixed size that runs a policy: each step verifies for the last choice and drafts for the new one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from adaptk.replay.policies.base import Policy, Setup
from adaptk.step import StepRecord
from adaptk.table import GoodputTable
from tests.strategies import rows_of

STARTUP = GoodputTable.from_rows(
    rows_of({b: {k: 8.0 + 0.8 * k + 0.02 * b * (k + 1) for k in (0, 1, 3, 7)} for b in (1, 64, 256)}), [0.7, 0.6, 0.5]
)


def setup(arms: tuple[int, ...] = (0, 1, 3, 7), seed: int = 0, table: GoodputTable | None = None) -> Setup:
    return Setup(table=table, startup=STARTUP, arms=arms, seed=seed)


def step(
    asked: int, made: int | None = None, ms: float | None = 10.0, accepted: int = 0, batch: int = 1, **extra: int
) -> StepRecord:
    """A step that verifies ``asked`` drafts per request, ``accepted`` of them kept, and makes ``made`` or as many."""
    k = asked if made is None else made
    drafted = [asked] * batch
    return StepRecord(batch_size=batch, elapsed_ms=ms, k=k, drafted=drafted, accepted=[accepted] * batch, **extra)


def run(
    policy: Policy,
    steps: int,
    itl_ms: Callable[[int], float],
    acceptance: Sequence[float],
    batch: int = 8,
    lag: int = 0,
    noise: float = 0.02,
    seed: int = 0,
) -> tuple[list[int], float]:
    """The choices, and tokens per millisecond. Half of what K adds to a step is drafting; feedback is ``lag`` late."""
    rng = np.random.default_rng(seed)
    pending: deque[StepRecord] = deque()
    choices: list[int] = []
    asked, tokens, total_ms = 0, 0, 0.0
    for _ in range(steps):
        k = policy.choose(batch)
        passes = rng.random((batch, asked)) < np.asarray(acceptance[:asked])
        accepted = np.cumprod(passes, axis=1).sum(axis=1).astype(int).tolist()
        ms = 0.5 * (itl_ms(asked) + itl_ms(k)) * float(np.exp(noise * rng.standard_normal()))
        pending.append(StepRecord(batch_size=batch, elapsed_ms=ms, k=k, drafted=[asked] * batch, accepted=accepted))
        if len(pending) > lag:
            policy.observe(pending.popleft())
        tokens, total_ms = tokens + batch + sum(accepted), total_ms + ms
        choices.append(k)
        asked = k
    return choices, tokens / total_ms


def best_speed(
    itl_ms: Callable[[int], float], acceptance: Sequence[float], arms: Sequence[int], batch: int = 8
) -> float:
    """Tokens per millisecond of the best fixed arm."""
    lengths = {k: 1.0 + float(np.sum(np.cumprod(acceptance[:k]))) for k in arms}
    return max(batch * lengths[k] / itl_ms(k) for k in arms)
