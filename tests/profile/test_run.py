"""Whole profiles of an engine that is none."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from adaptk import GoodputTable
from adaptk.profile.allocate import Allocator
from adaptk.profile.entries import Answers
from adaptk.profile.estimate import Block, Group
from adaptk.profile.journal import Journal, JournalError, read_journal
from adaptk.profile.orders import EngineDiedError
from adaptk.profile.run import Profile, journal_path
from adaptk.table import TableError
from tests.profile.fakeengine import ACCEPTANCE, INFO, KEY, PLAN, PROMPTS, Silent, profile, request, true_ms


def entries(out: Path, kind: str) -> list[Answers]:
    """The answers of a journal."""
    lines = journal_path(out).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Answers) for line in lines if f'"type":"{kind}"'.encode() in line]


def allocator_of(made: Profile) -> Allocator:
    assert made._session is not None
    assert made._session.allocator is not None
    return made._session.allocator


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "t.json"


def test_the_table_is_what_the_engine_is(out: Path) -> None:
    """Times within a percent or two of the formula, acceptance with its counts, the key, and the right choice of K."""
    made, engines = profile(request(out))
    made.run()
    table = GoodputTable.load(out)
    assert table == made.table
    assert table.key == KEY
    assert table.contexts == (128.0, 512.0)
    assert {(row.batch, row.k) for row in table.rows} == {(b, k) for b in (1, 4, 16) for k in (0, 1, 3)}
    for row in table.rows:
        assert row.itl_ms == pytest.approx(true_ms(row.batch, row.k, row.context or 0.0), rel=0.02)
        assert row.low_ms is not None
        assert row.high_ms is not None
        assert row.low_ms < row.itl_ms < row.high_ms
        assert row.n is not None
        assert row.n >= 3 * 8
        assert row.graph_mode == "NONE"
    assert table.acceptance == pytest.approx([ACCEPTANCE] * 3, abs=0.06)
    assert table.acceptance_counts is not None
    assert table.supply is None
    assert (table.best_k(1), table.best_k(16)) == (3, 0)
    provenance = table.meta["provenance"]
    assert provenance["prompts"] == engines[0].answers[-1].last <= len(PROMPTS)
    assert "every interval is within 3 %" in provenance["ended"]
    assert "18 of 18 cells measured" in made.summary
    assert engines[0].closed


def test_drafts_that_are_not_found_go_into_supply_and_stays(out: Path) -> None:
    """A drafter that finds a draft in two of five steps is measured with as many, and the table says so."""
    made, engines = profile(request(out), supply=0.4)
    made.run()
    assert made.table is not None
    assert made.table.supply == pytest.approx([0.4] * 3, abs=0.05)
    assert made.table.acceptance == pytest.approx([0.4 * ACCEPTANCE, ACCEPTANCE, ACCEPTANCE], abs=0.06)
    assert engines[0].stays[0].supply == pytest.approx(made.table.supply, abs=1e-5)


@pytest.mark.parametrize("stays", [1, 4, 9])
def test_an_interrupt_keeps_what_was_measured_and_resuming_goes_on(out: Path, stays: int) -> None:
    """The table holds the stays that ended; resumed, nothing is measured twice that was enough."""

    def interrupt(done: int) -> None:
        if done == stays + 1:
            raise KeyboardInterrupt

    made, engines = profile(request(out), after=interrupt)
    with pytest.raises(KeyboardInterrupt):
        made.run()
    assert engines[0].closed
    table = GoodputTable.load(out)
    assert table.meta["provenance"]["ended"] == "cut short"
    before = read_journal(journal_path(out))
    assert len(before.visits) == stays
    again, more = profile(request(out, resume=True))
    again.run()
    whole = GoodputTable.load(out)
    assert len(whole.rows) == 18
    assert min(order.visit for order in more[0].stays) >= stays
    after = read_journal(journal_path(out))
    assert after.visits[:stays] == before.visits
    assert sum(row.n or 0 for row in whole.rows) == sum(len(b.ms) for v in after.visits for b in v.blocks)
    assert more[0].answers == []  # the acceptance was known well enough


SCRIPT = """
import os, signal, sys
from pathlib import Path
from tests.profile.fakeengine import profile, request
stays = int(sys.argv[2])
made, _ = profile(request(Path(sys.argv[1])), after=lambda n: n == stays and os.kill(os.getpid(), signal.SIGKILL))
made.run()
"""


@pytest.mark.parametrize("stays", [1, 3, 7])
def test_sigkill_leaves_a_journal_that_resumes(out: Path, stays: int) -> None:
    """Killed within a stay, with a line cut off besides: all finished stays are there, and the table is whole."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(out), str(stays)],
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL
    with journal_path(out).open("ab") as file:
        file.write(b'{"type":"visited","visit":99,"blo')
    assert len(read_journal(journal_path(out)).visits) == stays - 1
    assert out.exists() == (stays > 1)
    again, _ = profile(request(out, resume=True))
    again.run()
    assert len(GoodputTable.load(out).rows) == 18
    read_journal(journal_path(out))


