from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from adaptk.table import GoodputTable, TableError
from tests.strategies import json_values, read_or_refused, rows_of, tables, timed_tables


class TestFiles:
    @given(table=tables, notes=st.dictionaries(st.text(max_size=5), json_values, max_size=3))
    def test_round_trip(self, tmp_path_factory: pytest.TempPathFactory, table: GoodputTable, notes: Any) -> None:
        path = tmp_path_factory.getbasetemp() / "table.json"
        if table.rows:
            try:
                table = GoodputTable.from_rows(table.rows, table.acceptance, {**notes, **table.meta})
            except TableError:  # NaN among the notes
                assume(False)
        table.save(path)
        assert GoodputTable.load(path) == table

    def test_rows_build_the_same_table_again(self) -> None:
        table = GoodputTable.from_rows(rows_of({1: {0: 5.0, 3: 7.0}}, n=4, spread_ms=0.2), [0.5])
        assert GoodputTable.from_rows(table.rows, table.acceptance, table.meta) == table

    def test_one_row_per_line(self, tmp_path: Path) -> None:
        GoodputTable.from_rows(rows_of({1: {0: 5.0, 3: 7.25}}, n=9), [0.5], {"name": "x"}).save(tmp_path / "t.json")
        lines = (tmp_path / "t.json").read_text().splitlines()
        assert '    {"batch": 1, "k": 3, "itl_ms": 7.25, "n": 9}' in lines
        assert lines[1] == '  "schema_version": 1,'

    def test_save_leaves_no_scratch_and_keeps_links_and_umask(self, tmp_path: Path) -> None:
        target, link = tmp_path / "t.json", tmp_path / "link.json"
        target.write_text("old")
        link.symlink_to(target)
        GoodputTable.from_schedule([[1, 9, 2]]).save(link)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "t.json"]
        assert link.is_symlink()
        assert GoodputTable.load(target).best_k(1) == 2
        assert target.stat().st_mode & 0o777 == 0o666 & ~_umask()

    def test_a_failed_save_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "t.json"
        GoodputTable.from_schedule([[1, 9, 2]]).save(path)

        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(TableError, match=r"t\.json: cannot be written .*No space left"):
            GoodputTable.from_schedule([[1, 9, 5]]).save(path)
        assert list(tmp_path.iterdir()) == [path]
        assert GoodputTable.load(path).best_k(1) == 2

    def test_saving_into_a_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(TableError, match="check the folder"):
            GoodputTable.from_schedule([[1, 9, 2]]).save(tmp_path / "none" / "t.json")

    def test_what_could_not_be_read_is_not_written(self, tmp_path: Path) -> None:
        table = GoodputTable.from_schedule([[1, 9, 2]], meta={"notes": "x" * 2**23})
        with pytest.raises(TableError, match="would have more than 8388608 bytes"):
            table.save(tmp_path / "t.json")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is empty"),
            ('{"schema_version": 1, "rows": [{"batch": 1, "k"', "is truncated"),
            ("batch,k,itl\n1,0,5\n", "is not JSON"),
            ("[1]", r"holds \[1\] where an object"),
            ("[" * 100_000, "nested too deeply"),
            ("{}", "schema_version is missing"),
            ('{"schema_version": 2, "rows": []}', "schema_version is 2, this adaptk reads 1"),
            ('{"schema_version": true, "rows": []}', "schema_version is True"),
            ('{"schema_version": 1, "row": []}', "'row' is not a field"),
            ('{"schema_version": 1}', "rows and schedule: give one of the two"),
            ('{"schema_version": 1, "rows": [], "schedule": [[1, 2, 3]]}', "rows and schedule: give one"),
            ('{"schema_version": 1, "rows": [{"batch": 1, "k": 0, "itl_ms": -2}]}', r"rows\[0\]\.itl_ms is -2"),
            ('{"schema_version": 1, "rows": [{"batch": 1, "k": 0, "itl_ms": 1e999}]}', "1e999|out of range|is inf"),
            ('{"schema_version": 1, "schedule": [[1, 2, 3.9]]}', r"schedule\[0\] K is 3\.9"),
            ('{"schema_version": 1, "schedule": [[1, 2, 3]], "acceptance": [2]}', r"acceptance\[0\] is 2"),
            ('{"schema_version": 1, "schedule": [[1, 2, 3]], "meta": 4}', "meta is 4"),
        ],
    )
    def test_bad_files(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "bad.json"
        path.write_text(text)
        with pytest.raises(TableError, match=message) as error:
            GoodputTable.load(path)
        assert str(error.value).startswith(str(path))

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        for path, message in (
            (tmp_path / "none", "no such file"),
            (tmp_path, "regular"),
            (tmp_path / "pipe", "regular"),
        ):
            with pytest.raises(TableError, match=message):
                GoodputTable.load(path)
        with pytest.raises(TableError, match="null"):
            GoodputTable.load("a\0b")

    def test_an_absurdly_large_file_is_refused_unread(self, tmp_path: Path) -> None:
        path = tmp_path / "large.json"
        with path.open("wb") as file:
            file.truncate(2**40)  # sparse
        with pytest.raises(TableError, match="more than 8388608"):
            GoodputTable.load(path)

    def test_too_many_rows(self) -> None:
        with pytest.raises(TableError, match="1000001"):
            GoodputTable.from_rows([{}] * 1_000_001)

    @given(
        json_values
        | st.fixed_dictionaries(
            {"schema_version": st.just(1)},
            optional=dict.fromkeys(("rows", "schedule", "acceptance", "meta"), json_values),
        )
    )
    @example({"schema_version": 1, "rows": [[]]})
    @example({"schema_version": 1, "schedule": [{}]})
    def test_any_json_is_read_or_refused(self, tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
        path = tmp_path_factory.getbasetemp() / "any.json"
        path.write_text(json.dumps(value))
        read_or_refused(lambda: GoodputTable.load(path))

    @given(st.binary(max_size=60))
    def test_any_bytes_are_refused(self, tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
        path = tmp_path_factory.getbasetemp() / "any.bin"
        path.write_bytes(data)
        with pytest.raises(TableError):
            GoodputTable.load(path)

    @given(table=timed_tables(), cut=st.floats(0.0, 0.999))
    def test_every_truncation_is_refused(
        self, tmp_path_factory: pytest.TempPathFactory, table: GoodputTable, cut: float
    ) -> None:
        path = tmp_path_factory.getbasetemp() / "cut.json"
        table.save(path)
        whole = path.read_bytes().rstrip()
        path.write_bytes(whole[: int(cut * len(whole))])
        with pytest.raises(TableError, match=r"truncated|empty|not JSON"):
            GoodputTable.load(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
