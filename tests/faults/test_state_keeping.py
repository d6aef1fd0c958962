"""The state is saved off the step, whole, by one engine at a time; whatever the disk does, the engine goes on."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from adaptk import Controller
from adaptk.statefile import State, state_bytes
from adaptk.vllm_plugin import state, stateplace
from adaptk.vllm_plugin.state import Keeper
from tests.engine.conftest import Lines
from tests.faults.keeping import KEY, Steered, fresh, kept, learn, placed, saved, steps_in
from tests.publicengine import PUBLIC


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.json"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals pass quickly."""
    for name, seconds in {"INTERVAL_S": 0.01, "QUIET_S": 0.01, "_LOOK_S": 0.001, "_SHORT_S": 0.001}.items():
        monkeypatch.setattr(state, name, seconds)
    monkeypatch.setattr(stateplace, "_SOON_S", 0.001)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    until(lambda: not [thread for thread in threading.enumerate() if thread.name == "adaptk-state"])
    assert not state._open


def until(holds: Callable[[], object]) -> None:
    """Wait for another thread; an error after far more time than it can need."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.002)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def ended(keeper: Keeper) -> Keeper:
    keeper.end()
    keeper.wait()
    return keeper


def after(steps: int) -> dict[str, Any]:
    """The snapshot of a controller like any other here, after so many steps."""
    controller = fresh()
    learn(controller, steps)
    return controller.snapshot()


def serve_until(controller: Controller, keeper: Keeper, holds: Callable[[], object]) -> None:
    """Steps as an engine makes them, its copies handed over when they are wanted."""

    def turn() -> object:
        learn(controller)
        if keeper.wanted:
            keeper.take(controller)
        return holds()

    until(turn)


class TestSaving:
    def test_what_was_learnt_is_saved_again_and_again(self, path: Path, often: None) -> None:
        """Each time all of it, as of a moment between two steps."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        for saves in (1, 4):
            serve_until(controller, keeper, lambda saves=saves: keeper.saves >= saves)
        assert 0 < steps_in(path) <= controller.counters["steps"]
        ended(keeper)
        assert Controller.restore(saved(path).snapshot, PUBLIC).snapshot() == controller.snapshot()
        assert (saved(path).key, saved(path).vllm) == (KEY, "0.32.0")
        assert abs(saved(path).saved - time.time()) < 60
        assert keeper.saved_s == saved(path).saved

    def test_without_news_nothing_is_written(self, path: Path, often: None) -> None:
        """Neither at first, nor after a save, nor at the end."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        keeper.take(controller)
        until(lambda: keeper.wanted)
        assert not path.exists()
        serve_until(controller, keeper, lambda: keeper.saves)
        keeper.take(controller)
        until(lambda: keeper._copy is keeper._done)
        before, saves = path.stat(), keeper.saves
        for _ in range(3):
            keeper.take(controller)
            until(lambda: keeper.wanted)
        ended(keeper)
        assert keeper.saves == saves
        assert path.stat() == before

    def test_weights_that_changed_are_news(self, path: Path) -> None:
        """Of a controller that saw no step since: acceptance is wide again."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        controller.note_weights_changed()
        ended(keeper)
        assert saved(path).snapshot["counters"]["weights_changed"] == 1

    def test_an_engine_that_rests_has_handed_over_its_last_steps(
        self, path: Path, often: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No step comes by to copy them: a kill while it idles loses none; but not at each of many rests."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        monkeypatch.setattr(state, "REST", 0.0)
        learn(controller, 3)
        keeper.rest()
        until(lambda: path.exists() and steps_in(path) == 3)
        monkeypatch.setattr(state, "REST", 1e9)
        learn(controller)
        keeper.rest()
        assert keeper._copy is not None
        assert keeper._copy["counters"]["steps"] == 3
        ended(keeper)
        assert steps_in(path) == 4

    @pytest.mark.parametrize(("at_work", "mode"), [(True, "on"), (True, "off"), (False, "on")])
    def test_at_rest_it_is_saved_sooner(
        self, path: Path, often: None, monkeypatch: pytest.MonkeyPatch, at_work: bool, mode: Any
    ) -> None:
        """A server is ended when it has nothing to do, and its engine is killed then; in mode off nothing is learnt."""
        monkeypatch.setattr(state, "INTERVAL_S", 3600.0)
        controller, steering = fresh(), Steered()
        steering.at_work, steering.mode = at_work, mode
        keeper = kept(path, controller, steering)
        learn(controller, 3)
        keeper.take(controller)
        if at_work and mode == "on":
            time.sleep(0.3)
            assert not keeper.saves
            steering.at_work = False
        until(lambda: path.exists() and steps_in(path) == 3)
        ended(keeper)

    def test_only_the_controller_that_it_is_of_is_saved(self, path: Path, often: None) -> None:
        """Another one takes its place for a while, as in a profile: what that one believes is not asked."""
        controller, other, steering = fresh(), fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller, 2)
        learn(other, 9)
        keeper.take(other)
        until(lambda: keeper.wanted)
        keeper.take(other)
        ended(keeper)
        assert steps_in(path) == 2

    def test_a_copy_is_there_before_the_wish_for_one_is_gone(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The other thread writes as soon as the wish is gone: it must not meet the copy before."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller)
        seen = []
        monkeypatch.setattr(state, "changing", lambda own: seen.append(keeper.wanted) or {})
        keeper.wanted = True
        keeper.take(controller)
        assert (seen, keeper.wanted) == ([True], False)
        keeper._copy = None
        ended(keeper)

    def test_another_controller_in_charge_is_told_once(self, path: Path, log: Lines) -> None:
        """The state is of the one that the engine started with; nobody waits for a copy of the other."""
        keeper = kept(path, fresh(), Steered())
        for _ in range(3):
            keeper.wanted = True
            keeper.take(fresh())
            assert not keeper.wanted
        ended(keeper)
        assert len(log.having("another one is in charge")) == 1

    def test_the_file_is_nobody_elses_to_open(self, path: Path) -> None:
        """State and lock, whatever the process's mask."""
        mask = os.umask(0)
        try:
            controller, steering = fresh(), Steered()
            keeper = kept(path, controller, steering)
            learn(controller)
            ended(keeper)
        finally:
            os.umask(mask)
        assert {entry.name: entry.stat().st_mode & 0o777 for entry in path.parent.iterdir()} == {
            "state.json": 0o600,
            "state.json.lock": 0o600,
        }

    def test_a_link_stays_one(self, path: Path, tmp_path: Path) -> None:
        """What it leads to is replaced, and locked."""
        (tmp_path / "elsewhere").mkdir()
        path.symlink_to("elsewhere/real.json")
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller)
        ended(keeper)
        assert path.is_symlink()
        assert names(tmp_path / "elsewhere") == ["real.json", "real.json.lock"]


