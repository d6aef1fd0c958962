"""One of vLLM's schedulers under adaptk, driven by hand: what each request was given is held against its known text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from adaptk import Settings
from adaptk.vllm_plugin import adaptive
from tests.engine.driver import build_config, build_scheduler, make_request
from tests.engine.faultyride import KnownText, known_token

K_MAX = 7


class Engine:
    """Schedules and takes outputs back as vLLM's engine does; ``depth`` steps in flight where it is asynchronous.

    Parameters
    ----------
    model
        A folder.
    scheduler
        An adaptive scheduler; ``None``: one with ``settings`` or ``controller`` over vLLM's own class.
    """

    def __init__(
        self,
        model: Path,
        scheduler: Any = None,
        *,
        settings: Settings | None = None,
        controller: Any = None,
        asynchronous: bool = False,
        seqs: int = 16,
    ) -> None:
        if scheduler is None:
            cls = adaptive(AsyncScheduler if asynchronous else Scheduler, controller, settings or Settings(mode="on"))
            config = build_config(model, k_max=K_MAX, asynchronous=asynchronous, max_num_seqs=seqs)
            scheduler = build_scheduler(cls, config, num_blocks=1000, v2=False if asynchronous else None)
        self.scheduler = scheduler
        self.steering = scheduler.adaptk
        self.worker = KnownText(scheduler, 0, asynchronous=asynchronous, accept=0.7)
        self.depth = 2 if asynchronous else 1
        self.tokens: dict[str, int] = {}  # by request: how many it asked for
        self.text: dict[str, list[int]] = {}
        self.ks: list[int] = []  # played, of steps with tokens
        self.gone: set[str] = set()

    def add(self, n: int = 1, prompt: int = 5, tokens: int = 30) -> list[str]:
        """So many new requests; their names."""
        names = [str(len(self.tokens) + i) for i in range(n)]
        for name in names:
            self.tokens[name] = tokens
            self.scheduler.add_request(make_request(name, prompt, tokens))
        return names

    def abort(self, names: list[str]) -> None:
        """Their clients have gone."""
        self.gone.update(names)
        self.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)

    def turn(self) -> None:
        """Schedule a step, and take back what is there by then."""
        self.schedule()
        while len(self.worker.in_flight) >= self.depth or (self.worker.in_flight and not self.scheduler.requests):
            self.update()

    def schedule(self) -> Any:
        output = self.worker.schedule()
        if output.total_num_scheduled_tokens:
            self.scheduler.get_grammar_bitmask(output)  # as the engine asks while the step runs
            self.ks.append(output.num_spec_tokens_to_schedule)
        return output

    def update(self) -> None:
        self.worker.update()
        for outputs in self.worker.engine_outputs.pop().values():
            for output in outputs.outputs:
                self.text.setdefault(output.request_id, []).extend(output.new_token_ids)

    def serve(self, turns: int | None = None) -> None:
        """So many turns; ``None``: until all requests are answered."""
        done = 0
        while (turns is None or done < turns) and (self.scheduler.requests or self.worker.in_flight):
            self.turn()
            done += 1

    def check(self) -> None:
        """Every request has its whole text, those that were given up the beginning of it."""
        for name, asked in self.tokens.items():
            text = self.text.get(name, [])
            assert text == [known_token(name, i) for i in range(len(text))]
            assert name in self.gone or len(text) == asked
        assert not self.scheduler.requests
