"""Whoever saves the state may be killed at any moment; ``tests.faults.kills`` does it, here for a short while."""

from __future__ import annotations

import subprocess
import sys

import pytest

IN_PLACE = """
import sys, time
from tests.faults import kills

def in_place(path, data, mode):
    with path.open("wb") as file:
        file.write(data[:1000])
        file.flush()
        time.sleep(0.002)
        file.write(data[1000:])

kills.write_whole = in_place
sys.exit(kills.main(["--times", "20"]))
"""


@pytest.mark.parametrize(("number", "times"), [("KILL", 20), ("TERM", 8), ("INT", 8)])
def test_a_kill_leaves_the_old_state_or_the_new_one(number: str, times: int) -> None:
    """At random moments, most of them in the middle of a save; and the next process goes on from it."""
    command = [sys.executable, "-m", "tests.faults.kills", "--times", str(times), "--signal", number, "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"saved last or being saved: {times}" in done.stdout
    assert int(done.stdout.partition("in the middle of a save: ")[2].partition(",")[0]) > times // 4


def test_a_file_that_is_written_in_place_does_not_survive_it() -> None:
    """The same kills of a writer as one would write it without thinking: they do find a torn file."""
    done = subprocess.run([sys.executable, "-c", IN_PLACE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "in _steps" in done.stderr  # the file is cut, or empty
