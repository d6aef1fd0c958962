"""A request log as a scenario."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from adaptk.replay import fleet
from adaptk.replay.evaluate import Bench
from adaptk.replay.fleet import workload_scenario
from adaptk.replay.presets import preset
from adaptk.replay.workload import Requests
from adaptk.table import GoodputTable

AZURE = Path(__file__).parents[3] / "shared" / "data" / "azure_llm_2023_conv.csv"


def log(folder: Path, *requests: tuple[float, int, int], rest: str = "") -> Path:
    """A log of (milliseconds, prompt, output) in Mooncake's form."""
    keys = ("timestamp", "input_length", "output_length")
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(dict(zip(keys, r, strict=True))) + "\n" for r in requests) + rest)
    return path


def load_of(made: fleet.Fleet, seed: int = 0) -> Requests:
    load = made.scenario.world(seed).load
    assert isinstance(load, Requests)
    return load


def test_the_world_is_the_presets(tmp_path: Path) -> None:
    """Engine, drafter and the right table come from the preset; only noise and acceptance differ between seeds."""
    made = workload_scenario(log(tmp_path, (0, 100, 20), (50, 300, 40)))
    assert made.scenario.arms == (0, 1, 3, 7)
    world, model = made.scenario.world(3), preset("h100-8b")
    assert (world.seed, world.engine.max_requests) == (3, 256)
    assert 10**5 < world.engine.kv_tokens < 10**6
    assert world.surface.verify_ms == pytest.approx(model.surface.padded().verify_ms)
    assert world.drafter.acceptance[0] == pytest.approx(model.acceptance[:7])
    assert load_of(made, 3) is load_of(made, 4)
    held = (100 + 10) * 20 / 60 + (300 + 20) * 40 / 60
    assert made.scenario.table is not None
    assert made.scenario.table.itl_ms(4, 3) == pytest.approx(world.surface.itl_ms(4, 3, held))
    assert made.notes[0] == f"The engine is simulated: {model.note}."
    assert f"mean context of {held:.0f}" in made.notes[2]


@pytest.mark.parametrize("name", ["h100-70b", "b200-moe", "p32374", "moe-calibrated"])
def test_the_kv_cache_is_the_presets(tmp_path: Path, name: str) -> None:
    """Without end where its size is not known."""
    room, known = workload_scenario(log(tmp_path, (0, 10, 10)), name).scenario.world(0).engine.kv_tokens, preset(name)
    assert room == (1 << 40 if known.kv_tokens is None else known.kv_tokens)


def test_all_requests_end_for_every_policy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    requests = [(20.0 * i, int(rng.integers(10, 500)), int(rng.integers(5, 80))) for i in range(60)]
    made = workload_scenario(log(tmp_path, *requests))
    bench = Bench(made.scenario, 1)
    for name in ("fixed-0", "fixed-7", "adaptk"):
        found = bench.run(name)
        assert np.isfinite(found.run.ended_ms).all()
        assert found.row.latency_ms is not None


def test_rate_and_number_of_requests(tmp_path: Path) -> None:
    path = log(tmp_path, (0, 10, 10), (30, 10, 10), (90, 10, 10))
    made = workload_scenario(path, rate=3.0, requests=2)
    assert load_of(made).arrival_ms.tolist() == [0.0, 10.0]
    assert made.scenario.about == "2 requests on h100-8b, 3 times as fast"
    assert workload_scenario(path).scenario.about == "3 requests on h100-8b"


def test_the_load_is_said(tmp_path: Path) -> None:
    """An hour between two requests; and none where all come at once."""
    idle = workload_scenario(log(tmp_path, (0, 10, 10), (3.6e6, 10, 10)))
    assert any("busy 0 % of the time without a drafter, 0 % with the static table" in note for note in idle.notes)
    busy = workload_scenario(log(tmp_path, (0, 10, 10), (0, 10, 10)))
    assert any("busy 100 %" in note for note in busy.notes)


@pytest.mark.parametrize("arms", [(0, 7), (7,)])
def test_there_are_steps_for_an_engine_without_drafter(tmp_path: Path, arms: tuple[int, ...]) -> None:
    """Although the arms have no K=0, and answers take a step per token."""
    made = workload_scenario(log(tmp_path, *((100.0 * i, 10, 300) for i in range(5))), arms=arms)
    for name in ("no-drafter", "fixed-7"):
        assert Bench(made.scenario, 2).run(name).row.unfinished == 0


