from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.guard import (
    HOARD_STEPS,
    LONGEST_WAIT,
    PROBE_PART,
    PURSE_STEPS,
    RESTS,
    Ledger,
    Patience,
    Place,
    place,
)

times_ms = st.floats(0.1, 1000.0)


def earned(ms: float, steps: int, budget: float = 0.01) -> Ledger:
    ledger = Ledger(budget)
    for _ in range(steps):
        ledger.earn(ms, ms)
    return ledger


def wait_of(patience: Patience, arm: int, at: Place) -> int:
    """Blocks until the arm may be visited again."""
    waited = 0
    while not patience.allows(arm, at):
        patience.tick()
        waited += 1
    return waited


HERE = place(64, 500.0)


class TestLedger:
    def test_a_step_earns_the_budgets_share_of_its_time(self) -> None:
        assert earned(20.0, 50).balance_ms == pytest.approx(0.01 * 20.0 * 50)

    @given(st.floats(0.0, 0.2), st.lists(st.tuples(times_ms, st.floats(0.0, 50.0)), max_size=60))
    def test_visits_at_their_price_never_cost_more_than_was_earned(
        self, budget: float, steps: list[tuple[float, float]]
    ) -> None:
        ledger, spent, earned_ms = Ledger(budget), 0.0, 0.0
        for ms, price in steps:
            ledger.earn(ms, ms)
            earned_ms += budget * ms
            if ledger.affords(price):
                ledger.spend(price)
                spent += price
            assert spent <= earned_ms * (1.0 + 1e-9)
        assert ledger.spent_ms == pytest.approx(spent)

    def test_a_dear_surprise_is_paid_off_before_the_next_visit(self) -> None:
        ledger = earned(10.0, 100)
        assert ledger.affords(9.99)
        ledger.spend(30.0)
        assert not ledger.affords(0.0)
        for _ in range(199):
            ledger.earn(10.0, 10.0)
        assert not ledger.affords(0.0)
        for _ in range(2):
            ledger.earn(10.0, 10.0)
        assert ledger.affords(0.0)

    def test_a_visit_that_was_a_gain_is_no_income(self) -> None:
        ledger = earned(10.0, 100)
        ledger.spend(-5.0)
        assert ledger.balance_ms == pytest.approx(10.0)

    def test_without_a_budget_even_a_free_visit_is_refused(self) -> None:
        ledger = earned(10.0, 100, budget=0.0)
        assert not ledger.affords(0.0)
        assert not ledger.affords_probe(0.0)

    def test_savings_are_bounded(self) -> None:
        assert earned(10.0, 3 * HOARD_STEPS).balance_ms == pytest.approx(0.01 * 10.0 * HOARD_STEPS)

    def test_what_was_spent_does_not_lower_the_bound_on_savings(self) -> None:
        ledger = earned(10.0, 3 * HOARD_STEPS)
        ledger.spend(150.0)
        for _ in range(HOARD_STEPS):
            ledger.earn(10.0, 10.0)
        assert ledger.balance_ms == pytest.approx(0.01 * 10.0 * HOARD_STEPS)

    def test_probes_live_on_their_part_of_the_income(self) -> None:
        """After 100 steps of 10 ms a visit may cost 10 ms, a probe 7 ms."""
        ledger = earned(10.0, 100)
        assert ledger.affords_probe(0.99 * PROBE_PART * 10.0)
        assert not ledger.affords_probe(1.01 * PROBE_PART * 10.0)
        ledger.begin_probe(5.0)
        assert not ledger.affords_probe(2.1)
        assert ledger.affords(9.9)

    def test_probes_cannot_save_up_much(self) -> None:
        ledger = earned(10.0, 5 * PURSE_STEPS)
        assert ledger.purse_ms == pytest.approx(PROBE_PART * 0.01 * 10.0 * PURSE_STEPS)

    @pytest.mark.parametrize("dear", [3.0, 8.0, 19.0, 60.0])
    def test_one_dear_probe_is_saved_up_for(self, dear: float) -> None:
        """A probe worth more than the purse usually holds (1.4 steps of 10 ms) is begun once its price came in.

        It lives on 0.7 % of the income, so ``dear`` steps' time takes ``dear`` / 0.007 steps; also beyond the 20 steps
        that may be saved up otherwise, or K=0 would never be left once the drafter was seen to be that dear.
        """
        ledger, price, steps = earned(10.0, PURSE_STEPS), 10.0 * dear, PURSE_STEPS
        while not ledger.affords_probe(price) and steps < 10_000:
            ledger.earn(10.0, 10.0)
            steps += 1
        assert steps == pytest.approx(dear / (0.01 * PROBE_PART), abs=2)

    def test_nothing_is_saved_up_beyond_the_probe_that_is_wanted(self) -> None:
        """While it waits for the balance the purse stands at its price; once begun it starts from nothing."""
        ledger, usual = earned(10.0, 1000), PROBE_PART * 0.01 * 10.0 * PURSE_STEPS
        assert not ledger.affords_probe(30.0)
        for _ in range(1000):
            ledger.earn(10.0, 10.0)
        assert ledger.purse_ms == pytest.approx(30.0)
        assert ledger.affords_probe(30.0)
        ledger.begin_probe(30.0)
        for _ in range(2000):
            ledger.earn(10.0, 10.0)
        assert ledger.purse_ms == pytest.approx(usual)

    def test_a_cheaper_probe_ends_the_saving(self) -> None:
        """The drafter became cheaper meanwhile: what is above the usual purse is dropped, not spent on many."""
        ledger, usual = earned(10.0, 1000), PROBE_PART * 0.01 * 10.0 * PURSE_STEPS
        assert not ledger.affords_probe(50.0)
        for _ in range(800):
            ledger.earn(10.0, 10.0)
        assert ledger.purse_ms > 2.0 * usual
        assert ledger.affords_probe(5.0)
        ledger.earn(10.0, 10.0)
        assert ledger.purse_ms == pytest.approx(usual)

    def test_once_a_probe_is_affordable_nothing_is_saved_up_for(self) -> None:
        """Also where steps are so short that the usual purse is below one thousandth of a millisecond."""
        ledger = Ledger(0.01)
        for _ in range(10):
            ledger.earn(0.0005, 0.0005)
        assert ledger.affords_probe(1e-5)
        for _ in range(1000):
            ledger.earn(0.0005, 0.0005)
        assert ledger.purse_ms == pytest.approx(PROBE_PART * 0.01 * 0.0005 * PURSE_STEPS)

    def test_a_price_is_affordable_up_to_the_last_of_what_is_there(self) -> None:
        """Exactly the balance, or exactly the purse, will do."""
        ledger = Ledger(0.5)
        ledger.earn(16.0, 16.0)
        assert ledger.affords(8.0)
        ledger.purse_ms = 4.0
        assert ledger.affords_probe(4.0)
        assert not ledger.affords_probe(4.5)

    def test_a_probe_that_is_wanted_raises_the_bound_on_all_savings(self) -> None:
        """Dearer than all that may be saved up otherwise, 20 steps: the allowance, too, waits for it, and no longer."""
        ledger, price = earned(10.0, HOARD_STEPS), 3.0 * 0.01 * 10.0 * HOARD_STEPS
        assert not ledger.affords_probe(price)
        for _ in range(10 * HOARD_STEPS):
            ledger.earn(10.0, 10.0)
        assert ledger.balance_ms == pytest.approx(price)

    def test_what_can_be_saved_up_goes_by_the_usual_step_not_by_this_one(self) -> None:
        """One step of an hour, where 10 ms are usual, fills both up and no more."""
        ledger = earned(10.0, 10)
        ledger.earn(3.6e6, 10.0)
        assert ledger.balance_ms == pytest.approx(0.01 * 10.0 * HOARD_STEPS)
        assert ledger.purse_ms == pytest.approx(PROBE_PART * 0.01 * 10.0 * PURSE_STEPS)

    def test_an_empty_ledger_affords_no_probe_either(self) -> None:
        ledger = earned(10.0, 100)
        ledger.spend(10.0)
        assert not ledger.affords_probe(1.0)

    def test_it_survives_json(self) -> None:
        ledger, other = earned(10.0, 123), Ledger(0.01)
        ledger.spend(3.0)
        ledger.begin_probe(2.0)
        assert not ledger.affords_probe(9.0)  # it is saved up for
        other.load(json.loads(json.dumps(ledger.snapshot())))
        for one in (ledger, other):
            for _ in range(500):
                one.earn(3.0, 3.0)
        assert ledger.purse_ms == 9.0  # 4.2 without the saving
        assert other.snapshot() == ledger.snapshot()


