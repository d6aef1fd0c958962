"""A trace replayed: exactly where a chain drafter's tokens are known, and as quick as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adaptk.replay.compiled.text import uniform
from adaptk.replay.drafter import HIT, UNKNOWN, Drafter, profiles
from adaptk.replay.noise import Noise
from adaptk.replay.policies.static import FixedK
from adaptk.replay.simulator import Engine, Run, World, simulate
from adaptk.replay.traces.tokenruns import token_runs
from adaptk.replay.traces.traced import RECORDED, Traced, traced_scenario
from adaptk.replay.traces.tracerows import time_ms
from adaptk.replay.workload import Requests
from adaptk.table import GoodputTable
from adaptk.trace import TraceError, read_trace
from tests.replay.recordings import ARMS, PRESET, SETUP, InTurn, decision, record, requests_of, step, write

ACCEPTANCE = 0.7
TABLE = PRESET.surface.to_table(ARMS, PRESET.acceptance, batches=range(1, 9))


def requests(count: int, seed: int = 0) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests(
        np.zeros(count), rng.integers(20, 90, count), rng.integers(20, 150, count), np.zeros(count, dtype=np.int64)
    )


def world(load: Requests, at_once: int, noise: Noise = Noise(0.03), drafter: Drafter | None = None) -> World:  # noqa: B008
    drafter = Drafter(profiles([ACCEPTANCE], k_max=3)) if drafter is None else drafter
    return World(PRESET.surface, drafter, load, 20_000, Engine(at_once), noise, seed=3)


def replayed(traced: Traced, seed: int) -> Run:
    """The replay of the recorded policy."""
    return simulate(traced.scenario.world(seed), traced.scenario.own_policies[RECORDED](SETUP), record=True)


def emitted(run: Run) -> list[list[int]]:
    """Tokens of each request of each step."""
    return [list(row.step.emitted or ()) for row in run.rows]


def tokens_per_s(run: Run) -> float:
    return 1000.0 * float(run.tokens.sum()) / float(run.clock[-1])


class TestExactness:
    """One token's draft is accepted or not whatever K is, so a trace of the largest K tells of every smaller one."""

    @pytest.fixture
    def original(self) -> World:
        """Eight requests that start together: what ends when depends on the policy, what joins does not."""
        return world(requests(8), at_once=8)

    @pytest.fixture
    def traced(self, original: World, tmp_path: Path) -> Traced:
        record(tmp_path / "t.jsonl", original, FixedK(SETUP, 3))
        return traced_scenario(tmp_path / "t.jsonl", TABLE, ARMS)

    def test_known_tokens_are_those_of_the_original_world(self, original: World, traced: Traced) -> None:
        load = traced.scenario.world(0).load
        assert isinstance(load, Requests)
        assert load.known is not None
        at = 0
        for request, output in enumerate(load.output.tolist()):
            for token, outcome in enumerate(load.known[at : at + output].tolist()):
                accepted = uniform(original.seed, 1, request, token) < ACCEPTANCE
                assert outcome == UNKNOWN or accepted == (outcome == HIT)
            at += output
        assert 0.05 < np.mean(load.known == UNKNOWN) < 0.25

    @pytest.mark.parametrize("seed", range(3))
    def test_the_recorded_k_replays_to_the_token(self, original: World, traced: Traced, seed: int) -> None:
        """At the recorded K no unknown token is ever drafted, so that no seed changes anything."""
        assert emitted(replayed(traced, seed)) == emitted(simulate(original, FixedK(SETUP, 3), record=True))

    @pytest.mark.parametrize("k", [0, 1, 2, 3])
    def test_every_smaller_k_replays_to_the_token(self, original: World, traced: Traced, k: int) -> None:
        """With the unknown tokens drawn as the original world draws them, all steps of all requests are the same."""
        drawn = replace(traced.scenario.world(original.seed), drafter=original.drafter)
        runs = [simulate(w, FixedK(SETUP, k), record=True) for w in (original, drawn)]
        assert emitted(runs[0]) == emitted(runs[1])

    @pytest.mark.parametrize("k", [1, 2])
    @pytest.mark.parametrize("seed", [0, 1])
    def test_where_the_tokens_are_known_no_draw_matters(
        self, original: World, traced: Traced, k: int, seed: int
    ) -> None:
        """A step that begins at the same token of the same request and meets known tokens only emits the same."""
        load = traced.scenario.world(seed).load
        assert isinstance(load, Requests)
        runs = [simulate(w, FixedK(SETUP, k), record=True) for w in (original, traced.scenario.world(seed))]
        want, got = (steps_by_place(run, load) for run in runs)
        met = [place for place in want if place in got and is_known(load, *place, k)]
        assert {place: got[place] for place in met} == {place: want[place] for place in met}
        assert len(met) > 0.5 * len(want)

    def test_a_closed_loop_replays_to_the_token(self, tmp_path: Path) -> None:
        """New requests join at the same points of the work, in the same order."""
        original = world(requests(30), at_once=6)
        run = record(tmp_path / "t.jsonl", original, InTurn())
        traced = traced_scenario(tmp_path / "t.jsonl")
        again = replayed(traced, 0)
        assert [sum(tokens) for tokens in emitted(again)] == [sum(tokens) for tokens in emitted(run)]
        assert again.batch.tolist() == run.batch.tolist()
        assert again.k.tolist() == run.k.tolist()


