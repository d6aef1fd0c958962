"""What messages quote: short, on one line, and cheap whatever it is."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.quoted import MOST_SIGNS, listed, plain, said, shown
from tests.strategies import json_values


class Odd:
    def __repr__(self) -> str:
        return "<\x1b\n\x07>"


@given(json_values)
def test_small_values_are_shown_as_they_are(value: Any) -> None:
    """As ``repr`` writes them, cut at the end alone."""
    text = repr(value)
    assert shown(value) == (text if len(text) <= MOST_SIGNS else text[: MOST_SIGNS - 3] + "...")


@pytest.mark.parametrize(
    "value",
    ["x" * 10**7, b"x" * 10**7, [0] * 10**7, dict.fromkeys(range(10**6)), 10**4000, [[[["x" * 10**6] * 99] * 99] * 99]],
    ids=["text", "bytes", "list", "dict", "int", "nested"],
)
def test_large_values_cost_no_more_than_their_beginning(value: Any) -> None:
    """A millisecond at most; the wide limit finds a change of the order."""
    began = time.process_time()
    text = shown(value)
    assert time.process_time() - began < 0.2
    assert len(text) == MOST_SIGNS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.eye(2), "array([[1., 0.], [0., 1.]])"),
        ([np.eye(1), "a\n  b"], "[array([[1.]]), 'a\\n  b']"),
        (Odd(), "<� �>"),
    ],
    ids=["array", "list", "odd"],
)
def test_what_has_a_repr_of_its_own_is_one_line(value: object, text: str) -> None:
    """As types of other people do, of many lines and any signs."""
    assert shown(value) == text


@given(st.text(max_size=300))
def test_texts_lose_what_cannot_be_seen(text: str) -> None:
    """And nothing else, up to the length that was asked for."""
    made = plain(text, 100)
    assert made.isprintable()
    assert len(made) == min(len(text), 100)
    assert all(sign in (kept, "�") for kept, sign in zip(text[:97], made[:97], strict=True))


def test_errors_and_names() -> None:
    """Other people's errors hold what a file held; of many names some are enough."""
    assert said(ValueError("a\x1b[2Jb" + "x" * 999)) == "a�[2Jb" + "x" * 191 + "..."
    assert listed(["a", "b\n"], 2) == "a, b�"
    assert listed(["a", "b", "c"], 2) == "a, b, ..."
