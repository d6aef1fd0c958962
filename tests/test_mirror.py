"""A mirror believes what its controller believed when it was copied, and looking changes nothing."""

from __future__ import annotations

import pytest

from adaptk import Controller, GoodputTable, Settings, StepRecord
from adaptk.mirror import Mirror

ROWS = [{"batch": b, "k": k, "itl_ms": 10.0 + 0.1 * b + 0.5 * k} for b in (1, 32) for k in (0, 1, 3, 7)]
TABLE = GoodputTable.from_rows(ROWS, acceptance=[0.8] * 7)


def run(controller: Controller, steps: int, batch: int = 8, slow: float = 1.0) -> list[int]:
    """Steps of a drafter whose first two drafts are accepted; the choices."""
    chosen, before = [], 0
    for _ in range(steps):
        k = controller.choose(batch, 100 * batch)
        chosen.append(k)
        controller.observe(
            StepRecord(
                batch_size=batch,
                elapsed_ms=slow * (10.0 + 0.1 * batch + 0.5 * before),
                k=k,
                drafted=[before] * batch,
                accepted=[min(before, 2)] * batch,
                context_tokens=100 * batch,
            )
        )
        before = k
    return chosen


@pytest.mark.parametrize("table", [TABLE, GoodputTable.from_schedule([[1, 16, 3], [17, 64, 0]]), None])
def test_it_believes_what_the_controller_does(table: GoodputTable | None) -> None:
    """To the last digit, at several batch sizes and contexts, also after more steps."""
    controller = Controller(table, k_max=7, settings=Settings(max_itl_ms=40.0), seed=0)
    controller.limit_to_graphs(lambda batch, k: batch * (k + 1) < 100)
    mirror = Mirror(controller.peek())
    for slow in (1.0, 1.5):
        run(controller, 60, slow=slow)
        mirror.look(controller.peek())
        for batch in (1, 8, 40):
            assert mirror.belief(batch, None) == controller.belief(batch)
            assert mirror.belief(batch, 250.0) == controller.belief(batch, 250 * batch)


def test_without_a_look_it_stays_as_it_was() -> None:
    """What the controller learns afterwards does not reach it, nor what the mirror is asked the controller."""
    controller = Controller(TABLE, seed=0)
    run(controller, 40)
    mirror = Mirror(controller.peek())
    before, state = mirror.belief(8, 100.0), controller.snapshot()
    mirror.positions()
    assert controller.snapshot() == state
    run(controller, 40, slow=2.0)
    assert mirror.belief(8, 100.0) == before != controller.belief(8, 800)


def test_being_peeked_at_changes_no_decision() -> None:
    """A controller that is copied at every step plays as one that never is."""

    class Watched(Controller):
        def observe(self, record: StepRecord) -> None:  # type: ignore[override]
            super().observe(record)
            Mirror(self.peek()).belief(record.batch_size, 100.0)

    assert run(Watched(TABLE, seed=3), 150) == run(Controller(TABLE, seed=3), 150)


def test_acceptance_by_position() -> None:
    """The mean of each position lies in its interval, which narrows with what was seen of it."""
    controller = Controller(TABLE, seed=0)
    first = Mirror(controller.peek()).positions()
    assert [round(position.mean, 3) for position in first] == [0.8] * 7
    run(controller, 100)
    positions = Mirror(controller.peek()).positions()
    assert all(low < mean < high for mean, low, high in positions)
    assert positions[0].mean > 0.95
    assert positions[2].mean < 0.2
    assert positions[0].high - positions[0].low < first[0].high - first[0].low


def test_missing_drafts_are_no_rejected_ones() -> None:
    """A drafter that returns a draft every other time: of those that came, all were accepted."""
    controller = Controller(None, arms=(0, 1), seed=0)
    for step in range(200):
        k = controller.choose(4)
        drafted = [int(step % 2 and bool(step))] * 4
        controller.observe(StepRecord(batch_size=4, elapsed_ms=9.0, k=k, asked=1, drafted=drafted, accepted=drafted))
    (position,) = Mirror(controller.peek()).positions()
    assert position.mean > 0.95
    assert controller._acceptance.means()[0] < 0.7


def test_a_controller_without_drafts_has_no_positions() -> None:
    assert Mirror(Controller(None, arms=(0,), seed=0).peek()).positions() == []
