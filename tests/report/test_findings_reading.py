"""Odd traces: whatever is in a file, a report is made of what can be used, or an error says what to do."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import pytest

from adaptk.decision import Reason
from adaptk.report.analysis import analyse, analyse_with_table
from adaptk.report.findings import from_json, to_json
from adaptk.report.headers import read_header
from adaptk.table import GoodputTable
from adaptk.trace import TraceError, TraceWriter
from tests.replay.recordings import decision, step, write
from tests.report.made_up import made_up
from tests.report.worlds import shadow


def found(path: Path, **more: Any) -> Any:
    """Findings without a simulation, which must be good JSON."""
    findings = analyse([path], simulate=False, **more)
    assert from_json(to_json(findings)) == findings
    return findings


class TestSmall:
    def test_an_empty_trace(self, tmp_path: Path) -> None:
        with pytest.raises(TraceError, match="holds no step: record while requests are served"):
            analyse([write(tmp_path / "t.jsonl", [])])

    def test_no_file_at_all(self) -> None:
        with pytest.raises(TraceError, match="no trace was named"):
            analyse([])

    def test_one_step(self, tmp_path: Path) -> None:
        findings = found(write(tmp_path / "t.jsonl", [step([3], [1], t_ms=10.0)]))
        assert findings.overview.steps == 1
        assert findings.advice.verdict in ("undecided", "nothing")

    def test_no_times(self, tmp_path: Path) -> None:
        """Nothing is judged; acceptance is there all the same."""
        findings = found(write(tmp_path / "t.jsonl", [step([3, 3], [1, 2], elapsed_ms=None)] * 200))
        assert findings.advice.verdict == "nothing"
        assert findings.overview.tokens_per_s is None
        assert findings.acceptance[0].ratio.value == pytest.approx(1.0)
        assert [each.what for each in findings.dropped] == ["no time"]

    def test_only_prompts(self, tmp_path: Path) -> None:
        rows = [step([0], emitted=[0], prefill_tokens=100, decodes=0)] * 50
        findings = found(write(tmp_path / "t.jsonl", rows))
        assert findings.advice.verdict == "nothing"
        assert [each.kind for each in findings.time] == ["prefill"]

    def test_prompts_in_every_step(self, tmp_path: Path) -> None:
        """Where no step is without a prompt, the prompts' share is taken off: 10 ms stay of 10 + 0.1 per token."""
        rows = [step([3] * 4, [1, 2, 3, 0], prefill_tokens=p, elapsed_ms=10.0 + 0.1 * p) for p in (50, 100, 150, 200)]
        findings = found(write(tmp_path / "t.jsonl", rows * 80))
        cell = next(cell for cell in findings.cells if cell.k == 3)
        assert cell.itl_ms.value == pytest.approx(10.0, rel=0.02)
        assert "their share taken off" in findings.advice.rests_on[0]

    def test_numbers_that_are_none(self, tmp_path: Path) -> None:
        rows = [step([3], [1], elapsed_ms=ms, t_ms=math.nan) for ms in (math.nan, math.inf, -1.0, 1e-30, 10.0)] * 20
        findings = found(write(tmp_path / "t.jsonl", rows))
        assert findings.sources[0].span_s is None
        assert findings.timelines[0].clock is False

    def test_huge_numbers(self, tmp_path: Path) -> None:
        row = step([3], [1], context_tokens=10**11, prefill_tokens=10**11, k=10**11)
        assert found(write(tmp_path / "t.jsonl", [row] * 60)).overview.steps == 60

    def test_more_drafts_than_the_arms_name(self, tmp_path: Path) -> None:
        """K=5 was played, the header names 0, 1 and 3."""
        writer = TraceWriter(tmp_path / "t.jsonl", {"mode": "shadow", "arms": [0, 1, 3]})
        for _ in range(200):
            writer.write(step([5, 5], [2, 5], k=5))
        writer.close(10.0)
        findings = found(tmp_path / "t.jsonl")
        assert findings.advice.schedule_now[0][2] == 5
        assert (5, 200) in findings.overview.played

    def test_rows_without_requests_count_as_none(self, tmp_path: Path) -> None:
        rows = [step([], [], batch_size=0), *[step([3], [1])] * 3]
        assert found(write(tmp_path / "t.jsonl", rows)).overview.steps == 3


