"""Gains over other policies, and whether they rest on steps that were timed."""

from __future__ import annotations

import pytest

from adaptk.live.gains import Gain, gain_over, gains
from adaptk.live.page import snapshots
from adaptk.live.plain import document
from adaptk.live.snapshot import Cell, Counts, Snapshot
from tests.live.pages import Engine, page
from tests.live.test_fleet import seen

BUSY, QUIET = Cell("8-15", 3), Cell("1", 3)


def _snapshot(timed: dict[Cell, float], mode: str = "on", baseline: str = "") -> Snapshot:
    """Nine of ten tokens at batch 8-15, all with K=3; of seven drafts at most."""
    counts = Counts(
        tokens={BUSY: 90.0, QUIET: 10.0, Cell("0", 0): 900.0},
        reference={"played": 1000.0, "k0": 800.0, "vllm": 500.0, "table": 900.0, "adaptk": 1200.0},
        timed_steps={BUSY: 100.0, QUIET: 100.0, **timed},
        decisions={(3, "exploit"): 9.0, (1, "explore"): 1.0},
        reached=dict.fromkeys(range(1, 8), 1.0),
    )
    return Snapshot(model="m", engine="0", mode=mode, counts=counts, baseline=baseline, table_k={"8-15": 1, "1": 3})


def _guessed(snapshot: Snapshot) -> list[str]:
    return [policy for policy, gain in gains(snapshot, snapshot.counts).items() if gain.guessed]


def test_a_gain_over_a_k_that_was_never_timed_is_a_guess() -> None:
    """Of K=0, of the table's K and of vLLM's own, the most drafts; where most tokens were emitted."""
    assert _guessed(_snapshot({})) == ["k0", "table", "vllm"]
    assert _guessed(_snapshot({Cell("8-15", 0): 8.0})) == ["table", "vllm"]
    assert _guessed(_snapshot({Cell("8-15", 0): 7.0, Cell("1", 0): 99.0})) == ["k0", "table", "vllm"]
    assert _guessed(_snapshot({Cell("8-15", k): 8.0 for k in (0, 1, 7)})) == []


@pytest.mark.parametrize(
    ("baseline", "guessed"),
    [
        ("[[1,64,3]]", False),
        ("[[1,8,3],[9,64,1]]", True),
        ("[[1,4,3],[16,64,1]]", False),
        ("[[1,2,7],[3,64,3]]", False),
        ("[[1", False),
        ("[[1,2]]", False),
        ("7", False),
    ],
)
def test_vllms_own_k_is_its_schedules(baseline: str, guessed: bool) -> None:
    """At the batch sizes that were served; what cannot be read is no reason to doubt."""
    snapshot = _snapshot({}, baseline=baseline)
    assert gain_over(snapshot, snapshot.counts, "vllm") == Gain(1.0, guessed)


def test_in_shadow_the_chosen_k_must_have_been_timed_too() -> None:
    """The gain is that of adaptk's choices."""
    timed = {Cell("8-15", k): 8.0 for k in (0, 1, 7)}
    snapshot = _snapshot(timed, mode="shadow")
    assert gains(snapshot, snapshot.counts) == {"k0": Gain(0.5), "table": Gain(1200 / 900 - 1.0), "vllm": Gain(1.4)}
    chosen = Counts(tokens={BUSY: 1.0}, reference={"adaptk": 2.0, "k0": 1.0}, decisions={(5, "exploit"): 1.0})
    assert gain_over(snapshot, chosen, "k0") == Gain(1.0, guessed=True)


@pytest.mark.parametrize(("unknown", "gain"), [(0.05, Gain(0.25)), (0.2, Gain(0.25, True)), (0.6, Gain(None))])
def test_tokens_whose_reference_is_unknown_count_as_equal(unknown: float, gain: Gain) -> None:
    """So a gain with some of them is a guess, and with many it says nothing."""
    engine = Engine()
    engine.unknown = unknown
    (snapshot,) = snapshots(page(engine))
    shown = gain_over(snapshot, snapshot.counts, "k0")
    assert (shown.share, shown.guessed) == (pytest.approx(gain.share), gain.guessed)


def test_the_document_names_the_guesses() -> None:
    """Beside the gains."""
    engine = Engine()
    engine.visits = 0.0
    told = document([seen(engine)], 0.0)["engines"][0]["since_start"]
    assert told["guessed_gains"] == ["k0", "table", "vllm"]
    assert told["gains"]["vllm"] == pytest.approx(0.0)
