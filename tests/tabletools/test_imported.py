"""What a source is, and acceptance given beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.table import TableError
from adaptk.tabletools.imported import conditional, kind_of, read_source


class TestKind:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("[[1, 8, 3]]", "schedule"),
            ('\n {"num_speculative_tokens_per_batch_size": [[1, 8, 3]]}', "schedule"),
            ('{"request_throughput": 3.0, "max_concurrency": 4}', "sweep"),
            ('[{"request_throughput": 3.0}]', "sweep"),
            (",max_concurrency,request_throughput\n0,4,3.0\n", "sweep"),
            ("batch,k,itl_ms\n", "csv"),
            ("\ufeffbatch;k;itl\n", "csv"),
        ],
    )
    def test_by_what_it_holds(self, text: str, kind: str, tmp_path: Path) -> None:
        """Not by its name."""
        path = tmp_path / "source.txt"
        path.write_text(text, encoding="utf-8")
        assert kind_of(path) == kind

    def test_a_folder_is_a_sweep(self, tmp_path: Path) -> None:
        """Nothing else is read from folders."""
        assert kind_of(tmp_path) == "sweep"
        with pytest.raises(TableError, match="is a folder"):
            read_source(tmp_path, "csv")

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"", "is empty"),
            (b"  \n", "is empty"),
            (b"hello", "neither JSON nor a CSV"),
            (b"\xff\xfe1\x00", "no text in UTF-8"),
        ],
    )
    def test_what_is_neither(self, content: bytes, expected: str, tmp_path: Path) -> None:
        """The message names the file."""
        path = tmp_path / "source"
        path.write_bytes(content)
        with pytest.raises(TableError, match=expected) as error:
            read_source(path)
        assert str(path) in str(error.value)

    def test_a_missing_file(self, tmp_path: Path) -> None:
        """Also one whose name cannot be."""
        with pytest.raises(TableError, match="no such file"):
            read_source(tmp_path / "missing")
        with pytest.raises(TableError, match=r"no such file|cannot be read"):
            read_source(Path("a\0b"))


class TestConditional:
    def test_by_hand(self) -> None:
        """Each over the one before; what follows a position that is never accepted is unknown."""
        assert conditional([0.8, 0.4, 0.1]) == pytest.approx([0.8, 0.5, 0.25])
        assert conditional([0.5, 0.0, 0.0]) == [0.5, 0.0]

    def test_rising_rates_are_not_marginal(self) -> None:
        """They can only fall."""
        with pytest.raises(TableError, match=r"above the 0\.5 before it"):
            conditional([0.5, 0.6])
