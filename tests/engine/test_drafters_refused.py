"""A drafter that works with one number of drafts only: adaptk stands aside, the real engine goes on as without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.engine.conftest import Lines
from tests.engine.engine import greedy, running, scheduler_of


class Repeats:
    """A drafter of the user's own making, which vLLM does not tell how many drafts are wanted."""

    widths: tuple[int, ...] = ()

    def __init__(self, config: Any) -> None:
        self.k = config.speculative_config.num_speculative_tokens

    def load_model(self, *_: Any, **__: Any) -> None:
        """Nothing to load."""

    def propose(self, sampled: list[list[int]], *_: Any, **__: Any) -> list[list[int]]:
        """Drafts the last token over and over."""
        Repeats.widths += (self.k,)
        return [[tokens[-1]] * self.k if tokens else [] for tokens in sampled]


def test_the_engine_goes_on_without_adaptk(model: Path, log: Lines) -> None:
    """One line says why; vLLM has no schedule, drafts what it was told and answers."""
    drafter = {"method": "custom_class", "model": f"{__name__}.Repeats", "num_speculative_tokens": 3}
    with running(model, drafter, ADAPTK="on") as llm:
        scheduler = scheduler_of(llm)
        assert scheduler.dynamic_sd_lookup is None
        assert not scheduler.adaptk.active
        assert "drafter custom_class works with num_speculative_tokens drafts only" in str(scheduler.adaptk.reason)
        outputs = greedy(llm, ["hello hello", "one two three four"], 40)
    assert [len(tokens) for tokens in outputs] == [40, 40]
    assert len(Repeats.widths) > 10
    assert len(log.having("is inactive")) == 1
