"""Which entry of a step's lists is which request, for traces that do not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adaptk.step import StepRecord


def request_numbers(steps: Sequence[StepRecord]) -> Iterator[list[int]]:
    """The requests of each step, one number per entry of its lists.

    Taken from the steps where all of them say so. Otherwise guessed: while the batch stays as large and nobody joins,
    an entry is the request that it was in the step before. What shrinks the batch ends requests: those whose answer
    was cut at a stop (fewer tokens emitted than accepted), then those whose context is nearest to what the cache lost,
    then the oldest. The others keep their order and new requests are appended. A wrong guess joins the text of one
    request to another's.

    Examples
    --------
    >>> def step(n, **more):
    ...     return StepRecord(batch_size=n, elapsed_ms=1.0, k=0, drafted=[0] * n, accepted=[0] * n, **more)
    >>> list(request_numbers([step(2, prefill_tokens=8, decodes=0), step(2), step(1), step(2, prefill_tokens=9)]))
    [[0, 1], [0, 1], [1], [1, 2]]
    """
    if numbered(steps):
        for step in steps:
            yield list(step.requests or ())
        return
    guess = _Guess()
    for i, step in enumerate(steps):
        yield guess.numbers(step)
        guess.advance(step, steps[i + 1].context_tokens if i + 1 < len(steps) else None)


def numbered(steps: Sequence[StepRecord]) -> bool:
    """Whether every step says which request is which."""
    return all(step.requests is not None for step in steps)


class _Guess:
    def __init__(self) -> None:
        self._live: list[int] = []
        self._context: dict[int, float] = {}  # tokens in the KV cache, 0 before the first answer
        self._started: set[int] = set()  # those that have emitted
        self._cut: set[int] = set()  # those whose answer was cut in the last step
        self._lost: float | None = None  # context that the next step holds less than it would with all requests
        self._next = 0

    def numbers(self, step: StepRecord) -> list[int]:
        joining = self._joining(step)
        leaving = max(0, len(self._live) + joining - step.batch_size)
        if leaving:
            share = None if self._lost is None else self._lost / leaving
            self._live = self._without(leaving, share)
        while len(self._live) < step.batch_size:
            self._live.append(self._next)
            self._context[self._next] = 0.0
            self._next += 1
        return list(self._live)

    def advance(self, step: StepRecord, context_after: int | None) -> None:
        """Take in what a step did; ``context_after`` is what the next one began with."""
        begun = [request for request in self._live if request not in self._started]
        for i, request in enumerate(self._live):
            emitted = tokens_of(step, i)
            if request in self._started:
                self._context[request] += emitted
            else:
                self._context[request] += step.prefill_tokens / len(begun)
            if emitted:
                self._started.add(request)
        self._cut = {self._live[i] for i in range(step.batch_size) if 0 < tokens_of(step, i) <= step.accepted[i]}
        known = None not in (context_after, step.context_tokens)
        self._lost = sum(self._context[r] for r in self._live) - (context_after or 0) if known else None

    def _joining(self, step: StepRecord) -> int:
        if not self._live:
            return step.batch_size
        grown = max(0, step.batch_size - len(self._live))
        if step.decodes is None:
            return grown
        waiting = sum(request not in self._started for request in self._live)
        return max(grown, step.batch_size - step.decodes - waiting)

    def _without(self, leaving: int, share: float | None) -> list[int]:
        def rank(request: int) -> tuple[bool, float]:
            return request not in self._cut, abs(self._context[request] - share) if share is not None else 0.0

        gone = set(sorted(self._live, key=rank)[:leaving])
        return [request for request in self._live if request not in gone]


def tokens_of(step: StepRecord, i: int) -> int:
    """Tokens that entry ``i`` of a step emitted; where the step does not say, those accepted and one more."""
    return step.accepted[i] + 1 if step.emitted is None else step.emitted[i]
