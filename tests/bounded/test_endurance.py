"""Memory is flat however long adaptk runs; the long form is ``python -m tests.bounded.endurance``."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bounded.endless import SIZES
from tests.bounded.endurance import controller
from tests.bounded.growth import Growth

STEPS = 300_000
SHORT = 20_000  # steps of a leak on purpose


def test_300_000_steps_leave_nothing_behind() -> None:
    """Over all batch sizes to 10,000, the second half holds no container, object, thread, file or KiB too many."""
    growth, load = controller(STEPS, looks=60)
    print(*growth.lines(), sep="\n")
    assert load.sizes == set(range(1, SIZES + 1))
    assert load.steps >= STEPS
    assert growth.grown() == []


def looked_at(leak: Callable[[Any], None], every: int) -> list[str]:
    """What ``Growth`` says of a run in which something is left behind every so many steps."""
    owner = SimpleNamespace(held=[], hidden=[])
    own = type("Own", (), {"__module__": "adaptk.made_up"})()
    own.held = owner.held
    growth = Growth(lambda: [own], SHORT)
    for step in range(1, SHORT + 1):
        if step % every == 0:
            leak(owner)
        if step % 1000 == 0:
            growth.look(step)
    return growth.grown()


LEAKS: dict[str, tuple[Callable[[Any], None], int, str]] = {
    "an entry in a container of adaptk's": (lambda owner: owner.held.append(None), 2, "Own.held: "),
    "an object elsewhere": (lambda owner: owner.hidden.append(object()), 1, "objects: "),
    "memory that is no object of Python's": (lambda owner: owner.hidden.append(_pages()), 8, "rss_kib: "),
    "an open file": (lambda owner: owner.hidden.append(open("/dev/null")), 1000, "files: "),  # noqa: PTH123, SIM115
    "a thread": (lambda owner: _wait_for_ever(owner.hidden), 5000, "threads: "),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("leak", "every", "named"), LEAKS.values(), ids=LEAKS)
def test_what_is_left_behind_is_found(leak: Callable[[Any], None], every: int, named: str) -> None:
    """The instrument: each kind of leak, rare as it is, is named."""
    assert [line for line in looked_at(leak, every) if line.startswith(named)] != []
    for thread in threading.enumerate():
        if thread.name == "left":
            thread.ended.set()  # type: ignore[attr-defined]


def test_where_nothing_is_left_behind_nothing_is_found() -> None:
    """The instrument, once more."""
    assert looked_at(lambda _: None, 1) == []


def _pages() -> mmap.mmap:
    """Two pages of the system's own: what the process has freed before cannot be taken for them."""
    pages = mmap.mmap(-1, 8192)
    pages.write(b"x" * 8192)
    return pages


def _wait_for_ever(hidden: list[Any]) -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="left", daemon=True)
    thread.ended = ended  # type: ignore[attr-defined]
    thread.start()
    hidden.append(thread)