def test_an_engine_killed_at_a_cell_that_went_well_is_tried_again_once(out: Path) -> None:
    """Somebody else's doing does not cost the cell; a second death at it does, and what it gave stays in the table."""
    made, _ = profile(request(out), dies_after=8)
    with pytest.raises(EngineDiedError):
        made.run()
    died = read_journal(journal_path(out)).deaths[0]
    again, _ = profile(request(out, resume=True))
    again.run()
    assert allocator_of(again).left_out == ()
    with Journal(journal_path(out), resume=True) as journal:
        journal.write(died)
    third, _ = profile(request(out, resume=True))
    third.run()
    assert (Group(died.batch, died.context), died.k) in allocator_of(third).left_out
    assert len(GoodputTable.load(out).rows) == 18


def test_two_deaths_in_the_answers_leave_them_out(out: Path) -> None:
    """Times alone are better than nothing; the table says that acceptance is unknown."""
    for resume in (False, True):
        made, _ = profile(request(out, resume=resume), answers=False)
        with pytest.raises(EngineDiedError):
            made.run()
    made, _ = profile(request(out, resume=True), answers=False)
    made.run()
    table = GoodputTable.load(out)
    assert table.acceptance is None
    assert len(table.rows) == 18
    assert any("two engines died in the answers" in note for note in table.meta["provenance"]["notes"])


def test_unknown_supply_is_timed_with_all_drafts(out: Path) -> None:
    """A made-up context would give any number of drafts: the worst case is at least a case."""
    made, engines = profile(request(out), supply=0.0)
    made.run()
    assert made.table is not None
    assert made.table.acceptance == (0.0, 0.0, 0.0)
    assert made.table.supply == (0.0, 0.0, 0.0)
    assert engines[0].stays[0].supply == (0.0, 0.0, 0.0)
    plan = PLAN._replace(max_tokens=0)
    made, engines = profile(request(out.with_name("u.json"), plan=plan))
    made.run()
    assert engines[0].stays[0].supply == (1.0, 1.0, 1.0)
    assert "steps were timed with all their drafts" in " ".join(made.notes)


def test_the_first_answers_are_not_counted(out: Path) -> None:
    """An engine's first steps compile: they neither use up the time nor the prompts."""
    made, engines = profile(request(out))
    made.run()
    warm_up, first, *_ = engines[0].answers
    assert (warm_up.max_tokens, warm_up.first) == (8, 0)
    assert (first.max_tokens, first.first) == (64, 0)
    assert len(entries(out, "answers")) == len(engines[0].answers) - 1


def test_one_profile_at_a_time(out: Path) -> None:
    """A second one with the same journal is refused; a dead one's lock is gone with it."""
    profile(request(out))[0].run()
    before = journal_path(out).read_bytes()
    with Journal(journal_path(out), resume=True):
        made, engines = profile(request(out, resume=True))
        with pytest.raises(JournalError, match="another adaptk profile is writing it"):
            made.run()
        assert engines == []
    assert journal_path(out).read_bytes() == before
    profile(request(out, resume=True))[0].run()


@pytest.mark.parametrize("left", [b"", b'{"type":"began","argum'])
@pytest.mark.parametrize("resume", [True, False])
def test_a_kill_while_the_engine_starts_is_no_dead_end(out: Path, left: bytes, resume: bool) -> None:
    """A journal without a whole line counts as none."""
    journal_path(out).write_bytes(left)
    profile(request(out, resume=resume))[0].run()
    assert len(GoodputTable.load(out).rows) == 18
    read_journal(journal_path(out))