def steps_by_place(run: Run, load: Requests) -> dict[tuple[int, int], int]:
    """Tokens that a step emitted for a request, by the request and the token of its answer at which it began."""
    tokens: dict[tuple[int, int], int] = {}
    cursor = [0] * len(load)
    steps = [row.step for row in run.rows]
    for one, who in zip(steps, requests_of(steps, load.output.tolist()), strict=True):
        for request, count in zip(who, one.emitted or (), strict=True):
            tokens[request, cursor[request]] = count
            cursor[request] += count
    return tokens


def is_known(load: Requests, request: int, token: int, k: int) -> bool:
    """Whether the trace tells what becomes of k drafts from a token on."""
    assert load.known is not None
    begin, end = int(load.output[:request].sum()), int(load.output[: request + 1].sum())
    seen = load.known[begin + token : min(begin + token + k, end)].tolist()
    first = next((outcome for outcome in seen if outcome != HIT), HIT)
    return first != UNKNOWN


class TestSpeed:
    @pytest.mark.parametrize("noise", [Noise(0.03), Noise(0.1, 0.5, 0.01, 5.0)])
    def test_the_recorded_policy_is_as_quick_as_measured(self, tmp_path: Path, noise: Noise) -> None:
        """Within 3 % on the mean of four seeds."""
        run = record(tmp_path / "t.jsonl", world(requests(60), 8, noise), InTurn())
        traced = traced_scenario(tmp_path / "t.jsonl")
        assert traced.measured_tokens_per_s == pytest.approx(tokens_per_s(run))
        speeds = [tokens_per_s(replayed(traced, seed)) for seed in range(4)]
        assert np.mean(speeds) == pytest.approx(traced.measured_tokens_per_s, rel=0.03)

    @pytest.mark.parametrize("k", [0, 1, 3])
    def test_other_policies_are_as_quick_as_in_the_original_world(self, tmp_path: Path, k: int) -> None:
        """What a replay is for: the speed of a policy that was not recorded, within 4 %."""
        original = world(requests(60), 8)
        record(tmp_path / "t.jsonl", original, InTurn())
        traced = traced_scenario(tmp_path / "t.jsonl")
        speed = tokens_per_s(simulate(traced.scenario.world(1), FixedK(SETUP, k)))
        assert speed == pytest.approx(tokens_per_s(simulate(original, FixedK(SETUP, k))), rel=0.04)

    def test_a_drafter_that_returns_none(self, tmp_path: Path) -> None:
        """Supply and acceptance come from the trace; which step had no drafts is drawn anew: within 4 %."""
        drafter = Drafter(profiles([0.8], k_max=3), supply=profiles([0.5, 1.0], k_max=3))
        record(tmp_path / "t.jsonl", world(requests(60), 8, drafter=drafter), InTurn())
        traced = traced_scenario(tmp_path / "t.jsonl")
        speeds = [tokens_per_s(replayed(traced, seed)) for seed in range(4)]
        assert np.mean(speeds) == pytest.approx(traced.measured_tokens_per_s, rel=0.04)


