"""What steps add up to, compared with sums made by hand; nothing of vLLM is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from adaptk import Controller, GoodputTable, StepRecord
from adaptk.belief import ArmBelief
from adaptk.decision import Decision, Reason
from adaptk.vllm_plugin.metrics.beliefs import Beliefs
from adaptk.vllm_plugin.metrics.carried import Carried
from adaptk.vllm_plugin.metrics.reference import POLICIES, Reference, Timed, emitted
from adaptk.vllm_plugin.metrics.rows import bin_name, count_rows, step_rows
from adaptk.vllm_plugin.metrics.sums import BOUNDS, CONTEXT, DECODES, MS, REQUESTS, STEPS, TIMED, TOKENS, Sums

ROWS = [{"batch": b, "k": k, "itl_ms": 10.0 + 0.1 * b + 0.5 * k} for b in (1, 32) for k in (0, 1, 3, 7)]
TABLE = GoodputTable.from_rows(ROWS, acceptance=[0.8] * 7)


class Scripted:
    """A policy that answers observations with decisions prepared beforehand."""

    def __init__(self, *decisions: tuple[int, Reason] | None) -> None:
        self.left = list(decisions)

    def choose(self, batch_size: int, context_tokens: int | None = None) -> int:
        return 0

    def observe(self, record: StepRecord) -> Decision | None:
        given = self.left.pop(0) if self.left else None
        return None if given is None else Decision(seq=0, k=given[0], propensity=1.0, reason=given[1], arms=(0, 1, 3))


class Namesake(Scripted):
    """A policy that has other things under the names of what a Controller has."""

    counters, counted, ledger, unlearnt = 7, 3, "all", [1]

    def peek(self, distance: float) -> float:
        return distance


def step(k: int, drafted: list[int], accepted: list[int] | None = None, **fields: Any) -> StepRecord:
    """A step of 10 ms whose requests emit one token more than they accepted."""
    accepted = drafted if accepted is None else accepted
    plain = {"batch_size": len(drafted), "elapsed_ms": 10.0, "emitted": [n + 1 for n in accepted]}
    return StepRecord(
        **{**plain, "context_tokens": 100 * len(drafted), **fields}, k=k, drafted=drafted, accepted=accepted
    )


class TestCells:
    def test_a_step_belongs_to_the_k_that_made_its_drafts(self) -> None:
        """Time and tokens stand under the K of the step before, with what was chosen for it and vLLM's own."""
        sums, policy = Sums(7), Scripted((3, Reason.EXPLOIT), (1, Reason.EXPLORE), (1, Reason.HOLD))
        for k, drafted, vllms in ((7, [0, 0], 7), (7, [7, 7], 5), (7, [7, 7], 7)):
            sums.observe(policy, step(k, drafted), vllms)
        assert list(sums.cells) == [(2, 0, 0, 0), (2, 7, 3, 7), (2, 7, 1, 5)]
        cell = sums.cells[2, 7, 3, 7]
        assert [cell[i] for i in (STEPS, TIMED, MS, TOKENS, DECODES, REQUESTS, CONTEXT)] == [1, 1, 10, 16, 2, 2, 200]

    def test_in_a_pipeline_each_batch_has_its_own_maker(self) -> None:
        """What was chosen for it, and vLLM's own K, are not those of the other batch, which came back in between."""
        sums, policy = Sums(7), Scripted(*[(1, Reason.EXPLOIT)] * 6)
        for i in range(6):
            k, requests = ((7, 1), (3, 5))[i % 2]
            drafts = k if i > 1 else 0
            sums.observe(policy, step(k, [drafts] * requests, asked=drafts if i > 1 else None), vllms_k=k)
        assert sums.cells[1, 7, 1, 7][STEPS] == sums.cells[3, 3, 1, 3][STEPS] == 2

    def test_prompts_alone_are_a_bin_of_their_own(self) -> None:
        """No K has a part in them; where some requests decode, these make the bin."""
        sums = Sums(7)
        sums.observe(Scripted(), step(3, [0, 0], decodes=0, prefill_tokens=50), 7)
        sums.observe(Scripted(), step(3, [0, 3, 3], decodes=2, prefill_tokens=50), 7)
        assert list(sums.cells) == [(0, 0, 0, 0), (2, 3, 3, 7)]

    def test_a_time_that_is_none_counts_as_a_step_only(self) -> None:
        """Unknown, NaN and negative ones are told apart by cause, and so are missed graphs."""
        collector: Any = SimpleNamespace(misses=SimpleNamespace(count=0))
        sums = Sums(3, collector)
        for elapsed in (None, float("nan"), -1.0, float("inf")):
            sums.observe(Scripted(), step(1, [0], elapsed_ms=elapsed), 3)
        collector.misses.count = 1
        sums.observe(Scripted(), step(1, [1], elapsed_ms=None), 3)
        sums.observe(Scripted(), step(1, [1], elapsed_ms=None), 3)
        assert sums.dropped == {"lost": 0, "no_time": 2, "bad_time": 3, "graph_missed": 1}
        assert [(cell[STEPS], cell[TIMED], cell[MS], cell[TOKENS]) for cell in sums.cells.values()] == [
            (1, 0, 0, 0),
            (5, 0, 0, 0),
        ]

    def test_a_lost_step_is_none(self) -> None:
        """Its decision counts, as the controller made it; the last step stays the one before."""
        sums, last = Sums(3), step(1, [0])
        sums.observe(Scripted((1, Reason.EXPLOIT)), last, 3)
        lost = StepRecord(batch_size=4, elapsed_ms=None, k=3, drafted=[], accepted=[], decodes=0)
        sums.observe(Scripted((3, Reason.EXPLORE)), lost, 3)
        assert sums.dropped["lost"] == 1
        assert sum(cell[STEPS] for cell in sums.cells.values()) == 1
        assert sums.record is last
        assert sums.decided == {(1, Reason.EXPLOIT): [1], (3, Reason.EXPLORE): [1]}

    def test_an_unknown_context_is_left_out_of_the_mean(self) -> None:
        sums = Sums(3)
        sums.observe(Scripted(), step(0, [0, 0], context_tokens=None), 3)
        (cell,) = sums.cells.values()
        assert (cell[DECODES], cell[REQUESTS], cell[CONTEXT]) == (2, 0, 0)

    def test_decisions_and_switches(self) -> None:
        """A switch has the reason of the new K, also across controllers; the first choice is none."""
        sums = Sums(3)
        first = Scripted((3, Reason.EXPLOIT), (3, Reason.HOLD), (1, Reason.EXPLORE))
        for _ in range(3):
            sums.observe(first, step(3, [0]), 3)
        sums.observe(Scripted((3, Reason.EXPLOIT)), step(3, [3]), 3)
        assert sums.decided == {(3, "exploit"): [2], (3, "hold"): [1], (1, "explore"): [1]}
        assert sums.switched == {"explore": 1, "exploit": 1}
        assert sums.chosen_k == 3

    def test_own_time_is_counted_by_its_edges(self) -> None:
        """A value on an edge is in the bucket that ends there; there is one bucket beyond them all."""
        histogram = Sums(3).deciding
        for seconds in (BOUNDS[0], BOUNDS[0] * 1.01, 1.0):
            histogram.take(seconds)
        assert (histogram.counts[0], histogram.counts[1], histogram.counts[-1]) == (1, 1, 1)
        assert histogram.sum_s == pytest.approx(1.0, abs=1e-4)


