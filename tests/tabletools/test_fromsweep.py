"""Tables from the results of vllm bench sweep."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from adaptk.table import TableError
from adaptk.tabletools.imported import read_source

K = "speculative_config.num_speculative_tokens"


def result(batch: int, itl_ms: float, **more: Any) -> dict[str, Any]:
    """What one run writes, as far as it matters here."""
    return {
        "model_id": "org/target",
        "num_prompts": 10 * batch,
        "request_rate": "inf",
        "max_concurrency": batch,
        "completed": 10 * batch,
        "failed": 0,
        "total_input_tokens": 1000 * batch,
        "total_output_tokens": 2000 * batch,
        "request_throughput": 3.0,
        "mean_tpot_ms": 1.0,
        "median_itl_ms": itl_ms,
        "std_itl_ms": 0.5,
    } | more


def drafts(k: int, count: int, *rates: float, made: int | None = None) -> dict[str, Any]:
    return {
        K: k,
        "spec_decode_num_drafts": count,
        "spec_decode_draft_tokens": k * count if made is None else made,
        "spec_decode_accepted_tokens": round(count * sum(rates)),
        "spec_decode_per_position_acceptance_rates": list(rates),
    }


def sweep(tmp_path: Path, *records: dict[str, Any]) -> Path:
    """A folder as the sweep leaves it: a folder per combination, warm-up and summary beside the runs."""
    for i, record in enumerate(records):
        folder = tmp_path / f"SERVE-{i}-BENCH-{i}"
        folder.mkdir()
        (folder / "run=0.json").write_text(json.dumps(record))
        (folder / "warmup.json").write_text(json.dumps(record | {"median_itl_ms": 999.0}))
        (folder / "summary.json").write_text(json.dumps([record]))
    return tmp_path


class TestReadSweep:
    def test_a_folder(self, tmp_path: Path) -> None:
        """Batch from the concurrency, K from the overrides, time from the median between chunks; warm-ups are none."""
        made = read_source(
            sweep(
                tmp_path,
                result(1, 6.5),
                result(1, 8.8, **drafts(3, 900, 0.6, 0.3, 0.15)),
                result(8, 9.9, **drafts(3, 800, 0.6, 0.3, 0.15)),
            )
        )
        rows = [(row.batch, row.k, row.itl_ms, row.n, row.spread_ms) for row in made.table.rows]
        assert rows == [(1, 0, 6.5, 1990, 0.5), (1, 3, 8.8, 1045, 0.5), (8, 3, 9.9, 1885, 0.5)]
        assert made.table.key == {"model": "org/target"}
        assert any("TPOT is not" in note for note in made.notes)
        assert any("1 of 3 runs had no drafter" in note for note in made.notes)

    def test_acceptance_is_pooled_and_conditional(self, tmp_path: Path) -> None:
        """Position 2 only from the runs that asked for two drafts; the tries are what was accepted before."""
        source = sweep(
            tmp_path,
            result(1, 8.0, total_output_tokens=1510, **drafts(1, 1000, 0.5)),
            result(1, 9.0, total_output_tokens=6160, **drafts(2, 3000, 0.7, 0.35)),
        )
        made = read_source(source)
        assert made.table.acceptance_counts == ((2600, 4000), (1050, 2100))
        assert made.table.acceptance == pytest.approx((0.65, 0.5))
        assert read_source(source, acceptance=[0.9]).table.acceptance == (0.9,)
        assert read_source(source, acceptance=[0.9]).table.acceptance_counts is None

    def test_steps_without_drafts_count_as_not_accepted(self, tmp_path: Path) -> None:
        """A request emits one token of its own a step: 1,510 less 10 with the prompt and 500 drafts are 1,000 turns."""
        made = read_source(sweep(tmp_path, result(1, 8.0, total_output_tokens=1510, **drafts(1, 625, 0.8))))
        assert made.table.acceptance_counts == ((500, 1000),)
        assert any("62 % at worst" in note for note in made.notes)

    def test_runs_of_a_cell_give_a_median_and_an_interval(self, tmp_path: Path) -> None:
        """Three runs of 9, 10, 12 ms: half width 4.303 times their deviation over the root of three."""
        made = read_source(sweep(tmp_path, *(result(1, itl_ms) for itl_ms in (9.0, 12.0, 10.0))))
        (row,) = made.table.rows
        half = 4.303 * 1.5275252 / 3**0.5
        assert row.itl_ms == 10.0
        assert (row.low_ms, row.high_ms) == pytest.approx((10.0 - half, 10.0 + half))
        assert row.n == 5970

    @pytest.mark.parametrize(
        "override",
        [
            {K: 3},
            {"speculative-config.num-speculative-tokens": 3},
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3}},
            {"speculative_config": '{"method": "ngram", "num_speculative_tokens": 3}'},
            {"num_speculative_tokens": "3"},
            {
                "speculative_config.num_speculative_tokens_per_batch_size": [[1, 4, 7], [5, 64, 3]],
                "speculative_config.num_speculative_tokens": 7,
            },
            {"speculative_config.num_speculative_tokens_per_batch_size": [[1, 64, 7]], K: 3},
        ],
    )
    def test_how_k_is_spelt(self, override: dict[str, Any], tmp_path: Path) -> None:
        """Alone, in a config, with hyphens; a schedule gives the K of the batch size, cut at the most."""
        made = read_source(sweep(tmp_path, result(8, 9.0, **override)))
        assert [row.k for row in made.table.rows] == [3]

    def test_k_of_0_by_a_schedule_has_a_drafter(self, tmp_path: Path) -> None:
        """That is the in-engine K=0, nothing is to be said of it."""
        schedule = {"speculative_config": {"num_speculative_tokens_per_batch_size": [[1, 64, 0]]}}
        made = read_source(sweep(tmp_path, result(8, 9.0, **schedule)))
        assert [row.k for row in made.table.rows] == [0]
        assert not any("no drafter" in note for note in made.notes)

    def test_input_lengths_are_levels_of_context(self, tmp_path: Path) -> None:
        """One level for all runs of an input length, at the mean of prompt and half the output."""
        made = read_source(
            sweep(
                tmp_path,
                result(2, 6.0, random_input_len=100),
                result(2, 7.0, random_input_len=4000, total_input_tokens=80_000),
            )
        )
        assert made.table.contexts == (200.0, 4100.0)

    def test_the_summary_csv(self, tmp_path: Path) -> None:
        """As pandas writes it: an index, empty fields, lists and dicts as Python spells them."""
        records = [
            result(1, 6.5),
            result(1, 8.8, **drafts(2, 1000, 0.6, 0.3)),
            result(4, float("nan"), **drafts(2, 1000, 0.6, 0.3)),
        ]
        path = tmp_path / "summary.csv"
        with path.open("w", newline="") as file:
            names = ["", *{name: None for record in records for name in record}]
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows({"": i, **record} for i, record in enumerate(records))
        made = read_source(path)
        assert [(row.batch, row.k) for row in made.table.rows] == [(1, 0), (1, 2)]
        assert made.table.acceptance_counts == ((600, 1090), (300, 600))
        assert any("1 of 3 runs have no median_itl_ms" in note for note in made.notes)
        assert read_source(tmp_path).table.rows == made.table.rows

    @pytest.mark.parametrize(
        ("record", "expected"),
        [
            (result(8, 9.0, max_concurrency=None), "name no max_concurrency"),
            (result(8, 9.0, spec_decode_num_drafts=5), "name no num_speculative_tokens"),
            (result(8, 0.0), "no median_itl_ms above 0"),
            (result(8, 0.005, mean_itl_ms=68.3), "chunks came in bunches"),
            (result(8, 9.0, request_rate=4.0), "finite request_rate"),
            (result(8, 9.0, num_prompts=9), "fewer than two prompts"),
            (result(8, 9.0, failed=1), "had failed requests"),
            (result(8, 9.0, **drafts(3, 100, 0.5, 0.2, 0.1, made=150)), "fewer drafts than were asked for"),
            (result(8, 9.0, **{K: 3}), "no rates of acceptance"),
        ],
    )
    def test_what_is_missing_is_said(self, record: dict[str, Any], expected: str, tmp_path: Path) -> None:
        """Runs that cannot be used, and those that may mislead."""
        made = read_source(sweep(tmp_path, record, result(1, 6.0)))
        assert any(expected in note for note in made.notes), made.notes

    def test_failures_are_counted(self, tmp_path: Path) -> None:
        """The sweep records them beside the runs."""
        source = sweep(tmp_path, result(1, 6.0))
        (source / "SERVE-0-BENCH-0" / "run=1.failure.json").write_text("{}")
        assert any("1 failures" in note for note in read_source(source).notes)

    @pytest.mark.parametrize(
        ("records", "expected"),
        [
            ((), "has no run"),
            ((result(1, 0.0),), "holds no run that can be used: 1 of 1 runs have no median"),
            ((result(1, 6.0), result(2, 6.0, model_id="other")), "runs of 2 models"),
        ],
    )
    def test_what_is_refused(self, records: tuple[dict[str, Any], ...], expected: str, tmp_path: Path) -> None:
        """With the reason."""
        with pytest.raises(TableError, match=expected):
            read_source(sweep(tmp_path, *records), "sweep")

    @pytest.mark.parametrize("text", ['{"request_throughput": 1', "[1]", '{"request_throughput": null}'])
    def test_damaged_results(self, text: str, tmp_path: Path) -> None:
        """One line, no traceback."""
        path = tmp_path / "run.json"
        path.write_text(text)
        with pytest.raises(TableError, match=r"run\.json"):
            read_source(path, "sweep")
