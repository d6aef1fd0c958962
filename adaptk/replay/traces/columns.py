"""Which entry of a step's lists is which request, and what it emitted, for traces that do not say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from adaptk.step import StepRecord


def request_numbers(steps: Sequence[StepRecord]) -> Iterator[list[int]]:
    """The requests of each step, one number per entry of its lists.

    Taken from the steps where all of them say so. Otherwise guessed: while the batch stays as large and nobody joins,
    an entry is the request that it was in the step before. What shrinks the batch ends requests: those whose answer
    was cut at a stop (fewer tokens emitted than accepted), then those whose context is nearest to what the cache lost,
    then the oldest. The others keep their order and new requests are appended. Prompt tokens in a step in which nobody
    is left with a prompt are a new request's: a cache that was lost to a preemption cannot be told from it. A wrong
    guess joins the text of one request to another's.

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
        guess.advance(step, steps[i + 1] if i + 1 < len(steps) else None)


def numbered(steps: Sequence[StepRecord]) -> bool:
    """Whether every step says which request is which."""
    return all(step.requests is not None for step in steps)


def emitted_tokens(steps: Sequence[StepRecord], requests: Sequence[Sequence[int]]) -> list[list[int]]:
    """Tokens that each entry emitted; ``requests`` are those of :func:`request_numbers`.

    What the step says, else the drafts accepted and one more, but for pieces of a prompt, which emit nothing until the
    last one. A request in its prompt is one that has joined, or come back, and has not decoded since: its last piece is
    the one before it decodes or is seen no more. Who decodes is known where drafts of it were verified, or no prompt
    tokens were computed. Of the others, as many as ``decodes`` says, those that decoded before first and then the
    longest in their prompt. Where ``decodes`` is not given beside prompt tokens, all but those that join in the step,
    or but the latest if none does. The guess is wrong where requests finish their prompts in another order than they
    joined, and for an aborted request, whose last piece counts as a token. On simulated loads with 82 to 650 pieces it
    was right for all of them where the steps number the requests and say ``decodes``, for 93 % and more with
    ``decodes`` alone, and for 50 to 98 % without it.

    Examples
    --------
    >>> def step(**more):
    ...     return StepRecord(batch_size=1, elapsed_ms=1.0, k=0, drafted=[0], accepted=[0], **more)
    >>> emitted_tokens([step(prefill_tokens=8, decodes=0), step(prefill_tokens=3, decodes=0), step()], [[0], [0], [0]])
    [[0], [1], [1]]
    """
    tokens = [[tokens_of(step, i) for i in range(len(step.drafted))] for step in steps]
    reading: dict[int, tuple[int, int]] = {}  # requests in their prompt, with the step and entry of the last piece
    before: set[int] = set()
    for i, (step, here) in enumerate(zip(steps, requests, strict=True)):
        decoding = _decoding(step, here, set(reading), before)
        for at, request in enumerate(here):
            if request in decoding:
                reading.pop(request, None)
                continue
            if request in reading:
                last, entry = reading[request]
                if steps[last].emitted is None:
                    tokens[last][entry] = 0
            reading[request] = (i, at)
        before = set(here)
    return tokens


def _decoding(step: StepRecord, here: Sequence[int], reading: set[int], before: set[int]) -> set[int]:
    """Those of a step's requests that decode; ``before`` were in the step before."""

    def rank(at: int) -> int:
        request = here[at]
        if step.drafted[at]:
            return 0
        if request in reading:
            return 2
        return 1 if request in before else 3

    if step.decodes is not None:
        count = step.decodes
    elif step.prefill_tokens == 0:
        count = len(here)
    else:
        count = min(sum(rank(at) < 3 for at in range(len(here))), len(here) - 1)
    places = sorted(range(len(here)), key=rank)
    drafted = sum(drafts > 0 for drafts in step.drafted)
    return {here[at] for at in places[: max(count, drafted)]}


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

    def advance(self, step: StepRecord, following: StepRecord | None) -> None:
        """Take in what a step did; the one that follows tells whose prompts went on."""
        begun = [request for request in self._live if request not in self._started]
        partial = set() if step.emitted is not None or following is None else self._partial(step, begun, following)
        for i, request in enumerate(self._live):
            emitted = 0 if request in partial else tokens_of(step, i)
            if request in self._started:
                self._context[request] += emitted
            else:
                self._context[request] += step.prefill_tokens / len(begun)
            if emitted:
                self._started.add(request)
        self._cut = {self._live[i] for i in range(step.batch_size) if 0 < tokens_of(step, i) <= step.accepted[i]}
        context_after = None if following is None else following.context_tokens
        known = None not in (context_after, step.context_tokens)
        self._lost = sum(self._context[r] for r in self._live) - (context_after or 0) if known else None

    def _joining(self, step: StepRecord) -> int:
        if not self._live:
            return step.batch_size
        grown = max(0, step.batch_size - len(self._live))
        waiting = sum(request not in self._started for request in self._live)
        if step.decodes is None:
            return max(grown, int(step.prefill_tokens > 0 and not waiting))
        return max(grown, step.batch_size - step.decodes - waiting)

    def _partial(self, step: StepRecord, begun: Sequence[int], following: StepRecord) -> set[int]:
        """Those whose prompt goes on in the step that follows, the latest first; ``begun`` have not emitted yet."""
        if step.prefill_tokens == 0 or following.prefill_tokens == 0:
            return set()
        if following.decodes is None:
            waiting = int(following.batch_size <= len(self._live))
        else:
            left = 0  # a cache that holds less than was added to it has lost a request
            if step.context_tokens is not None and following.context_tokens is not None:
                added = sum(tokens_of(step, i) for i, request in enumerate(self._live) if request in self._started)
                left = int(following.context_tokens < step.context_tokens + step.prefill_tokens + added)
            joining = max(0, following.batch_size - len(self._live) + left)
            waiting = following.batch_size - following.decodes - joining
        free = [r for i, r in enumerate(self._live) if r in begun and step.drafted[i] == 0]
        return set(free[max(0, len(free) - waiting) :]) if waiting > 0 else set()

    def _without(self, leaving: int, share: float | None) -> list[int]:
        def rank(request: int) -> tuple[bool, float]:
            return request not in self._cut, abs(self._context[request] - share) if share is not None else 0.0

        gone = set(sorted(self._live, key=rank)[:leaving])
        return [request for request in self._live if request not in gone]


def tokens_of(step: StepRecord, i: int) -> int:
    """Tokens that entry ``i`` of a step emitted; where the step does not say, those accepted and one more."""
    return step.accepted[i] + 1 if step.emitted is None else step.emitted[i]
