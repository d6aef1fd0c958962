from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.guard import HOARD_STEPS, LONGEST_WAIT, PROBE_PART, PURSE_STEPS, Ledger, Patience, octave

times_ms = st.floats(0.1, 1000.0)


def earned(ms: float, steps: int, budget: float = 0.01) -> Ledger:
    ledger = Ledger(budget)
    for _ in range(steps):
        ledger.earn(ms, ms)
    return ledger


def wait_of(patience: Patience, arm: int, batch: int) -> int:
    """Blocks until the arm may be visited again."""
    waited = 0
    while not patience.allows(arm, batch):
        patience.tick()
        waited += 1
    return waited


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

    def test_an_empty_ledger_affords_no_probe_either(self) -> None:
        ledger = earned(10.0, 100)
        ledger.spend(10.0)
        assert not ledger.affords_probe(1.0)

    def test_it_survives_json(self) -> None:
        ledger, other = earned(10.0, 123), Ledger(0.01)
        ledger.spend(3.0)
        ledger.begin_probe(2.0)
        other.load(json.loads(json.dumps(ledger.snapshot())))
        for one in (ledger, other):
            one.earn(7.0, 7.0)
        assert other.snapshot() == ledger.snapshot()


class TestPatience:
    def test_waits_grow_threefold_with_each_failure_up_to_a_limit(self) -> None:
        patience, waits = Patience(), []
        for _ in range(6):
            patience.failed(2, 64)
            waits.append(wait_of(patience, 2, 64))
        assert waits == [3, 9, 27, 81, 81, 81]
        assert waits[-1] == LONGEST_WAIT

    def test_a_failure_lets_the_other_arms_rest_shortly(self) -> None:
        patience = Patience()
        patience.failed(2, 64)
        assert wait_of(patience, 1, 64) == 2

    def test_only_batches_of_the_same_octave_wait(self) -> None:
        patience = Patience()
        patience.failed(2, 64)
        assert [patience.allows(2, batch) for batch in (63, 64, 127, 128)] == [True, False, False, True]

    def test_an_arm_that_won_starts_from_the_shortest_wait(self) -> None:
        patience = Patience()
        for _ in range(3):
            patience.failed(2, 64)
        patience.succeeded(2, 64)
        for _ in range(2):
            patience.tick()
        assert patience.allows(2, 64)
        patience.failed(2, 64)
        assert wait_of(patience, 2, 64) == 3

    def test_after_a_change_all_is_forgiven(self) -> None:
        patience = Patience()
        for _ in range(3):
            patience.failed(2, 64)
        patience.forgive()
        assert patience.allows(2, 64)
        assert patience.allows(1, 64)
        patience.failed(2, 64)
        assert wait_of(patience, 2, 64) == 3

    def test_it_survives_json(self) -> None:
        patience, other = Patience(), Patience()
        for arm in (1, 2, 2):
            patience.failed(arm, 64)
            patience.tick()
        other.load(json.loads(json.dumps(patience.snapshot())))
        waits = []
        for one in (patience, other):
            first = wait_of(one, 2, 64)
            one.failed(2, 64)
            waits.append((first, wait_of(one, 2, 64), wait_of(one, 1, 64)))
        assert waits[0] == waits[1] == (8, 27, 0)


@given(st.integers(1, 2**20))
def test_an_octave_holds_the_batches_from_one_power_of_two_to_the_next(batch: int) -> None:
    assert 2 ** octave(batch) <= batch < 2 ** (octave(batch) + 1)
