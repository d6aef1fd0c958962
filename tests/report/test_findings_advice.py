"""Advice from shadow traces of simulated engines: right where it is given, not given where nothing is sure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from adaptk.replay.noise import Drift, Noise
from adaptk.report.analysis import analyse
from adaptk.report.findings import Findings
from adaptk.table import GoodputTable
from tests.report.worlds import FIXED, Shadow, distorted, shadow, wandering

SEEDS = range(6)


def judged(path: Path, seed: int, schedule: Sequence[Sequence[int]], level: float, drafts: float, engine: str) -> tuple[
    Shadow, Findings
]:  # fmt: skip
    """A shadow trace, and what is found with a table that is off."""
    recorded = shadow(path / f"{seed}.jsonl", seed, schedule=schedule, engine=engine)
    return recorded, analyse([recorded.path], distorted(recorded.table, level, drafts), simulate=False)


class TestRightTable:
    def test_a_schedule_that_is_wrong_at_large_batches(self, tmp_path: Path) -> None:
        """K=3 throughout: the sentence names the loss, where, and what to paste; the truth is inside the interval."""
        recorded = shadow(tmp_path / "t.jsonl", 0, steps=3000)
        advice = analyse([recorded.path], recorded.table, simulate=False).advice
        assert advice.verdict == "change"
        assert advice.sentence.startswith("Your schedule loses ")
        assert advice.schedule_new is not None
        assert advice.schedule_new[-1][2] == 1
        assert advice.paste == f'"num_speculative_tokens_per_batch_size": {advice.schedule_new}'
        assert GoodputTable.from_schedule(advice.schedule_new).best_k(100) == 1
        assert advice.loss is not None
        assert advice.gain is not None
        assert advice.loss.low <= recorded.loss(advice.schedule_new) <= advice.loss.high
        assert advice.gain.value == pytest.approx(advice.loss.value / (1 - advice.loss.value), rel=0.05)
        assert any("Step times of K=0 and 1, where these were not played" in each for each in advice.rests_on)

    def test_a_schedule_that_is_right_is_called_so(self, tmp_path: Path) -> None:
        """Mixture of experts at these batches: K=3 is best throughout, and the bound on what it loses holds."""
        recorded = shadow(tmp_path / "t.jsonl", 1, engine="moe-calibrated")
        advice = analyse([recorded.path], recorded.table, simulate=False).advice
        assert advice.verdict == "keep"
        assert "is right within" in advice.sentence
        assert advice.schedule_new is None
        assert advice.paste == ""
        assert max(recorded.loss([[1, 512, k]]) for k in (0, 1)) <= 0.02

    def test_the_hill_of_a_mixture_of_experts(self, tmp_path: Path) -> None:
        """A schedule that falls with the batch is wrong at middling batches: K must rise there."""
        recorded = shadow(tmp_path / "t.jsonl", 3, engine="moe-calibrated", schedule=[[1, 32, 3], [33, 512, 1]])
        advice = analyse([recorded.path], recorded.table, simulate=False).advice
        assert advice.verdict == "change"
        assert advice.schedule_new == [[1, advice.schedule_new[0][1], 3]] if advice.schedule_new else False
        assert recorded.loss(advice.schedule_new or FIXED) > 0.01


@pytest.mark.parametrize(
    ("seed", "drift", "noise"),
    [
        (0, Drift((0, 450, 750), (1.0, 1.6, 1.0), (1.0, 1.0, 1.0)), Noise(0.04, 0.3, 0.01, 4.0)),
        (3, Drift(), Noise(0.04, 0.3, 0.08, 5.0, stall_steps=10.0)),
    ],
)
def test_what_disturbs_a_while_speaks_for_no_k(tmp_path: Path, seed: int, drift: Drift, noise: Noise) -> None:
    """A neighbour for a fifth of the time, or stalls of ten steps: which K was played meanwhile is not why."""
    recorded = shadow(tmp_path / "t.jsonl", seed, schedule=[[1, 32, 3], [33, 512, 1]], drift=drift, noise=noise)
    for each in analyse([recorded.path], recorded.table, simulate=False).advice.ranges:
        saved = recorded.loss([[1, 512, each.k_best]], each.first, each.last)
        assert each.verdict != "change" or saved > 0.0
        assert each.gain is None or each.gain.low <= saved / (1.0 - saved) <= each.gain.high


@pytest.mark.parametrize(
    ("engine", "level", "drafts"),
    [("p32374", 1.0, 1.0), ("p32374", 1.2, 1.0), ("p32374", 1.0, 2.0), ("dense-100b-calibrated", 1.0, 0.5)],
)
def test_intervals_hold_and_advice_never_slows(tmp_path: Path, engine: str, level: float, drafts: float) -> None:
    """Tables that are right, of a slower engine, that make drafts twice or half as dear: no advice costs speed.

    Of the 90 % intervals of what ranges gain, at least that many hold the truth; they are cautious by construction.
    """
    held = []
    for seed in SEEDS:
        recorded, findings = judged(tmp_path, seed, FIXED, level, drafts, engine)
        for each in findings.advice.ranges:
            saved = recorded.loss([[1, 512, each.k_best]], each.first, each.last)
            if each.gain is not None:
                held.append(each.gain.low <= saved / (1.0 - saved) <= each.gain.high)
            assert each.verdict != "change" or saved > 0.0
        if findings.advice.schedule_new is not None:
            assert recorded.loss(findings.advice.schedule_new) > 0.0
        if findings.advice.verdict == "keep":
            assert max(recorded.loss([[1, 512, k]]) for k in (0, 1)) <= 0.02
    assert sum(held) >= 0.9 * len(held)


class TestNoTable:
    def test_one_k_says_nothing_of_others(self, tmp_path: Path) -> None:
        """Nothing is advised, and it says what to do."""
        recorded = shadow(tmp_path / "t.jsonl", 0)
        advice = analyse([recorded.path], simulate=False).advice
        assert advice.verdict == "undecided"
        assert "only K=3 was timed here, and there is no table" in advice.sentence
        assert "K=0 and 1 must be played" in advice.next_steps[0]
        assert "--table" in advice.next_steps[0]

    def test_a_few_steps_of_others_are_not_called_none(self, tmp_path: Path) -> None:
        """Thirty steps without drafts among those of K=3: they were timed, and not often enough."""
        recorded = shadow(tmp_path / "t.jsonl", 0, low=8, high=8)
        rows = [json.loads(line) for line in recorded.path.read_text().splitlines()]
        for row in rows[500:530]:
            step = row["step"]
            step |= {"k": 0, "drafted": [0] * 8, "accepted": [0] * 8, "emitted": [1] * 8, "elapsed_ms": 9.0}
        recorded.path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        advice = analyse([recorded.path], simulate=False).advice
        assert advice.verdict == "undecided"
        assert "only K=3 was timed often enough here" in advice.sentence

    def test_who_recorded_with_adaptk_on_is_not_told_to_switch_it_on(self, tmp_path: Path) -> None:
        """Some hundred steps of one batch size, in which others were hardly played: more of the same is asked for."""
        recorded = shadow(tmp_path / "t.jsonl", 0, low=8, high=8, steps=200, on=True, seeded=False)
        advice = analyse([recorded.path], simulate=False).advice
        assert advice.verdict == "undecided"
        assert "only K=3 was timed often enough here" in advice.sentence
        assert "record for longer with adaptk on" in advice.next_steps[0]

    def test_a_schedule_that_plays_both_is_judged_where_they_meet(self, tmp_path: Path) -> None:
        """K=3 up to 32 and K=1 above: the edge tells of both, nothing is concluded of K=0."""
        recorded = shadow(tmp_path / "t.jsonl", 0, schedule=[[1, 32, 3], [33, 512, 1]], low=8, high=100, steps=3000)
        advice = analyse([recorded.path], simulate=False).advice
        assert all(each.k_best != 0 for each in advice.ranges)
        assert any(each.gain is not None and each.basis_best in ("near", "measured") for each in advice.ranges)
        for each in advice.ranges:
            if each.gain is not None:
                saved = recorded.loss([[1, 512, each.k_best]], each.first, each.last)
                assert each.gain.low <= saved / (1.0 - saved) <= each.gain.high

    def test_a_table_without_times_is_none(self, tmp_path: Path) -> None:
        recorded = shadow(tmp_path / "t.jsonl", 0)
        advice = analyse([recorded.path], GoodputTable.from_schedule([[1, 512, 1]]), simulate=False).advice
        assert advice.verdict == "undecided"

    def test_a_table_of_another_engine_is_shown_and_not_believed(self, tmp_path: Path) -> None:
        recorded = shadow(tmp_path / "t.jsonl", 0)
        text = recorded.path.read_text().replace('"mode"', '"key":{"device":"H100"},"mode"', 1)
        recorded.path.write_text(text)
        rows = recorded.table.rows
        other = GoodputTable.from_rows(rows, recorded.table.acceptance, {"key": {"device": "B200"}})
        findings = analyse([recorded.path], other, simulate=False)
        assert findings.advice.verdict == "undecided"
        assert any("of another engine (device: 'B200' in the table" in each for each in findings.advice.caveats)
        assert all(cell.table_ms is not None for cell in findings.cells)

    @pytest.mark.parametrize("unit", [0.001, 1000.0])
    def test_a_table_in_another_unit_is_shown_and_not_believed(self, tmp_path: Path, unit: float) -> None:
        """Seconds in place of milliseconds: no error of the steepness can be told from it."""
        recorded = shadow(tmp_path / "t.jsonl", 0, steps=800)
        advice = analyse([recorded.path], distorted(recorded.table, unit), simulate=False).advice
        assert advice.verdict == "undecided"
        assert any("of another engine (steps here were" in each for each in advice.caveats)


class TestSteered:
    """adaptk was on: K, the time of day and the text go together."""

    @pytest.mark.parametrize("spells", [True, False])
    def test_slow_spells_speak_for_no_k(self, tmp_path: Path, spells: bool) -> None:
        """On a machine that wanders by half, where no K is better, nothing is advised, whoever chose K."""
        for seed in (0, 2, 3, 6):
            path = wandering(tmp_path / f"{seed}.jsonl", seed, low=4, high=6, spells=spells)
            assert analyse([path], simulate=False).advice.verdict != "change"

    def test_what_the_operators_k_would_have_taken_is_the_measure(self, tmp_path: Path) -> None:
        """adaptk played K=3 where K=1 is the operator's: the gain is told against steps that nobody played."""
        for seed in range(2):
            recorded = shadow(tmp_path / f"{seed}.jsonl", seed, schedule=[[1, 512, 1]], on=True)
            advice = analyse([recorded.path], recorded.table, simulate=False).advice
            assert advice.verdict == "change"
            for each in advice.ranges:
                saved = recorded.loss([[1, 512, each.k_best]], each.first, each.last)
                assert each.gain is None or each.gain.low <= saved / (1.0 - saved) <= each.gain.high

    def test_drafts_made_at_good_texts_alone_are_not_taken_for_all(self, tmp_path: Path) -> None:
        """K=3 was played where drafts are accepted: what it does to the other texts is filled in."""
        held = []
        for seed in (0, 2):
            recorded = shadow(tmp_path / f"{seed}.jsonl", seed, steps=3000, other_text=0.4, on=True)
            for each in analyse([recorded.path], recorded.table, simulate=False).advice.ranges:
                saved = recorded.loss([[1, 512, each.k_best]], each.first, each.last)
                if each.gain is not None:
                    held.append(each.gain.low <= saved / (1.0 - saved) <= each.gain.high)
        assert held
        assert all(held)
