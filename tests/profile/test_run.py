"""Whole profiles of an engine that is none."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from adaptk import GoodputTable
from adaptk.profile.journal import Journal, JournalError, read_journal
from adaptk.profile.orders import EngineDiedError
from adaptk.profile.run import journal_path
from adaptk.table import TableError
from tests.profile.fakeengine import ACCEPTANCE, INFO, KEY, PLAN, PROMPTS, Silent, profile, request, true_ms


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
        "context 4000: max_model_len 2048 is too short for it, left out",
    ]
    table = GoodputTable.load(out)
    assert {(row.batch, row.context) for row in table.rows} == {(1, 128.0), (16, 128.0), (1, 1800.0)}
    nothing, _ = profile(request(out.with_name("u.json"), plan=plan._replace(batches=(64,))))
    with pytest.raises(ValueError, match="name smaller --batches"):
        nothing.run()


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
        ("", "does not begin as the journal"),
        ("{}\n", "line 1: is no entry"),
        ("[1]\n", "line 1: is no entry"),
        ('{"type":"visited","visit":1,"blocks":[],"seconds":1.0}\n', "does not begin as the journal"),
        ("not json\n", "line 1: is no entry"),
        ("no newline", "does not begin as the journal"),
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
