"""A table of a drafter that often returns nothing: the controller starts from what its steps really were."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk import Controller, GoodputTable, StepRecord
from adaptk.table import TableRow

ARMS = (0, 1, 3, 7)
BATCHES = (1, 4, 16, 64, 256)
SUPPLY = (0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
REAL = 0.8  # acceptance of a draft that is there


def step_ms(batch: float, width: float) -> float:
    """A step's truth: drafts per request cost what they compute."""
    return 6.0 + 0.02 * batch * (width + 1.0) + 0.2 * width


def truth(k: int) -> tuple[float, float]:
    """Drafts verified and tokens emitted per request and step where ``k`` are asked for."""
    return sum(SUPPLY[:k]), 1.0 + sum(share * REAL ** (j + 1) for j, share in enumerate(SUPPLY[:k]))


def measured(noise: float = 0.0) -> GoodputTable:
    """What a profile of this engine finds."""
    rng = np.random.default_rng(0)
    before = (1.0, *SUPPLY)
    rows = [
        TableRow(batch=b, k=k, itl_ms=step_ms(b, truth(k)[0]) * float(np.exp(noise * rng.standard_normal())))
        for b in BATCHES
        for k in ARMS
    ]
    acceptance = [REAL * here / there for here, there in zip(SUPPLY, before, strict=False)]
    return GoodputTable.from_rows(rows, acceptance, {"key": {"method": "ngram"}}, supply=SUPPLY)


@pytest.mark.parametrize("batch", [1, 3, 16, 100, 256])
def test_before_any_step_each_arm_is_what_it_was_in_the_table(batch: int) -> None:
    """Step time within 3 %, acceptance length within 0.1 % of what the engine gives."""
    for belief in Controller(measured(), arms=ARMS).belief(batch):
        width, length = truth(belief.k)
        assert belief.itl_ms == pytest.approx(step_ms(batch, width), rel=0.03)
        assert belief.al == pytest.approx(length, rel=1e-3)
        assert belief.drift == pytest.approx(1.0, abs=0.03)


def test_without_the_supply_the_same_rows_are_taken_for_full_steps() -> None:
    """What the field is for: the test above fails where it is left out, as soon as drafts turn out to be missing."""
    table = measured()
    bare = GoodputTable.from_rows(table.rows, table.acceptance)
    seeded, blind = Controller(table, arms=ARMS), Controller(bare, arms=ARMS)
    for controller in (seeded, blind):
        controller._acceptance.supply.__init__(7, SUPPLY)  # type: ignore[misc]
    deepest = step_ms(256, truth(7)[0])
    assert seeded.belief(256)[3].itl_ms == pytest.approx(deepest, rel=0.03)
    assert (blind.belief(256)[3].itl_ms or 0.0) < 0.95 * deepest


def test_noise_of_the_rows_is_not_blown_up() -> None:
    """2 % of noise in each row: every arm within 8 % at its width, and within 35 % with all its drafts."""
    controller = Controller(measured(noise=0.02), arms=ARMS)
    for batch in BATCHES:
        for belief in controller.belief(batch):
            assert belief.itl_ms == pytest.approx(step_ms(batch, truth(belief.k)[0]), rel=0.08)
        full = np.exp(controller._latency.prior.row(batch, None))
        assert full == pytest.approx([step_ms(batch, k) for k in ARMS], rel=0.35)


def test_a_corrected_table_seeds_the_same_beliefs() -> None:
    """Before any step, through two generations; and it keeps the key."""
    first = Controller(measured(), arms=ARMS)
    table = first.corrected_table()
    second = Controller(table, arms=ARMS)
    assert table.supply == pytest.approx(SUPPLY)
    assert table.key == {"method": "ngram"}
    for batch in BATCHES:
        for one, other in zip(first.belief(batch), second.belief(batch), strict=True):
            assert other.itl_ms == pytest.approx(one.itl_ms, rel=2e-3)
            assert other.al == pytest.approx(one.al, rel=1e-3)
        assert table.best_k(batch) == measured().best_k(batch) == second.corrected_table().best_k(batch)


def played(controller: Controller, steps: int, batch: int = 16) -> None:
    """Steps of the engine, from its own random numbers."""
    rng, previous = np.random.default_rng(1), 0
    for _ in range(steps):
        k = controller.choose(batch)
        found = rng.random(batch)[:, None] < np.array(SUPPLY[:previous])[None, :]
        drafted = found.sum(axis=1)
        accepted = [int(np.cumprod(rng.random(d) < REAL).sum()) for d in drafted.tolist()]
        elapsed = step_ms(batch, float(drafted.mean())) * float(np.exp(0.01 * rng.standard_normal()))
        controller.observe(
            StepRecord(batch_size=batch, elapsed_ms=elapsed, k=k, drafted=drafted.tolist(), accepted=accepted)
        )
        previous = k


@pytest.mark.parametrize("told", [True, False], ids=["from its own table", "from one that says nothing of supply"])
def test_after_many_steps_the_corrected_table_seeds_what_is_believed(told: bool) -> None:
    """Drafts go missing as in the table, or as no table said: the next controller starts where this one is."""
    table = measured()
    controller = Controller(table if told else GoodputTable.from_rows(table.rows, [REAL] * 7), arms=ARMS, seed=0)
    played(controller, 1500)
    corrected = controller.corrected_table()
    successor = Controller(corrected, arms=ARMS, seed=0)
    assert corrected.supply is not None
    assert corrected.supply[0] == pytest.approx(SUPPLY[0], abs=0.06)
    running = max(range(len(ARMS)), key=lambda i: controller.belief(16)[i].goodput or 0.0)
    width, length = truth(ARMS[running])
    after = successor.belief(16)[running]
    assert after.itl_ms == pytest.approx(step_ms(16, width), rel=0.03)
    assert after.al == pytest.approx(length, rel=0.05)
    for k in ARMS:
        assert corrected.itl_ms(16, k) == pytest.approx(successor.belief(16)[ARMS.index(k)].itl_ms, rel=0.02)


def test_a_schedule_with_a_supply_is_still_what_is_played_first() -> None:
    """Its times are guessed, so that they must be guessed of the drafts that are there."""
    table = GoodputTable.from_schedule([[1, 32, 3], [33, 128, 1], [129, 512, 0]], [0.4, 0.3, 0.2], supply=[0.5, 0.4])
    for batch, k in ((1, 3), (16, 3), (64, 1), (100, 1), (200, 0), (400, 0)):
        assert Controller(table, arms=(0, 1, 3), seed=0).choose(batch) == k


def test_an_engine_that_pads_is_read_at_the_tokens_that_its_steps_had() -> None:
    """A table with a row per captured size: at 16 requests K=1 had 24 tokens, padded to 32, not 32 to 64."""
    sizes = (16, 32, 64, 128, 256)
    controller = Controller(measured(), arms=(0, 1), capture_sizes=sizes)
    assert controller.belief(16)[1].itl_ms == pytest.approx(step_ms(32 / 1.5, 0.5), rel=0.02)
