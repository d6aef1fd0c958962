"""Turns: who plays when, and what an interrupt leaves."""

from __future__ import annotations

import pytest

from adaptk.demo import load, session
from adaptk.demo.measure import Run, Step, Turn
from adaptk.demo.policies import POLICIES
from adaptk.progress import Progress


def test_every_policy_plays_every_phase_once_a_round() -> None:
    """No pair of policy and phase is left out or played twice."""
    turns = [(round_, phase.name, policy) for round_, phase, policy in session.schedule(2, load.QUICK)]
    assert len(turns) == len(set(turns)) == 2 * len(load.PHASES) * len(POLICIES)


def test_order_rotates() -> None:
    """Over seven rounds each policy has been in each place of a phase."""
    for place in range(3):
        orders = [session.order(round_, place) for round_ in range(len(POLICIES))]
        for position in range(len(POLICIES)):
            assert {order[position] for order in orders} == set(POLICIES)


def _turns(round_: int, count: int) -> list[Turn]:
    return [
        Turn(policy, phase.name, r, Run([Step(1.0, 1, 1)], ""))
        for r, phase, policy in session.schedule(round_ + 1, load.QUICK)
        if r == round_
    ][:count]


def test_only_finished_rounds_count() -> None:
    """A round in which one turn is missing is not counted."""
    outcome = session.Outcome()
    outcome.turns = [*_turns(0, 21), *_turns(1, 20)]
    assert outcome.rounds == 1
    assert outcome.greedy == ["copy"]


def test_interrupt_ends_the_session_and_stops_what_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the second engine starts: the first is stopped, and nothing is raised."""
    stopped: list[str] = []

    class Alone:
        def __init__(self, model: object) -> None: ...

        def close(self) -> None:
            stopped.append("alone")

    def interrupted(model: object, drafter: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "prepare_environment", lambda: None)
    monkeypatch.setattr(session, "ensure_model", lambda: None)
    monkeypatch.setattr(session, "RemoteEngine", Alone)
    monkeypatch.setattr(session, "LocalEngine", interrupted)
    outcome = session.Outcome()
    session.run(session.Options(1), outcome, Progress())
    assert outcome.interrupted
    assert stopped == ["alone"]
