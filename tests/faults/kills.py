"""Kill a process that saves its state as fast as it can, at a random moment, and see what is left of the file.

``python -m tests.faults.kills --times 200`` ends with status 0 if each time the file was whole, was the state that was
saved last or the one being saved, and was gone on from by the next process, and scraps of killed writers did not add
up.

Signals: SIGKILL, or SIGTERM or SIGINT with ``--signal``. A killed process leaves what the system has taken from it;
that a power cut leaves a whole file, too, is by the order of syncing and renaming, which ``tests/test_outputs.py`` sees
to.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from adaptk import Controller
from adaptk.outputs import write_whole
from adaptk.statefile import scratch_of
from adaptk.vllm_plugin import state, stateplace
from tests.faults.keeping import Steered, fresh, kept, learn, saved
from tests.publicengine import PUBLIC

LONGEST_S = 0.06  # from a process's first step to its kill; a save takes some 5 ms
_PATIENCE_S = 60.0


class Died(NamedTuple):
    """What a kill left: steps in the file, those that were being saved and saved before, and whether a scrap was left.

    ``status`` is what the process ended with, as ``os.waitstatus_to_exitcode`` gives it.
    """

    found: int
    saving: int
    done: int
    scrap: bool
    status: int

    @property
    def sound(self) -> bool:
        """The old state or the new one."""
        return self.found in (self.saving, self.done)


def kill_once(path: Path, after_s: float, number: int) -> Died:
    """Go on from the state at ``path`` in a process of its own, kill it so long after it began to, and look."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            _save_for_ever(path, writer)
        except KeyboardInterrupt:
            os._exit(130)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        first = said.readline()
        time.sleep(after_s)
        os.kill(child, number)
        lines = [first, *said]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    told = {kind: int(steps) for kind, steps in (line.split() for line in lines if line.endswith(b"\n"))}
    return Died(
        found=_steps(path),
        saving=told.get(b"saving", -1),
        done=told.get(b"done", -1),
        scrap=bool(scratch_of(path)),
        status=status,
    )


def _save_for_ever(path: Path, said: int) -> None:
    """Learn a step, save, and so on; tells each save before it begins and once it is done."""
    state.INTERVAL_S = state.QUIET_S = state._LOOK_S = state._SHORT_S = 0.0
    controller = Controller.restore(saved(path).snapshot, PUBLIC)

    def writing(target: Path, data: bytes, mode: int) -> None:
        assert keeper._copy is not None
        steps = copies.pop()
        os.write(said, b"saving %d\n" % steps)
        write_whole(target, data, mode)
        os.write(said, b"done %d\n" % steps)

    def completing(controller: Controller, copy: dict[str, object]) -> dict[str, object]:
        counters = copy["counters"]
        assert isinstance(counters, dict)
        copies.append(counters["steps"])
        return complete(controller, copy)

    copies: list[int] = []
    complete = state.completed
    stateplace.write_whole, state.completed = writing, completing
    os.write(said, b"done %d\n" % controller.counters["steps"])
    steering = Steered()
    keeper = kept(path, controller, steering)
    ends = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ends:
        learn(controller)
        if keeper.wanted:
            keeper.take(controller)
        else:
            time.sleep(1e-4)  # the machine is for the thread that saves


def _steps(path: Path) -> int:
    """Steps of the state in the file, all of it checked; an error if it is not whole."""
    return Controller.restore(saved(path).snapshot, PUBLIC).counters["steps"]


def run(times: int, seed: int, number: int, folder: Path) -> list[Died]:
    """So many processes, each of which goes on where the one before it was killed."""
    first, steering = fresh(), Steered()
    keeper = kept(folder / "state.json", first, steering)
    learn(first)
    keeper.end()
    keeper.wait()
    moments = random.Random(seed)
    return [kill_once(folder / "state.json", moments.uniform(0.0, LONGEST_S), number) for _ in range(times)]


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kills", description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--signal", choices=["KILL", "TERM", "INT"], default="KILL")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        died = run(given.times, given.seed, signal.Signals[f"SIG{given.signal}"], Path(folder))
        took = time.monotonic() - began
        left = len(scratch_of(Path(folder) / "state.json"))
    torn = collections.Counter("old" if one.found != one.saving else "new" for one in died if one.saving != one.done)
    print(f"{len(died)} processes killed by SIG{given.signal} in {took:.0f} s; each time the file was whole")
    print(f"the state saved last or being saved: {sum(one.sound for one in died)}")
    print(
        f"in the middle of a save: {sum(torn.values())}, and then the old one {torn['old']}, the new one {torn['new']}"
    )
    print(f"scraps left by a kill: {sum(one.scrap for one in died)}, after all of them: {left}")
    print(f"steps learnt over all of them: {died[-1].found if died else 0}")
    return 0 if all(one.sound for one in died) and left <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