class TestAcceptance:
    def test_it_is_that_of_the_drafter_and_of_the_right_table(self, tmp_path: Path) -> None:
        """The last one holds; published figures stay out of it."""
        made = workload_scenario(log(tmp_path, (0, 10, 10)), acceptance=(0.5, 0.25))
        assert made.scenario.world(0).drafter.acceptance.tolist() == [[0.5, *[0.25] * 6]]
        assert made.scenario.table is not None
        assert made.scenario.table.acceptance_length(3) == pytest.approx(1.0 + 0.5 + 0.125 + 0.03125)
        assert "as given: 0.50, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25." in made.notes[1]

    def test_the_presets_is_said(self, tmp_path: Path) -> None:
        made = workload_scenario(log(tmp_path, (0, 10, 10)), "p32374")
        assert "the preset's: 0.68, 0.57, 0.52, 0.50, 0.51." in made.notes[1]

    @pytest.mark.parametrize(
        ("acceptance", "why"),
        [
            ((0.5, 1.5), r"acceptance holds 1.5: give shares from 0 to 1"),
            ((-0.1,), r"acceptance holds -0.1"),
            ((float("nan"),), r"acceptance holds nan"),
            ((), r"acceptance has 0 positions: give 1 to 7"),
            ((0.5,) * 8, r"acceptance has 8 positions: give 1 to 7, as the preset drafts"),
        ],
    )
    def test_what_is_none_is_refused(self, tmp_path: Path, acceptance: tuple[float, ...], why: str) -> None:
        with pytest.raises(ValueError, match=why):
            workload_scenario(log(tmp_path, (0, 10, 10)), acceptance=acceptance)


def test_a_load_beyond_the_most_steps_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the requests that end in them, so that every policy serves the same ones."""
    monkeypatch.setattr(fleet, "MOST_STEPS", 50)
    made = workload_scenario(log(tmp_path, (0, 10, 30), (1, 10, 30), (2, 10, 400), (3, 10, 10)))
    # One endless answer does not cost those behind it, nor does its context count.
    assert load_of(made).output.tolist() == [30, 30, 10]
    assert any("Only 3 of 4 requests are served" in note for note in made.notes)
    assert any("mean context of 24 tokens" in note for note in made.notes)
    monkeypatch.setattr(fleet, "MOST_STEPS", 5)
    with pytest.raises(ValueError, match="no request ends within 5 steps"):
        workload_scenario(log(tmp_path, (0, 10, 30)))


def test_an_own_table_and_arms(tmp_path: Path) -> None:
    """The table's K are the arms unless others are named; nothing is said of a right table."""
    table = GoodputTable.from_schedule([[1, 16, 5], [17, 512, 1]])
    path = log(tmp_path, (0, 10, 10))
    made = workload_scenario(path, "p32374", table)
    assert (made.scenario.table, made.scenario.arms) == (table, (1, 5))
    assert not any("right one" in note for note in made.notes)
    assert workload_scenario(path, "p32374", table, arms=(3, 0)).scenario.arms == (0, 3)
    assert workload_scenario(path, "p32374").scenario.arms == (0, 1, 3, 5)


def test_lenient_counts(tmp_path: Path) -> None:
    path = log(tmp_path, (0, 10, 10), rest="broken\n")
    with pytest.raises(ValueError, match="line 2"):
        workload_scenario(path)
    made = workload_scenario(path, lenient=True)
    assert made.skipped == 1
    assert made.notes[-1] == "1 line of the log could not be read and was skipped."


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = log(tmp_path, (0, 5_000_000, 10))
    with pytest.raises(ValueError, match="a request has 5000010 tokens, the preset's KV cache holds"):
        workload_scenario(path)
    with pytest.raises(ValueError, match="preset is 'tpu'"):
        workload_scenario(path, "tpu")
    with pytest.raises(ValueError, match="arms holds 9"):
        workload_scenario(path, arms=(0, 9))
    with pytest.raises(ValueError, match="rate is 0"):
        workload_scenario(path, rate=0.0)


@pytest.mark.skipif(not AZURE.exists(), reason=f"{AZURE} is not there")
def test_azures_log() -> None:
    made = workload_scenario(AZURE, requests=50)
    assert (made.skipped, len(load_of(made))) == (0, 50)
