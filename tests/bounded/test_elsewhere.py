"""Copied, pickled, forked, spawned or beside another one in a second thread, a controller goes on as if alone."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adaptk import Controller, GoodputTable, Settings, StepRecord
from tests.bounded.endless import Endless

ROOT = Path(__file__).parents[2]
SCHEDULE = GoodputTable.from_schedule([[1, 64, 3], [65, 512, 0]])
SIZES = (1, 8, 64, 500)


def learnt(seed: int = 0, blocks: int = 2) -> Controller:
    """A controller that has seen all sorts of steps."""
    load = Endless(Controller(SCHEDULE, k_max=5, seed=seed), seed)
    load.run(blocks)
    return load.controller


def goes_on(controller: Controller) -> list[int]:
    """What is chosen in the next thousand steps, and at the end of them."""
    load = Endless(controller, seed=9)
    load.run(1)
    return [*(decision.k for decision in load.controller._open), *(load.controller.choose(size) for size in SIZES)]


COPIES: dict[str, Callable[[Controller], Controller]] = {
    "pickled": lambda controller: pickle.loads(pickle.dumps(controller)),
    "deeply copied": copy.deepcopy,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_a_copy_goes_on_as_the_original_and_shares_nothing(copied: Callable[[Controller], Controller]) -> None:
    """The copy plays the same K; what either learns afterwards is not the other's."""
    controller = learnt()
    first, second = copied(controller), copied(controller)
    before = controller.snapshot()
    played = goes_on(first)
    assert len(set(played)) > 1
    assert controller.snapshot() == before
    assert goes_on(second) == played
    assert goes_on(controller) == played


@pytest.mark.parametrize(
    "value",
    [
        *(SCHEDULE, Settings(mode="on", arms=(0, 3), table="t.json"), learnt().belief(8), learnt().positions()),
        StepRecord(batch_size=2, elapsed_ms=9.0, k=3, drafted=[3, 1], accepted=[2, 1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back_equal_from_another_process(value: object) -> None:
    """Pickled by any protocol."""
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value


WORKER = """
import multiprocessing
from tests.bounded import test_elsewhere as here

if __name__ == "__main__":
    controller = here.learnt()
    context = multiprocessing.get_context({method!r})
    with context.Pool(2) as pool:
        theirs = pool.map(here.goes_on, [controller, controller])
    ours = here.goes_on(controller)
    print(theirs == [ours, ours], len(set(ours)) > 1)
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_of_a_pool_play_what_the_parent_would(method: str, tmp_path: Path) -> None:
    """However their processes are made: a controller given to two workers goes on in each as in its own process."""
    script = tmp_path / "pool.py"
    script.write_text(WORKER.format(method=method))
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_a_forked_child_leaves_the_parents_controller_alone() -> None:
    """The child learns something else; the parent plays on as a twin that was never forked, and the child can play."""
    controller, twin = learnt(), learnt()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            Endless(controller, seed=3).run(1)
            status = 0 if controller.choose(8) in controller.arms else 2
        finally:
            os._exit(status)
    assert goes_on(controller) == goes_on(twin)
    assert os.waitpid(child, 0)[1] == 0


def test_controllers_in_threads_of_their_own_play_as_if_alone() -> None:
    """Four at once, each with a load of its own: nothing is shared between them that one could change."""
    alone = [goes_on(learnt(seed)) for seed in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that they take turns in the middle of a step, many thousand times
    try:
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda seed: goes_on(learnt(seed)), range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert together == alone
    assert len({tuple(played) for played in alone}) > 1
