"""The notebooks as they are stored: run whole, small, and fit to be read by others; nbmake runs them anew."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NAMES = (
    "01-decision-problem",
    "02-controller-by-hand",
    "03-profile-and-table",
    "04-production-trace",
    "05-drift",
    "06-real-engine",
)
MOST_BYTES = 150_000
MOST_LINES = 50  # of code in one cell
ABSOLUTE = re.compile(r"(?<![\w.~])/(?:home|root|tmp|usr|var|work|opt|mnt|Users)/|[A-Z]:\\\\")

each = pytest.mark.parametrize("name", NAMES)


@cache
def stored(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    return loaded


def text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)


def cells(name: str, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in stored(name)["cells"] if cell["cell_type"] == kind]


def outputs(name: str) -> list[dict[str, Any]]:
    return [output for cell in cells(name, "code") for output in cell["outputs"]]


def figures(name: str) -> list[dict[str, Any]]:
    return [output for output in outputs(name) if "image/png" in output.get("data", {})]


def module(name: str) -> ModuleType:
    """A module that lies beside the notebooks, which is no package."""
    spec = importlib.util.spec_from_file_location(f"notebooks_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_there_are_these_notebooks_and_no_others() -> None:
    """A notebook that is added is looked at, too."""
    assert tuple(sorted(path.stem for path in FOLDER.glob("*.ipynb"))) == NAMES


@each
def test_it_begins_with_what_it_found(name: str) -> None:
    """The title names the notebook's number and states something; the text is Markdown that was not left empty."""
    first = text(cells(name, "markdown")[0]["source"])
    assert re.match(rf"# {name[:2]} · .{{30,}}\n", first)
    assert all(text(cell["source"]).strip() for cell in stored(name)["cells"])


@each
def test_it_was_run_whole_and_in_order(name: str) -> None:
    """Every code cell ran once, from top to bottom."""
    assert [cell["execution_count"] for cell in cells(name, "code")] == list(range(1, len(cells(name, "code")) + 1))


@each
def test_nothing_failed_and_nobody_warned(name: str) -> None:
    """No output is an error or came over standard error."""
    assert outputs(name)
    assert all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs(name))
    assert not any("Warning" in text(output.get("text", "")) for output in outputs(name))


@each
def test_it_is_small_and_has_no_walls_of_code(name: str) -> None:
    """It is quick to load and to read."""
    assert (FOLDER / f"{name}.ipynb").stat().st_size < MOST_BYTES
    assert max(text(cell["source"]).count("\n") + 1 for cell in cells(name, "code")) <= MOST_LINES
    assert 5 <= len(stored(name)["cells"]) <= 14


@each
def test_it_says_nothing_of_the_machine_that_ran_it(name: str) -> None:
    """No folder of that machine stands in code or outputs, and its metadata is the kernel's name."""
    loaded = stored(name)
    shown = [text(cell["source"]) for cell in loaded["cells"]]
    shown += [
        text(output.get("text", "")) + text(output.get("data", {}).get("text/plain", "")) for output in outputs(name)
    ]
    assert not [found.group() for part in shown for found in ABSOLUTE.finditer(part)]
    assert loaded["metadata"]["kernelspec"]["name"] == "python3"
    assert set(loaded["metadata"]) == {"kernelspec", "language_info"}
    assert all(cell["metadata"] == {} for cell in loaded["cells"])


@each
def test_every_axis_of_its_figures_has_a_quantity_and_a_unit(name: str) -> None:
    """Figures are shown by ``pictures.show``, which refuses others, and carry their labels and a sentence as text."""
    assert figures(name)
    for output in figures(name):
        said = text(output["data"]["text/plain"])
        found = re.fullmatch(r"Figure: (.+\.) Axes: (.+)\.", said)
        assert found, said
        labels = found[2].split("; ")
        assert len(labels) >= 2
        assert all("," in label for label in labels), labels
        assert output["metadata"]["image/png"]["alt"] == found[1]


@pytest.mark.parametrize(
    ("x", "y", "refused"),
    [
        ("batch size, requests", "step time, ms", None),
        ("batch", "step time, ms", "batch"),
        ("batch size, requests", "", ""),
    ],
)
def test_a_figure_without_units_is_refused(x: str, y: str, refused: str | None) -> None:
    """An axis that does not say its quantity and unit stops the notebook, by name of the axis and what it says."""
    pictures = module("pictures")
    shown: list[Any] = []
    pictures.display = lambda data, **_: shown.append(data)
    figure, axes = pictures.panels()
    axes.plot([1, 2])
    axes.set(xlabel=x, ylabel=y)
    if refused is None:
        pictures.show(figure, "A line.")
        assert shown[0]["text/plain"] == "Figure: A line. Axes: batch size, requests; step time, ms."
        return
    with pytest.raises(ValueError, match=f"axis says {refused!r}: give it a quantity, then its unit"):
        pictures.show(figure, "A line.")
    assert not shown


def test_a_panel_may_leave_a_shared_axis_to_its_neighbour() -> None:
    """Panels that share an axis need its label once; without any it is refused."""
    pictures = module("pictures")
    pictures.display = lambda data, **_: None
    figure, (left, right) = pictures.panels(2, sharey=True)
    left.set(xlabel="K, drafts", ylabel="step time, ms")
    right.set(xlabel="K, drafts")
    pictures.show(figure, "Two panels.")
    left.set_ylabel("")
    with pytest.raises(ValueError, match="the y axis"):
        pictures.show(figure, "Two panels.")


def test_quiet_swallows_what_native_code_writes_and_nothing_after_it(capfd: pytest.CaptureFixture[str]) -> None:
    """Standard error is as before afterwards, also where an exception ends it, which is not swallowed."""
    quiet = module("quiet").quiet

    def fails() -> None:
        with quiet():
            os.write(2, b"native\n")
            print("python", file=sys.stderr)
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "after\n"