class TestLoad:
    def test_idle_time_is_left_out(self, tmp_path: Path) -> None:
        """A pause of a minute between two requests is in no step's time."""
        steps = [step([0], prefill_tokens=9, decodes=0, t_ms=10.0), *[step([3], [1], t_ms=t) for t in (20.0, 30.0)]]
        later = [step([0], prefill_tokens=9, decodes=0, t_ms=60010.0), *[step([3], [1], t_ms=60020.0)] * 8]
        traced = traced_scenario(write(tmp_path / "t.jsonl", [*steps, *later]), arms=(3,))
        run = replayed(traced, 0)
        assert run.clock[-1] == pytest.approx(120.0, rel=0.02)
        assert len(run.k) == 12

    def test_a_prompt_in_pieces_is_cut_as_recorded(self, tmp_path: Path) -> None:
        steps = [step([0], emitted=[0], prefill_tokens=100, decodes=0)] * 2
        steps += [step([0], prefill_tokens=40, decodes=0)] + [step([3], [1])] * 10
        traced = traced_scenario(write(tmp_path / "t.jsonl", steps), arms=(3,))
        assert replayed(traced, 0).prefill[:4].tolist() == [100, 100, 40, 0]

    def test_runner_of_the_trace(self, tmp_path: Path) -> None:
        original = replace(world(requests(8), 8), engine=Engine(8, runner=2))
        record(tmp_path / "t.jsonl", original, InTurn())
        traced = traced_scenario(tmp_path / "t.jsonl")
        assert traced.scenario.world(0).engine.runner == 2
        assert tokens_per_s(replayed(traced, 0)) == pytest.approx(traced.measured_tokens_per_s, rel=0.03)

    def test_requests_that_had_begun_before(self, tmp_path: Path) -> None:
        traced = traced_scenario(write(tmp_path / "t.jsonl", [step([3, 3], [1, 2])] * 10), arms=(3,))
        assert "2 requests had begun before the trace: they are given a prompt of 1 token" in traced.notes
        assert replayed(traced, 0).tokens.sum() == 50


