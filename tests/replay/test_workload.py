"""Loads: what is refused, and scripts from numbers or functions."""

from __future__ import annotations

import numpy as np
import pytest

from adaptk.replay.scenarios import script
from adaptk.replay.workload import Requests, Script
from tests.replay.handmade import requests


def test_an_empty_step_of_a_script_is_refused() -> None:
    """It would end the run there and then."""
    with pytest.raises(ValueError, match=r"step 1 .* nobody"):
        script(3, [2, 0, 2])
    script(3, [2, 0, 2], joining=lambda s: (1, 5) if s == 1 else (0, 0))


def test_lists_of_different_length_are_refused() -> None:
    zeros = np.zeros(3, dtype=np.int64)
    with pytest.raises(ValueError, match="kind"):
        Script(zeros + 1, zeros, zeros, zeros - 1.0, zeros[:2], zeros)


def test_known_outcomes_that_do_not_match_the_answers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"known has shape \(4,\).* 5"):
        requests([1, 1], [2, 3], known=np.zeros(4, dtype=np.int8))


def test_requests_out_of_order_or_empty_are_refused() -> None:
    for field in ("arrival_ms", "round", "after_tokens"):
        with pytest.raises(ValueError, match=f"{field} falls"):
            requests([1, 1], [1, 1], **{field: [1, 0]})
    for prompt, output in (([0], [1]), ([1], [0])):
        with pytest.raises(ValueError, match="below 1"):
            requests(prompt, output)
    with pytest.raises(ValueError, match="no number"):
        requests([1], [1], arrival_ms=[np.inf])
    with pytest.raises(ValueError, match="empty"):
        requests([], [])
    with pytest.raises(ValueError, match=r"output has shape \(2,\)"):
        Requests(np.zeros(1), np.ones(1, int), np.ones(2, int), np.zeros(1, int))


def test_a_load_says_whether_it_runs_by_the_clock() -> None:
    assert not requests([1, 1], [1, 1]).open_loop
    assert requests([1, 1], [1, 1], arrival_ms=[0, 5]).open_loop
    assert len(requests([1, 1], [1, 1])) == 2


def test_a_script_is_made_from_numbers_lists_or_functions() -> None:
    plain = script(3, 4)
    assert (plain.decodes.tolist(), plain.context.tolist(), len(plain)) == ([4, 4, 4], [-1.0] * 3, 3)
    assert not plain.joining.any()
    made = script(
        3,
        lambda s: s + 1,
        kind=lambda s: s % 2,
        joining=lambda s: (s, 10 * s),
        context=lambda s: 100.0 * s,
        others=lambda s: s,
        output=5.0,
    )
    assert (made.decodes.tolist(), made.kind.tolist(), made.others.tolist()) == ([1, 2, 3], [0, 1, 0], [0, 1, 2])
    assert (made.joining.tolist(), made.prompt_tokens.tolist()) == ([0, 1, 2], [0, 10, 20])
    assert (made.context.tolist(), made.output) == ([0.0, 100.0, 200.0], 5.0)
    assert script(2, [7, 8, 9], kind=1).decodes.tolist() == [7, 8]


def test_the_kinds_of_a_load_are_those_that_are_met() -> None:
    assert script(2, 3, kind=2, other_kind=5).kinds == (2, 2)
    assert script(2, 3, kind=2, others=lambda s: s, other_kind=5).kinds == (2, 5)
    assert requests([1, 1], [1, 1], kind=[3, 1]).kinds == (1, 3)
