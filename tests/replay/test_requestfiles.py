from __future__ import annotations

import contextlib
import gzip
import json
import math
import os
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adaptk.replay.requestfiles import MAX_TOKENS, Loaded, WorkloadError, first, read_requests, scaled
from adaptk.replay.workload import Requests

DATA = Path(__file__).parents[3] / "shared" / "data"
HEADER = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
AZURE = (
    HEADER
    + b"2023-11-16 18:17:03.9799600,4808,10\r\n"
    + b"2023-11-16 18:17:04.0319600,3180,8\r\n"
    + b"2023-11-16 18:17:05,110,27"
)
MOONCAKE = (
    b'{"timestamp": 1000, "input_length": 4808, "output_length": 10, "hash_ids": [0, 1]}\n'
    b'{"timestamp": 1052, "input_length": 3180, "output_length": 8, "hash_ids": []}\n'
    b'{"timestamp": 2020.04, "input_length": 110, "output_length": 27}\n'
)


def read(tmp_path: Path, content: bytes, lenient: bool = False) -> Loaded:
    path = tmp_path / "log"
    path.write_bytes(content)
    return read_requests(path, lenient)


def rows(loaded: Loaded) -> list[tuple[float, int, int]]:
    r = loaded.requests
    return list(zip(np.round(r.arrival_ms, 6).tolist(), r.prompt.tolist(), r.output.tolist(), strict=True))


THREE = [(0.0, 4808, 10), (52.0, 3180, 8), (1020.04, 110, 27)]


class TestPublishedFiles:
    @pytest.mark.parametrize(
        ("name", "n", "prompt", "output", "hour_s"),
        [("code", 8819, 18_059_974, 245_896, 3435.948056), ("conv", 19366, 22_361_870, 4_088_665, 3501.721937)],
    )
    def test_azure(self, name: str, n: int, prompt: int, output: int, hour_s: float) -> None:
        """Requests, sums of both columns, and the clock from the first line to the last."""
        path = DATA / f"azure_llm_2023_{name}.csv"
        if not path.exists():
            pytest.skip(f"{path} is not here: put Azure's file there")
        requests, skipped = read_requests(path)
        assert (len(requests), skipped) == (n, 0)
        assert (requests.prompt.sum(), requests.output.sum()) == (prompt, output)
        assert requests.arrival_ms[0] == 0
        assert requests.arrival_ms[-1] / 1000 == pytest.approx(hour_s, abs=1e-6)
        assert requests.open_loop
        assert not requests.kind.any()


