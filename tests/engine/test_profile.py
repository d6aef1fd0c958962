"""The engine that a profile steers, for real: a tiny model, in the process of its own that users get."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from adaptk.profile.estimate import AcceptanceCounts
from adaptk.profile.orders import AnswerOrder, Doing, EngineDiedError, EngineOrder, StayOrder
from adaptk.step import StepRecord
from adaptk.vllm_plugin.meters import wanted_drafts
from adaptk.vllm_plugin.profile import whole_steps
from adaptk.vllm_plugin.profile_process import EngineProcess, _said
from adaptk.vllm_plugin.serveargs import ArgumentsError, engine_args
from tests.engine import versions

NGRAM = {"method": "ngram", "prompt_lookup_max": 3, "prompt_lookup_min": 1, "num_speculative_tokens": 7}
PROMPTS = ("one two three one two three", "a b a b a b a b", "the quick brown fox", "zzzzzzzzzzzz", "0123456789")
SMALL = ("--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "4", "--enforce-eager",
         "--gpu-memory-utilization", "0.3")  # fmt: skip


def order(model: Path, speculative: dict[str, object], **changes: object) -> EngineOrder:
    versions.need_engine()
    arguments = (str(model), *SMALL, "--speculative-config", json.dumps(speculative))
    return EngineOrder(arguments, None, PROMPTS)._replace(**changes)  # type: ignore[arg-type]


def stay(batch: int, context: int, arms: tuple[int, ...], supply: tuple[float, ...] = ()) -> StayOrder:
    return StayOrder(batch, context, context - 20, arms, 5, 1, 100.0, supply)


@pytest.fixture(scope="module")
def told() -> list[Doing]:
    return []


@pytest.fixture(scope="module")
def engine(model: Path, told: list[Doing]) -> Iterator[EngineProcess]:
    """One engine for the tests that leave it alive; an ADAPTK variable of the user's must not reach it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADAPTK", "shadow")
        patch.setenv("ADAPTK_BUDGET", "nonsense")
        made = EngineProcess(order(model, NGRAM), told.append)
    yield made
    made.close()


def test_what_was_started(engine: EngineProcess, model: Path) -> None:
    """Limits as they were given, the default arms, and a key that names the model without its folder."""
    info = engine.info
    assert info.arms == (0, 1, 3, 7)
    assert (info.max_num_seqs, info.max_model_len) == (4, 256)
    assert info.kv_tokens >= 4 * 256
    assert info.key["model"] == model.name
    assert info.key["method"] == "ngram"
    assert info.key["graph_mode"] == "NONE"


@pytest.mark.parametrize("batch", [1, 4])
def test_a_stay_plays_its_order(engine: EngineProcess, told: list[Doing], batch: int) -> None:
    """Block by block, whole steps only, near the context that was asked for."""
    told.clear()
    stayed = engine.stay(stay(batch, 100, (0, 1, 3, 7, 7, 3, 1, 0)))
    assert stayed.note == ""
    assert [block.k for block in stayed.blocks] == [0, 1, 3, 7, 7, 3, 1, 0]
    assert [at.k for at in told][-8:] == [0, 1, 3, 7, 7, 3, 1, 0]
    for block in stayed.blocks:
        assert len(block.ms) == len(block.widths) == 5
        assert min(block.ms) > 0
        assert 0 <= min(block.widths) <= max(block.widths) <= block.k
        assert block.mean_context is not None
        assert 80 <= block.mean_context <= 256
        assert 100.0 <= block.at_s <= 100.0 + stayed.seconds
    assert stayed.seconds * 1e3 > sum(sum(block.ms) for block in stayed.blocks)


def test_drafts_can_be_shaped(engine: EngineProcess) -> None:
    """As many drafts as answers had, whatever the text of the context gives: more or fewer than the drafter finds."""
    for supply in ((1.0,) * 7, (0.5,) * 3 + (0.0,) * 4, (0.0,) * 7):
        stayed = engine.stay(stay(4, 100, (7, 3, 0), supply))
        for block in stayed.blocks:
            expected = sum(supply[: block.k])
            assert sum(block.widths) / len(block.widths) == pytest.approx(expected, abs=0.3)


