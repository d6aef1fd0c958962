"""Odd ways to run Python change no decision."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A climb without a table, whose draws, visits and alarms all depend on each other.
PROGRAM = """
import random
from adaptk import Controller, StepRecord
controller, draw, before, ks = Controller(None, seed=3, k_max=5), random.Random(3), 0, []
for step in range(800):
    k = controller.choose(16)
    accepted = [sum(draw.random() < 0.7 for _ in range(before)) for _ in range(16)]
    ms = (10.0 + 0.4 * before + 0.1 * k) * draw.lognormvariate(0.0, 0.03)
    drafted = [before] * 16
    controller.observe(StepRecord(batch_size=16, elapsed_ms=ms, k=k, drafted=drafted, accepted=accepted))
    before = k
    ks.append(k)
print(__debug__, "".join(map(str, ks)))
"""


@cache
def decided(options: tuple[str, ...] = (), variables: tuple[tuple[str, str], ...] = ()) -> list[str]:
    """Whether asserts were on, and every K of a climb."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    env |= {"PYTHONPATH": str(ROOT), **dict(variables)}
    done = subprocess.run(
        [sys.executable, *options, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (("-O",), {}),
        (("-OO",), {"PYTHONHASHSEED": "77", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}),
        (("-X", "dev"), {"PYTHONHASHSEED": "random", "LANG": "xx_YY", "TZ": "Nowhere/Else", "HOME": "/nonexistent"}),
    ],
)
def test_the_same_decisions(options: tuple[str, ...], variables: dict[str, str]) -> None:
    """Without asserts and docstrings, in development mode, with another order of hashes, locale, zone, and no home."""
    usual, odd = decided(), decided(options, tuple(variables.items()))
    assert odd[1] == usual[1]
    assert len(set(usual[1])) > 2
    assert (odd[0] == "True") is ("-X" in options)