def test_resuming_keeps_grid_and_arms_unless_others_are_named(out: Path) -> None:
    """And what was measured beside a new grid stays in the table."""
    plan = PLAN._replace(batches=(1, 4), contexts=(128,), budget_s=8.0)
    made, _ = profile(request(out, plan=plan, engine=request(out).engine._replace(arms=(0, 3))), arms=(0, 3))
    made.run()
    open_plan = plan._replace(batches=None, contexts=None, budget_s=9.0)
    again, engines = profile(request(out, resume=True, plan=open_plan))
    again.run()
    assert {(g.batch, g.context) for g in allocator_of(again).grid} == {(1, 128), (4, 128)}
    assert engines[0].order.arms == (0, 3)
    other, _ = profile(request(out, resume=True, plan=plan._replace(batches=(16,), budget_s=30.0)))
    other.run()
    assert {row.batch for row in GoodputTable.load(out).rows} == {1, 4, 16}


def test_a_spent_budget_is_known_before_the_engine_starts(out: Path) -> None:
    """The budget is of all runs together."""
    plan = PLAN._replace(budget_s=5.0, target=0.001)
    profile(request(out, plan=plan))[0].run()
    made, engines = profile(request(out, resume=True, plan=plan._replace(budget_s=1.0)))
    with pytest.raises(ValueError, match="--budget is 1 s for all runs together"):
        made.run()
    assert engines == []


def test_no_secret_and_no_folder_reaches_a_file(out: Path) -> None:
    """Keys and tokens stand in neither file, folders not in the table; the journal is the owner's alone."""
    arguments = ("/home/me/models/m", "--api-key", "SECRET1", "--hf-token=SECRET2", "--port", "80")
    asked = request(out, engine=request(out).engine._replace(arguments=arguments), command=("adaptk", *arguments))
    profile(asked)[0].run()
    journal, table = journal_path(out).read_text(), out.read_text()
    assert "SECRET" not in journal + table
    assert "/home/me" not in table
    assert GoodputTable.load(out).meta["provenance"]["command"] == "adaptk m --api-key ... --hf-token=... --port 80"
    assert read_journal(journal_path(out)).began.arguments == ("/home/me/models/m", "--port", "80")
    assert journal_path(out).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("visited", {"visit": 10**30}, ""),
        ("visited", {"seconds": -1.0}, "visit or seconds are impossible"),
        ("visited", {"block": {"mean_context": 1e308}}, "a time or a width is impossible"),
        ("visited", {"block": {"widths": [1.0]}}, "times and widths differ in number"),
        ("visited", {"block": {"batch": 0}}, "batch or k is impossible"),
        ("visited", {"block": {"visit": 99}}, "a block is of another visit"),
        ("answers", {"last": -5}, "first and last"),
        ("answers", {"counts": {"tried": [-1, 5, 5]}}, "the counts are impossible"),
        ("answers", {"counts": {"tried": [5]}}, "the counts differ in length"),
        ("answers", {"seconds": 1e300}, "seconds are impossible"),
        ("answers", {"counts": {"requests": [[[1, 2, 3, 4, 5], [1]], [[], []]]}}, "a request has more positions"),
        ("visited", {"block": {"ms": [1e-300], "widths": [1.0]}}, "a time is impossible"),
    ],
)
def test_hostile_lines_are_refused_by_number(out: Path, kind: str, change: dict[str, object], message: str) -> None:
    """With what of the file can be kept."""
    profile(request(out))[0].run()
    lines = journal_path(out).read_bytes().splitlines()
    at = next(i for i, line in enumerate(lines) if msgspec.json.decode(line)["type"] == kind)
    entry = msgspec.json.decode(lines[at])
    for name, value in change.items():
        if name == "block":
            assert isinstance(value, dict)
            fields = dict(zip(Block._fields, entry["blocks"][0], strict=True)) | value
            entry["blocks"][0] = list(fields.values())
        elif isinstance(value, dict):
            entry[name] |= value
        else:
            entry[name] = value
    lines[at] = msgspec.json.encode(entry)
    journal_path(out).write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(
        JournalError, match=f"line {at + 1}: is no entry of a journal.*{message}.*head -n {at}|{message}"
    ):
        read_journal(journal_path(out))


def test_an_engine_that_dies_at_an_arm(out: Path) -> None:
    """What was measured is kept, the journal says what it died of, and resuming leaves out what needs as much."""
    made, engines = profile(request(out), dies_at=3)
    with pytest.raises(EngineDiedError, match="the fake died"):
        made.run()
    assert engines[0].closed
    died = read_journal(journal_path(out)).deaths[0]
    assert (died.k, died.batch) == (3, engines[0].stays[0].batch)
    assert any("died at K=3" in note for note in made.notes)
    again, engines = profile(request(out, resume=True), dies_at=3)
    again.run()
    assert 3 not in {k for order in engines[0].stays for k in order.order if order.batch >= died.batch}
    assert {row.k for row in GoodputTable.load(out).rows} == {0, 1}