class TestPatience:
    def test_waits_grow_threefold_with_each_failure_up_to_a_limit(self) -> None:
        """From the third on the wait is longer than any rest of the place."""
        patience, waits = Patience(), []
        for _ in range(6):
            patience.failed(2, HERE)
            waits.append(wait_of(patience, 2, HERE))
        assert waits == [3, 9, 27, 81, 81, 81]
        assert waits[-1] == LONGEST_WAIT

    def test_each_failure_in_a_row_lets_the_other_arms_rest_longer(self) -> None:
        """3, 8, 8, ... blocks, whichever arm was visited."""
        patience, rests = Patience(), []
        for arm in (2, 3, 4, 5, 6):
            patience.failed(arm, HERE)
            rests.append(wait_of(patience, 1, HERE))
        assert rests == [*RESTS, *RESTS[-1:] * 3] == [3, 8, 8, 8, 8]

    def test_in_calm_no_more_than_two_percent_of_the_steps_are_visits(self) -> None:
        """Four arms that all fail, as often as their waits allow, over 2,000 blocks of 32 steps, 4 steps a visit."""
        patience, visits = Patience(), 0
        for _ in range(2000):
            patience.tick()
            arm = next((arm for arm in (1, 2, 3, 4) if patience.allows(arm, HERE)), None)
            if arm is not None:
                patience.failed(arm, HERE)
                visits += 1
        assert 0.0 < 4.0 * visits / (32.0 * 2000) < 0.02

    @pytest.mark.parametrize(
        ("batch", "context", "waits"),
        [
            (42, 500.0, False),
            (43, 500.0, True),
            (63, 500.0, True),
            (64, 500.0, True),
            (85, 500.0, True),
            (86, 500.0, False),
            (64, None, True),
            (64, 1023.0, True),
            (64, 1025.0, False),
            (64, 5000.0, False),
        ],
    )
    def test_only_the_place_where_it_failed_waits(self, batch: int, context: float | None, waits: bool) -> None:
        """The octave of batch sizes, and of context beyond 1,024 tokens; the arm's wait and the rest alike."""
        patience = Patience()
        patience.failed(2, HERE)
        assert patience.allows(2, place(batch, context)) is not waits
        assert patience.allows(1, place(batch, context)) is not waits

    def test_a_place_counts_its_own_failures(self) -> None:
        patience, there = Patience(), place(256, 500.0)
        for _ in range(3):
            patience.failed(2, HERE)
        patience.failed(2, there)
        assert wait_of(patience, 2, there) == 3
        assert wait_of(patience, 1, HERE) == 8 - 3

    def test_an_arm_that_won_starts_from_the_shortest_wait(self) -> None:
        patience = Patience()
        for _ in range(3):
            patience.failed(2, HERE)
        patience.succeeded(2, HERE)
        assert patience.allows(2, HERE)
        assert patience.allows(1, HERE)
        patience.failed(2, HERE)
        assert wait_of(patience, 1, HERE) == 3
        assert wait_of(patience, 2, HERE) == 0

    def test_a_win_of_one_arm_leaves_the_waits_of_others(self) -> None:
        """The rest of the place is over; arm 3 still waits its own three blocks."""
        patience = Patience()
        patience.failed(3, HERE)
        patience.succeeded(2, HERE)
        assert patience.allows(1, HERE)
        assert wait_of(patience, 3, HERE) == 3

    def test_after_a_change_all_is_forgiven(self) -> None:
        patience = Patience()
        for _ in range(3):
            patience.failed(2, HERE)
            patience.failed(1, place(256, 500.0))
        patience.forgive()
        assert patience.allows(2, HERE)
        assert patience.allows(1, HERE)
        assert patience.allows(1, place(256, 500.0))
        patience.failed(2, HERE)
        assert wait_of(patience, 2, HERE) == 3

    def test_it_survives_json(self) -> None:
        """Mid-wait: three failures in a row at one place, one at another; both go on alike to the block."""
        patience, other = Patience(), Patience()
        for arm, at in ((1, HERE), (2, HERE), (2, HERE), (2, place(8, None))):
            patience.failed(arm, at)
            patience.tick()
        other.load(json.loads(json.dumps(patience.snapshot())))
        waits = []
        for one in (patience, other):
            rest, first = wait_of(one, 1, HERE), wait_of(one, 2, HERE)
            one.failed(2, HERE)
            waits.append((rest, first, wait_of(one, 1, HERE), wait_of(one, 2, HERE), wait_of(one, 2, place(8, None))))
        # The third failure in a row was at block 2, now it is 4: a rest until 10, a wait until 11, then 8 and 27.
        assert waits[0] == waits[1] == (6, 1, 8, 19, 0)
        assert other.snapshot() == patience.snapshot()


@given(st.integers(1, 2**20), st.floats(0.0, 1e6))
def test_a_place_is_an_octave_of_batch_and_of_context(batch: int, context: float) -> None:
    """Batch: 1.5 times it, rounded down, in [2^n, 2^(n+1)). Context: up to 1,024 tokens each, 3,072, 7,168."""
    octave, of_context = place(batch, context)
    assert 2 ** (octave - 1) <= 3 * batch // 2 < 2**octave
    assert 1024.0 * (2**of_context - 1) <= context * (1 + 1e-12)
    assert context <= 1024.0 * (2 ** (of_context + 1) - 1) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("batch", "context", "expected"),
    [(1, None, (1, 0)), (2, 1023.0, (2, 0)), (3, 1024.0, (3, 1)), (64, 3071.0, (7, 1)), (64, 3072.0, (7, 2))],
)
def test_places_by_hand(batch: int, context: float | None, expected: Place) -> None:
    assert place(batch, context) == expected


def test_an_unknown_context_is_the_first_octave() -> None:
    assert place(64, None) == place(64, 0.0)
