"""A fresh controller that begins from a part of what another one believed."""

from __future__ import annotations

from typing import Any

import pytest

from adaptk import Controller, GoodputTable, Settings
from tests.publicengine import PUBLIC
from tests.snapshots import used_snapshot

OTHER = GoodputTable.from_rows(
    [{"batch": b, "k": k, "itl_ms": 30.0 + 0.1 * b + k} for b in (1, 16, 64) for k in (0, 1, 3, 5)],
    acceptance=[0.4] * 5,
)


def positions(controller: Controller) -> list[float]:
    return [position.mean for position in controller.positions()]


def widths(controller: Controller) -> list[float]:
    return [position.high - position.low for position in controller.positions()]


def times(controller: Controller) -> list[float | None]:
    return [belief.itl_ms for belief in controller.belief(16)]


def source() -> Controller:
    return Controller.restore(used_snapshot(), PUBLIC)


def like(table: GoodputTable | None = PUBLIC, **changed: Any) -> Controller:
    """A fresh controller made as the snapshot's was, or otherwise."""
    return Controller(table, **({"arms": source().arms, "settings": Settings(budget=0.02)} | changed))


def test_of_the_same_making_acceptance_and_times_go_along() -> None:
    """As ``restore`` with ``as_prior`` has them; its own limits stay."""
    controller = like()
    assert controller.begin_from(used_snapshot())
    restored = Controller.restore(used_snapshot(), PUBLIC, as_prior=True)
    assert controller.belief(16) == restored.belief(16)
    assert positions(controller) == pytest.approx(positions(source()))
    assert times(controller) == pytest.approx(times(source()), rel=0.02)
    assert times(controller) != pytest.approx(times(like()), rel=0.1)
    assert controller.settings.budget == 0.02
    assert controller.counters["steps"] == 0


@pytest.mark.parametrize(
    "changed",
    [{"table": OTHER}, {"arms": (0, 2, 5)}, {"capture_sizes": (8, 16)}, {"trusted": False}, {"table": None}],
    ids=lambda changed: next(iter(changed)),
)
def test_of_another_making_acceptance_goes_along(changed: dict[str, Any]) -> None:
    """Widened; the step times stay those of the table: deviations from another one are none from this."""
    controller, untouched = like(**changed), like(**changed)
    assert not controller.begin_from(used_snapshot())
    assert positions(controller) == pytest.approx(positions(source()))
    assert widths(controller)[0] > widths(source())[0]
    assert times(controller) == times(untouched)


def test_times_may_be_left_out() -> None:
    """Of another machine with the same table."""
    controller = like()
    assert not controller.begin_from(used_snapshot(), times=False)
    assert times(controller) == times(like())
    assert positions(controller) == pytest.approx(positions(source()))


def test_of_other_numbers_of_drafts_nothing_goes_along() -> None:
    """It is refused, and nothing of the controller is changed."""
    controller = Controller(PUBLIC, arms=(0, 1, 3))
    before = controller.snapshot()
    with pytest.raises(ValueError, match="snapshot is of up to 5 drafts, here are up to 3"):
        controller.begin_from(used_snapshot())
    assert controller.snapshot() == before


def test_a_damaged_snapshot_is_refused() -> None:
    """By its digest, as everywhere."""
    controller = like()
    before = controller.snapshot()
    with pytest.raises(ValueError, match="digest"):
        controller.begin_from(used_snapshot() | {"_seq": 1})
    assert controller.snapshot() == before