def test_the_price_of_a_drafter(out: Path) -> None:
    """The engine without one is measured afterwards, on the same grid, and the fake's tenth is found."""
    made, engines = profile(request(out, baseline=True))
    made.run()
    assert [engine.closed for engine in engines] == [True, True]
    assert {tax.batch for tax in made.taxes} == {1, 4, 16}
    for tax in made.taxes:
        assert tax.ratio == pytest.approx(1 / 0.9, rel=0.03)
        assert tax.low is not None
        assert tax.high is not None
        assert tax.low < 1 / 0.9 < tax.high or tax.ratio == pytest.approx(1 / 0.9, rel=0.01)
    baseline = GoodputTable.load(out).meta["baseline"]
    assert {row["context"] for row in baseline["rows"]} == {128.0, 512.0}
    again, engines = profile(request(out, baseline=True, resume=True))
    again.run()
    assert len(again.taxes) == len(made.taxes)
    assert sum(len(engine.stays) for engine in engines) < 10  # all was known
    without, engines = profile(request(out, resume=True, plan=PLAN._replace(budget_s=90.0)))
    without.run()
    assert len(engines) == 1
    assert GoodputTable.load(out).meta["baseline"]["rows"] == baseline["rows"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"engine": {"prompts": ("others",)}}, "--prompts are others"),
        ({"engine": {"temperature": 1.0}}, "--temperature is 1.0, was 0.0"),
        ({"plan": {"max_tokens": 7}}, "--max-tokens is 7, was 64"),
    ],
)
def test_another_question_cannot_be_resumed(out: Path, change: dict[str, dict[str, object]], message: str) -> None:
    """Counts of different answers are not added up."""
    profile(request(out))[0].run()
    asked = request(out, resume=True)
    for part, fields in change.items():
        asked = asked._replace(**{part: getattr(asked, part)._replace(**fields)})
    with pytest.raises(ValueError, match=message):
        profile(asked)[0].run()


def test_another_engine_cannot_be_resumed(out: Path) -> None:
    """Its key is compared, and the journal stays as it was."""
    profile(request(out))[0].run()
    before = journal_path(out).read_bytes()
    made, engines = profile(request(out, resume=True), info=INFO._replace(key={**KEY, "device": "H100"}))
    with pytest.raises(ValueError, match="device: 'none' in the table, 'H100' here"):
        made.run()
    assert engines[0].closed
    assert journal_path(out).read_bytes() == before


def test_a_second_run_does_not_overwrite_the_first(out: Path) -> None:
    """The journal is there already."""
    profile(request(out))[0].run()
    with pytest.raises(JournalError, match="exists already: go on with --resume"):
        profile(request(out))[0].run()


def test_an_engine_that_does_not_start_leaves_nothing(out: Path) -> None:
    """So that the next try is not told of a run that never was."""

    def refuse(order: object) -> None:
        raise EngineDiedError("no such model")

    made, _ = profile(request(out))
    made._start = refuse  # type: ignore[assignment]
    with pytest.raises(EngineDiedError):
        made.run()
    assert list(out.parent.iterdir()) == []


def test_nothing_to_resume(out: Path) -> None:
    """Said before an engine is started."""
    made, engines = profile(request(out, resume=True))
    with pytest.raises(JournalError, match="there is nothing to resume"):
        made.run()
    assert engines == []


def test_a_journal_that_cannot_be_read_is_not_called_missing(tmp_path: Path) -> None:
    """Nobody is told that there is nothing to resume where there is something."""
    with pytest.raises(JournalError, match=r"is no regular file: check the path") as error:
        read_journal(tmp_path)
    assert "nothing to resume" not in str(error.value)
    with pytest.raises(JournalError, match="there is nothing to resume"):
        read_journal(tmp_path / "none.jsonl")


def test_an_unwritable_folder_is_known_before_the_engine_starts(tmp_path: Path) -> None:
    """Opening the journal is the first thing that happens."""
    made, engines = profile(request(tmp_path / "missing" / "t.json"))
    with pytest.raises(JournalError, match="cannot be written"):
        made.run()
    assert engines == []


