"""The entry point, each time in a process of its own, as vLLM calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REPORT = """
import sys
from vllm.config import SchedulerConfig, VllmConfig
print("patched", hasattr(SchedulerConfig.get_scheduler_cls, "__adaptk_original__"))
"""
STRICTLY = """
import os
os.environ["ADAPTK_STRICT"] = "1"
plugin._registered = False
try:
    plugin.register()
except Exception as error:
    print("raised", type(error).__name__)
"""


def python(code: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with these ADAPTK variables and no others."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTK")}
    env |= {"VLLM_LOGGING_LEVEL": "INFO", "PYTHONWARNINGS": "ignore", **settings}
    return subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_entry_point_is_registered() -> None:
    """vLLM finds it by its name in its group."""
    (found,) = [e for e in entry_points(group="vllm.general_plugins") if e.name == "adaptk"]
    assert found.value == "adaptk.vllm_plugin.plugin:register"


@pytest.mark.parametrize("settings", [{}, {"ADAPTK": ""}, {"ADAPTK": "off"}, {"ADAPTK": "0", "ADAPTK_ARMS": "x"}])
def test_unset_or_off_nothing_is_imported(settings: dict[str, str]) -> None:
    """Loading and calling the entry point brings in nothing but the entry itself: not even numpy or our own core."""
    done = python(
        "import sys\n"
        "before = set(sys.modules)\n"
        "from importlib.metadata import entry_points\n"
        "[e] = [e for e in entry_points(group='vllm.general_plugins') if e.name == 'adaptk']\n"
        "e.load()()\n"
        "new = set(sys.modules) - before\n"
        "print(*(m for m in new if m.split('.')[0] in ('adaptk', 'vllm', 'torch', 'numpy', 'msgspec')))\n",
        **settings,
    )
    assert done.returncode == 0, done.stderr
    loaded = {"adaptk", "adaptk._version", "adaptk.vllm_plugin", "adaptk.vllm_plugin.plugin"}
    assert set(done.stdout.split()) <= loaded


def test_unset_vllm_stays_unpatched_through_its_own_loader() -> None:
    """vLLM's plugin loader calls the entry point and vLLM's classes are as they were."""
    done = python("from vllm.plugins import load_general_plugins\nload_general_plugins()\n" + REPORT)
    assert done.returncode == 0, done.stderr
    assert "patched False" in done.stdout


def test_on_vllms_loader_patches_it() -> None:
    """And calling the entry point again is harmless."""
    done = python(
        "from vllm.plugins import load_general_plugins\nload_general_plugins()\n"
        "from adaptk.vllm_plugin import register\nregister()\n" + REPORT,
        ADAPTK="on",
    )
    assert done.returncode == 0, done.stderr
    assert "patched True" in done.stdout


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ADAPTK": "maybe"}, "ADAPTK='maybe' is refused"),
        ({"ADAPTK": "on", "ADAPTK_BUDGET": "2"}, "ADAPTK_BUDGET='2' is refused"),
        ({"ADAPTK": "on", "ADAPTK_TABEL": "t"}, "ADAPTK_TABEL is not a setting"),
    ],
)
def test_a_bad_setting_is_said_once_or_raised(settings: dict[str, str], message: str) -> None:
    """Inactive with one line; under ADAPTK_STRICT it stops the process."""
    code = "import sys\nfrom adaptk.vllm_plugin import register\nregister()\nregister()\nprint('vllm' in sys.modules)"
    done = python(code, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
    assert (done.stdout + done.stderr).count(message) == 1
    strict = python(code, ADAPTK_STRICT="1", **settings)
    assert strict.returncode != 0
    assert message in strict.stderr


def test_a_vllm_without_a_hook_is_left_alone() -> None:
    """One line names what is missing, the version and the remedy; nothing is patched."""
    code = (
        "import vllm.config\n"
        "from vllm.v1.core.sched.scheduler import Scheduler\n"
        "del Scheduler._update_after_schedule\n"
        "from adaptk.vllm_plugin import plugin\nplugin.register()\nplugin.register()\n" + REPORT + STRICTLY
    )
    done = python(code, ADAPTK="on")
    assert done.returncode == 0, done.stderr
    assert "patched False" in done.stdout
    output = done.stdout + done.stderr
    assert output.count("lacks Scheduler._update_after_schedule") == 1
    assert "vLLM 0." in output
    assert "unset ADAPTK" in output
    assert "raised RuntimeError" in done.stdout
