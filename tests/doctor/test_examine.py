"""All checks together, and the sentence at their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from adaptk import GoodputTable
from adaptk.doctor import examine, installation
from adaptk.doctor.examine import Report
from adaptk.doctor.facts import Facts, Options, Outcome, Question
from adaptk.settings import Mode, Settings
from adaptk.statefile import State, state_bytes
from tests.doctor.made import GPU, KEY, STARTS, by_id, made_engine, made_facts

FAILS = Outcome(active=False, reason="kv_role is kv_producer")


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """adaptk and vLLM are installed, whatever is here."""
    from importlib.metadata import EntryPoint

    ours = EntryPoint("adaptk", installation.ENTRY, installation.GROUP)
    monkeypatch.setattr(installation, "entry_points", lambda group: (ours,))
    monkeypatch.setattr(installation, "_stale", lambda: ())
    monkeypatch.setattr(examine, "find_spec", lambda name: object())


def look(facts: Facts, *arguments: str, table: str | None = None, asked: list[Question] | None = None,
         **env: str) -> Report:  # fmt: skip
    def ask(question: Question, _: Any) -> Facts:
        if asked is not None:
            asked.append(question)
        return facts

    return examine.examine(arguments, env, table, asking=ask)


def failed(report: Report) -> list[str]:
    return [finding.id for finding in report.findings if finding.status == "fail"]


@pytest.mark.parametrize(
    ("facts", "env", "sentence"),
    [
        (made_facts(), {"ADAPTK": "on"}, "Started now, adaptk would choose K from 0, 1, 3, 7 at every step, starting "
         "without a table."),
        (made_facts(), {}, "Started now, vLLM would serve without adaptk; with ADAPTK=on it would choose K from 0, 1, "
         "3, 7 at every step, starting without a table."),
        (Facts(installed=GPU, options=Options(mode="on"), engine=made_engine()), {}, "Started now, adaptk would"),
        (Facts(installed=GPU, fault="KeyError: x"), {}, "What would happen with these arguments cannot be told."),
        (made_facts(settings=Settings(mode="shadow")), {"ADAPTK": "shadow"}, "Started now, adaptk would decide among K "
         "= 0, 1, 3, 7 and record it, starting without a table, while vLLM plays its own K."),
        (Facts(installed=GPU), {"ADAPTK": "on"}, "adaptk can enter this vLLM; name MODEL"),
    ],
)  # fmt: skip
def test_where_all_is_well(facts: Facts, env: dict[str, str], sentence: str) -> None:
    """What would happen is said in one sentence, and no status is one of failure."""
    report = look(facts, **env)
    assert failed(report) == []
    assert report.verdict.startswith(sentence)
    assert report.document()["fails"] is False


@pytest.mark.parametrize(
    ("facts", "env", "ids", "sentence"),
    [
        (made_facts(bare=FAILS), {"ADAPTK": "on"}, ["engine.start"], "adaptk would stay out, and vLLM would play K=7 "
         "throughout: one thing above must be mended."),
        (made_facts(bare=FAILS, operators_schedule=((1, 9, 3),)), {}, ["engine.start"], "would play your schedule"),
        (made_facts(k_max=0), {}, ["engine.drafter"], "vLLM would serve without drafts"),
        (made_facts(bare=FAILS, settings=Settings(strict=True)), {"ADAPTK": "on"}, ["engine.start"],
         "Started now, vLLM would stop at its start"),
        (made_facts(bare=FAILS, settings=Settings(strict=True)), {}, ["engine.start"], "Started now, vLLM would serve "
         "without adaptk; with ADAPTK=on vLLM would stop at its start (ADAPTK_STRICT): one thing"),
        (made_facts(bare=FAILS), {"ADAPTK": "off"}, ["engine.start"], "Started now, vLLM would serve without adaptk; "
         "with ADAPTK=on adaptk would stay out, and vLLM would play K=7 throughout: one thing"),
        (made_facts(k_max=0, settings=Settings(strict=True)), {"ADAPTK": "on"}, ["engine.drafter"],
         "Started now, adaptk would stay out, and vLLM would serve without drafts: one thing"),
        (made_facts(k_max=0, settings=Settings(strict=True)), {"ADAPTK": "on", "ADAPTK_K": "1"},
         ["settings.ADAPTK_K", "engine.drafter"], "Started now, vLLM would stop at its start"),
        (made_facts(), {"ADAPTK": "maybe"}, ["settings.ADAPTK"], "Started now, adaptk would stay out"),
        (Facts(installed=GPU, refused="x"), {}, ["engine.configuration"], "vLLM itself would not start"),
        (Facts(broken="x"), {}, ["vllm.version"], "vLLM itself would not start"),
        (Facts(installed=GPU), {"ADAPTK_SEED": "x", "ADAPTK_K": "1"}, ["settings.ADAPTK_K", "settings.ADAPTK_SEED"],
         "2 things above must be mended"),
    ],
)  # fmt: skip
def test_where_something_is_wrong(facts: Facts, env: dict[str, str], ids: list[str], sentence: str) -> None:
    """Named by its id, counted, and what vLLM would do then is said."""
    report = look(facts, "model", **env)
    assert failed(report) == ids
    assert sentence in report.verdict


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [
        ([0, 1, 3, 7], "starting from the state {}, if that is of no table, either."),
        ([0, 7], "starting without a table and with the acceptance of the state {}."),
        ([0, 1, 3], "starting afresh without a table."),
        (None, "starting afresh without a table."),
    ],
)
def test_a_state_that_is_there(kept: list[int] | None, sentence: str, tmp_path: Path) -> None:
    """The sentence at the end has what the start would begin from."""
    path = tmp_path / "state"
    if kept is not None:
        held = State(adaptk="0.1.0", vllm="0.32.0", saved=1e9, key=KEY, snapshot={"arms": kept})
        path.write_bytes(state_bytes(held))
    facts = made_facts(settings=Settings(mode="on", state=str(path)))
    assert look(facts, "model", ADAPTK="on").verdict.endswith(sentence.format(path))


@pytest.mark.parametrize(
    ("start", "file", "line", "sentence"),
    [
        ("shadow", "on", "the control file {} says on: adaptk chooses K", "adaptk would choose K from 0, 1, 3, 7 at "
         "every step, starting without a table, as {} says on."),
        ("on", "off", "the control file {} says off: vLLM's own K is played", "adaptk would leave K to vLLM until it "
         "is switched on, as {} says off."),
        ("shadow", "shadow", "ADAPTK=shadow: adaptk decides and records", "while vLLM plays its own K."),
        ("shadow", "nonsense", "ADAPTK=shadow: adaptk decides and records", "while vLLM plays its own K."),
    ],
)  # fmt: skip
def test_a_control_file_that_was_left_over(start: Mode, file: str, line: str, sentence: str, tmp_path: Path) -> None:
    """Every sentence has the mode that holds; the one about the file says what to do."""
    path = tmp_path / "mode-0"
    path.write_text(file)
    settings = Settings(mode=start, control=str(tmp_path / "mode-{rank}"))
    report = look(made_facts(settings=settings), "m", ADAPTK=start)
    found = by_id(report.findings)
    assert line.format(path) in found["settings.mode"].what
    assert report.verdict.endswith(sentence.format(path))
    assert (found["paths.control"].status == "warn") == (file != start)
    refused = look(made_facts(settings=settings, switched=FAILS), "m", ADAPTK=start)
    assert file != "on" or by_id(refused.findings)["settings.mode"].what.startswith("ADAPTK=shadow: adaptk decides")


def test_no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is asked, and the rest is looked at all the same."""
    monkeypatch.setattr(examine, "find_spec", lambda name: None)
    asked: list[Question] = []
    report = look(Facts(), ADAPTK_BUDGET="2", asked=asked)
    assert asked == []
    assert failed(report) == ["vllm.version", "settings.ADAPTK_BUDGET"]
    assert report.verdict == "Nothing can be started: this Python has no vLLM."


