"""What a process shares with whoever else lives in it, as texts that can be compared: before and after a guest came."""

from __future__ import annotations

import asyncio
import atexit
import decimal
import faulthandler
import gc
import locale
import logging
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def footprint() -> dict[str, str]:
    """Everything global that a library has no business with, by name."""
    return {name: repr(look()) for name, look in _LOOKS.items()}


def moved(before: dict[str, str]) -> dict[str, tuple[str, str]]:
    """What is another than ``before``: as it was, and as it is."""
    now = footprint()
    return {name: (was, now[name]) for name, was in before.items() if now[name] != was}


def _files() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))  # noqa: PTH115
        except OSError:  # the one of the listing itself
            continue
    return sorted(found)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _loggers() -> dict[str, Any]:
    """Loggers that were set up, but for adaptk's own; one that merely exists does nothing."""
    names = [name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]
    made = [logging.root, *(logging.getLogger(name) for name in sorted(names))]
    touched = [(one.name, one.level, one.handlers, one.propagate, one.filters, one.disabled) for one in made]
    return {"loggers": [each for each in touched if any(each[1:3]) or not each[3]], "off": logging.root.manager.disable}


_LOOKS: dict[str, Callable[[], Any]] = {
    "threads": lambda: [thread.name for thread in threading.enumerate()],
    "tasks": lambda: len(os.listdir("/proc/self/task")),  # noqa: PTH208
    "files": _files,
    "signals": lambda: {number: signal.getsignal(number) for number in signal.valid_signals()},
    "wakeup": lambda: threading.current_thread() is threading.main_thread() and signal.getitimer(signal.ITIMER_REAL),
    "exit functions": atexit._ncallbacks,
    "numpy random": lambda: (np.random.get_state()[1].tolist(), np.random.get_state()[2:]),  # type: ignore[union-attr]
    "numpy errors": lambda: (np.geterr(), np.geterrcall(), np.getbufsize()),
    "numpy printing": np.get_printoptions,
    "random": random.getstate,
    "warnings": lambda: (warnings.filters, warnings.showwarning),
    "decimal": decimal.getcontext,
    "locale": lambda: (locale.setlocale(locale.LC_ALL), time.tzname),
    "logging": _loggers,
    "path": lambda: (sys.path, sys.meta_path, sys.path_hooks, os.getcwd()),  # noqa: PTH109
    "environment": lambda: dict(os.environ),
    "hooks": lambda: (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, sys.breakpointhook),
    "tracing": lambda: (sys.gettrace(), sys.getprofile()),
    "limits": lambda: (sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()),
    "streams": lambda: (sys.stdin, sys.stdout, sys.stderr),
    "collector": lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks), gc.get_freeze_count()),
    "umask": _umask,
    "faulthandler": faulthandler.is_enabled,
    "multiprocessing": lambda: multiprocessing.get_start_method(allow_none=True),
    "sockets": socket.getdefaulttimeout,
    "asyncio": asyncio.get_event_loop_policy,
    "builtins": lambda: sorted(vars(sys.modules["builtins"])),
}
