"""The entry point, each time in a process of its own, as vLLM calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

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


def python(code: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` with this command line, and with these ADAPTK variables and no others."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTK")}
    env |= {"VLLM_LOGGING_LEVEL": "INFO", "PYTHONWARNINGS": "ignore", **settings}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_entry_point_is_registered() -> None:
    """vLLM finds it by its name in its group."""
    (found,) = [e for e in entry_points(group="vllm.general_plugins") if e.name == "adaptk"]
    assert found.value == "adaptk.vllm_plugin.plugin:register"


@pytest.mark.parametrize(
    "settings", [{}, {"ADAPTK": ""}, {"ADAPTK": "off"}, {"ADAPTK": "0", "ADAPTK_ARMS": "x"}, {"ADAPTK_SEED": "3"}]
)
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


ADAPTKS = {"model": "m", "additional_config": {"adaptk": {}}}
OTHERS = {"model": "m", "additional_config": {"other": "adaptk"}}
LOADED = """
import sys
from adaptk.vllm_plugin import plugin
plugin._enter = lambda callers: print("entered")
class Arguments:
    def __init__(self, **fields):
        self.__dict__.update(fields)
        plugin.register()
"""


def entered(code: str, *arguments: str, **settings: str) -> bool:
    """Whether register() would enter vLLM when ``code`` comes to it."""
    done = python(LOADED + code, *arguments, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines() == ["entered"]


class TestAsking:
    """vLLM calls the entry point without arguments; it finds out by itself whether anything asks."""

    @pytest.mark.parametrize(
        ("fields", "asks"), [(ADAPTKS, True), (OTHERS, False), ({"additional_config": None}, False)]
    )
    def test_the_arguments_that_vllm_is_at_work_on(self, fields: dict[str, Any], asks: bool) -> None:
        """Whoever called it holds them: as an object, as keywords, or inside of a method."""
        assert entered(f"Arguments(**{fields!r})") is asks
        assert entered(f"def engine(vllm_config):\n    plugin.register()\nclass C: pass\nc = C()\n"
                       f"c.__dict__.update({fields!r})\nengine(c)") is asks  # fmt: skip
        assert entered(f"def engine(**kwargs):\n    plugin.register()\nengine(**{fields!r})") is asks

    @pytest.mark.parametrize(
        ("arguments", "asks"),
        [
            (["--additional-config", '{"adaptk": {}}'], True),
            (['--additional-config={"adaptk": {}}'], True),
            (["--additional_config", '{"adaptk": {}}'], True),
            (["--additional-config.adaptk.mode=on"], True),
            (["--additional_config.adaptk.mode", "on"], True),
            (["--config", "{folder}/asks.yaml"], True),
            (["serve", "adaptk/model", "--config", "{folder}/asks_not.yaml"], False),
            (["--additional-config", '{"other": 1}', "--model", "adaptk"], False),
            (["--additional", '{"adaptk": {}}'], True),
            (["--additional-config.adaptk", "{}"], True),
            (['--additional-config={"other": 1}', "adaptk/model"], False),
            (["--additional-config", '{"other": "adaptk"}'], False),
            (["--config", "{folder}/names.yaml"], False),
            (["--config", "{folder}/json.yaml"], True),
            (["--config", "{folder}/missing.yaml"], False),
            (["--config", "{folder}"], False),
            (["--config"], False),
            (["--additional-config"], False),
        ],
    )
    def test_the_command_line(self, arguments: list[str], asks: bool, tmp_path: Path) -> None:
        """With its spellings, and the file that it may name."""
        (tmp_path / "asks.yaml").write_text("additional-config:\n  adaptk:\n    mode: shadow\n")
        (tmp_path / "asks_not.yaml").write_text("model: m\n")
        (tmp_path / "names.yaml").write_text("model: adaptk/model\n")
        (tmp_path / "json.yaml").write_text("additional-config: '{\"adaptk\": {}}'\n")
        given = [argument.replace("{folder}", str(tmp_path)) for argument in arguments]
        assert entered("plugin.register()", *given) is asks

    @pytest.mark.parametrize("there", ["del sys.argv", "sys.argv = None", "sys.argv = [1, None]"])
    def test_a_program_without_a_command_line(self, there: str) -> None:
        """An interpreter inside of another program; strictness is about what was asked, and nothing was."""
        assert not entered(f"{there}\nplugin.register()\nassert not plugin._registered", ADAPTK_STRICT="1")

    def test_a_command_line_that_a_program_makes_itself(self) -> None:
        """vLLM loads its plugins as it makes the parser, before it sees the arguments."""
        code = "def main(argv):\n    plugin.register()\n"
        assert entered(code + "main(['m', '--additional-config.adaptk.seed', '3', None])")
        assert not entered(code + "main(['m', '--seed', '3', 'adaptk', 7])")
        assert not entered(code + "main([7] * 10_000)")

    def test_off_in_the_environment_is_stronger_than_all(self) -> None:
        """The switch that an operator can rely on."""
        assert not entered(f"Arguments(**{ADAPTKS!r})", ADAPTK="off")
        assert not entered("plugin.register(always=True)", ADAPTK="0")

    def test_a_program_may_ask_ahead(self) -> None:
        """vLLM would not call the entry point again for a second engine that asks."""
        assert entered("plugin.register()\nplugin.register(always=True)\nplugin.register(always=True)")

    def test_objects_that_bite_are_left_alone(self) -> None:
        """Nothing of a caller's runs, and nothing of it can stop vLLM."""
        code = """
class Bites:
    def __getattribute__(self, name): raise SystemExit(name)
    def __eq__(self, other): raise SystemExit
class Dictionary(dict):
    def get(self, *_): raise SystemExit
    def __contains__(self, _): raise SystemExit
def engine(bites, config, nothing=None):
    plugin.register()
engine(Bites(), Dictionary(additional_config=Dictionary(adaptk=%s)))
"""
        assert entered(code % "Bites()")
        assert not entered(code.replace("adaptk=", "other=") % "Bites()")


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
