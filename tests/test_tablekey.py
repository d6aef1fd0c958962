"""What tells one set-up from another."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptk.table import GoodputTable
from adaptk.tablekey import FIELDS, differences, summary
from tests.strategies import json_values

KEY = {"model": "org/M", "method": "eagle3", "dtype": "bfloat16", "tensor_parallel": 2, "capture_sizes": [1, 2, 4]}


@pytest.mark.parametrize(
    ("here", "expected"),
    [
        ({}, []),
        ({"model": "/models/M/"}, []),
        ({"model": "M2"}, ["model: 'org/M' in the table, 'M2' here"]),
        ({"tensor_parallel": 1, "dtype": "float16"},
         ["dtype: 'bfloat16' in the table, 'float16' here", "tensor_parallel: 2 in the table, 1 here"]),
        ({"capture_sizes": [1, 2]}, []),
        ({"capture_sizes": [1, 2, 4, 8, 16]}, []),
        ({"capture_sizes": [1, 4, 8]}, ["capture_sizes: [1, 2, 4] in the table, [1, 4, 8] here"]),
        ({"capture_sizes": []}, ["capture_sizes: [1, 2, 4] in the table, [] here"]),
        ({"capture_sizes": ["a", 1]}, ["capture_sizes: [1, 2, 4] in the table, ['a', 1] here"]),
        ({"quantization": "fp8"}, []),
        ({"dtype": None}, []),
    ],
)  # fmt: skip
def test_only_what_both_name_is_compared(here: dict[str, Any], expected: list[str]) -> None:
    """And a folder's name or an organisation's does not make another model."""
    assert differences(KEY, {**{name: KEY[name] for name in KEY if name in here}, **here}) == expected


def test_builds_of_a_version_are_one() -> None:
    """0.32.0 for CPU and for CUDA are the same code; 0.33.0 is not."""
    assert differences({"vllm": "0.32.0+cpu"}, {"vllm": "0.32.0"}) == []
    assert len(differences({"vllm": "0.32.0"}, {"vllm": "0.33.0"})) == 1


def test_own_fields_count() -> None:
    """A field that somebody added by hand is compared like the others, after them."""
    assert differences({"driver": "550", "model": "A"}, {"driver": "560", "model": "B"}) == [
        "model: 'A' in the table, 'B' here",
        "driver: '550' in the table, '560' here",
    ]


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), json_values, max_size=6))
def test_never_fails_and_nothing_differs_from_itself(key: dict[str, Any]) -> None:
    """Whatever a file holds."""
    assert differences(key, key) == []
    assert isinstance(summary(key), str)


@pytest.mark.parametrize("key", [None, "8B", 7, ["x"]])
def test_a_key_that_is_no_object_is_no_key(key: object) -> None:
    """It stays a note, and is compared with nothing."""
    table = GoodputTable.from_rows([{"batch": 1, "k": 0, "itl_ms": 1.0}], meta={"key": key})
    assert table.key == {}
    assert table.meta["key"] == key


def test_the_key_is_a_copy() -> None:
    """A table is immutable."""
    table = GoodputTable.from_rows([{"batch": 1, "k": 0, "itl_ms": 1.0}], meta={"key": KEY})
    table.key["capture_sizes"].append(8)
    assert table.key == KEY


@given(st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=300), json_values | st.text(max_size=500)))
def test_a_summary_is_one_short_line(key: dict[str, Any]) -> None:
    """Whatever a file has for a key; of many names some are enough."""
    assert summary(key).isprintable()
    assert len(summary(key)) <= 1_000


def test_a_summary_of_many_names_is_cut() -> None:
    """With a sign of it, and with the known ones first."""
    made = summary({**{str(i): i for i in range(100)}, "model": "M", "capture_sizes": [1], "device": "x" * 999})
    assert made.startswith("model=M, device=xxx")
    assert made.endswith(", ...")
    assert len(made) < 600
