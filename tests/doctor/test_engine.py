"""What is said of an engine, by facts that were made up."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from adaptk.doctor import engine
from adaptk.doctor.facts import Facts, Outcome, Reach, Told
from adaptk.settings import Settings
from tests.doctor.made import STARTS, by_id, made_facts


def found(env: dict[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    return by_id(engine.findings(made_facts(**changes), env or {}))


def test_an_engine_in_which_all_is_well() -> None:
    """No line but good ones."""
    reaches = tuple(Reach(k, 256) for k in (0, 1, 3, 7))
    listed = found(reaches=reaches, captures=200)
    assert {finding.status for finding in listed.values()} == {"ok"}
    assert listed["engine.start"].what == "adaptk starts, and chooses from K = 0, 1, 3, 7"
    assert listed["engine.graphs"].what.endswith("K=0 to 256, K=1 to 256, K=3 to 256, K=7 to 256")


def test_nothing_without_arguments() -> None:
    """No engine, no line."""
    assert list(engine.findings(Facts(), {})) == []


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [(["/no/such/folder"], "there is no folder /no/such/folder here: check the path"), (["org/model"], ""), ([], ""),
     (["/tmp"], ""), (["~nobody/x"], "there is no folder ~nobody/x here: check the path")],
)  # fmt: skip
def test_arguments_that_vllm_refuses(arguments: list[str], remedy: str) -> None:
    """vLLM's own words; of a folder that is not there it says that it is no name on a hub."""
    (finding,) = engine.findings(Facts(refused="Repo id must be"), {}, arguments)
    assert (finding.status, finding.detail, finding.remedy) == ("fail", "Repo id must be", remedy)


def test_a_start_that_could_not_be_tried() -> None:
    """That is adaptk's fault, and not vLLM's refusal."""
    (finding,) = engine.findings(Facts(fault="KeyError: 'x'"), {}, ["m"])
    assert (finding.id, finding.status, finding.detail) == ("engine.rehearsal", "warn", "KeyError: 'x'")


def test_no_drafter() -> None:
    """Nothing else is said, as nothing else matters."""
    listed = found(method=None, k_max=0, bare=Outcome(active=False, reason="no speculative decoding"))
    assert {name: finding.status for name, finding in listed.items()} == {
        "engine.configuration": "ok", "engine.drafter": "fail",
    }  # fmt: skip


def test_a_drafter_that_makes_the_maximum() -> None:
    """What a smaller K saves is told once, though the start logs it, too."""
    note = "model runner V2 of this vLLM drafts num_speculative_tokens whatever K is"
    told = (Told(logging.WARNING, f"adaptk: {note}"),)
    listed = found(price_notes=(note,), bare=Outcome(active=True, arms=(0, 7), told=told))
    assert (listed["engine.drafter"].status, listed["engine.drafter"].detail) == ("note", note)
    assert not any(name.startswith("engine.warning") for name in listed)


def test_why_this_runner_and_scheduler() -> None:
    """vLLM's own words, or the variable that forces it."""
    notes = (
        "Dynamic speculative decoding ... Use VLLM_USE_V2_MODEL_RUNNER=1 for the model runner",
        "Model Runner V2 does not yet support medusa; using the V1 model runner instead.",
        "Async scheduling not supported with ngram",
    )
    listed = found(v2=False, asynchronous=False, scheduler="Scheduler", notes=notes)
    assert listed["engine.runner"].what == "model runner V1"
    assert "medusa" in listed["engine.runner"].detail
    assert listed["engine.scheduling"].detail == "vLLM: Async scheduling not supported with ngram"
    listed = found({"VLLM_USE_V2_MODEL_RUNNER": "0"}, v2=False)
    assert listed["engine.runner"].detail == "VLLM_USE_V2_MODEL_RUNNER is 0"


def test_parallel_engines() -> None:
    """Ranks that are engines of their own, and workers of one engine."""
    listed = found(ranks=4, tensor_parallel=2, operators_schedule=((1, 64, 3), (65, 128, 0)))
    assert listed["engine.parallel"].what.startswith("4 data-parallel engines")
    assert listed["engine.workers"].what.startswith("tensor parallel 2:")
    assert listed["engine.schedule"].detail == "[[1, 64, 3], [65, 128, 0]]"


def test_an_engine_that_adaptk_must_leave_alone() -> None:
    """With the very reason that it would log."""
    told = (Told(logging.WARNING, "adaptk 0.1.0 is inactive: data_parallel_size is above 1"),)
    listed = found(bare=Outcome(active=False, reason="data_parallel_size is above 1", told=told))
    assert (listed["engine.start"].status, listed["engine.start"].detail) == ("fail", "data_parallel_size is above 1")
    assert not any(name.startswith("engine.warning") for name in listed)


def test_what_a_start_would_warn_of() -> None:
    """Each line once, though the start was tried with and without a table."""
    told = (Told(logging.WARNING, "adaptk leaves out K=2"), Told(logging.INFO, "adaptk 0.1.0 on vLLM"))
    listed = found(preparing=told[:1], bare=Outcome(active=True, arms=(0, 3), told=told), seeded=STARTS)
    assert [finding.what for finding in listed.values() if finding.status == "warn"] == ["adaptk leaves out K=2"]


def test_a_table_that_stands_in_the_way_is_told_of_elsewhere() -> None:
    """The engine itself would do."""
    assert "engine.start" not in found(seeded=Outcome(active=False, reason="the table is of another engine"))


def test_a_shadow_that_cannot_be_switched_on() -> None:
    """Told beforehand, and not when somebody tries."""
    stuck = Outcome(active=False, reason="model runner V1 gives up its FULL CUDA graphs")
    listed = found(settings=Settings(mode="shadow", control="/c"), switched=stuck)
    assert (listed["engine.switch"].status, listed["engine.switch"].detail) == ("warn", stuck.reason)
    assert "engine.switch" not in found(switched=STARTS)


def test_graphs_that_do_not_go_all_the_way() -> None:
    """How far they go, and where one is missing below that."""
    listed = found(reaches=(Reach(0, 256), Reach(7, 64, (3, 5, 6, 7))), captures=90)
    assert listed["engine.graphs"].status == "note"
    assert "K=0 to 256, K=7 to 64" in listed["engine.graphs"].what
    assert listed["engine.graphs_k7"].what == "K=7 has no FULL graph at batch 3, 5-7"
    assert found(graph_mode="PIECEWISE")["engine.graphs"].detail == "the mode of CUDA graphs is PIECEWISE"
    assert found(eager=True)["engine.graphs"].detail == "enforce_eager is set"