class TestDamage:
    def test_a_file_cut_off_within_its_gzip_data(self, tmp_path: Path) -> None:
        plain = write(tmp_path / "t.jsonl", [step([3], [1])] * 3000)
        packed = tmp_path / "t.jsonl.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes())[:-300])
        findings = found(packed)
        assert 0 < findings.overview.steps < 3000
        assert any("1 row is cut off" in each for each in findings.notes)

    def test_a_last_line_cut_off(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.jsonl", [step([3], [1])] * 50)
        path.write_bytes(path.read_bytes()[:-20])
        findings = found(path)
        assert findings.overview.steps == 49
        assert any("1 row is cut off at the end of a file" in each for each in findings.notes)

    def test_a_clock_that_goes_back(self, tmp_path: Path) -> None:
        """Time is counted by the steps instead."""
        rows = [step([3], [1], t_ms=t) for t in (10.0, 20.0, 15.0, 25.0)]
        findings = found(write(tmp_path / "t.jsonl", rows))
        assert findings.sources[0].clock_back == 1
        assert findings.timelines[0].clock is False
        assert findings.timelines[0].bins[-1].end_s == pytest.approx(0.04)

    def test_a_restart_within_the_file(self, tmp_path: Path) -> None:
        rows = [(step([3], [1]), decision(3, seq=seq)) for seq in (0, 1, 2, 0, 1)]
        findings = found(write(tmp_path / "t.jsonl", rows))
        assert findings.sources[0].restarts == 1
        assert any("began anew 1 times" in each for each in findings.notes)

    def test_lost_rows_leave_the_step_behind_them_out(self, tmp_path: Path) -> None:
        rows = [(step([3], [1]), decision(3, seq=seq)) for seq in (0, 1, 5, 6)]
        dropped = {each.what: each.number for each in found(write(tmp_path / "t.jsonl", rows)).dropped}
        assert dropped == {"the step before is not in the file": 2}


class TestSeveral:
    def test_traces_of_two_ranks_are_taken_together(self, tmp_path: Path) -> None:
        one, other = (shadow(tmp_path / f"{seed}.jsonl", seed, steps=400) for seed in (0, 1))
        findings = analyse([one.path, other.path], one.table, simulate=False)
        assert [source.steps for source in findings.sources] == [400, 400]
        assert findings.overview.steps == 800
        assert [timeline.source for timeline in findings.timelines] == [0, 1]
        assert sum(each.steps for each in findings.advice.ranges) == 800

    def test_one_file_twice(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.jsonl", [step([3], [1])])
        with pytest.raises(TraceError, match="is given twice: name each trace once"):
            analyse([path, path])

    def test_different_engines_are_refused(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            TraceWriter(tmp_path / name, {"key": {"device": name}}).close()
        with pytest.raises(
            TraceError, match=r"of another set-up than the files before \(device: 'a' before it, 'b' in"
        ):
            analyse([tmp_path / "a", tmp_path / "b"])


class TestWhatHappened:
    def test_steps_switches_reasons_and_modes(self, tmp_path: Path) -> None:
        """In shadow another K is decided than played; without a header that says so, the rows do."""
        rows = [(step([3], [1], t_ms=10.0 * n), decision(1, seq=n, reason=Reason.EXPLORE)) for n in range(50)]
        rows += [(step([1], [1], k=1, t_ms=510.0 + 10.0 * n), decision(0, seq=50 + n)) for n in range(50)]
        findings = found(write(tmp_path / "t.jsonl", rows))
        assert findings.sources[0].mode == "shadow"
        assert findings.overview.switches == 1
        assert findings.overview.played == [(1, 50), (3, 50)]
        assert findings.overview.chosen == [(0, 50), (1, 50)]
        assert {each.what: each.number for each in findings.overview.reasons} == {"exploit": 50, "explore": 50}
        assert findings.ledger.explored_steps == 50
        assert findings.ledger.cost_s is None
        assert sum(each.steps for each in findings.timelines[0].bins) == 100
        assert findings.timelines[0].bins[0].played == [0, 0, 0, findings.timelines[0].bins[0].steps]
        assert findings.sources[0].span_s == pytest.approx(1.01)
        idle = next(each for each in findings.time if each.kind == "idle")
        assert idle.seconds == pytest.approx(0.02 - 0.01)

    def test_acceptance_by_position(self, tmp_path: Path) -> None:
        findings = found(write(tmp_path / "t.jsonl", [step([3, 3, 3, 3], [0, 1, 2, 3])] * 100))
        assert [(each.reached, each.accepted) for each in findings.acceptance] == [(400, 300), (300, 200), (200, 100)]
        assert findings.acceptance[1].ratio.value == pytest.approx(2 / 3)

    def test_what_exploring_took(self, tmp_path: Path) -> None:
        """Visits of K=0, where a step takes as long and gives a token less than at K=3 with one of three accepted."""
        rows = []
        for n in range(400):
            k = 0 if n % 40 >= 36 else 3
            before = 0 if (n - 1) % 40 >= 36 else 3
            row = step([before], [before // 3], k=k, elapsed_ms=10.0)
            rows.append((row, decision(k, (0, 3), seq=n, reason=Reason.EXPLORE if k == 0 else Reason.EXPLOIT)))
        ledger = found(write(tmp_path / "t.jsonl", rows)).ledger
        assert ledger.explored_steps == 40
        assert ledger.explored_s == pytest.approx(0.39)
        assert ledger.cost_s == pytest.approx(0.39 * 0.5, rel=0.15)


class TestLastingChange:
    def test_only_what_came_after_it_counts(self, tmp_path: Path) -> None:
        """Acceptance falls from two of three to none: the sentence is about the second half, and says so."""
        rows = [step([3] * 4, [2, 1, 3, 2])] * 800 + [step([3] * 4, [0, 0, 0, 0])] * 800
        findings = found(write(tmp_path / "t.jsonl", rows))
        assert any("Acceptance changed by" in each and "step 80" in each for each in findings.advice.caveats)
        assert next(cell for cell in findings.cells if cell.k == 3).acceptance_length.value == pytest.approx(
            1, abs=0.05
        )

    @pytest.mark.parametrize(("ranks", "changed"), [((0, 1), False), ((0, 0), True)])
    def test_a_rank_that_is_slower_is_none(self, tmp_path: Path, ranks: tuple[int, int], changed: bool) -> None:
        """Two ranks ran side by side; two files of one rank followed each other."""
        paths = [tmp_path / "0.jsonl", tmp_path / "1.jsonl"]
        for path, rank, ms in zip(paths, ranks, (10.0, 12.0), strict=True):
            writer = TraceWriter(path, {"rank": rank, "k_max": 3})
            for _ in range(600):
                writer.write(step([3] * 4, [2, 1, 3, 2], elapsed_ms=ms))
            writer.close(10.0)
        findings = analyse(paths, simulate=False)
        told = [each for each in findings.advice.caveats if "changed by +18 % at step 1 of 1.jsonl" in each]
        assert len(told) == changed


class TestInterrupt:
    def test_while_reading(self, tmp_path: Path) -> None:
        """What was read by then is judged."""
        path = write(tmp_path / "t.jsonl", [step([3], [1])] * 2000)

        def stop(stage: str, share: float) -> None:
            if share > 0.2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            analyse([path], simulate=False, progress=lambda stage, share: stop(stage, 1.0))
        findings = analyse(
            [path], simulate=False, progress=lambda stage, share: stop(stage, share * (stage == "reading"))
        )
        assert findings.cut_short
        assert 0 < findings.overview.steps < 2000

    def test_progress_rises_to_one(self, tmp_path: Path) -> None:
        seen: list[float] = []
        analyse([write(tmp_path / "t.jsonl", [step([3], [1])] * 2000)], simulate=False,
                progress=lambda _, share: seen.append(share))  # fmt: skip
        assert seen == sorted(seen)
        assert seen[-1] == 1.0


class TestHeader:
    def test_of_an_older_version(self) -> None:
        """Nothing but what every header has."""
        header = read_header({"schema_version": 1, "kind": "adaptk-trace", "source": "adaptk demo"})
        assert (header.mode, header.arms, header.schedule, header.seed_table, header.trusted) == (
            None,
            (),
            None,
            None,
            1,
        )

    def test_a_table_in_it_is_the_seed(self, tmp_path: Path) -> None:
        """What the engine started from is judged against without being given again."""
        recorded = shadow(tmp_path / "t.jsonl", 0)
        rows = [{"batch": row.batch, "k": row.k, "itl_ms": row.itl_ms} for row in recorded.table.rows]
        seed = {"rows": rows, "acceptance": list(recorded.table.acceptance or ())}
        header = {"mode": "shadow", "arms": [0, 1, 3], "schedule": [[1, 512, 3]], "seed_table": seed}
        writer = TraceWriter(tmp_path / "u.jsonl", header)
        for row in recorded.run.rows:
            writer.write(row.step)
        writer.close(10.0)
        told = analyse([tmp_path / "u.jsonl"], simulate=False)
        given = analyse([recorded.path], recorded.table, simulate=False)
        assert told.advice.ranges == given.advice.ranges

    @pytest.mark.parametrize("field", ["arms", "schedule", "seed_table", "key", "k_max", "mode", "table"])
    @pytest.mark.parametrize("value", [7, "x", [1], {"rows": 3}, [[1, 2]], None, True, [-1], {"rows": [{"batch": 0}]}])
    def test_nonsense_is_left_out(self, field: str, value: Any) -> None:
        read_header({field: value})


class TestCorrectedTable:
    def test_it_is_what_the_traces_say(self, tmp_path: Path) -> None:
        recorded = shadow(tmp_path / "t.jsonl", 0)
        rows = [{"batch": row.batch, "k": row.k, "itl_ms": 1.3 * row.itl_ms} for row in recorded.table.rows]
        off = GoodputTable.from_rows(rows, recorded.table.acceptance)
        corrected = analyse_with_table([recorded.path], off, simulate=False).corrected
        assert corrected is not None
        assert corrected.itl_ms(16, 3) == pytest.approx(recorded.table.itl_ms(16, 3), rel=0.05)

    def test_it_names_the_engine_of_the_trace(self, tmp_path: Path) -> None:
        """So that it is refused elsewhere; a table of another engine, corrected here, stays that engine's."""
        trace = tmp_path / "t.jsonl"
        key = {"model": "m", "device": "d"}
        writer = TraceWriter(trace, {"arms": [0, 3], "key": key})
        for _ in range(30):
            writer.write(step([3, 3], [1, 1]))
        writer.close(60.0)
        corrected = analyse_with_table([trace], simulate=False).corrected
        assert corrected is not None
        assert corrected.key == key
        rows = [{"batch": 2, "k": k, "itl_ms": 20.0} for k in (0, 3)]
        foreign = GoodputTable.from_rows(rows, meta={"key": {"device": "other"}})
        corrected = analyse_with_table([trace], foreign, simulate=False).corrected
        assert corrected is not None
        assert corrected.key == {"device": "other"}


class TestJson:
    def test_made_up_findings_come_back(self) -> None:
        assert from_json(to_json(made_up())) == made_up()

    @pytest.mark.parametrize(
        "text", ["", "{}", "[]", to_json(made_up()).replace(b'"schema_version": 1', b'"schema_version": 2')]
    )
    def test_what_is_none_is_refused(self, text: str | bytes) -> None:
        with pytest.raises(ValueError, match="findings"):
            from_json(text)
