"""A controller is for one thread at a time: a call while another one is under way is refused, and changes nothing."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from adaptk import Controller, StepRecord
from tests.publicengine import PUBLIC
from tests.snapshots import used_snapshot

STEP = StepRecord(batch_size=8, elapsed_ms=9.0, k=3, drafted=[3] * 8, accepted=[2] * 8)
USED = used_snapshot()
PEEK = Controller.restore(USED, PUBLIC).peek()
CALLS: dict[str, Callable[[Controller], Any]] = {
    "choose": lambda controller: controller.choose(8),
    "observe": lambda controller: controller.observe(STEP),
    "belief": lambda controller: controller.belief(8),
    "positions": lambda controller: controller.positions(),
    "corrected_table": lambda controller: controller.corrected_table(),
    "limit_to_graphs": lambda controller: controller.limit_to_graphs(None),
    "peek": lambda controller: controller.peek(),
    "believe": lambda controller: controller.believe(PEEK),
    "note_weights_changed": lambda controller: controller.note_weights_changed(),
    "note_engine_restarted": lambda controller: controller.note_engine_restarted(),
    "note_long_pause": lambda controller: controller.note_long_pause(),
    "snapshot": lambda controller: controller.snapshot(),
    "begin_from": lambda controller: controller.begin_from(USED),
}


def test_no_method_is_left_out() -> None:
    """Of those that people may call on a controller; ``restore`` makes one."""
    assert set(CALLS) == {
        name for name, value in vars(Controller).items() if inspect.isfunction(value) and not name.startswith("_")
    }


@contextmanager
def in_the_middle_of_a_choice(controller: Controller) -> Iterator[None]:
    """While another thread is inside ``choose``."""
    inside, go_on = threading.Event(), threading.Event()

    def covered(batch: int, k: int) -> bool:
        if not inside.is_set():
            inside.set()
            go_on.wait(60)
        return True

    controller.limit_to_graphs(covered)
    thread = threading.Thread(target=controller.choose, args=(8,))
    thread.start()
    try:
        assert inside.wait(60)
        yield
    finally:
        go_on.set()
        thread.join()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_in_the_middle_of_another_is_refused_and_changes_nothing(name: str) -> None:
    """What is believed and chosen afterwards is what a controller has that was never asked."""
    asked, twin = Controller(PUBLIC, seed=0), Controller(PUBLIC, seed=0)
    with in_the_middle_of_a_choice(asked), pytest.raises(RuntimeError, match=f"^{name} .*a lock of your own"):
        CALLS[name](asked)
    twin.limit_to_graphs(lambda batch, k: True)
    twin.choose(8)
    assert asked.snapshot() == twin.snapshot()


@pytest.mark.parametrize("name", CALLS)
def test_calls_one_after_the_other_are_taken_also_after_one_that_failed(name: str) -> None:
    """Whatever a call ended with, it is over."""
    controller = Controller(PUBLIC, seed=0)
    controller.limit_to_graphs(lambda batch, k: 1 // 0 > 0)
    with pytest.raises(ZeroDivisionError):
        controller.choose(8)
    controller.limit_to_graphs(None)
    with pytest.raises(ValueError, match="snapshot"):
        controller.begin_from({})
    with pytest.raises(AttributeError):
        controller.observe("step")  # type: ignore[arg-type]
    CALLS[name](controller)
    CALLS[name](controller)


def test_a_copy_is_free() -> None:
    """By ``copy``, ``pickle`` and a snapshot: it goes on as the first one does, whatever call that one is in."""
    first = Controller.restore(USED, PUBLIC)
    copies = [copy.deepcopy(first), pickle.loads(pickle.dumps(first)), Controller.restore(first.snapshot(), PUBLIC)]
    with in_the_middle_of_a_choice(first):
        played = [[each.choose(8) for _ in range(40)] for each in copies]
    assert played == [[twin.choose(8) for _ in range(40)] for twin in [Controller.restore(USED, PUBLIC)]] * 3


def test_a_child_forked_in_the_middle_of_a_call_is_refused_and_does_not_wait() -> None:
    """Its copy is half of two states, and the thread that would end the call is not there. The parent goes on."""
    controller = Controller(PUBLIC, seed=0)
    with in_the_middle_of_a_choice(controller):
        child = os.fork()
        if child == 0:
            try:
                controller.choose(8)
            except RuntimeError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert controller.choose(8) in controller.arms


def played_by_two_threads(controller: Controller, steps: int) -> list[BaseException]:
    """Chosen on one thread, observed on another and looked at by a third; what was raised."""
    decided: queue.Queue[tuple[int, int] | None] = queue.Queue(2)
    raised: list[BaseException] = []
    over = threading.Event()

    def tried(call: Callable[[], Any], otherwise: Any = None) -> Any:
        try:
            return call()
        except Exception as error:  # whatever it is, the test looks at it
            raised.append(error)
            return otherwise

    def choose() -> None:
        rng = np.random.default_rng(1)
        for batch in rng.choice([1, 16, 64, 200], steps).tolist():
            decided.put((batch, tried(lambda batch=batch: controller.choose(batch), 0)))
        decided.put(None)

    def observe() -> None:
        before = 0
        while (step := decided.get()) is not None:
            batch, k = step
            drafts = {"drafted": [before] * batch, "accepted": [before // 2] * batch}
            record = StepRecord(batch_size=batch, elapsed_ms=7.0 + k + 0.1 * batch, k=k, **drafts)
            tried(lambda record=record: controller.observe(record))
            before = k
        over.set()

    def look() -> None:
        while not over.wait(0.001):
            tried(lambda: controller.belief(16))
            tried(controller.snapshot)

    threads = [threading.Thread(target=target) for target in (choose, observe, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_threads_that_take_no_lock_are_told_and_ruin_nothing() -> None:
    """Threads change places every 10 us: calls are refused as above and in no other way; the rest is as ever."""
    controller, interval = Controller(PUBLIC, seed=0), sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        raised = played_by_two_threads(controller, 3000)
    finally:
        sys.setswitchinterval(interval)
    assert {type(error) for error in raised} == {RuntimeError}
    assert {"was called while another call of the same controller was under way" in str(error) for error in raised} == {
        True
    }
    again = Controller.restore(controller.snapshot(), PUBLIC)  # rehearsed: what it holds can be reckoned with
    for _ in range(100):
        assert controller.choose(16) == again.choose(16)
        assert controller.observe(STEP) == again.observe(STEP)
