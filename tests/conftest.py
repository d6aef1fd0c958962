"""Settings of the whole suite."""

from __future__ import annotations

import os

from hypothesis import settings

# The engine tests start numba's threads with one of them; whatever is compiled after that must find the same number.
os.environ["NUMBA_NUM_THREADS"] = "1"
# Several threads of torch wait for each other, spinning: on a busy machine that takes a hundred times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long one example takes says more about the machine's other work than about the code.
settings.register_profile("adaptk", deadline=None)
settings.load_profile("adaptk")