class TestArms:
    STEPS = ([step([0], k=0)] * 10 + [step([3], [1], k=3)] * 10) * 2

    def test_those_named_in_the_trace(self, tmp_path: Path) -> None:
        rows = [(row, decision(row.k, (0, 1, 3))) for row in self.STEPS]
        traced = traced_scenario(write(tmp_path / "t.jsonl", rows))
        assert traced.scenario.arms == (0, 1, 3)
        assert "K=1 was never played: its cost is on the line through the other K" in traced.notes

    def test_beyond_those_played_none_is_simulated(self, tmp_path: Path) -> None:
        """A line through the K that were played may end anywhere beyond them; a table tells what it costs there."""
        rows = [(row, decision(row.k, (0, 3, 5))) for row in self.STEPS]
        path = write(tmp_path / "t.jsonl", rows)
        traced = traced_scenario(path)
        assert traced.scenario.arms == (0, 3)
        assert "K=5 was never played: it is not simulated; give a table of step times" in traced.notes
        with pytest.raises(
            TraceError, match="K=5 was never played, which does not tell its cost: give a table of step"
        ):
            traced_scenario(path, arms=(0, 3, 5))
        rows_of_five = [{"batch": 1, "k": k, "itl_ms": 10.0 + k} for k in (0, 3, 5)]
        assert traced_scenario(path, GoodputTable.from_rows(rows_of_five, [0.7])).scenario.arms == (0, 3, 5)

    def test_a_k_of_three_steps_is_no_bargain(self, tmp_path: Path) -> None:
        """K=0 stands in three steps beside K=3 and K=5: it is no arm, and where it was recorded it costs a step."""
        steps = [step([3], [1], k=3, elapsed_ms=60.0)] * 30 + [step([5], [1], k=5, elapsed_ms=80.0)] * 30
        steps += [step([5], [1], k=0, elapsed_ms=80.0), *[step([0], k=0, elapsed_ms=40.0)] * 3]
        path = write(tmp_path / "t.jsonl", [(row, decision(row.k, (0, 3, 5))) for row in steps])
        traced = traced_scenario(path)
        assert traced.scenario.arms == (3, 5)
        assert "K=0 was played in 3 steps only: it is not simulated; give a table of step times" in traced.notes
        surface = traced.scenario.world(0).surface
        assert 0.5 < surface.itl_ms(1, 0) / surface.itl_ms(1, 3) < 1.0
        speeds = [tokens_per_s(replayed(traced, seed)) for seed in range(4)]
        assert np.mean(speeds) == pytest.approx(traced.measured_tokens_per_s, rel=0.05)

    def test_the_last_steps_alone(self, tmp_path: Path) -> None:
        """Of a long trace a piece of the end is replayed, and the notes say so."""
        path = write(tmp_path / "t.jsonl", [*self.STEPS, *[step([3], [2], k=3)] * 20])
        traced = traced_scenario(path, arms=(3,), last=20)
        assert 20 <= len(replayed(traced, 0).k) <= 21  # one more for the prompt of a request that had begun
        assert traced.notes[0] == "the last 20 of 60 steps are replayed"

    def test_a_table_instead_of_extrapolation(self, tmp_path: Path) -> None:
        traced = traced_scenario(write(tmp_path / "t.jsonl", self.STEPS), TABLE, (0, 1, 3))
        assert traced.scenario.table is TABLE
        assert "K=1 was never played: its cost is in proportion to the table" in traced.notes

    def test_hardly_played(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.jsonl", [*self.STEPS, step([3], [1], k=1), step([1])])
        told = "K=1 was played in 1 step only: its cost is on the line through the other K"
        assert told in traced_scenario(path).notes

    def test_one_k_alone_does_not_tell_what_others_cost(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.jsonl", [step([3], [1])] * 20)
        with pytest.raises(
            TraceError, match=r"only K=3 was played for at least 8 steps, .*: give a table of step times"
        ):
            traced_scenario(path, arms=(0, 3))
        assert traced_scenario(path).scenario.arms == (3,)

    @pytest.mark.parametrize(("level", "said"), [(3.0, "3 times"), (0.2, "0.2 times"), (1.5, ""), (0.7, "")])
    def test_a_table_of_another_engine_is_told(self, tmp_path: Path, level: float, said: str) -> None:
        """From twice the trace's step times on, and from half of them down."""
        steps = [step([0], k=0)] * 20 + [step([3], [1], k=3)] * 20
        rows = [{"batch": 1, "k": k, "itl_ms": level * 10.0} for k in (0, 3)]
        traced = traced_scenario(write(tmp_path / "t.jsonl", steps), GoodputTable.from_rows(rows, [0.7]))
        told = [note for note in traced.notes if "the table's step times are" in note]
        assert [f"are {said} those of the trace in the median" in note for note in told] == [True] * bool(said)

    def test_negative(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.jsonl", self.STEPS)
        with pytest.raises(ValueError, match=r"arms is .*: give numbers of drafts of at least 0"):
            traced_scenario(path, arms=(-1, 3))


class TestNotes:
    def test_extreme_stalls_are_told_and_kept(self, tmp_path: Path) -> None:
        steps = [*[step([3], [1])] * 40, step([3], [1], elapsed_ms=500.0)]
        traced = traced_scenario(write(tmp_path / "t.jsonl", steps), arms=(3,))
        told = "1 steps took more than 20 times what was to be expected, 500 ms together: they are kept, as stalls"
        assert told in traced.notes
        assert traced.measured_tokens_per_s == pytest.approx(1000.0 * 82 / 900.0)
        assert traced.scenario.world(0).noise.stalls == pytest.approx(1 / 41)

    def test_steps_without_a_time_do_not_count_as_measured(self, tmp_path: Path) -> None:
        steps = [*[step([3], [1])] * 20, *[step([3], [1], elapsed_ms=None)] * 20]
        traced = traced_scenario(write(tmp_path / "t.jsonl", steps), arms=(3,))
        assert traced.measured_tokens_per_s == pytest.approx(200.0)
        assert "20 steps have no time: their cost is taken from the others" in traced.notes
        assert replayed(traced, 0).tokens.sum() == 80

    def test_no_time_and_no_token_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="no step has a time: record elapsed_ms"):
            traced_scenario(write(tmp_path / "a.jsonl", [step([3], elapsed_ms=None)]))
        with pytest.raises(TraceError, match="no step emitted a token"):
            traced_scenario(write(tmp_path / "b.jsonl", [step([3], emitted=[0])]))

    def test_what_was_skipped_is_counted(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.jsonl", [*[step([3], [1], t_ms=20.0)] * 10, step([3], [1], t_ms=1.0)])
        with pytest.raises(TraceError, match="line 12: t_ms goes back"):
            traced_scenario(path)
        path.write_bytes(path.read_bytes() + b'x\n{"step": {"batch')
        traced = traced_scenario(path, lenient=True)
        assert traced.skipped == 2
        assert traced.notes[:2] == ["2 rows were skipped", "1 row is cut off at the end of a file, and left out"]


class TestRealEngine:
    """A trace of a real engine: vLLM on a processor, its n-gram drafter, adaptk choosing K in the demo's phases."""

    TRACE = Path(__file__).parents[1] / "data" / "demo.jsonl"

    @pytest.fixture(scope="class")
    def traced(self) -> Traced:
        return traced_scenario(self.TRACE)

    def test_it_says_what_it_is(self) -> None:
        trace = read_trace(self.TRACE)
        assert trace.header["source"] == "adaptk demo"
        assert all(row.step.requests is not None for row in trace.rows)

    def test_the_recorded_policy_is_as_quick_as_measured(self, traced: Traced) -> None:
        """Within 5 %, on the mean of eight seeds and for at least seven of them."""
        off = np.array([tokens_per_s(replayed(traced, seed)) for seed in range(8)]) / traced.measured_tokens_per_s - 1.0
        assert abs(off.mean()) < 0.05
        assert np.sum(np.abs(off) < 0.05) >= 7

    def test_each_phase_takes_as_long_as_it_did(self, traced: Traced) -> None:
        """Within 8 %, on the mean of eight seeds: a phase begins where the engine had run empty."""
        steps = [row.step for row in read_trace(self.TRACE).rows]
        runs = token_runs(steps)
        begun = [i for i in range(1, len(steps)) if not any(s.first < i <= s.last for s in runs.streams)]
        assert len(begun) >= 2
        edges = [0, *begun, len(steps)]
        tokens = np.append(runs.before, runs.emitted.sum())[edges]
        measured = np.diff(np.append(0.0, np.cumsum([time_ms(s) or 0.0 for s in steps]))[edges])
        taken = []
        for seed in range(8):
            run = replayed(traced, seed)
            ends = np.searchsorted(np.append(0, np.cumsum(run.tokens)), tokens)
            taken.append(np.diff(np.append(0.0, run.clock)[ends]))
        np.testing.assert_allclose(np.mean(taken, axis=0), measured, rtol=0.08)