def test_answers_count_drafts(engine: EngineProcess) -> None:
    """All prompts are answered, each request counts for itself, and a fresh stay is not disturbed by them."""
    answered = engine.answer(AnswerOrder(0, len(PROMPTS), 7, 4, 40, 60.0))
    counts = AcceptanceCounts.from_records(answered.records, 7)
    assert counts.clustered
    assert len(counts.requests) == len(PROMPTS)
    assert counts.tried[0] > 20
    assert engine.stay(stay(2, 100, (1,))).note == ""


def test_a_cut_short_answer_leaves_nothing_behind(engine: EngineProcess) -> None:
    """After the time is up what runs is aborted."""
    answered = engine.answer(AnswerOrder(0, 5, 7, 4, 200, 0.2))
    assert answered.seconds < 30
    stayed = engine.stay(stay(4, 100, (0,)))
    assert stayed.note == ""
    assert len(stayed.blocks) == 1


def test_more_requests_than_run_at_once_are_noticed(engine: EngineProcess) -> None:
    """No endless wait for a batch that never comes together."""
    stayed = engine.stay(stay(6, 60, (0,)))
    assert stayed.blocks == ()
    assert "of 6 requests at most 4 ran at once" in stayed.note
    assert engine.stay(stay(4, 60, (0,))).note == ""


def test_a_model_as_drafter_and_an_engine_killed_in_a_stay(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A drafter that always delivers has K drafts in each step; a process that is killed leaves word of what it was at.

    Nothing of vLLM's reaches the terminal.
    """
    drafter = {"method": "draft_model", "model": str(model), "num_speculative_tokens": 3}
    short = order(model, drafter, arms=(0, 1, 3))
    made = EngineProcess(short._replace(arguments=(*short.arguments, "--max-model-len", "2048")))
    long = stay(2, 60, (0, 3))._replace(steps=200)  # still playing when a busy machine gets round to the signal
    try:
        stayed = made.stay(stay(2, 60, (3, 1, 0)))
        assert [set(block.widths) for block in stayed.blocks] == [{3.0}, {1.0}, {0.0}]
        assert made._process.pid is not None
        made._doing = lambda at: os.kill(made._process.pid, signal.SIGKILL) if at.k == 3 else None
        with pytest.raises(
            EngineDiedError, match="killed by signal 9 while playing K=3 at batch 2 and context 60"
        ) as died:
            made.stay(long)
        assert died.value.doing == Doing(2, 3, 60)
        with pytest.raises(EngineDiedError):
            made.stay(stay(2, 60, (0,)))
    finally:
        made.close()
    assert capfd.readouterr() == ("", "")
    assert not made._process.is_alive()
    made._log.unlink()


def test_an_engine_without_a_drafter(model: Path) -> None:
    """Only K=0, timed from output to output, close to what the engine takes in all."""
    made = EngineProcess(order(model, NGRAM, drafter=False))
    try:
        assert made.info.arms == (0,)
        assert made.info.key.get("method") is None
        stayed = made.stay(stay(4, 100, (0, 0, 0)))
        assert [len(block.ms) for block in stayed.blocks] == [5, 5, 5]
        total = sum(sum(block.ms) for block in stayed.blocks)
        assert 0 < total < stayed.seconds * 1e3
    finally:
        made.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": (0, 9)}, "arms holds 9, k_max is 7"),
        ({"arguments": ("--no-such-option",)}, "unrecognized arguments: --no-such-option"),
        ({"arguments": ("MODEL", "--data-parallel-size", "2")}, "data_parallel_size is 2: leave it out"),
        ({"arguments": ("/nowhere/at/all",)}, "nowhere"),
    ],
)
def test_engines_that_do_not_start(model: Path, changes: dict[str, object], message: str) -> None:
    """The reason in one piece, not a page of log."""
    asked = order(model, NGRAM, **changes)
    asked = asked._replace(arguments=tuple(str(model) if part == "MODEL" else part for part in asked.arguments))
    with pytest.raises(EngineDiedError, match=message) as died:
        EngineProcess(asked)
    log = str(died.value).rpartition("printed: ")[2].rstrip(")")
    Path(log).unlink(missing_ok=True)


def test_serves_own_arguments_are_let_pass(model: Path, tmp_path: Path) -> None:
    """A command line for vllm serve is taken as it is; the model may stand first or be named."""
    name = str(model)
    made = engine_args([name, "--port", "8001", "--max-num-seqs", "7", "--api-key", "x"])
    assert (made.model, made.max_num_seqs) == (name, 7)
    assert engine_args(["--model", name]).model == name
    both = [name, "--speculative-config", json.dumps(NGRAM)]
    assert engine_args(both).speculative_config["num_speculative_tokens"] == 7
    assert engine_args(both, drafter=False).speculative_config is None
    short = engine_args([name, "--spec-method", "ngram", "--spec-tokens", "3"], drafter=False)
    assert (short.speculative_config, short.spec_method, short.spec_tokens) == (None, None, None)
    (tmp_path / "c.yaml").write_text(f"model: {name}\nmax-num-seqs: 9\n")
    for given in (["--config", str(tmp_path / "c.yaml")], [f"--config={tmp_path / 'c.yaml'}"]):
        assert engine_args(given).max_num_seqs == 9
    for wrong, said in (
        ([], "no model is named"),
        ([name, "--tpyo", "1"], "tpyo"),
        ([name, "--max-num-seqs", "x"], "x"),
    ):
        with pytest.raises(ArgumentsError, match=said):
            engine_args(wrong)


def test_what_an_error_says_without_its_frame() -> None:
    """vLLM's checked configurations wrap a refusal in lines about themselves."""
    from pydantic import BaseModel, ValidationError, field_validator

    class Checked(BaseModel):
        arms: str

        @field_validator("arms")
        @classmethod
        def refuse(cls, value: str) -> str:
            raise ValueError("ADAPTK_ARMS='-1' is refused")

    with pytest.raises(ValidationError) as refused:
        Checked(arms="-1")
    assert _said(refused.value) == "ADAPTK_ARMS='-1' is refused"
    assert _said(RuntimeError("plain")) == "plain"
    assert _said(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_whole_steps_are_one_arms() -> None:
    """By the controller's rule, on runner V1 (drafts for now) and V2 (drafts of the step before)."""

    def step(k: int, draft_k: int | None = None, **changes: object) -> StepRecord:
        fields = {"batch_size": 2, "elapsed_ms": 5.0, "drafted": [1, 1], "accepted": [0, 0]} | changes
        return StepRecord(k=k, draft_k=draft_k, **fields)  # type: ignore[arg-type]

    v1 = [step(0), step(3), step(3), step(3, prefill_tokens=9), step(3, elapsed_ms=None), step(3, verified=9), step(0)]
    assert whole_steps(v1, 2, 3) == [v1[2]]
    assert whole_steps(v1, 2, 0) == []
    assert whole_steps(v1, 3, 3) == []
    v2 = [step(0, 0), step(3, 0), step(3, 3), step(0, 3)]
    assert whole_steps(v2, 2, 3) == [v2[2], v2[3]]
    assert whole_steps(v2, 2, 0) == [v2[1]]


def test_shaped_drafts_are_spread_evenly() -> None:
    """Over requests within a step and over steps for one request, shares are met to within a request or two."""
    supply = (0.8, 0.5, 0.1)
    for turn in range(20):
        widths = [wanted_drafts(supply, 3, place, turn) for place in range(64)]
        for i, share in enumerate(supply):
            assert abs(sum(width > i for width in widths) - 64 * share) <= 2
    alone = [wanted_drafts(supply, 3, 0, turn) for turn in range(1000)]
    for i, share in enumerate(supply):
        assert sum(width > i for width in alone) / 1000 == pytest.approx(share, abs=0.01)
    assert {wanted_drafts(supply, 0, place, 3) for place in range(64)} == {0}
