"""P6: short tests, long phases at the winner, per batch bin: Cascade's rule at batch level."""

from __future__ import annotations

import math
from collections import defaultdict

from adaptk.replay.policies.base import Rival, Setup, decoding
from adaptk.replay.policies.credit import Credit, Played, batch_bin
from adaptk.step import StepRecord


class UtilityPhases(Rival):
    """Tests a few arms, then stays at the one of highest utility.

    Source: Cascade (arXiv 2506.20675), which does so per request: utility is tokens gained over K=0 divided by step
    time over K=0, and below 1 speculation is off. *The lengths and the order are ours*, as the paper's were not
    readable:

    - one state per power-of-two bin of decoding requests;
    - a test measures 4 steps at K=0 (the smallest arm), then 4 at each candidate, from one above the last winner
      downward, or from the largest arm where K=0 won or nothing did yet; it ends once utility falls;
    - only steps that verify and draft for the arm under test count (the last steps of a phase at K=0, where still to
      be observed, among them); an arm that got none of its 4 in 16 choices (or not
      all) is judged by what there is, and without any its utility is minus infinity;
    - the phase at the winner lasts 16 times the steps of its test, twice the last one where the winner repeats, at most
      512 steps. Where K=0 could not be measured, the last winner (at first the largest arm) stays.

    Steps that carry prompt tokens are taken as they come.
    """

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup.arms)
        self._credit = Credit(setup.arms)
        self._bins: defaultdict[int, Phases] = defaultdict(lambda: Phases(setup.arms))

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        """Drafts per request: the arm under test, or the winner."""
        phases = self._bins[batch_bin(decoding(batch_size, decodes))]
        arm = phases.next()
        self.exploring = phases.testing
        return arm

    def observe(self, record: StepRecord) -> None:
        """Take in a step, if it is of the test now running."""
        played = self._credit.read(record)
        if played is not None and played.clean:
            self._bins[batch_bin(played.batch)].take(played)


class Phases:
    """Where one batch bin stands: testing an arm, or staying at a winner."""

    SAMPLES = 4  # steps measured per arm of a test
    PATIENCE = 16  # choices of an arm after which its test ends anyhow
    STAY = 16  # length of the phase at the winner, in lengths of its test
    LONGEST = 512  # steps of that phase

    def __init__(self, arms: tuple[int, ...]) -> None:
        self._arms = arms
        self._winner: int | None = None
        self._stay = self._left = 0
        self.testing = True  # whether the arm last given is under test
        self._start_test()

    def next(self) -> int:
        """The arm of the next step."""
        if self._left == 0 and self._asked == self.PATIENCE:
            self._judge()
        if self._left == 0:
            self._asked += 1
            self._tested += 1
            self.testing = True
            return self._arm
        self.testing = False
        winner = self._settled
        self._left -= 1
        if self._left == 0:
            self._start_test()
        return winner

    def take(self, played: Played) -> None:
        """Take a step of the arm under test, if one is; the last of its samples ends its test."""
        if self._left or played.arm != self._arm:
            return
        self._count += 1
        self._length += played.length
        self._ms += played.ms
        if self._count == self.SAMPLES:
            self._judge()

    @property
    def _settled(self) -> int:
        return self._arms[-1] if self._winner is None else self._winner

    def _start_test(self) -> None:
        at = None if self._winner is None else self._arms.index(self._winner)
        top = min(at + 1, len(self._arms) - 1) if at else len(self._arms) - 1
        self._queue = list(self._arms[1 : top + 1])  # taken from its end
        self._worth = 0.0  # tokens per millisecond at the smallest arm; 0 until known
        self._best, self._best_utility = self._arms[0], 1.0
        self._last_utility = -math.inf
        self._tested = 0
        self._begin(self._arms[0])

    def _begin(self, arm: int) -> None:
        self._arm = arm
        self._asked = self._count = 0
        self._length = self._ms = 0.0

    def _judge(self) -> None:
        """End the test of one arm: go on to the next, or to the winner."""
        worth = self._length / self._ms if self._count else 0.0
        if self._arm == self._arms[0]:
            self._worth = worth
            over = worth == 0.0
        else:
            utility = worth / self._worth if self._count else -math.inf
            over = utility < self._last_utility
            self._last_utility = utility
            if utility >= self._best_utility:
                self._best, self._best_utility = self._arm, utility
        if over or not self._queue:
            self._settle()
        else:
            self._begin(self._queue.pop())

    def _settle(self) -> None:
        winner = self._best if self._worth else self._settled
        repeats = winner == self._winner
        self._stay = min(2 * self._stay if repeats else self.STAY * self._tested, self.LONGEST)
        self._left, self._winner = self._stay, winner
