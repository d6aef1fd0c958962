"""What commands that time a real engine have in common."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

BUSY = 0.5  # of the cores


@contextmanager
def ending_politely() -> Iterator[None]:
    """A request to end is taken as Ctrl-C is: what there is is kept and shown, as soon as the engine has stopped."""
    if threading.current_thread() is not threading.main_thread():  # only there can a program listen to signals
        yield
        return
    before = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(number: int, frame: FrameType | None) -> None:
    line = "\n" if os.isatty(2) else ""  # a bar stands there
    with suppress(OSError):
        os.write(2, f"{line}Stopping the engine, which takes some seconds.\n".encode())  # print may be in work below
    raise KeyboardInterrupt


def tell_if_busy() -> None:
    """Say on standard error that the machine has other work, if it has."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY * cores:
        said = f"This machine is busy (load {load:.1f} on {cores} cores): times will scatter, or be too long."
        print(said, file=sys.stderr)