@pytest.mark.parametrize("after", [2, 5])
def test_a_full_disk_ends_it_and_keeps_what_was_written(out: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the journal: a clear word; what it and the table held before is sound, and can be resumed."""
    written = 0
    real = Journal.write

    def write(self: Journal, entry: object) -> None:
        nonlocal written
        written += 1
        if written > after:
            self._file.write(b'{"type":"visi')  # what fits
            self._file.flush()
            raise JournalError(f"{self.path}: cannot be written (no space left): make room, then go on with --resume")
        real(self, entry)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", write)
        with pytest.raises(JournalError, match="make room"):
            profile(request(out))[0].run()
    read_journal(journal_path(out))
    profile(request(out, resume=True))[0].run()
    assert len(GoodputTable.load(out).rows) == 18


def test_a_table_that_cannot_be_written_ends_it(out: Path) -> None:
    """The journal has everything even so."""
    out.mkdir()
    made, engines = profile(request(out))
    with pytest.raises(TableError, match="cannot be written"):
        made.run()
    assert engines[0].closed
    assert read_journal(journal_path(out)).visits


def test_what_does_not_fit_is_left_out_with_a_word(out: Path) -> None:
    """Batches above the engine's limit, contexts above its cache or its length."""
    plan = PLAN._replace(batches=(1, 16, 64), contexts=(128, 1800, 4000))
    watcher = Silent()
    made, _ = profile(request(out, plan=plan), watcher, info=INFO._replace(kv_tokens=8_000))
    made.run()
    assert watcher.lines == [
        "batch 64: above max_num_seqs 16, left out",
        "context 1800, batch 16: more than the 8000 tokens of KV cache, left out",
        watcher.lines[2],
    ]
    assert re.fullmatch(r"context 4000: needs max_model_len 4\d\d\d, it is 2048, left out", watcher.lines[2])
    table = GoodputTable.load(out)
    assert {(row.batch, row.context) for row in table.rows} == {(1, 128.0), (16, 128.0), (1, 1800.0)}
    nothing, engines = profile(request(out.with_name("u.json"), plan=plan._replace(batches=(64,))))
    with pytest.raises(ValueError, match="nothing that was asked for fits this engine") as refused:
        nothing.run()
    assert "batch 64: above max_num_seqs 16" in str(refused.value)
    assert engines[0].answers == []


def test_a_short_engine_gets_short_answers(out: Path) -> None:
    """Half of its length is left to prompts; one that is too short for anything is refused by name."""
    made, engines = profile(request(out, plan=PLAN._replace(contexts=(64,))), info=INFO._replace(max_model_len=400))
    made.run()
    assert {order.max_tokens for order in engines[0].answers[1:]} == {64}
    made, engines = profile(request(out.with_name("u.json"), plan=PLAN._replace(contexts=(32,), max_tokens=300)),
                            info=INFO._replace(max_model_len=400))  # fmt: skip
    made.run()
    assert {order.max_tokens for order in engines[0].answers[1:]} == {195}
    assert "answers were cut at 195 tokens, as max_model_len is 400" in made.notes


def test_a_budget_is_kept(out: Path) -> None:
    """Twelve seconds on the fake's clock are enough for a look at everything; none is spent beyond."""
    made, engines = profile(request(out, plan=PLAN._replace(budget_s=12.0, target=0.001)))
    made.run()
    spent = sum(visit.seconds for visit in read_journal(journal_path(out)).visits)
    assert 6.0 < spent < 12.5
    assert len(engines[0].stays) >= 6
    assert len(GoodputTable.load(out).rows) == 18


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "nothing was measured yet"),
        ("{}\n", "line 1: is no entry"),
        ("[1]\n", "line 1: is no entry"),
        ('{"type":"visited","visit":1,"blocks":[],"seconds":1.0}\n', "does not begin as the journal"),
        ("not json\n", "line 1: is no entry"),
        ("no newline", "nothing was measured yet"),
    ],
)
def test_files_that_are_no_journals(out: Path, text: str, message: str) -> None:
    """Refused with the line."""
    journal_path(out).write_text(text)
    with pytest.raises(JournalError, match=message):
        read_journal(journal_path(out))


def test_a_journal_of_another_version(out: Path) -> None:
    """Refused by its number."""
    profile(request(out))[0].run()
    first, _, rest = journal_path(out).read_bytes().partition(b"\n")
    entry = msgspec.json.decode(first)
    entry["schema_version"] = 99
    journal_path(out).write_bytes(msgspec.json.encode(entry) + b"\n" + rest)
    with pytest.raises(JournalError, match="schema_version is 99"):
        read_journal(journal_path(out))