class TestForms:
    def test_azure(self, tmp_path: Path) -> None:
        assert rows(read(tmp_path, AZURE)) == THREE

    def test_mooncake(self, tmp_path: Path) -> None:
        assert rows(read(tmp_path, MOONCAKE)) == THREE

    @pytest.mark.parametrize("content", [AZURE, MOONCAKE])
    def test_compressed_under_any_name(self, tmp_path: Path, content: bytes) -> None:
        assert rows(read(tmp_path, gzip.compress(content))) == THREE

    @pytest.mark.parametrize("content", [AZURE, MOONCAKE])
    def test_byte_order_mark_line_ends_and_empty_lines(self, tmp_path: Path, content: bytes) -> None:
        spaced = b"\xef\xbb\xbf" + content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n\r\n") + b"\r\n \r\n"
        loaded = read(tmp_path, spaced)
        assert (rows(loaded), loaded.skipped) == (THREE, 0)

    def test_columns_in_any_order_and_others_ignored(self, tmp_path: Path) -> None:
        content = (
            'GeneratedTokens ,"user, or team",TIMESTAMP,"note",ContextTokens\n'
            '10,"Bär, ""a""",2023-11-16T18:17:03.97996,,4808\n'
            "8 , x, 2023-11-16 18:17:04.03196 ,NaN,3180.0\n"
        ).encode("latin-1")
        assert rows(read(tmp_path, content)) == THREE[:2]

    def test_header_in_any_case(self, tmp_path: Path) -> None:
        content = AZURE.replace(HEADER, b"timestamp,contexttokens,GENERATEDTOKENS\r\n")
        assert rows(read(tmp_path, content)) == THREE

    def test_keys_in_any_order_and_others_ignored(self, tmp_path: Path) -> None:
        content = b' {"output_length":10.0,"chat_id":{"a":[NaN]},"input_length":4808,"timestamp":-3}\n'
        assert rows(read(tmp_path, content)) == THREE[:1]

    @pytest.mark.parametrize(
        ("later", "ms"),
        [
            ("2023-11-16 18:17:03.9799699", 0.009),  # the seventh digit is dropped
            ("2023-11-16 18:17:04+00:00", 20.04),
            ("2023-11-16 19:17:04+0100", 20.04),
            ("2023-11-16T18:17:04.5Z", 520.04),
            ("2024-02-29 18:17:03.97996", 105 * 86_400_000.0),
        ],
    )
    def test_times(self, tmp_path: Path, later: str, ms: float) -> None:
        content = HEADER + f"2023-11-16 18:17:03.9799600,1,1\n{later},1,1\n".encode()
        assert read(tmp_path, content).requests.arrival_ms[1] == pytest.approx(ms, abs=1e-6)

    def test_no_offset_is_utc_wherever_the_reader_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TZ", "America/New_York")
        time.tzset()
        try:
            loaded = read(tmp_path, HEADER + b"2023-11-16 18:17:03,7,8\n2023-11-16 18:17:04+00:00,5,6\n")
        finally:
            monkeypatch.undo()
            time.tzset()
        assert rows(loaded) == [(0.0, 7, 8), (1000.0, 5, 6)]

    def test_clock_since_1970_keeps_its_microseconds(self, tmp_path: Path) -> None:
        line = '{{"timestamp": {}, "input_length": 1, "output_length": 1}}\n'
        content = line.format(1_700_158_623_979).encode() + line.format(1_700_158_623_979.5).encode()
        assert read(tmp_path, content).requests.arrival_ms.tolist() == [0.0, 0.5]

    def test_answer_of_no_tokens_counts_as_one(self, tmp_path: Path) -> None:
        assert rows(read(tmp_path, HEADER + b"2023-11-16 18:17:03,7,0\n")) == [(0.0, 7, 1)]
        assert rows(read(tmp_path, b'{"timestamp": 0, "input_length": 7, "output_length": 0}')) == [(0.0, 7, 1)]

    def test_requests_at_one_time_keep_their_order(self, tmp_path: Path) -> None:
        content = HEADER + b"2023-11-16 18:17:03,7,1\n" * 2 + b"2023-11-16 18:17:03,8,1\n"
        assert rows(read(tmp_path, content)) == [(0.0, 7, 1), (0.0, 7, 1), (0.0, 8, 1)]

    def test_most_tokens(self, tmp_path: Path) -> None:
        content = HEADER + f"2023-11-16 18:17:03,{MAX_TOKENS},{MAX_TOKENS}\n".encode()
        assert rows(read(tmp_path, content)) == [(0.0, MAX_TOKENS, MAX_TOKENS)]

    @given(
        gaps=st.lists(st.integers(0, 10**9), min_size=1, max_size=20),
        tokens=st.tuples(st.integers(1, MAX_TOKENS), st.integers(1, MAX_TOKENS)),
        packed=st.booleans(),
    )
    def test_what_is_written_is_read(
        self, tmp_path_factory: pytest.TempPathFactory, gaps: list[int], tokens: tuple[int, int], packed: bool
    ) -> None:
        times = np.cumsum(gaps)
        lines = [{"timestamp": int(t), "input_length": tokens[0], "output_length": tokens[1]} for t in times]
        content = "\n".join(map(json.dumps, lines)).encode()
        path = tmp_path_factory.getbasetemp() / "round-trip"
        path.write_bytes(gzip.compress(content) if packed else content)
        requests = read_requests(path).requests
        assert requests.arrival_ms.tolist() == (times - times[0]).tolist()
        assert set(zip(requests.prompt.tolist(), requests.output.tolist(), strict=True)) == {tokens}


