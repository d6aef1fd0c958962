"""Greedy answers of two servers to the same requests, side by side, and whether rounding explains where they part.

In one batch or another the same sums are rounded otherwise, so that two runs of plain vLLM part, too, where two tokens
are about as likely. So a difference counts as explained if the two tokens at which the answers part are about as likely
by the server's own word.
"""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Sequence
from typing import NamedTuple

from tests.benchmarks import serve_load
from tests.benchmarks.soak.client import Outcome, Turn
from tests.benchmarks.soak.load import GREEDY

TIE = 0.5  # difference of log-probabilities that rounding to bfloat16 makes at most: logits of 16 to 32 come in eighths
_LISTED = 20  # most likely tokens that the server lists


class Compared(NamedTuple):
    """Answers that both gave, those that were equal, and how far apart the tokens were at which the others part."""

    both: int
    equal: int
    gaps: tuple[float, ...]

    def __add__(self, other: object) -> Compared:
        if not isinstance(other, Compared):
            return NotImplemented
        return Compared(self.both + other.both, self.equal + other.equal, self.gaps + other.gaps)

    @property
    def unexplained(self) -> int:
        """Answers that part where rounding does not explain it."""
        return sum(gap > TIE for gap in self.gaps)

    def __str__(self) -> str:
        share = f"{self.equal} of {self.both} equal ({self.equal / max(self.both, 1):.1%})"
        if not self.gaps:
            return share
        return f"{share}; the others part at tokens whose log-probabilities are at most {max(self.gaps):.3f} apart"


def compared(one: Turn, other: Turn, address: str) -> Compared:
    """The greedy answers of two turns of the same requests; the server at ``address`` says how likely tokens are."""
    pairs = [
        (a, b)
        for a, b in zip(one.outcomes, other.outcomes, strict=True)
        if a.request.kind in GREEDY and not a.fault and not b.fault
    ]
    apart = [(a, b, place) for a, b in pairs if (place := parting(a, b)) is not None]
    gaps = tuple(_gap(address, a, b, place) for a, b, place in apart)
    return Compared(len(pairs), len(pairs) - len(apart), gaps)


def parting(one: Outcome, other: Outcome) -> int | None:
    """Place of the first token in which two answers differ, ``None`` where the answers are the same."""
    if one.text == other.text:
        return None
    for place, (a, b) in enumerate(zip(one.ids, other.ids, strict=False)):
        if a != b:
            return place
    return min(len(one.ids), len(other.ids))


def _gap(address: str, one: Outcome, other: Outcome, place: int) -> float:
    if place >= min(len(one.ids), len(other.ids)) or one.prompt != other.prompt:
        return math.inf  # one of them ends where the other goes on
    likely = _likely(address, [*one.prompt, *one.ids[:place]])
    least = min(likely.values())
    return abs(likely.get(one.ids[place], least - TIE) - likely.get(other.ids[place], least - TIE))


def _likely(address: str, tokens: Sequence[int]) -> dict[int, float]:
    """Log-probabilities of the tokens that most likely come next."""
    asked = {
        "model": serve_load.NAME,
        "prompt": list(tokens),
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": _LISTED,
        "return_tokens_as_token_ids": True,
    }
    request = urllib.request.Request(
        f"{address}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        (choice,) = json.load(answer)["choices"]
    return {int(name.partition(":")[2]): value for name, value in choice["logprobs"]["top_logprobs"][0].items()}
