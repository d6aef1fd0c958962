from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest

import adaptk

ROOT = Path(__file__).parents[1]
HEAVY = ("vllm", "torch", "scipy", "matplotlib", "rich", "prometheus_client", "transformers", "numba", "joblib")
CONTRACT = {"Controller", "GoodputTable", "StepRecord", "Settings", "ArmBelief", "Decision", "__version__"}


def run(code: str, **environment: str) -> str:
    """What a fresh interpreter prints for ``code``."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTK")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={**clean, "PYTHONPATH": str(ROOT), **environment},
    )
    return done.stdout


def test_all_is_what_is_exported() -> None:
    """Every name of ``__all__`` can be had, each home of a lazy name is in ``__all__``, and nothing else is public."""
    assert {name for name in adaptk.__all__ if getattr(adaptk, name) is None} == set()
    public = {
        name for name, value in vars(adaptk).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    helpers = {"annotations", "import_module", "TYPE_CHECKING"}
    assert set(adaptk.__all__) == public - helpers | {"__version__"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = adaptk.nothing


def test_the_contract_is_exported() -> None:
    assert set(adaptk.__all__) >= CONTRACT


def test_loads_nothing_heavy() -> None:
    code = "from adaptk import *; import sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = run(code).split()
    assert "adaptk" in loaded
    assert set(loaded).isdisjoint(HEAVY)


@pytest.mark.parametrize("module", ["step", "decision", "settings", "table", "trace", "controller"])
def test_each_core_module_loads_nothing_heavy(module: str) -> None:
    code = f"import adaptk.{module}, sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    assert set(run(code).split()).isdisjoint(HEAVY)


def test_import_time(record_property: pytest.RecordProperty) -> None:
    """0.15 s is promised on a quiet machine; here it may take four times what numpy alone takes, best of five each."""
    timed = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
    ours, numpys = timed.format("from adaptk import *"), timed.format("import numpy")
    run(ours)  # writes the byte code
    pairs = [(float(run(ours)), float(run(numpys))) for _ in range(5)]
    best_s, of_numpy_s = (min(times) for times in zip(*pairs, strict=True))
    record_property("import_s", best_s)
    print(f"import adaptk: {best_s:.3f} s, numpy alone {of_numpy_s:.3f} s")
    assert best_s < 4.0 * of_numpy_s


def test_the_entry_points_lead_somewhere() -> None:
    found = {
        group: {point.name: point.value for point in entry_points(group=group) if point.name == "adaptk"}
        for group in ("vllm.general_plugins", "console_scripts")
    }
    if not any(found.values()):
        pytest.skip("adaptk is not installed in this environment")
    assert found == {
        "vllm.general_plugins": {"adaptk": "adaptk.vllm_plugin.plugin:register"},
        "console_scripts": {"adaptk": "adaptk.cli.main:main"},
    }


def test_tables_need_no_extra(tmp_path: Path) -> None:
    """Showing, checking, exporting and comparing a table works with what adaptk itself depends on."""
    path = tmp_path / "t.json"
    adaptk.GoodputTable.from_rows([{"batch": 1, "k": 0, "itl_ms": 5.0}, {"batch": 1, "k": 1, "itl_ms": 6.0}]).save(path)
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({HEAVY!r}))\n"  # None there makes an import fail
        "from adaptk.cli.main import main\n"
        f"for more in (['show'], ['check'], ['export', '--vllm'], ['diff', {str(path)!r}]):\n"
        f"    print(main(['table', *more, {str(path)!r}]), file=sys.stderr)\n"
        "for command in ('profile', 'surface', 'table'):\n"
        "    try:\n"
        "        main([command, '--help'])\n"
        "    except SystemExit as end:\n"
        "        assert end.code == 0\n"
    )
    assert "usage: adaptk profile" in run(code)