class TestPositions:
    def test_conditional_acceptance_is_unbiased_under_varying_k(self) -> None:
        """84 requests with two drafts and 11 with five, all accepted: each position is accepted whenever reached."""
        sums = Sums(5)
        sums.observe(Scripted(), step(5, [2] * 84 + [5] * 11, asked=5), 5)
        assert sums.drafts.totals() == [95, 95, 11, 11, 11] + [0] * 5

    def test_what_a_controller_counted_is_not_counted_again(self) -> None:
        """The same numbers as by hand, with steps without drafts in between and odd lengths."""
        steps = [
            (3, [0, 0], [0, 0]),
            (0, [3, 2], [1, 2]),
            (0, [0, 0], [0, 0]),
            (7, [0], [0]),
            (1, [7], [4]),
            (1, [1], [0]),
        ]
        controller, plain = Controller(None, arms=(0, 1, 3, 7), seed=0), Scripted()
        ours, by_hand = Sums(7), Sums(7)
        for k, drafted, accepted in steps:
            controller.choose(len(drafted))
            for sums, policy in ((ours, controller), (by_hand, plain)):
                sums.observe(policy, step(k, drafted, accepted), 7)
        assert ours.drafts.totals() == by_hand.drafts.totals() == [3, 2, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0]

    @pytest.mark.parametrize("k_max", [2, 5])
    def test_another_number_of_positions_than_the_controllers(self, k_max: int) -> None:
        """The engine's count: it plays vLLM's own K in shadow, whatever arms the controller has."""
        controller, sums = Controller(None, arms=(0, 3), seed=0), Sums(k_max)
        controller.choose(1)
        sums.observe(controller, step(k_max, [k_max], [k_max - 1], asked=k_max), k_max)
        assert sums.drafts.totals() == [1] * (k_max - 1) + [0] * k_max + [1]

    def test_what_a_controller_counted_elsewhere_is_not_counted(self) -> None:
        """Neither at another engine nor here, before another one took its turn."""
        controller, other, sums = Controller(None, arms=(0, 3), seed=0), Scripted(), Sums(3)
        controller.choose(1)
        controller.observe(step(0, [3], asked=3))
        sums.observe(controller, step(0, [0]), 3)
        assert sums.drafts.totals() == [0] * 6
        sums.observe(controller, step(0, [3], [1], asked=3), 3)
        sums.observe(other, step(0, [0]), 3)
        sums.observe(other, step(0, [3], asked=3), 3)
        sums.observe(controller, step(0, [0], asked=0), 3)
        assert sums.drafts.totals() == [2, 1, 1, 0, 1, 0]

    def test_a_policy_is_not_asked_what_it_counted(self) -> None:
        """Though it has things of the same names."""
        policy, sums = Namesake(), Sums(3)
        sums.observe(policy, step(3, [3], [1], asked=3), 3)
        sums.hand_over(policy)
        assert sums.drafts.totals() == [1, 0, 0, 0, 1, 0]
        assert sums.peek is None


