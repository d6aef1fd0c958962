"""The load of the demo: three phases that want different numbers of drafts, made from built-in sentences."""

from __future__ import annotations

import math
import random
from typing import NamedTuple

COPY, CHAT, ROLLOUT = "copy", "chat", "rollout"
PHASES = (COPY, CHAT, ROLLOUT)
MAX_BATCH = 32  # requests, the engine's limit too

_PEOPLE = ("Anna", "Peter", "Maria", "John", "Lena", "Paul", "Eva", "Martin", "Clara", "David", "Ruth", "Simon")
_PLACES = ("harbour office", "old library", "north pier", "town hall", "railway station", "market square", "paper mill")
_DEEDS = (
    "signed the blue book",
    "repaired the wooden gate",
    "counted the empty boxes",
    "painted the long wall white",
    "carried two bags of sand",
    "wrote a letter to the mayor",
    "closed the heavy iron door",
    "sold eleven tickets to visitors",
)
_ENDINGS = ("before noon", "in the rain", "without any help", "for the second time", "as agreed", "after the meeting")
_MONTHS = ("January", "March", "April", "June", "August", "October", "November")
_COPY_ORDERS = (
    "Repeat the following text exactly, word for word:",
    "Correct the spelling of this text and keep everything else as it is:",
)
_CHAT_ORDERS = (
    "Tell me a short story about {}.",
    "What should a beginner know about {}?",
    "Write a friendly letter to a neighbour about {}.",
    "Give me some advice about {}.",
    "Explain to a child why people care about {}.",
)
_TOPICS = (
    "learning the violin",
    "keeping bees",
    "a journey by night train",
    "growing tomatoes on a balcony",
    "the first snow of the year",
    "repairing an old bicycle",
    "moving to another country",
    "a lighthouse that went dark",
    "baking bread at home",
    "a lost dog",
    "saving water",
    "reading old maps",
)


class Request(NamedTuple):
    """One request: what the user says, and exactly how many tokens are generated whatever they are."""

    prompt: str
    max_tokens: int
    temperature: float
    seed: int


class Phase(NamedTuple):
    """Requests in their order of arrival, at most ``concurrency`` of them at a time."""

    name: str
    requests: tuple[Request, ...]
    concurrency: int

    @property
    def greedy(self) -> bool:
        """Whether every policy must generate the same tokens, up to rounding."""
        return all(request.temperature == 0 for request in self.requests)


class Size(NamedTuple):
    """How much work the phases are: requests per stream and tokens per request of the first, tokens per request of the
    second, tokens of the longest request of the third."""

    copies: int
    copy_tokens: int
    chat_tokens: int
    longest_rollout: int


FULL = Size(copies=3, copy_tokens=180, chat_tokens=128, longest_rollout=240)
QUICK = Size(copies=2, copy_tokens=185, chat_tokens=96, longest_rollout=110)
TOKENS_PER_SENTENCE = 18


def phases(round_: int, size: Size = FULL) -> tuple[Phase, ...]:
    """The phases of one round: the same for every policy, other texts in every round."""
    return (
        copy_phase(round_, size.copies, size.copy_tokens),
        chat_phase(round_, size.chat_tokens),
        rollout_phase(round_, size.longest_rollout),
    )


def copy_phase(round_: int, copies: int, tokens: int, streams: int = 2) -> Phase:
    """``streams`` users at a time who have a text copied or corrected, greedily, ``copies`` times each."""
    rng = random.Random(f"copy {round_}")
    requests = tuple(Request(_copy_prompt(rng, i, tokens), tokens, 0.0, i) for i in range(copies * streams))
    return Phase(COPY, requests, streams)


def chat_phase(round_: int, tokens: int, users: int = 16) -> Phase:
    """``users`` who chat at once, at temperature 1: there is nothing to copy from."""
    rng = random.Random(f"chat {round_}")
    topics = rng.sample(_TOPICS, len(_TOPICS)) * (1 + users // len(_TOPICS))
    requests = tuple(
        Request(rng.choice(_CHAT_ORDERS).format(topic), tokens, 1.0, 1000 * round_ + i)
        for i, topic in enumerate(topics[:users])
    )
    return Phase(CHAT, requests, users)


def rollout_phase(round_: int, longest: int) -> Phase:
    """:data:`MAX_BATCH` samples started at once, at temperature 1, whose lengths have a long tail."""
    rng = random.Random(f"rollout {round_}")
    lengths = rollout_lengths(longest)
    rng.shuffle(lengths)
    requests = tuple(
        Request(_copy_prompt(rng, i, length), length, 1.0, 2000 * round_ + i) for i, length in enumerate(lengths)
    )
    return Phase(ROLLOUT, requests, MAX_BATCH)


def rollout_lengths(longest: int) -> list[int]:
    """Output lengths of a rollout in tokens, shape ``(MAX_BATCH,)``, ascending, the last one ``longest``.

    Most are spread evenly over the lower half; the last quarter grows geometrically, which is the long tail.
    """
    tail = MAX_BATCH // 4
    body = [round(longest * (0.05 + 0.45 * i / (MAX_BATCH - tail - 1))) for i in range(MAX_BATCH - tail)]
    growth = math.log(longest / body[-1]) / tail
    return body + [round(body[-1] * math.exp(growth * (i + 1))) for i in range(tail)]


def _copy_prompt(rng: random.Random, i: int, tokens: int) -> str:
    """An order, and a text that is long enough to be copied for ``tokens`` tokens."""
    return f"{_COPY_ORDERS[i % 2]}\n\n{notes(rng, 1 + tokens // TOKENS_PER_SENTENCE)}"


def notes(rng: random.Random, sentences: int) -> str:
    """A diary of so many sentences, each about :data:`TOKENS_PER_SENTENCE` tokens and on a day of its own."""
    days = sorted(rng.sample(range(1, 29), sentences))
    month = rng.choice(_MONTHS)
    said = []
    for day in days:
        who, deed, place, ending = (rng.choice(words) for words in (_PEOPLE, _DEEDS, _PLACES, _ENDINGS))
        said.append(f"On {day} {month}, {who} {deed} at the {place} {ending}.")
    return " ".join(said)
