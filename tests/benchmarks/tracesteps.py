"""Steps as a server's trace holds them: requests that come and go, times to the last digit, every field in use."""

from __future__ import annotations

import random
from collections.abc import Iterator

from adaptk.decision import Decision, Reason
from adaptk.step import StepRecord

ARMS = (0, 1, 3, 7)


def steps(batch: int, seed: int = 0) -> Iterator[tuple[StepRecord, Decision]]:
    """Steps of so many requests each, without end."""
    chance = random.Random(seed)
    requests, next_request = list(range(batch)), batch
    t_ms, seq, k = 1e7 * chance.random(), 0, 3
    while True:
        if seq % 32 == 0:
            k = chance.choice(ARMS)
        if chance.random() < batch / 200.0:  # an answer of 200 steps
            requests[chance.randrange(batch)] = next_request
            next_request += 1
        elapsed = 8.0 + 0.02 * batch + chance.random()
        t_ms += elapsed
        accepted = [chance.randrange(k + 1) for _ in range(batch)]
        record = StepRecord(
            batch_size=batch, elapsed_ms=elapsed, k=k, drafted=[k] * batch, accepted=accepted,
            context_tokens=batch * 700 + seq % 1000, decodes=batch, gone=0, verified=k * batch,
            emitted=[n + 1 for n in accepted], t_ms=t_ms, requests=list(requests),
        )  # fmt: skip
        yield record, Decision(seq=seq, k=k, propensity=0.97, reason=Reason.EXPLOIT, arms=ARMS, t_ms=t_ms - elapsed)
        seq += 1