class TestCarried:
    def test_exchanged_controllers_make_one_count(self) -> None:
        """What one brings along is not counted, what the former still learns is; and the same one may come back."""
        first, second = (Controller(None, arms=(0, 1), seed=0) for _ in range(2))
        first.counters["time_alarms"], second.counters["time_alarms"] = 5, 100
        carried = Carried()

        def alarms() -> float:
            return carried.totals()["time_alarms"]

        carried.meet(first)
        first.counters["time_alarms"] += 1
        carried.meet(second)
        first.counters["time_alarms"] += 1  # of a step that was in flight
        assert alarms() == 2
        carried.learning(second)
        second.counters["time_alarms"] += 10
        first.counters["time_alarms"] += 50  # at another engine by now
        assert alarms() == 12
        carried.meet(first)
        carried.learning(first)
        first.counters["time_alarms"] += 1
        assert alarms() == 13

    def test_a_policy_counts_nothing(self) -> None:
        """Whatever it has under the names of a controller's counts."""
        carried = Carried()
        for policy in (Scripted(), Namesake()):
            carried.meet(policy)
            carried.learning(policy)
        assert carried.totals() == {}

    def test_the_ledgers_counters_never_fall(self) -> None:
        """It forgets what it cannot save up; the balance is what it says now."""
        controller = Controller(TABLE, seed=0)
        sums: Any = Sums(7)
        sums.carried.meet(controller)
        steering: Any = SimpleNamespace(controller=controller, collector=None, unmatched=0, lost=0)
        ledger, most = controller._planner.ledger, dict[str, float]()
        values = []
        for allowed in (4000.0, 3000.0, 5000.0):
            ledger.allowed_ms, ledger.spent_ms = allowed, 1000.0
            rows = count_rows(steering, sums, most)
            names = ("adaptk_exploration_allowed_seconds_total", "adaptk_exploration_balance_seconds")
            values.append([rows[name][0][1] for name in names])
        assert values == [[4.0, 3.0], [4.0, 2.0], [5.0, 4.0]]

    def test_a_step_that_is_being_given_up_lowers_nothing(self) -> None:
        """A reader on another thread may find it among the lost ones and not yet among the unmatched."""
        steering, sums, most = SimpleNamespace(controller=None, collector=None), Sums(7), dict[str, float]()
        values = []
        for steering.unmatched, steering.lost in ((1, 0), (1, 1), (2, 1)):
            dropped = dict(count_rows(steering, sums, most)["adaptk_observations_dropped_total"])  # type: ignore[arg-type]
            values.append(dropped["unmatched",])
        assert values == [1, 1, 1]