class TestEnds:
    def test_after_a_fault_nothing_is_saved(self, path: Path, often: None, log: Lines) -> None:
        """The last good state stays, also where a copy was handed over before, and nobody could give it up."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        serve_until(controller, keeper, lambda: keeper.saves)
        until(lambda: keeper._copy is keeper._done)
        steering.active = False
        steps = steps_in(path)
        learn(controller)
        keeper.take(controller)
        ended(keeper)
        assert steps_in(path) == steps
        second = Steered()
        other = kept(path, controller, second)
        learn(controller)
        other.give_up()
        ended(other)
        assert steps_in(path) == steps
        assert not log.having("ERROR")

    def test_a_steering_that_is_gone_is_saved_once_more(self, path: Path) -> None:
        """An engine that nobody shut down: no thread stays, no lock, and nothing is lost."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller, 5)
        del steering
        gc.collect()
        until(lambda: not keeper._thread.is_alive())
        assert steps_in(path) == 5
        assert placed(path).lock()

    def test_a_disk_that_hangs_holds_up_nobody(self, path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither a copy nor the end waits for it; it is said, and the former state is whole."""
        monkeypatch.setattr(state, "_ENDS_WITHIN_S", 0.2)
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller)
        ended(keeper)
        hangs, sync = threading.Event(), os.fsync
        keeper = kept(path, controller, steering)
        learn(controller)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda fd: (hangs.wait(20), sync(fd))[1])
            began = time.monotonic()
            keeper.end()
            learn(controller)
            keeper.take(controller)
            keeper.wait()
            assert time.monotonic() - began < 10
            assert steps_in(path) == 1
            assert not placed(path).lock()
            hangs.set()
            until(lambda: not keeper._thread.is_alive())
        assert len(log.having("is not yet saved to")) == 1

    @pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0", "os.kill(os.getpid(), signal.SIGINT)"])
    def test_a_process_that_ends_by_itself_saves(self, path: Path, end: str) -> None:
        """Nobody shuts the engine down: the program ends, fails, or is interrupted."""
        run_script(path, f"{BEGIN}learn(controller, 6)\n{end}")
        assert steps_in(path) == 6

    def test_a_child_of_multiprocessing_that_ends_saves(self, path: Path) -> None:
        """As vLLM's engine is one; there, what is registered at exit is not run."""
        script = """
def engine():
    controller, steering = fresh(), Steered()
    keeper = kept(path, controller, steering)
    learn(controller, 7)
process = multiprocessing.get_context("fork").Process(target=engine)
process.start()
process.join()
"""
        run_script(path, script)
        assert steps_in(path) == 7

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_a_process_that_is_killed_between_two_saves_leaves_the_last_one(self, path: Path, number: int) -> None:
        """And no lock: the next one has it at once."""
        script = """
while keeper.saves < 3:
    learn(controller)
    if keeper.wanted:
        keeper.take(controller)
state.INTERVAL_S = state.QUIET_S = 3600
time.sleep(0.2)  # the last one may be under way
print("ready", flush=True)
time.sleep(60)
"""
        with started(path, OFTEN + BEGIN + script) as process:
            assert process.stdout.readline() == b"ready\n"
            steps = steps_in(path)
            process.send_signal(number)
            assert process.wait(20) == -number
        assert steps_in(path) == steps > 0
        place = placed(path)
        assert place.lock()
        place.release()


OFTEN = "state.INTERVAL_S = state.QUIET_S = state._LOOK_S = 0.01\n"
HEAD = """
import multiprocessing, os, signal, sys, time
from pathlib import Path
from adaptk.vllm_plugin import state
from tests.faults.keeping import Steered, fresh, kept, learn
path = Path(sys.argv[1])
"""
BEGIN = "controller, steering = fresh(), Steered()\nkeeper = kept(path, controller, steering)\n"


def started(path: Path, script: str) -> subprocess.Popen[bytes]:
    """A process that runs ``script``, which begins with ``BEGIN`` where it has a controller and its keeper."""
    command = [sys.executable, "-c", HEAD + script, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def run_script(path: Path, script: str) -> str:
    with started(path, script) as process:
        out, _ = process.communicate(timeout=60)
    return out.decode()


class TestAnotherThreadLearnsAtTheEnd:
    """Where the program ends on one thread and the engine is on another one, or was broken off."""

    @pytest.fixture
    def busy(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Controller, Callable[[], object]], None]]:
        """Begins threads that learn at every turn they get, and ends them all; a slow machine has time to copy."""
        over, threads = threading.Event(), []
        interval = sys.getswitchinterval()

        def begin(controller: Controller, turn: Callable[[], object]) -> None:
            def serve() -> None:
                while not over.is_set():
                    turn()

            threads.append(threading.Thread(target=serve))
            threads[-1].start()

        sys.setswitchinterval(1e-5)
        for name in ("_BETWEEN_S", "_ENDS_WITHIN_S"):
            monkeypatch.setattr(state, name, 20.0)
        yield begin
        over.set()
        for thread in threads:
            thread.join(20)
        sys.setswitchinterval(interval)

    def test_no_copy_is_torn(self, path: Path, busy: Any) -> None:
        """It is that after a whole number of steps, to the last bit; also where nobody hands one over."""
        for _ in range(16):
            path.unlink(missing_ok=True)
            controller, steering = fresh(), Steered()

            def turn(controller: Controller = controller, steering: Steered = steering) -> None:
                steering.turn |= 1
                learn(controller)
                steering.turn += 1
                time.sleep(5e-4)

            keeper = kept(path, controller, steering)
            busy(controller, turn)
            until(lambda controller=controller: controller.counters["steps"] > 50)
            ended(keeper)
            found = saved(path).snapshot
            assert found == after(found["counters"]["steps"])
            assert found["counters"]["steps"] > 50

    def test_one_that_learns_without_a_pause_hands_its_copy_over(self, path: Path, busy: Any) -> None:
        """No moment between two steps is met from outside: it is asked for one."""
        controller, steering = fresh(), Steered()
        steering.turn = 1
        keeper = kept(path, controller, steering)

        def turn() -> None:
            learn(controller)
            if keeper.wanted:
                keeper.take(controller)

        busy(controller, turn)
        until(lambda: controller.counters["steps"] > 50)
        ended(keeper)
        found = saved(path).snapshot
        assert found == after(found["counters"]["steps"])
        assert found["counters"]["steps"] > 50

    def test_one_that_was_broken_off_in_a_step_leaves_what_was_saved_last(
        self, path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By an interrupt or a signal in the middle of learning: half a step is nothing to go on from."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller, 3)
        keeper.take(controller)
        steering.turn |= 1
        with monkeypatch.context() as patch:
            patch.setattr(type(controller._latency), "add", raising(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                learn(controller)
        assert controller.snapshot() != after(3)
        began = time.monotonic()
        ended(keeper)
        assert time.monotonic() - began < 10
        assert saved(path).snapshot == after(3)
        assert not log.lines

    def test_a_process_that_ends_while_its_engine_serves_on(self, path: Path) -> None:
        """A daemon thread that is at work until the process is gone."""
        script = """
import threading
state._BETWEEN_S = state._ENDS_WITHIN_S = 20.0
def serve():
    while True:
        steering.turn |= 1
        learn(controller)
        steering.turn += 1
        if keeper.wanted:
            keeper.take(controller)
        time.sleep(1e-4)
threading.Thread(target=serve, daemon=True).start()
while controller.counters["steps"] < 100:
    time.sleep(0.001)
"""
        run_script(path, BEGIN + script)
        found = saved(path).snapshot
        assert found["counters"]["steps"] >= 100
        assert found == after(found["counters"]["steps"])

    def test_no_memory_for_the_last_copy_is_told(self, path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is no copy that another thread disturbed: it is not tried for ever."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller)
        with monkeypatch.context() as patch:
            patch.setattr(state, "changing", raising(MemoryError))
            ended(keeper)
        assert keeper.failures == 1
        assert len(log.having("MemoryError")) == 1
        assert not path.exists()


class TestForks:
    def test_a_child_keeps_neither_file_nor_lock(self, path: Path) -> None:
        """It goes on with a copy of controller and keeper, and saves nothing; the lock ends with the parent."""
        script = """
learn(controller, 2)
child = os.fork()
if child == 0:
    learn(controller, 50)
    keeper.take(controller)
    keeper.end()
    keeper.wait()
    print("child", keeper.saves, flush=True)
    os.close(1)
    time.sleep(20)
    os._exit(0)
print("parent", child, flush=True)
time.sleep(0.5)
"""
        said = dict(line.split() for line in run_script(path, OFTEN + BEGIN + script).splitlines())
        try:
            assert said["child"] == "0"
            assert steps_in(path) == 2
            place = placed(path)
            assert place.lock()
            place.release()
        finally:
            os.kill(int(said["parent"]), signal.SIGKILL)

    def test_a_program_that_is_started_does_not_inherit_the_lock(self, path: Path) -> None:
        """A worker or a shell that outlives the engine keeps no other one from saving."""
        script = 'os.posix_spawn("/bin/sleep", ["sleep", "20"], os.environ, file_actions=[(os.POSIX_SPAWN_CLOSE, 1)])'
        run_script(path, BEGIN + script)
        place = placed(path)
        assert place.lock()
        place.release()


class TestTwoEngines:
    @pytest.mark.parametrize("name", ["state.json", "link.json"])
    def test_one_saves_and_the_other_takes_over(self, path: Path, often: None, log: Lines, name: str) -> None:
        """It says so once, reads all the same, and is the one that saves once the first has ended."""
        path.with_name("link.json").symlink_to(path)
        first, second, steering = fresh(), fresh(), Steered()
        one = kept(path, first, steering)
        other = kept(path.with_name(name), second, steering)
        serve_until(first, one, lambda: one.saves)
        begun = second.counters["steps"]
        serve_until(second, other, lambda: second.counters["steps"] > begun + 200)
        steps = steps_in(path)
        assert other.saves == other.failures == 0
        assert other.place.read() == saved(path)
        assert len(log.having("another engine saves its state to")) == 1
        ended(one)
        assert steps_in(path) >= steps
        serve_until(second, other, lambda: other.saves)
        ended(other)
        assert steps_in(path) == second.counters["steps"]
        assert len(log.having("the lock is free now")) == 1

    def test_the_first_ones_last_save_is_moved_aside_by_one_that_cannot_use_it(self, path: Path, often: None) -> None:
        """Refused at the start, saved once more at the end of its engine: nothing of it is lost."""
        first, steering = fresh(), Steered()
        one = kept(path, first, steering)
        serve_until(first, one, lambda: one.saves)
        second = Controller(None, arms=(0, 2), seed=0)
        place = placed(path)
        place.read()
        place.refuse("it is of up to other drafts")
        assert not place.lock()
        other = Keeper(place, second, steering)
        other.start()
        learn(first)
        ended(one)
        serve_until(second, other, lambda: other.saves)
        ended(other)
        assert steps_in(path.with_name("state.json.1")) == first.counters["steps"]
        assert saved(path).snapshot["counters"]["steps"] == second.counters["steps"]

    def test_one_that_stood_by_loses_nothing_of_the_first(self, path: Path) -> None:
        """What has seen more steps than it has itself is moved aside, not replaced."""
        first, second, steering = fresh(), fresh(), Steered()
        one, other = kept(path, first, steering), kept(path, second, steering)
        learn(first, 30)
        ended(one)
        learn(second, 2)
        ended(other)
        assert (steps_in(path), steps_in(path.with_name("state.json.1"))) == (2, 30)

    @pytest.mark.parametrize("asked", [False, True])
    def test_of_two_with_other_drafts_none_replaces_the_others(self, path: Path, asked: bool) -> None:
        """Also where the key is the same and the file was put there after the start."""
        steering = Steered()
        first, second = fresh(), Controller(None, arms=(0, 2), seed=0)
        one = kept(path, first, steering)
        learn(first)
        other = kept(path, second, steering)
        learn(second)
        ended(one)
        if asked:
            assert other.place.read() is not None
        ended(other)
        assert steps_in(path.with_name("state.json.1")) == first.counters["steps"]

    def test_a_lock_that_is_removed_is_taken_anew(self, path: Path) -> None:
        """Cleaners of temporary folders do that: two engines must not both take themselves for its holder."""
        one, other = placed(path), placed(path)
        assert one.lock()
        path.with_name("state.json.lock").unlink()
        assert other.lock()
        assert not one.lock()
        other.release()
        assert one.lock()
        one.release()

    def test_where_files_have_no_locks_it_is_said(
        self, path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Some file systems of a network know none: saved all the same."""

        def none(*_: Any) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", none)
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller)
        ended(keeper)
        assert steps_in(path) == 1
        assert len(log.having("have no locks")) == 1


class TestWhatStandsThere:
    FOREIGN = b'{"schema_version": 1, "rows": []}'

    def test_what_is_no_state_is_never_replaced(self, path: Path, often: None, log: Lines) -> None:
        """A table by mistake: it stays to the last bit; said once, counted each time, and saved once it is gone."""
        path.write_bytes(self.FOREIGN)
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        serve_until(controller, keeper, lambda: keeper.failures >= 3)
        assert path.read_bytes() == self.FOREIGN
        assert len(log.having("is no state of adaptk's")) == len(log.having("ERROR")) == 1
        path.rename(path.with_name("table.json"))
        serve_until(controller, keeper, lambda: keeper.saves)
        ended(keeper)
        assert steps_in(path) == controller.counters["steps"]
        assert len(log.having("is saved to")) == 1

    def test_what_somebody_put_there_meanwhile_is_seen(self, path: Path, often: None) -> None:
        """Between two saves of an engine at work."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        serve_until(controller, keeper, lambda: keeper.saves)
        path.with_name("table").write_bytes(self.FOREIGN)
        path.with_name("table").rename(path)
        serve_until(controller, keeper, lambda: keeper.failures)
        ended(keeper)
        assert path.read_bytes() == self.FOREIGN

    @pytest.mark.parametrize("what", ["cut", "newer", "another engine's"])
    def test_what_is_of_no_use_is_moved_aside(self, path: Path, log: Lines, what: str) -> None:
        """To the name after all that are there, before the first save and not before; nothing is lost."""
        controller, steering = fresh(), Steered()
        whole = state_bytes(State(adaptk="", vllm="", saved=0.0, key=KEY, snapshot=controller.snapshot()))
        data = {
            "cut": whole[:-100],
            "newer": whole.replace(b'"schema_version":1', b'"schema_version":9', 1),
            "another engine's": whole.replace(b"H100", b"H200"),
        }[what]
        path.write_bytes(data)
        path.with_name("state.json.1").write_bytes(b"older")
        keeper = kept(path, controller, steering)
        assert path.read_bytes() == data
        learn(controller)
        ended(keeper)
        assert steps_in(path) == 1
        assert path.with_name("state.json.1").read_bytes() == b"older"
        assert path.with_name("state.json.2").read_bytes() == data
        assert len(log.having("was moved to")) == len(log.lines) == 1

    def test_engines_that_take_turns_at_one_path_leave_a_few_files(self, path: Path, log: Lines) -> None:
        """Each moves the other's aside at every start: the last five stay, and what is removed is said."""
        for turn in range(12):
            controller, steering = fresh(), Steered()
            keeper = kept(path, controller, steering, {"model": f"model {turn % 2}"})
            learn(controller, turn + 1)
            ended(keeper)
        asides = [path.with_name(f"state.json.{number}") for number in range(7, 12)]
        assert names(path.parent) == sorted(["state.json", "state.json.lock", *(aside.name for aside in asides)])
        assert [steps_in(aside) for aside in asides] == [7, 8, 9, 10, 11]
        assert len(log.having("state.json.6 was removed")) == len(log.having("state.json.1 was removed")) == 1

    def test_what_is_none_of_adaptks_is_never_removed(self, path: Path) -> None:
        """Under the names of what is moved aside there may lie anything, and other engines' own states."""
        controller, steering = fresh(), Steered()
        whole = state_bytes(State(adaptk="", vllm="", saved=0.0, key=KEY, snapshot=controller.snapshot()))
        there = [path.with_name(f"state.json.{number}") for number in range(21)]
        there[0].write_bytes(whole)  # no such name is given
        there[1].write_bytes(self.FOREIGN)
        there[2].write_bytes(b"")
        there[3].symlink_to("elsewhere")
        path.with_name("elsewhere").write_bytes(whole)
        there[4].mkdir()
        os.mkfifo(there[5])
        there[6].write_bytes(whole)
        there[6].with_name("state.json.6.lock").touch()
        there[7].write_bytes(b'{"kind":"adap')
        for each in there[8:20]:
            each.write_bytes(whole)
        there[8].write_bytes(whole[:100])  # what was cut off and moved aside is one, too
        before = set(names(path.parent))
        path.write_bytes(whole.replace(b"H100", b"H200"))
        keeper = kept(path, controller, steering)
        learn(controller)
        ended(keeper)
        removed = {f"state.json.{number}" for number in range(8, 16)}
        assert set(names(path.parent)) == before - removed | {"state.json", "state.json.lock", "state.json.20"}

    def test_what_cannot_be_removed_stays_and_the_state_is_saved(
        self, path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A folder may allow to make files and forbid to remove other people's."""
        controller, steering = fresh(), Steered()
        whole = state_bytes(State(adaptk="", vllm="", saved=0.0, key={"model": ""}, snapshot=controller.snapshot()))
        path.write_bytes(whole)
        for number in range(1, 9):
            path.with_name(f"state.json.{number}").write_bytes(whole)
        keeper = kept(path, controller, steering)
        learn(controller)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", raising(PermissionError(errno.EPERM, "Operation not permitted")))
            ended(keeper)
        assert (steps_in(path), keeper.saves, keeper.failures) == (1, 1, 0)
        assert len(names(path.parent)) == 11
        assert len(log.having("cannot be removed")) == 1

    def test_a_link_in_a_circle_is_nothing_to_replace(self, path: Path, often: None) -> None:
        """Nor is what cannot be looked at for any other reason."""
        path.symlink_to(path)
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        serve_until(controller, keeper, lambda: keeper.failures >= 2)
        assert path.is_symlink()
        path.unlink()
        serve_until(controller, keeper, lambda: keeper.saves)
        ended(keeper)

    def test_an_empty_file_is_replaced(self, path: Path, log: Lines) -> None:
        """``touch`` and ``mktemp`` make one."""
        path.touch()
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller)
        ended(keeper)
        assert steps_in(path) == 1
        assert not log.lines

    def test_what_killed_writers_left_is_cleared_away(self, path: Path) -> None:
        """By who has the lock, so that it is nobody's; all other files stay."""
        there = ["state.json.0123abcd.tmp", "state.json.tmp", "state.json.1", "other.json.0123abcd.tmp"]
        for name in there:
            path.with_name(name).touch()
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller)
        ended(keeper)
        assert names(path.parent) == sorted([*there[1:], "state.json", "state.json.lock"])


class TestDisk:
    def test_a_folder_that_is_gone_for_a_while(self, path: Path, often: None, log: Lines) -> None:
        """Removed, and made again: each failure counts, one is told, and its end."""
        path = path.parent / "folder" / "state.json"
        path.parent.mkdir()
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        serve_until(controller, keeper, lambda: keeper.saves)
        for entry in path.parent.iterdir():
            entry.unlink()
        path.parent.rmdir()
        serve_until(controller, keeper, lambda: keeper.failures >= 5)
        saves = keeper.saves
        path.parent.mkdir()
        serve_until(controller, keeper, lambda: keeper.saves > saves)
        ended(keeper)
        assert steps_in(path) == controller.counters["steps"]
        assert [line.split()[0] for line in log.lines] == ["ERROR", "INFO"]

    def test_a_disk_that_cannot_be_asked_after_a_save_ends_nothing(
        self, path: Path, often: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The rename went well, the look at the file did not: counted, and saved again at the next interval."""
        marks = stateplace._mark
        failing = iter([False, True])

        def mark(target: Path) -> Any:
            if next(failing, False):
                raise OSError(errno.ESTALE, "Stale file handle")
            return marks(target)

        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        monkeypatch.setattr(stateplace, "_mark", mark)
        serve_until(controller, keeper, lambda: keeper.saves > 1)
        ended(keeper)
        assert keeper.failures == 1
        assert steps_in(path) == controller.counters["steps"]

    def test_a_disk_that_takes_no_more(self, path: Path) -> None:
        """A real limit on what a process may write: the former state is whole, no scrap stays, and it recovers."""
        script = """
import resource
def serve(holds):
    while not holds():
        learn(controller)
        if keeper.wanted:
            keeper.take(controller)
serve(lambda: keeper.saves)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
serve(lambda: keeper.failures >= 2)
before, there = keeper.saves, sorted(os.listdir(path.parent))
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
serve(lambda: keeper.saves > before)
print(there, flush=True)
"""
        assert run_script(path, OFTEN + BEGIN + script).strip() == "['state.json', 'state.json.lock']"
        assert steps_in(path) > 0

    def test_no_memory_for_a_copy_is_no_fault(self, path: Path, log: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is decided on; the next copy comes."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        learn(controller)
        with monkeypatch.context() as patch:
            patch.setattr(state, "changing", raising(MemoryError))
            keeper.take(controller)
            keeper.take(controller)
        assert keeper.failures == 2
        ended(keeper)
        assert steps_in(path) == 1
        assert len(log.having("MemoryError")) == 1

    def test_what_nobody_foresaw_is_told_with_its_place(
        self, path: Path, often: None, log: Lines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And tried again: no error of the saving is the last one."""
        controller, steering = fresh(), Steered()
        keeper = kept(path, controller, steering)
        with monkeypatch.context() as patch:
            patch.setattr(state, "completed", raising(RuntimeError("odd")))
            serve_until(controller, keeper, lambda: keeper.failures >= 2)
        serve_until(controller, keeper, lambda: keeper.saves)
        ended(keeper)
        assert len(log.having("the engine goes on: RuntimeError in ")) == 1


def raising(error: Any) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail
