"""The real engine with each kind of drafter that a small model can stand in for, K changing from step to step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.engine import models
from tests.engine.driver import Policy, cycling
from tests.engine.engine import greedy, running, scheduler_of

K_MAX = 7
LENGTH = 256  # the engine's max_model_len
CYCLE = (7, 0, 1, 3, 7, 1, 0, 3)
# What the layers of the targets say of the next token: enough to contradict a drafter that knows only the last one.
LITTLE = 0.01


class Drafting(NamedTuple):
    """An engine, and what it was seen to do."""

    llm: Any
    steering: Any
    fits: list[bool]  # for each step whether its drafter ran


def _with_head(
    folder: Path, make: Callable[[Path, Path], Path], method: str, **more: Any
) -> tuple[Path, dict[str, Any]]:
    target = models.byte_llama(folder / "target", layers=4, little=LITTLE)
    return target, {"method": method, "model": str(make(folder / "drafter", target)), **more}


def _draft_model(folder: Path) -> tuple[Path, dict[str, Any]]:
    target = models.byte_llama(folder / "target", layers=4, little=LITTLE)
    drafter = models.byte_llama(folder / "drafter", layers=4, little=0.0)
    return target, {"method": "draft_model", "model": str(drafter)}


def _unpadded(folder: Path) -> tuple[Path, dict[str, Any]]:
    return _with_head(folder, models.eagle, "eagle", disable_padded_drafter_batch=True)


KINDS: dict[str, Callable[[Path], tuple[Path, dict[str, Any]]]] = {
    "draft_model": _draft_model,
    "eagle": lambda folder: _with_head(folder, models.eagle, "eagle"),
    "eagle-unpadded": _unpadded,
    "eagle3": lambda folder: _with_head(folder, models.eagle3, "eagle3"),
    "dflash": lambda folder: _with_head(folder, models.dflash, "dflash"),
    "mtp": lambda folder: (models.mimo(folder / "target", little=LITTLE), {"method": "mtp"}),
}


@pytest.fixture(scope="module", params=list(KINDS))
def drafting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drafting]:
    """One engine per kind; adaptk is on."""
    model, speculative = KINDS[request.param](tmp_path_factory.mktemp(request.param))
    with running(model, {**speculative, "num_speculative_tokens": K_MAX}, ADAPTK="on") as llm:
        steering = scheduler_of(llm).adaptk
        assert steering.active, steering.reason
        yield Drafting(llm, steering, _watch(llm))
        assert steering.active, steering.reason


def _watch(llm: Any) -> list[bool]:
    """Whether the worker's drafter ran, told by the worker itself."""
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    fits: list[bool] = []
    original = runner._input_fits_in_drafter

    def asked(metadata: Any) -> bool:
        fits.append(original(metadata))
        return fits[-1]

    runner._input_fits_in_drafter = asked
    return fits


def steer(drafting: Drafting, ks: tuple[int, ...]) -> Policy:
    """A policy that plays ``ks`` in turn, in charge from now on."""
    policy = cycling(ks)
    drafting.steering.mode, drafting.steering.controller = "on", policy
    drafting.fits.clear()
    return policy


PROMPTS = ["hello hello", "one two three four", "abcabc", "The quick brown fox jumps over"]


class TestDrafters:
    def test_tokens_are_those_without(self, drafting: Drafting) -> None:
        """Greedy decoding gives the tokens that it gives with vLLM's own K."""
        steer(drafting, CYCLE)
        steered = greedy(drafting.llm, PROMPTS, 90)
        drafting.steering.mode = "off"
        assert steered == greedy(drafting.llm, PROMPTS, 90)
        assert len({token for tokens in steered for token in tokens}) > 50  # no loop that anything would get right

    def test_widths_follow_the_decisions(self, drafting: Drafting) -> None:
        """Each step verifies exactly what the step before it decided, for every request."""
        policy = steer(drafting, CYCLE)
        greedy(drafting.llm, PROMPTS, 120)
        whole = [
            (k, r) for k, r in zip(policy.chosen, policy.records[1:], strict=False) if r.batch_size == len(PROMPTS)
        ]
        assert len(whole) > 2 * len(CYCLE) + K_MAX
        for decided, record in whole[:-K_MAX]:  # vLLM cuts the drafts of requests at their end
            assert record.drafted == [decided] * len(PROMPTS)
            assert record.verified is None

    def test_accepted_are_the_tokens_that_come(self, drafting: Drafting) -> None:
        """Counted over a run: a token for each request and step, and one for each accepted draft that counted."""
        policy = steer(drafting, CYCLE)
        out = greedy(drafting.llm, PROMPTS, 90)
        drafted = sum(sum(r.drafted) for r in policy.records)
        accepted = sum(sum(r.accepted) for r in policy.records)
        assert sum(sum(r.emitted) for r in policy.records) == sum(map(len, out))
        beyond = [n + 1 - e for r in policy.records for n, e in zip(r.accepted, r.emitted, strict=True) if n + 1 != e]
        # Only where a request ended, an accepted draft came to nothing.
        assert len(beyond) <= len(PROMPTS)
        assert min(beyond, default=1) > 0
        assert 0.1 * drafted < accepted < 0.95 * drafted

    @pytest.mark.parametrize("ks", [(3,), (0,), CYCLE])
    def test_dummies_are_not_booked(self, drafting: Drafting, ks: tuple[int, ...]) -> None:
        """At the end of the model's length the worker's drafter stops for all: what it puts in is no draft."""
        policy = steer(drafting, ks)
        long = "x" * (LENGTH - K_MAX - 12)
        greedy(drafting.llm, [long, "hello hello"], 40)
        assert drafting.fits.count(False) > 0
        assert len(drafting.fits) == len(policy.records)
        booked = 0
        for i, (fit, following) in enumerate(zip(drafting.fits, policy.records[1:], strict=False)):
            real = policy.chosen[i] if fit else 0
            assert max(following.drafted, default=0) <= real
            if not fit:
                # The dummies were computed nevertheless, for each request that went on.
                assert (following.verified or 0) > 0
                booked += following.verified or 0
        assert booked > 0
        # Steps in which the drafter did not run say so: they are not the time of the K that was chosen.
        assert [r.draft_k == 0 for r in policy.records] == [not fit for fit in drafting.fits]


class TestAcceptance:
    def test_positions_do_not_depend_on_k(self, drafting: Drafting) -> None:
        """The first drafts are the same whether more are made after them or not."""
        firsts = []
        for k in (1, 7):
            policy = steer(drafting, (k,))
            greedy(drafting.llm, PROMPTS, 90)
            with_drafts = [(d, a) for r in policy.records for d, a in zip(r.drafted, r.accepted, strict=True) if d]
            firsts.append(sum(a > 0 for _, a in with_drafts) / len(with_drafts))
        assert all(abs(a - b) < 0.25 for a, b in pairwise(firsts))
