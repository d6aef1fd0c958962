"""adaptk is a guest in another's process: importing it and running it leaves all that is shared as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from adaptk import Controller, StepRecord
from tests.bounded.endless import Endless
from tests.publicengine import PUBLIC

ROOT = Path(__file__).parents[2]
# Everything of the core: the files beside each other in adaptk/.
CORE = sorted(path.stem for path in (ROOT / "adaptk").glob("*.py") if not path.stem.startswith("__"))
# What starts threads or processes, or opens connections, when it is used: nothing that choosing K needs.
IDLE = {"asyncio", "concurrent", "multiprocessing", "socket", "socketserver", "ssl", "subprocess", "threading"}
PROBE = "import numpy, msgspec, pathlib, json\nfrom tests.bounded.footprint import footprint, moved\n"


def said(code: str, *options: str, **environment: str) -> str:
    """What a fresh interpreter prints, started in a folder that is not the project's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTK")}
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_importing_all_of_the_core_moves_nothing() -> None:
    """No thread, file, signal, exit function, filter, hook or setting is another than before; nothing is printed.

    But for the one exit function of Python's own multiprocessing, by which a trace is closed in its children, too.
    """
    code = (
        f"{PROBE}import multiprocessing.util\nbefore = footprint()\nfrom adaptk import *\n"
        f"from importlib import import_module\nfor name in {CORE}:\n    import_module('adaptk.' + name)\n"
        "print(moved(before))"
    )
    assert said(code) == "{}\n"


def test_a_thousand_steps_move_nothing() -> None:
    """Nor do the steps of a controller, with all that may happen to one in between."""
    code = (
        f"{PROBE}from tests.bounded.endless import Endless\nfrom adaptk import Controller\n"
        "before = footprint()\nEndless(Controller(None, k_max=5, seed=0)).run(1)\nprint(moved(before))"
    )
    assert said(code) == "{}\n"


def test_the_look_itself_sees_what_a_guest_might_do() -> None:
    """The instrument: each of these is found, under its name."""
    changes = {
        "threads": "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "files": "kept = open('/dev/null')",
        "signals": "import signal; signal.signal(signal.SIGUSR1, lambda *_: None)",
        "exit functions": "import atexit; atexit.register(print, end='')",
        "numpy random": "numpy.random.rand()",
        "numpy errors": "numpy.seterr(all='ignore')",
        "numpy printing": "numpy.set_printoptions(precision=3)",
        "random": "import random; random.random()",
        "warnings": "import warnings; warnings.simplefilter('ignore')",
        "logging": "import logging; logging.basicConfig()",
        "path": "import sys; sys.path.append('/tmp')",
        "environment": "import os; os.environ['X'] = '1'",
        "hooks": "import sys; sys.excepthook = print",
        "umask": "import os; os.umask(0)",
        "collector": "import gc; gc.disable()",
    }
    code = PROBE + "".join(
        f"before = footprint()\n{change}\nprint({name!r}, {name!r} in moved(before))\n"
        for name, change in changes.items()
    )
    assert said(code).splitlines() == [f"{name} True" for name in changes]


def test_the_names_bring_in_numpy_msgspec_and_what_does_nothing_by_itself() -> None:
    """Beside Python's own library no other package, and of that nothing that makes threads or connections."""
    code = (
        "import numpy, msgspec, sys\nbefore = set(sys.modules)\nfrom adaptk import *\n"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    new = set(said(code).split())
    assert new - set(sys.stdlib_module_names) <= {"adaptk", "numpy", "msgspec"}
    assert new & IDLE == set()
    assert "adaptk" in new


@pytest.mark.parametrize("options", [("-W", "error"), ("-W", "error", "-X", "dev"), ("-bb",), ("-O",), ("-I",)])
def test_any_way_that_python_is_started_in(options: tuple[str, ...]) -> None:
    """Warnings as errors, development mode, without assertions, isolated: it is imported, runs and says nothing."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.bounded.endless import Endless\n"
        "from adaptk import Controller, GoodputTable\ntable = GoodputTable.from_schedule([[1, 64, 3], [65, 512, 0]])\n"
        "load = Endless(Controller(table, seed=0))\nload.run(2)\nprint(load.controller.counters['steps'] > 1900)"
    )
    assert said(code, *options) == "True\n"


@pytest.mark.parametrize("table", [PUBLIC, None])
@pytest.mark.parametrize("errors", ["raise", "print"])
def test_numpys_errors_are_the_users_to_set(errors: str, table: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Who has numpy raise, or print, gets no error and no line from adaptk, and the same decisions."""
    played = []
    for setting in ({}, {"all": errors}):
        with np.errstate(**setting):  # type: ignore[arg-type]
            load = Endless(Controller(table, arms=(0, 1, 3, 5), seed=0))
            played.append([load.controller.choose(8), *_choices(load, 2)])
    assert played[0] == played[1]
    assert capsys.readouterr() == ("", "")


def test_chances_that_vanish_raise_nothing() -> None:
    """The product of 63 that are about 0 has no number of its own: where numpy raises on that, it is 0 all the same."""
    with np.errstate(all="raise"):
        controller = Controller(None, k_max=63, seed=0)
        for _ in range(1000):
            k = controller.choose(8, 8000)
            none = StepRecord(batch_size=8, elapsed_ms=10.0 + k, k=k, drafted=[k] * 8, accepted=[0] * 8)
            controller.observe(none)
        assert controller.belief(8)[0].k == controller.choose(8) == 0
        assert len(controller.positions()) == 63
        assert controller.corrected_table()


def _choices(load: Endless, blocks: int) -> list[int]:
    """Choices at the end of each block; all that came before goes into them."""
    found = []
    for _ in range(blocks):
        load.run(1)
        found += [load.controller.choose(batch, 100 * batch) for batch in (1, 8, 64, 4000)]
    return found
