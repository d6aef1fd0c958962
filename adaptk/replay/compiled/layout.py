"""Names of the rows and entries of the arrays in which a simulated engine lives.

Tuples of numbers, not enumerations: compiled code can index by them.
"""

from __future__ import annotations

from typing import NamedTuple


class _Slot(NamedTuple):
    """Rows of the array of running requests, shape ``(len(Slot), slots)``."""

    REQUEST: int = 0
    CURSOR: int = 1  # tokens emitted
    LEFT: int = 2  # tokens to emit
    CONTEXT: int = 3  # tokens in the KV cache
    PREFILL: int = 4  # prompt tokens to compute
    PENDING: int = 5  # drafts to verify in the next step
    CHUNK: int = 6  # prompt tokens computed in this step
    KIND: int = 7


class _Req(NamedTuple):
    """Rows of the array of requests, shape ``(len(Req), requests)``."""

    PROMPT: int = 0
    OUTPUT: int = 1
    KIND: int = 2
    ROUND: int = 3
    AFTER: int = 4
    OFFSET: int = 5  # of its tokens in ``known``
    DONE: int = 6  # tokens emitted when it was preempted


class _State(NamedTuple):
    """Entries of the integer state."""

    STEP: int = 0
    LIVE: int = 1
    NEXT: int = 2  # the first request that was never admitted
    RETURNED: int = 3  # preempted requests that wait, on a stack
    EMITTED: int = 4
    ROUND: int = 5
    BATCH: int = 6  # requests of the step that is scheduled
    DECODES: int = 7
    CONTEXT: int = 8
    PREFILL: int = 9
    BLIND: int = 10  # steps at K=0 in a row
    WARM: int = 11  # drafted steps since the drafter was cold
    COLD: int = 12  # whether it was cold
    PREEMPTED: int = 13
    TOKENS: int = 14  # emitted in the last step
    VERIFIED: int = 15
    SERIAL: int = 16  # requests that a script has begun


class _Conf(NamedTuple):
    """Entries of the integer configuration."""

    MAX_REQUESTS: int = 0
    MAX_TOKENS: int = 1
    KV_TOKENS: int = 2
    SEGMENT: int = 3
    COMPILE_STEPS: int = 4
    SEED: int = 5
    SCRIPTED: int = 6
    RUNNER: int = 7  # 1 or 2


class _Real(NamedTuple):
    """Entries of the real-valued configuration, and the clock."""

    PREFILL_MS: int = 0
    MIXED_MS: int = 1
    COMPILE_MS: int = 2
    COLD: int = 3
    COLD_STEPS: int = 4
    MEAN_OUTPUT: int = 5
    CLOCK: int = 6
    ELAPSED: int = 7
    DRAFT_BEFORE: int = 8  # ms of the drafts that the step before made


class _Line(NamedTuple):
    """Rows of a script, shape ``(len(Line), steps)``."""

    DECODES: int = 0
    JOINING: int = 1
    PROMPT: int = 2
    CONTEXT: int = 3
    KIND: int = 4
    OTHERS: int = 5
    OTHER_KIND: int = 6


class _Log(NamedTuple):
    """Rows of the record of what happened, shape ``(len(Log), steps)``."""

    BATCH: int = 0
    DECODES: int = 1
    K: int = 2
    TOKENS: int = 3
    PREFILL: int = 4
    CONTEXT: int = 5
    ELAPSED: int = 6
    CLOCK: int = 7
    COMPILED: int = 8  # ms of it that compilation took


class _Weather(NamedTuple):
    """Rows of what disturbs steps, shape ``(len(Weather), steps)``."""

    FACTOR: int = 0
    LEVEL: int = 1
    K_FACTOR: int = 2
    EXTRA_MS: int = 3


Slot = _Slot()
Req = _Req()
State = _State()
Conf = _Conf()
Real = _Real()
Line = _Line()
Log = _Log()
Weather = _Weather()
