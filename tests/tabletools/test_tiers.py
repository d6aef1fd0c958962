"""Schedules from tables: what vLLM takes, and fewer tiers."""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptk.table import GoodputTable, TableError
from adaptk.tabletools.exported import FIELD, fragment
from adaptk.tabletools.imported import read_source
from adaptk.tabletools.tiers import small_tiers, tiers
from tests.strategies import tables, timed_tables
from tests.tabletools.measured import public_table

some_arms = st.none() | st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True)


class TestRoundTrip:
    @settings(max_examples=50)
    @given(tables, some_arms)
    def test_import_of_an_export_chooses_the_same(self, table: GoodputTable, arms: list[int] | None) -> None:
        """At every batch size up to 1,024."""
        with TemporaryDirectory() as folder:
            path = Path(folder) / "schedule.json"
            path.write_text(fragment(tiers(table, 1024, arms=arms)))
            back = read_source(path).table
        assert back.to_schedule(1024) == table.to_schedule(1024, arms=arms)

    @pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: its own reading cannot be compared")
    @settings(max_examples=50)
    @given(tables, some_arms, st.integers(1, 1024))
    def test_vllm_reads_it_the_same(self, table: GoodputTable, arms: list[int] | None, max_batch: int) -> None:
        """Its validator accepts every export, and its lookup gives the same K; above the end the last one."""
        utils = _vllms_reading()
        config = json.loads(fragment(tiers(table, max_batch, arms=arms)))
        utils.validate_and_normalize_dynamic_sd_schedule(config[FIELD])
        lookup = utils.build_dynamic_sd_schedule_lookup(config[FIELD], 1024, config["num_speculative_tokens"])
        expected = _dense(table.to_schedule(max_batch, arms=arms))
        assert lookup[1:] == expected + [expected[-1]] * (1024 - max_batch)


class TestTiers:
    def test_small_gains_are_merged(self) -> None:
        """At 12 % the last tier of the public profile goes, at 100 % all that can."""
        table = public_table()
        assert tiers(table, 256) == [[1, 50, 3], [51, 169, 1], [170, 256, 0]]
        assert tiers(table, 256, min_gain=0.12) == [[1, 50, 3], [51, 256, 1]]
        assert tiers(table, 256, min_gain=1.0) == [[1, 256, 1]]

    @settings(max_examples=50)
    @given(timed_tables(), st.floats(0.0, 0.5))
    def test_no_batch_loses_more(self, table: GoodputTable, min_gain: float) -> None:
        """However many tiers are merged, each is compared with the best K; nothing that could merge is left."""
        merged = tiers(table, 24, min_gain=min_gain)
        for first, last, k in merged:
            for batch in range(first, last + 1):
                best, got = (table.goodput(batch, each) for each in (table.best_k(batch), k))
                assert best is not None
                assert got is not None
                assert best / got - 1.0 <= max(min_gain, 1e-9)
        assert not any(tier.gain < min_gain for tier in small_tiers(table, merged, min_gain))

    def test_a_schedule_has_nothing_to_weigh(self) -> None:
        """It is refused where a gain is asked for."""
        table = GoodputTable.from_schedule([[1, 8, 3], [9, 16, 1]])
        assert tiers(table, 16) == [[1, 8, 3], [9, 16, 1]]
        assert small_tiers(table, tiers(table, 16), 0.01) == []
        with pytest.raises(TableError, match="no step times"):
            tiers(table, 16, min_gain=0.01)

    @pytest.mark.parametrize("min_gain", [-0.1, 1.1, float("nan")])
    def test_impossible_gains(self, min_gain: float) -> None:
        """Named in the message."""
        with pytest.raises(TableError, match="min_gain"):
            tiers(public_table(), min_gain=min_gain)


class TestFragment:
    def test_no_speculation_at_all(self) -> None:
        """vLLM wants num_speculative_tokens of at least 1."""
        assert json.loads(fragment([[1, 512, 0]])) == {"num_speculative_tokens": 1, FIELD: [[1, 512, 0]]}


@cache
def _vllms_reading() -> ModuleType:
    """The module in which vLLM reads schedules, alone: it needs nothing else of vLLM, whose import takes seconds."""
    package = find_spec("vllm")
    assert package is not None
    assert package.submodule_search_locations is not None
    path = Path(package.submodule_search_locations[0], "v1", "spec_decode", "dynamic", "utils.py")
    spec = spec_from_file_location("vllms_reading", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _dense(triples: list[list[int]]) -> list[int]:
    return [k for first, last, k in triples for _ in range(first, last + 1)]