GOOD_ROW = b"2023-11-16 18:17:04,5,6"
BAD_ROWS = {
    "2023-11-16 18:17:04,5": "has 2 fields, the header has 3",
    "2023-11-16 18:17:04,5,6,": "has 4 fields, the header has 3",
    "2023-11-": "has 1 fields, the header has 3",
    '2023-11-16 18:17:04,"5,6': "is no line of a CSV",
    "2023-11-16 18:17:04,5,": "GeneratedTokens is '': give a whole number",
    "2023-11-16 18:17:04,-5,6": "ContextTokens is '-5': give a whole number from 1 to",
    "2023-11-16 18:17:04,0,6": "ContextTokens is '0': give a whole number from 1 to",
    "2023-11-16 18:17:04,5,6.5": "GeneratedTokens is '6.5': give a whole number from 0 to",
    "2023-11-16 18:17:04,5,NaN": "GeneratedTokens is 'NaN'",
    "2023-11-16 18:17:04,5,inf": "GeneratedTokens is 'inf'",
    "2023-11-16 18:17:04,5,1e3": "GeneratedTokens is '1e3'",
    "2023-11-16 18:17:04,1_000,6": "ContextTokens is '1_000'",
    "2023-11-16 18:17:04,٣,6": "ContextTokens is '٣'",
    "2023-11-16 18:17:04,5,10000001": "GeneratedTokens is '10000001': give a whole number from 0 to 10000000",
    "2023-11-16 18:17:04,5," + "9" * 5000: "GeneratedTokens is '999",
    "2023-11-16 18:17:04\x00,5,6": "TIMESTAMP is",
    "NaN,5,6": "TIMESTAMP is 'NaN': write it like",
    ",5,6": "TIMESTAMP is '': write it like",
    "1700158624,5,6": "TIMESTAMP is '1700158624'",
    "20231116,5,6": "TIMESTAMP is '20231116'",
    "2023-11-31 18:17:04,5,6": "TIMESTAMP is '2023-11-31 18:17:04'",
    "2023-11-16 25:17:04,5,6": "TIMESTAMP is '2023-11-16 25:17:04'",
    "16.11.2023 18:17:04,5,6": "TIMESTAMP is '16.11.2023 18:17:04'",
    "2023-11-16 18:17:02.5,5,6": "the clock goes back by 500 ms: sort by time",
    "TIMESTAMP,ContextTokens,GeneratedTokens": "TIMESTAMP is 'TIMESTAMP'",
}
BAD_LINES = {
    '{"timestamp": 2000, "input_length": 5, "outp': "is no JSON object, or is cut off",
    "[2000, 5, 6]": "holds [2000, 5, 6] where an object is expected",
    "null": "holds None where an object is expected",
    "2023-11-16 18:17:04,5,6": "is no JSON object",
    "[" * 100_000: "is no JSON object",
    '{"input_length": 5, "output_length": 6}': "timestamp is missing",
    '{"timestamp": 2000, "output_length": 6}': "input_length is missing",
    '{"timestamp": 2000, "input_length": 5}': "output_length is missing",
    '{"timestamp": 2000, "input_length": -5, "output_length": 6}': "input_length is -5: give a whole number from 1 to",
    '{"timestamp": 2000, "input_length": 0, "output_length": 6}': "input_length is 0: give a whole number from 1 to",
    '{"timestamp": 2000, "input_length": 5, "output_length": 6.5}': "output_length is 6.5: give a whole number",
    '{"timestamp": 2000, "input_length": 5, "output_length": NaN}': "output_length is nan: give a whole number",
    '{"timestamp": 2000, "input_length": 5, "output_length": 1e999}': "output_length is inf: give a whole number",
    '{"timestamp": 2000, "input_length": 5, "output_length": true}': "output_length is True: give a whole number",
    '{"timestamp": 2000, "input_length": 5, "output_length": null}': "output_length is None: give a whole number",
    '{"timestamp": 2000, "input_length": [5], "output_length": 6}': "input_length is [5]: give a whole number",
    '{"timestamp": 2000, "input_length": 10000001, "output_length": 6}': "input_length is 10000001: give a whole",
    '{"timestamp": 2000, "input_length": 1' + "0" * 400 + ', "output_length": 6}': "input_length is 1000",
    '{"timestamp": 2000, "input_length": 1' + "0" * 5000 + ', "output_length": 6}': "is no JSON object",
    '{"timestamp": NaN, "input_length": 5, "output_length": 6}': "timestamp is nan: give milliseconds as a number",
    '{"timestamp": -Infinity, "input_length": 5, "output_length": 6}': "timestamp is -inf: give milliseconds",
    '{"timestamp": "2000", "input_length": 5, "output_length": 6}': "timestamp is '2000': give milliseconds",
    '{"timestamp": false, "input_length": 5, "output_length": 6}': "timestamp is False: give milliseconds",
    '{"timestamp": 1700158623979960000, "input_length": 5, "output_length": 6}': "timestamp is 1700158623979960000",
    '{"timestamp": 999, "input_length": 5, "output_length": 6}': "the clock goes back by 1 ms: sort by time",
}
MALFORMED = [
    *((HEADER + b"2023-11-16 18:17:03,7,8\n", line, why, GOOD_ROW) for line, why in BAD_ROWS.items()),
    *(
        (
            b'\n{"timestamp": 1000, "input_length": 7, "output_length": 8}\n',
            line,
            why,
            b'{"timestamp": 2000, "input_length": 5, "output_length": 6}',
        )
        for line, why in BAD_LINES.items()
    ),
]


