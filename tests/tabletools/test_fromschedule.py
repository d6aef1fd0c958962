"""Tables from vLLM's schedules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adaptk.table import TableError
from adaptk.tabletools.imported import Imported, read_source

TRIPLES = [[1, 64, 3], [65, 128, 1], [129, 512, 0]]
FIELD = "num_speculative_tokens_per_batch_size"


def imported(tmp_path: Path, content: Any, acceptance: Any = None) -> Imported:
    path = tmp_path / "source.json"
    path.write_text(json.dumps(content))
    return read_source(path, acceptance=acceptance)


class TestReadVllm:
    @pytest.mark.parametrize(
        "content",
        [TRIPLES, {FIELD: TRIPLES}, {"speculative_config": {FIELD: TRIPLES}}, {"speculative-config": {FIELD: TRIPLES}}],
    )
    def test_alone_or_in_a_config(self, content: Any, tmp_path: Path) -> None:
        """The list, the speculative config, or a server's config file with one."""
        table = imported(tmp_path, content).table
        assert table.to_schedule(512) == TRIPLES
        assert not table.has_times

    def test_what_the_config_says_goes_into_the_key(self, tmp_path: Path) -> None:
        """The drafter and its method; the target's name is not in it."""
        table = imported(tmp_path, {FIELD: TRIPLES, "method": "eagle3", "model": "org/drafter"}).table
        assert table.key == {"method": "eagle3", "drafter": "org/drafter"}

    def test_k_is_cut_as_vllm_does(self, tmp_path: Path) -> None:
        """At num_speculative_tokens, and it is said."""
        made = imported(tmp_path, {FIELD: TRIPLES, "num_speculative_tokens": 2})
        assert made.table.to_schedule(512) == [[1, 64, 2], [65, 128, 1], [129, 512, 0]]
        assert any("cut at it" in note for note in made.notes)

    def test_missing_acceptance_is_said(self, tmp_path: Path) -> None:
        """And not where it is given."""
        assert any("acceptance is unknown" in note for note in imported(tmp_path, TRIPLES).notes)
        made = imported(tmp_path, TRIPLES, [0.7, 0.5])
        assert made.table.acceptance == (0.7, 0.5)
        assert not any("acceptance" in note for note in made.notes)

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ([], "schedule is empty"),
            ([[2, 8, 3]], "must start at batch 1"),
            ([[1, 8]], r"give \[first batch, last batch, K\]"),
            ({"model": "x"}, "holds no num_speculative_tokens_per_batch_size"),
            ({"schema_version": 1, "rows": []}, "a table of adaptk already"),
        ],
    )
    def test_what_is_refused(self, content: Any, expected: str, tmp_path: Path) -> None:
        """With the file's name."""
        with pytest.raises(TableError, match=expected) as error:
            imported(tmp_path, content)
        assert "source.json" in str(error.value)

    def test_broken_json(self, tmp_path: Path) -> None:
        """Cut off on the way."""
        path = tmp_path / "cut.json"
        path.write_text("[[1, 64, 3")
        with pytest.raises(TableError, match="is no JSON"):
            read_source(path)
