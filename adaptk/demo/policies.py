"""What takes turns in the demo: a fixed K, a static table, adaptk; and the two that only measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from adaptk.controller import Controller
from adaptk.decision import Decision
from adaptk.settings import Settings
from adaptk.step import StepRecord
from adaptk.table import GoodputTable

if TYPE_CHECKING:
    from adaptk.trace import TraceWriter

ARMS = (0, 1, 3, 7)
NONE, TABLE, ADAPTK = "none", "table", "adaptk"
FIXED = tuple(f"k{k}" for k in ARMS)
POLICIES = (NONE, *FIXED, TABLE, ADAPTK)
# The same two from a table that is wrong on purpose, where that is asked for.
DISTORTED_TABLE, DISTORTED_ADAPTK = "distorted-table", "distorted-adaptk"
DISTORTED = (DISTORTED_TABLE, DISTORTED_ADAPTK)
RIGHT_AND_WRONG = ("k0", TABLE, ADAPTK, *DISTORTED)


class Policy(Protocol):
    """Anything that chooses the drafts of a step as a Controller does."""

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request for the step now being scheduled."""
        ...

    def observe(self, record: StepRecord) -> Decision | None:
        """Take in a finished step."""
        ...


class FixedK:
    """Always the same K."""

    def __init__(self, k: int) -> None:
        self.k = k

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The one K."""
        return self.k

    def observe(self, record: StepRecord) -> Decision | None:
        """Learn nothing."""
        return None


class StaticTable:
    """The table's best K at the scheduled batch, never corrected: what vLLM's own schedule does."""

    def __init__(self, table: GoodputTable, arms: Sequence[int], max_batch: int) -> None:
        self._best = [0, *(table.best_k(batch, arms=arms) for batch in range(1, max_batch + 1))]

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Look the batch up."""
        return self._best[min(batch_size, len(self._best) - 1)]

    def observe(self, record: StepRecord) -> Decision | None:
        """Learn nothing."""
        return None


class Sweep:
    """Plays the arms in turn, ``block`` steps each, and keeps what it saw."""

    def __init__(self, arms: Sequence[int], block: int) -> None:
        self.records: list[StepRecord] = []
        self._arms = arms
        self._block = block
        self._chosen = 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """The arm whose turn it is."""
        k = self._arms[self._chosen // self._block % len(self._arms)]
        self._chosen += 1
        return k

    def observe(self, record: StepRecord) -> Decision | None:
        """Keep the record."""
        self.records.append(record)
        return None


class Played(NamedTuple):
    """One step as the figure shows it."""

    k: int
    batch: int
    ms: float


class Recorder:
    """Passes everything on to ``policy`` and notes what it played."""

    def __init__(self, policy: Policy, writer: TraceWriter | None = None) -> None:
        self.played: list[Played] = []
        self._policy = policy
        self._writer = writer

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """What ``policy`` chooses."""
        return self._policy.choose(batch_size, context_tokens, decodes)

    def observe(self, record: StepRecord) -> Decision | None:
        """Let ``policy`` learn, then note the step."""
        decision = self._policy.observe(record)
        self.played.append(Played(record.k, record.batch_size, record.elapsed_ms or 0.0))
        if self._writer is not None:
            self._writer.write(record, decision)
        return decision

    def take(self) -> list[Played]:
        """What was played since the last call."""
        played, self.played = self.played, []
        return played


def steered(table: GoodputTable, max_batch: int, distortion: float | None = None) -> dict[str, Policy]:
    """The policies that share one engine, by name; adaptk starts from the same table that the static policy uses.

    With ``distortion`` there are two more, which start from a table that is wrong by it.
    """
    fixed: dict[str, Policy] = {f"k{k}": FixedK(k) for k in ARMS}
    policies = {**fixed, **_from_table(table, max_batch, TABLE, ADAPTK)}
    if distortion is not None:
        policies |= _from_table(distorted(table, distortion), max_batch, DISTORTED_TABLE, DISTORTED_ADAPTK)
    return policies


def distorted(table: GoodputTable, factor: float) -> GoodputTable:
    """The table with its times steeper in K by ``factor``, at K=0 against the largest K, and in between by degrees.

    Above 1 it makes drafting look dearer than it is, below 1 cheaper.
    """
    deepest = max(table.ks)
    rows = [
        {"batch": row.batch, "k": row.k, "context": row.context, "itl_ms": row.itl_ms * factor ** (row.k / deepest)}
        for row in table.rows
    ]
    return GoodputTable.from_rows(rows, table.acceptance, supply=table.supply)


def _from_table(table: GoodputTable, max_batch: int, static: str, adaptive: str) -> dict[str, Policy]:
    controller = Controller(table, arms=ARMS, settings=Settings(), seed=0)
    return {static: StaticTable(table, ARMS, max_batch), adaptive: controller}
