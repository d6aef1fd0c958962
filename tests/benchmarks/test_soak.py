"""What the soak would find: wrong answers, steps without a row, answers that no rounding explains, slower steps."""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptk.step import StepRecord
from adaptk.trace import TraceWriter
from tests.benchmarks.soak import books, load
from tests.benchmarks.soak.client import Outcome, drive
from tests.benchmarks.soak.clock import Clock, Steps, read
from tests.benchmarks.soak.compare import Compared, parting
from tests.benchmarks.soak.load import CHAT, TEXT, Request
from tests.benchmarks.soak.times import Turns, allowed


class TestLoad:
    def test_a_turn_has_every_kind(self) -> None:
        """And is the same whenever it is made, so that two servers get the same."""
        sizes = load.BURSTS * 3
        kinds = {request.kind for burst in load.turn(0, sizes) for request in burst}
        assert kinds == {*load.KINDS, "sampled"}
        assert load.turn(0, sizes) == load.turn(0, sizes) != load.turn(1, sizes)
        assert [len(burst) for burst in load.turn(0, sizes)] == [*sizes, load.SAMPLED]


class TestClock:
    def test_times_are_of_steps_without_a_pause_before_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither the first, nor after all requests ended or were aborted; steps that compute nothing are no steps."""
        now = iter([1.0, 1.01, 1.03, 5.0, 5.5, 5.75, 9.0])
        monkeypatch.setattr("tests.benchmarks.soak.clock.time.perf_counter", lambda: next(now))
        clock = Clock(tmp_path / "clock")
        clock.note(2, 30, 2, goes_on=True)
        clock.note(2, 16, 9, goes_on=True)
        clock.note(2, 16, 4, goes_on=False)
        clock.note(1, 8, 1, goes_on=True)
        clock.note(0, 0, 0, goes_on=True)
        clock.note(1, 8, 3, goes_on=True)
        clock.interrupt()
        clock.note(1, 8, 5, goes_on=True)
        steps = read(tmp_path / "clock")
        assert steps.ms == pytest.approx([np.nan, 10.0, 20.0, np.nan, 250.0, np.nan], nan_ok=True)
        assert steps.emitted.tolist() == [2, 9, 4, 1, 3, 5]
        assert steps.timed() == pytest.approx([10.0, 20.0, 250.0])
        assert steps.between(1.005, 5.0).scheduled.tolist() == [16, 16, 8]


def answer(text: str, tokens: int, reason: str, ids: list[int] | None = None, **more: Any) -> dict[str, Any]:
    """A whole answer to a completion."""
    choice = {"text": text, "finish_reason": reason, "token_ids": ids, **more}
    return {"choices": [choice], "usage": {"completion_tokens": tokens}}


def chat(text: str, tokens: int, reason: str) -> dict[str, Any]:
    """A whole answer in a chat."""
    return {
        "choices": [{"message": {"content": text}, "finish_reason": reason}],
        "usage": {"completion_tokens": tokens},
    }


def chunk(text: str, reason: str | None = None, ids: tuple[int, ...] = (1,)) -> dict[str, Any]:
    """A piece of a stream."""
    return {"choices": [{"delta": {"content": text}, "finish_reason": reason, "token_ids": ids}]}


COUNTED = {"choices": [], "usage": {"completion_tokens": 2}}
STREAM: dict[str, Any] = {"stream": True, "max_tokens": 2, "return_token_ids": True, "ignore_eos": True}
WHOLE: dict[str, Any] = {"max_tokens": 3, "return_token_ids": True, "ignore_eos": True}
JSON = {"colour": "red", "count": 7, "tags": ["new"], "sure": True}
WRONG: list[tuple[str, Request, int, Any, str | None]] = [
    ("right", Request("text", TEXT, WHOLE), 200, answer("abc", 3, "length", [1, 2, 3]), None),
    ("cut short", Request("text", TEXT, WHOLE), 200, answer("ab", 2, "length", [1, 2]), "after 2 of 3"),
    ("miscounted", Request("text", TEXT, WHOLE), 200, answer("abc", 3, "length", [1, 2]), "counts 3"),
    ("too long", Request("text", TEXT, WHOLE), 200, answer("abcd", 4, "length", [1, 2, 3, 4]), "of at most 3"),
    ("failed", Request("text", TEXT, WHOLE), 500, {"error": {"message": "no"}}, "status 500"),
    ("stopped", Request("stop", TEXT, {"max_tokens": 3}), 200, answer("ab", 3, "stop"), None),
    ("not stopped", Request("stop", TEXT, {"max_tokens": 3}), 200, answer("a. b", 3, "stop"), "goes on"),
    ("json", Request("json", CHAT, {"max_tokens": 30}), 200, chat(json.dumps(JSON), 20, "stop"), None),
    ("half json", Request("json", CHAT, {"max_tokens": 30}), 200, chat(json.dumps(JSON)[:30], 30, "length"), "schema"),
    ("other json", Request("json", CHAT, {"max_tokens": 30}), 200, chat('{"colour": "red"}', 9, "stop"), "schema"),
    ("logprobs", Request("logprobs", TEXT, WHOLE), 200,
     answer("abc", 3, "length", [1, 2, 3], logprobs={"token_logprobs": [-1.0, -2.0]}), "2 logprobs for 3"),
    ("refused", Request("refused", CHAT, {}, refusal=(400,)), 400, {"error": {"message": "bad"}}, None),
    ("otherwise refused", Request("refused", CHAT, {}, refusal=(400,)), 500, {"error": {"message": "x"}}, "status 500"),
    ("not refused", Request("refused", CHAT, {}, refusal=(400,)), 200, chat("hm", 1, "stop"), "should have been"),
    ("silent", Request("refused", CHAT, {}, refusal=(400,)), 400, {"error": {}}, "without a word"),
    ("stream", Request("stream", CHAT, STREAM), 200, [chunk("a"), chunk("b", "length"), COUNTED, "[DONE]"], None),
    ("cut stream", Request("stream", CHAT, STREAM), 200, [chunk("a"), chunk("b", "length"), COUNTED], "last line"),
    ("endless", Request("stream", CHAT, STREAM), 200, [chunk("a"), chunk("b"), COUNTED, "[DONE]"], "ended 0 times"),
    ("ended twice", Request("stream", CHAT, STREAM), 200,
     [chunk("a", "length"), chunk("b", "length"), COUNTED, "[DONE]"], "ended 2 times"),
    ("broken off", Request("stream", CHAT, STREAM), 200, [chunk("a"), {"error": "died"}], "broke off"),
    ("lost token", Request("stream", CHAT, STREAM), 200,
     [chunk("a"), chunk("b", "length", ()), COUNTED, "[DONE]"], "counts 2"),
    ("left", Request("left", CHAT, STREAM, leaves_after=1), 200, [chunk("a"), chunk("b")], None),
    ("too quick", Request("left", CHAT, STREAM, leaves_after=3), 200,
     [chunk("a"), chunk("b", "length"), COUNTED, "[DONE]"], "before its client could leave"),
    ("too quick to hang up", Request("hung up", CHAT, {}, leaves_after=0), 200, chat("x", 1, "stop"), "hang up"),
]  # fmt: skip


class _Answering(BaseHTTPRequestHandler):
    status, said = 200, b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.said)))
        self.end_headers()
        self.wfile.write(self.said)

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a server that gives one answer to everything."""
    status, said = request.param
    if isinstance(said, list):
        said = "".join(f"data: {line if isinstance(line, str) else json.dumps(line)}\n\n" for line in said)
    else:
        said = json.dumps(said)
    handler = type("Handler", (_Answering,), {"status": status, "said": said.encode()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


class TestClient:
    @pytest.mark.parametrize(
        ("request_", "told", "served"),
        [pytest.param(request, told, (status, said), id=name) for name, request, status, said, told in WRONG],
        indirect=["served"],
    )
    def test_a_wrong_answer_is_told_and_a_right_one_is_not(
        self, served: str, request_: Request, told: str | None
    ) -> None:
        """Of every kind, by a server that gives it."""
        (outcome,) = drive(served, [[request_]]).outcomes
        if told is None:
            assert outcome.fault is None
        else:
            assert outcome.fault is not None
            assert told in outcome.fault


class TestBooks:
    def steps(self) -> Steps:
        """Ten steps of two tokens, 100 ms apart."""
        ended = 5.0 + 0.1 * np.arange(10)
        return Steps(ended, np.full(10, 100.0), np.full(10, 2), np.full(10, 2), np.full(10, 2))

    def held(self, tmp_path: Path, rows: list[int], tokens: int = 2, **given: Any) -> list[bool]:
        """What the books say of a trace with these rows, each made a millisecond before its step's note."""
        writer = TraceWriter(tmp_path / "trace.jsonl")
        for row in rows:
            step = StepRecord(batch_size=2, elapsed_ms=9.0, k=0, drafted=[0, 0], accepted=[0, 0],
                              emitted=[1, tokens - 1], t_ms=5000.0 + 100.0 * row - 1.0)  # fmt: skip
            writer.write(step)
        writer.close()
        asked = {"off": [], "dropped": 0} | given
        found = books.trace_holds_every_step(tmp_path / "trace.jsonl", self.steps(), **asked)
        return [check.held for check in found]

    def test_a_whole_trace_is_whole(self, tmp_path: Path) -> None:
        """A row for each step."""
        assert self.held(tmp_path, list(range(10))) == [True, True]

    def test_a_lost_row_is_found(self, tmp_path: Path) -> None:
        """Unless it was counted as dropped; and one counted that is there is found, too."""
        assert self.held(tmp_path, [0, 1, 2, 4, 5, 6, 7, 8, 9]) == [False, True]
        assert self.held(tmp_path, [0, 1, 2, 4, 5, 6, 7, 8, 9], dropped=1) == [True, True]
        assert self.held(tmp_path, list(range(10)), dropped=1) == [False, True]

    def test_in_mode_off_there_are_no_rows(self, tmp_path: Path) -> None:
        """Nor for the step that was under way when it was over; only then."""
        assert self.held(tmp_path, [0, 1, 2, 7, 8, 9], off=[(5.25, 5.55)]) == [True, True]
        assert self.held(tmp_path, [0, 1, 7, 8, 9], off=[(5.25, 5.55)]) == [False, True]
        assert self.held(tmp_path, [0, 1, 2, 8, 9], off=[(5.25, 5.55)]) == [False, True]

    def test_two_rows_of_a_step_and_rows_of_none_are_found(self, tmp_path: Path) -> None:
        """Also where their number is right."""
        assert self.held(tmp_path, [0, 1, 2, 2, 4, 5, 6, 7, 8, 9]) == [False, False]
        assert self.held(tmp_path, [*range(10), 12]) == [False, True]

    def test_other_tokens_are_found(self, tmp_path: Path) -> None:
        """Row by row."""
        assert self.held(tmp_path, list(range(10)), tokens=3) == [True, False]


class TestCompare:
    def outcome(self, text: str, ids: tuple[int, ...]) -> Outcome:
        return Outcome(Request("text", TEXT, {}), None, len(ids), True, text, ids, (9,))

    def test_answers_part_at_the_first_other_token(self) -> None:
        """Equal texts do not part; one that ends early parts at its end."""
        one = self.outcome("abc", (1, 2, 3))
        assert parting(one, self.outcome("abc", (1, 2, 3))) is None
        assert parting(one, self.outcome("abd", (1, 2, 4))) == 2
        assert parting(one, self.outcome("ab", (1, 2))) == 2

    def test_what_rounding_does_not_explain_is_counted(self) -> None:
        """Also where an answer just ends."""
        found = Compared(4, 2, (0.01, 0.1)) + Compared(2, 0, (3.0, math.inf))
        assert (found.both, found.equal, found.unexplained) == (6, 2, 2)


class TestTimes:
    def turns(self, factor: float) -> Turns:
        """Twelve turns of noisy steps, one side slower by a factor."""
        rng = random.Random(1)

        def turn(scale: float) -> np.ndarray:
            return scale * np.array([rng.lognormvariate(3.0, 0.3) for _ in range(500)])

        return Turns([turn(factor) for _ in range(12)], [turn(1.0) for _ in range(12)])

    def test_slower_steps_are_found_and_noise_is_not(self) -> None:
        """By the interval of the slowest hundredth, and in the right direction."""
        assert allowed(self.turns(1.0))
        assert allowed(self.turns(0.7))
        slower = self.turns(1.3)
        assert not allowed(slower)
        assert slower.by_turn(99).median == pytest.approx(1.3, rel=0.06)
        found, low, high = slower.together(99)
        assert low < 1.3 < high
        assert found == pytest.approx(1.3, rel=0.05)
