"""The stopwatch of the soak: alike with adaptk and without, all of adaptk's own time in it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from adaptk.vllm_plugin.scheduler import adaptive
from tests.benchmarks.soak import clock
from tests.engine.driver import Policy, Worker, build_config, build_scheduler, make_request

SLOW_S = 0.02


def drive(scheduler: object, path: Path) -> clock.Steps:
    """Two requests from beginning to end, a third that is aborted; what was noted."""
    worker = Worker(scheduler, 0, asynchronous=False)
    for name in ("a", "b", "c"):
        scheduler.add_request(make_request(name, 5, 20))  # type: ignore[attr-defined]
    for step in range(60):
        if not scheduler.has_unfinished_requests():  # type: ignore[attr-defined]
            break
        if step == 2:
            scheduler.finish_requests("c", _aborted())  # type: ignore[attr-defined]
        worker.schedule()
        worker.update()
    found = clock.read(path)
    assert found.emitted.sum() == worker.delivered > 0
    assert len(found.ended) == len(worker.engine_outputs)
    return found


def _aborted() -> object:
    from vllm.v1.request import RequestStatus

    return RequestStatus.FINISHED_ABORTED


@pytest.mark.parametrize("place", ["choose", "observe"])
def test_a_controller_that_is_slow_shows_in_every_step(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """By its whole time, and tokens are counted as they are delivered; without it steps are as quick as ever."""
    from vllm.v1.core.sched.scheduler import Scheduler

    def slow(policy: Policy) -> Policy:
        quick = getattr(policy, place)

        def slowed(*args: object, **kwargs: object) -> object:
            time.sleep(SLOW_S)
            return quick(*args, **kwargs)

        setattr(policy, place, slowed)
        return policy

    monkeypatch.setenv(clock.FILE, str(tmp_path / "clock"))
    base = clock.timed(Scheduler)
    plain = drive(build_scheduler(base, build_config(model)), tmp_path / "clock")
    steered = adaptive(base, controller=slow(Policy(lambda _: 3)))
    slowed = drive(build_scheduler(steered, build_config(model)), tmp_path / "clock")
    # The last step is learnt from when there is no further one.
    assert np.median(slowed.timed()) >= 1e3 * SLOW_S
    assert np.median(plain.timed()) < 1e3 * SLOW_S