def arm(k: int, al: float, itl_ms: float | None) -> ArmBelief:
    goodput = None if itl_ms is None else 1000.0 * al / itl_ms
    unused = dict.fromkeys(("al_low", "al_high", "itl_low", "itl_high", "p_best", "table_itl_ms", "drift"), 0.0)
    return ArmBelief(k=k, al=al, itl_ms=itl_ms, goodput=goodput, **unused)  # type: ignore[arg-type]


class TestReference:
    def test_the_k_that_was_played_emits_what_was_emitted(self) -> None:
        """Whatever is believed of it, also nothing."""
        reference = Reference(POLICIES)
        reference.count((3, 0, 0, 0), Timed(2, 30.0, 17.0), {}, 0)
        assert reference.tokens == dict.fromkeys(POLICIES, 17.0)
        assert set(reference.unknown.values()) == {0.0}

    def test_another_k_emits_by_its_goodput(self) -> None:
        """In 100 ms: 20 tokens at goodput 200; at 125 these are 12.5."""
        reference = Reference(("k0", "vllm"))
        reference.count((2, 1, 1, 0), Timed(10, 100.0, 20.0), {1: arm(1, 2.0, 10.0), 0: arm(0, 1.0, 8.0)}, None)
        assert reference.tokens == {"k0": 12.5, "vllm": 12.5}

    def test_time_that_no_k_can_save_is_left_as_it_is(self) -> None:
        """Half of it was a prompt's: 100 ms of prompts and 160 ms of steps for the same 20 tokens."""
        played, other = arm(1, 2.0, 10.0), arm(0, 1.0, 8.0)
        assert emitted(Timed(10, 200.0, 20.0), played, other) == pytest.approx(20.0 * 200.0 / 260.0)

    def test_where_nothing_is_believed_the_tokens_are_taken_over_and_told(self) -> None:
        """A K that is no arm, and one without a time: no gain is claimed from them."""
        reference = Reference(("k0", "table", "vllm"))
        reference.count((2, 1, 1, 5), Timed(10, 100.0, 20.0), {1: arm(1, 2.0, None), 0: arm(0, 1.0, None)}, None)
        assert reference.tokens == reference.unknown == {"k0": 20.0, "table": 20.0, "vllm": 20.0}