@pytest.mark.parametrize(
    ("before", "line", "why", "after"), MALFORMED, ids=[f"{why[:40]}-{i}" for i, (_, _, why, _) in enumerate(MALFORMED)]
)
class TestMalformedLines:
    def test_is_refused(self, tmp_path: Path, before: bytes, line: str, why: str, after: bytes) -> None:
        """The message names file, line, what is wrong and what to do, and stays short."""
        with pytest.raises(WorkloadError) as caught:
            read(tmp_path, before + line.encode() + b"\n" + after)
        message = str(caught.value)
        assert message.startswith(f"{tmp_path / 'log'}, line 3: {why}")
        assert message.endswith("mend or remove the line, or read leniently to skip and count it")
        assert len(message) < len(str(tmp_path)) + 300

    def test_is_skipped_and_counted_when_lenient(
        self, tmp_path: Path, before: bytes, line: str, why: str, after: bytes
    ) -> None:
        """Nothing else is lost."""
        loaded = read(tmp_path, before + line.encode() + b"\n" + after, lenient=True)
        assert rows(loaded) == [(0.0, 7, 8), (1000.0, 5, 6)]
        assert loaded.skipped == 1


class TestLenient:
    def test_clock_is_that_of_the_last_line_read(self, tmp_path: Path) -> None:
        content = HEADER + b"".join(b"2023-11-16 18:17:%02d,7,8\n" % s for s in (5, 9, 6, 7, 9, 10))
        loaded = read(tmp_path, content, lenient=True)
        assert loaded.requests.arrival_ms.tolist() == [0.0, 4000.0, 4000.0, 5000.0]
        assert loaded.skipped == 2

    def test_first_request_may_be_the_bad_one(self, tmp_path: Path) -> None:
        loaded = read(tmp_path, b"{\n" + MOONCAKE, lenient=True)
        assert (rows(loaded), loaded.skipped) == (THREE, 1)

    def test_line_beyond_all_reason_is_one_line(self, tmp_path: Path) -> None:
        long = b'{"timestamp": 1052, "hash_ids": [' + b"1," * 3 * 2**20 + b"1]}\n"
        head, tail = MOONCAKE.split(b"\n", 1)
        loaded = read(tmp_path, head + b"\n" + long + tail, lenient=True)
        assert (rows(loaded), loaded.skipped) == (THREE, 1)

    @pytest.mark.parametrize("blanks", [b" " * 60_000, b"\n" * 60_000])
    def test_some_empty_lines_between_requests_are_passed_over(self, tmp_path: Path, blanks: bytes) -> None:
        assert rows(read(tmp_path, AZURE.replace(b"\r\n", b"\r\n" + blanks + b"\r\n"))) == THREE

    def test_a_line_without_end_is_the_end(self, tmp_path: Path) -> None:
        """Also of what may be skipped."""
        with pytest.raises(WorkloadError, match="line 5: has more than 16 MiB: give a CSV"):
            read(tmp_path, AZURE + b"\n" + b"x" * (2**24 + 1) + b"\n" + AZURE, lenient=True)

    def test_nothing_left(self, tmp_path: Path) -> None:
        with pytest.raises(WorkloadError, match="holds no request, no line of 2 can be read: give a CSV"):
            read(tmp_path, HEADER + b"a,b,c\nd\n", lenient=True)

    @example(content=HEADER + b'"\n"')
    @given(
        content=st.binary(max_size=60) | st.binary(max_size=60).map(lambda b: HEADER + b) | st.text().map(str.encode)
    )
    def test_any_bytes_are_read_or_refused(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        path = tmp_path_factory.getbasetemp() / "any"
        path.write_bytes(content)
        with contextlib.suppress(WorkloadError):
            loaded = read_requests(path, lenient=True)
            assert len(loaded.requests) + loaded.skipped <= content.count(b"\n") + 1


class TestFilesThatAreNone:
    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"", ": is empty: give a CSV with a header line and the columns TIMESTAMP, ContextTokens, Gen"),
            (b"\n \r\n", ": is empty: give a CSV"),
            (gzip.compress(b""), ": is empty: give a CSV"),
            (HEADER, ": holds no request, it has no line behind its header: give a CSV"),
            (b"\x89PNG\r\n\x1a\n\0\0", ", line 1: is no form of request log"),
            (b"\x7fELF\2\1\1\0\0\n", ": is no text in UTF-8: give a CSV"),
            (AZURE.decode().encode("utf-16"), ": is no text in UTF-8: give a CSV"),
            (AZURE.replace(b"\r\n", b"\r"), ": its lines end in CR alone, as on old Macs: save it with LF or CR LF"),
            (b"\n" * (2**18 + 1) + AZURE, f", line {2**18 + 1}: almost all lines up to here are empty: give a CSV"),
            (AZURE + b"\n" + b" " * 2**19 + b"\n" + AZURE, ", line 5: almost all lines up to here are empty"),
            (b"[" + MOONCAKE + b"]", ", line 1: is no form of request log"),
            (b"arrival,prompt,output\n1,2,3\n", ", line 1: is no form of request log ('arrival,prompt,output')"),
            (b"2023-11-16 18:17:03,4808,10\n", ", line 1: is no form of request log"),
            (b"\nTIMESTAMP,GeneratedTokens\n", ", line 2: ContextTokens is missing in the header: give a CSV"),
            (b"TIMESTAMP;ContextTokens;GeneratedTokens\n", ", line 1: is no form of request log"),
            (b"time,ContextTokens,Generated\n", ", line 1: TIMESTAMP, GeneratedTokens is missing in the header"),
            (HEADER.replace(b"\r\n", b",timestamp\n"), ", line 1: TIMESTAMP stands twice in the header: keep one"),
            (HEADER.replace(b"\r\n", b",TIMESTAMP\n"), ", line 1: TIMESTAMP stands twice in the header: keep one"),
            (HEADER.replace(b"\r\n", b',"x\n'), ", line 1: is no line of a CSV"),
            (b"x" * 3_000_000, ", line 1: is no form of request log"),
            (gzip.compress(AZURE)[:-20], ": is damaged or cut off within its gzip data"),
            (gzip.compress(AZURE)[:10] + b"\xff" * 40, ": is damaged or cut off within its gzip data"),
            (gzip.compress(AZURE)[:-8] + b"\0" * 8, ": is damaged or cut off within its gzip data"),
        ],
    )
    @pytest.mark.parametrize("lenient", [False, True])
    def test_content(self, tmp_path: Path, content: bytes, why: str, lenient: bool) -> None:
        with pytest.raises(WorkloadError, match=re.escape(f"{tmp_path / 'log'}{why}")) as caught:
            read(tmp_path, content, lenient)
        assert len(str(caught.value)) < len(str(tmp_path)) + 350

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(WorkloadError, match=r"none\.csv: there is no such file: check the path"):
            read_requests(tmp_path / "none.csv")

    def test_directory(self, tmp_path: Path) -> None:
        with pytest.raises(WorkloadError, match="is not a regular file: give the path of a request log"):
            read_requests(tmp_path)

    def test_pipe_does_not_block(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(WorkloadError, match="is not a regular file"):
            read_requests(tmp_path / "pipe")

    def test_impossible_path(self) -> None:
        with pytest.raises(WorkloadError, match=r"cannot be read .*: check the path"):
            read_requests("a\0b")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_no_permission(self, tmp_path: Path) -> None:
        (tmp_path / "log").write_bytes(AZURE)
        (tmp_path / "log").chmod(0)
        with pytest.raises(WorkloadError, match=r"cannot be read .*: check the path and its permissions"):
            read_requests(tmp_path / "log")


def sample() -> Requests:
    ints = np.array([1, 2, 3, 4])
    return Requests(
        np.array([0.0, 10.0, 10.0, 40.0]),
        prompt=ints * 10,
        output=ints,
        kind=ints - 1,
        round=np.array([0, 0, 1, 1]),
        after_tokens=np.array([0, 5, 5, 9]),
        known=np.arange(10, dtype=np.int8),
    )


class TestScaled:
    def test_faster(self) -> None:
        requests = scaled(sample(), 2.0)
        assert requests.arrival_ms.tolist() == [0.0, 5.0, 5.0, 20.0]
        assert requests.prompt.tolist() == [10, 20, 30, 40]
        assert requests.known is not None

    @pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
    def test_impossible(self, rate: float) -> None:
        with pytest.raises(ValueError, match=f"rate is {rate}: give a number above 0"):
            scaled(sample(), rate)


class TestFirst:
    @pytest.mark.parametrize("n", [1, 3, 4, 9])
    def test_every_field_is_cut(self, n: int) -> None:
        whole, cut = sample(), first(sample(), n)
        for name in ("arrival_ms", "prompt", "output", "kind", "round", "after_tokens"):
            assert getattr(cut, name).tolist() == getattr(whole, name)[:n].tolist()
        assert cut.known is not None
        assert len(cut.known) == cut.output.sum()
        assert cut.known[0] == 0

    def test_absent_fields_stay_absent(self) -> None:
        ones = np.ones(3, dtype=np.int64)
        cut = first(Requests(np.zeros(3), ones, ones, ones), 2)
        assert (len(cut), cut.round, cut.after_tokens, cut.known) == (2, None, None, None)

    def test_none(self) -> None:
        with pytest.raises(ValueError, match="n is 0: give at least 1 request"):
            first(sample(), 0)
