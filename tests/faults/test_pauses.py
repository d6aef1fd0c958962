"""Notes that come again and again: the controller stays upright, and plays what its twin plays once they are over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from adaptk import Controller, Decision, StepRecord
from adaptk.replay.simulator import simulate
from tests.faults.meddling import BATCH, BEGIN, share, twins_share
from tests.publicengine import world

STEPS, NOTES, AGAIN = 2500, 500, 800
NOTED: dict[str, Callable[[Controller], None]] = {
    "a long pause": Controller.note_long_pause,
    "other weights": Controller.note_weights_changed,
    "a restart": Controller.note_engine_restarted,
}


class Noted:
    """Drives a controller that is told something at each of ``NOTES`` steps."""

    def __init__(self, controller: Controller, note: Callable[[Controller], None]) -> None:
        self.controller, self.note = controller, note
        self.arms = controller.arms
        self._step = 0

    def choose(self, batch_size: int, context_tokens: int | None = None, decodes: int | None = None) -> int:
        return self.controller.choose(batch_size, context_tokens, decodes)

    def observe(self, record: StepRecord) -> Decision | None:
        if BEGIN <= self._step < BEGIN + NOTES:
            self.note(self.controller)
        self._step += 1
        return self.controller.observe(record)


@pytest.mark.parametrize("note", NOTED.values(), ids=NOTED)
def test_notes_at_every_step(note: Callable[[Controller], None]) -> None:
    """500 in a row, without a table: within 800 steps what is played is worth what the twin has, but for 2 %."""
    for seed in (0, 1):
        controller = Controller(None, seed=seed, k_max=5)
        run = simulate(world(STEPS, BATCH, k_factor=2.0, seed=seed), Noted(controller, note))
        start = BEGIN + NOTES + AGAIN
        assert share(run, start) > twins_share(False, seed, start) - 0.02