class TestBeliefs:
    @staticmethod
    def run(controller: Controller, sums: Sums, steps: int, batch: int, context: int = 100, vllms: int = 7) -> None:
        before = 0
        for _ in range(steps):
            k = controller.choose(batch, context * batch)
            drafted = [before] * batch
            sums.observe(controller, step(k, drafted, context_tokens=context * batch), vllms)
            before = k
        sums.hand_over(controller)

    def test_bins_are_asked_at_the_batch_and_context_of_late(self) -> None:
        """A look halves what was before; without news all stays as it was."""
        controller, sums, beliefs = Controller(TABLE, seed=0), Sums(7), Beliefs()
        self.run(controller, sums, 20, 4, context=100)
        beliefs.look(sums.peek, sums.copied())
        assert beliefs.bins[3].spot == (4, 100.0)
        self.run(controller, sums, 20, 7, context=400)
        beliefs.look(sums.peek, sums.copied())
        # 10 steps of 4 requests and 20 of 7: 6 requests, and 4,000 + 56,000 tokens over 180 of them.
        assert beliefs.bins[3].spot == (6, pytest.approx(60_000 / 180))
        last = beliefs.bins[3]
        beliefs.look(sums.peek, sums.copied())
        assert beliefs.bins[3] is last
        assert last.table_k == TABLE.best_k(6, 60_000 / 180, controller.arms)

    def test_every_token_has_its_reference_once(self) -> None:
        """However often somebody looks, what adaptk chose and played adds up to what was emitted."""
        controller, sums, often, once = Controller(TABLE, seed=0), Sums(7), Beliefs(), Beliefs()
        for batch in (1, 5, 5, 20):
            self.run(controller, sums, 15, batch)
            often.look(sums.peek, sums.copied())
            often.look(sums.peek, sums.copied())
        once.look(sums.peek, sums.copied())
        tokens = sum(cell[TOKENS] for cell in sums.cells.values())
        for beliefs in (often, once):
            assert beliefs.reference.tokens["adaptk"] == beliefs.reference.tokens["played"] == tokens
            assert beliefs.reference.unknown["k0"] == 0.0
            assert beliefs.reference.tokens["k0"] < tokens
        assert beliefs.policies() == list(POLICIES)

    def test_a_step_that_was_being_added_is_taken_in_by_and_by(self) -> None:
        """A reader on another thread may find a part of it; in the end nothing is missing or counted twice."""
        controller, sums, beliefs = Controller(TABLE, seed=0), Sums(7), Beliefs()
        self.run(controller, sums, 10, 4)
        whole = sums.copied()
        for part in range(STEPS, CONTEXT + 1):
            torn = {at: [*cell[: part + 1], *[0.0] * (CONTEXT - part)] for at, cell in whole.items()}
            beliefs.look(sums.peek, torn)
        tokens = sum(cell[TOKENS] for cell in whole.values())
        assert beliefs.reference.tokens["played"] == tokens
        assert beliefs.reference.tokens["k0"] <= tokens

    def test_policies_that_cannot_be_told_are_left_out(self) -> None:
        """Without a table and with K=0 forbidden by the arms, or with beliefs that nobody can have."""
        controller, sums, beliefs = Controller(None, arms=(1, 3), seed=0), Sums(3), Beliefs()
        self.run(controller, sums, 5, 2)
        beliefs.look(sums.peek, sums.copied())
        assert beliefs.policies() == ["played", "adaptk", "vllm"]
        sums.observe(Scripted(), step(1, [1]), 3)
        sums.hand_over(Scripted())
        beliefs.look(sums.peek, sums.copied())
        assert (beliefs.policies(), beliefs.bins) == ([], {})

    def test_another_controller_is_believed_from_its_first_copy_on(self) -> None:
        first, second, sums, beliefs = Controller(TABLE, seed=0), Controller(None, k_max=3, seed=0), Sums(7), Beliefs()
        self.run(first, sums, 5, 2)
        beliefs.look(sums.peek, sums.copied())
        self.run(second, sums, 5, 2)
        beliefs.look(sums.peek, sums.copied())
        assert set(beliefs.bins[2].beliefs) == {0, 1, 3}
        assert len(beliefs.positions) == 3


def test_bins_are_named_by_their_ends() -> None:
    assert [bin_name(bits) for bits in (0, 1, 2, 3, 10)] == ["0", "1", "2-3", "4-7", "512-1023"]


def test_the_last_steps_time_is_unix_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock is another one, whose zero is anywhere."""
    from adaptk.vllm_plugin.metrics import rows

    monkeypatch.setattr(rows, "time", SimpleNamespace(time=lambda: 1_000_000.0, perf_counter=lambda: 50.0))
    sums = Sums(3)
    sums.observe(Scripted(), step(1, [0], t_ms=47_500.0), 3)
    assert step_rows(sums, sums.cells)["adaptk_last_step_timestamp_seconds"] == [((), 999_997.5)]