def test_what_is_asked() -> None:
    """The arguments, the variables that are right, and a table of the command line."""
    asked: list[Question] = []
    look(made_facts(), "model", "--x", ADAPTK="off", ADAPTK_SEED="3", ADAPTK_ARMS="x", HOME="/", asked=asked)
    look(made_facts(), table="/t.json", asked=asked)
    assert asked == [
        Question(arguments=("model", "--x"), variables={"ADAPTK": "on", "ADAPTK_SEED": "3"}),
        Question(arguments=(), variables={"ADAPTK": "on"}, table="/t.json"),
    ]


def test_a_table_alone_stands_in_the_way(tmp_path: Path) -> None:
    """Its key says so; where it does not, the start's own reason does."""
    file = tmp_path / "t.json"
    rows = [{"batch": b, "k": k, "itl_ms": 5.0 + k + b} for b in (1, 2) for k in (0, 7)]
    GoodputTable.from_rows(rows, [0.5], {"key": {**KEY, "device": "A100"}}).save(file)
    inert = Outcome(active=False, reason="it cannot be")
    settings = Settings(table=str(file))
    assert failed(look(made_facts(bare=STARTS, seeded=inert, settings=settings), "m")) == ["table.key"]
    GoodputTable.from_rows(rows, [0.5], {"key": KEY}).save(file)
    assert failed(look(made_facts(bare=STARTS, seeded=inert, settings=settings), "m")) == ["table.start"]
    assert failed(look(made_facts(bare=STARTS, seeded=STARTS, settings=settings), "m")) == []


def test_the_document_holds_text_only() -> None:
    """Bytes that are no text, as a variable may hold, do not stop it."""
    import msgspec

    document = look(Facts(installed=GPU), ADAPTK_SEED="\udcff").document()
    again = msgspec.json.decode(msgspec.json.encode(document))
    (wrong,) = [finding for finding in again["findings"] if finding["status"] == "fail"]
    assert set(wrong) == {"id", "status", "what", "detail", "remedy"}
