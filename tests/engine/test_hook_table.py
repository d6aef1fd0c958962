"""The static hook table: right about the vLLM at hand, and not blind to one that was changed."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import vllm

from adaptk.vllm_plugin import compat, serveargs
from tests.engine.hook_facts import BOUNDS
from tests.engine.hook_table import lacking, main
from tests.engine.sources import Tree, mentions, reader
from tests.engine.versions import since

INSTALLED = reader(Path(vllm.__file__).parent)
PARSED = Tree(INSTALLED)
CONFIG = "vllm/config/vllm.py"
SCHEDULER = "vllm/v1/core/sched/scheduler.py"
ASYNC = "vllm/v1/core/sched/async_scheduler.py"
SCHEDULE, DP, SIZES = compat.SCHEDULE_HOOK, compat.DP_HOOK, compat.SIZES_HOOK


def doctored(path: str, change: Callable[[str], str]) -> list[str]:
    """What the table says of this vLLM with one file changed."""
    before = INSTALLED(path)
    assert before is not None
    after = change(before)
    assert after != before
    tree = Tree(lambda asked: after if asked == path else INSTALLED(asked))
    module = path.removesuffix(".py").replace("/", ".")
    tree._modules.update({name: parsed for name, parsed in PARSED._modules.items() if name != module})
    return lacking(tree)


def swapped(text: str, one: str, other: str) -> str:
    return text.replace(one, "\0").replace(other, one).replace("\0", other)


def test_this_vllm_is_as_adaptk_needs_it() -> None:
    """What stands in the source agrees with what importing it shows."""
    assert lacking(PARSED) == []
    assert compat.missing_hooks() == []
    assert compat.version_tuple(PARSED.version) == compat.version_tuple(compat.vllm_version())


class TestChanges:
    def test_a_method_that_is_gone(self) -> None:
        """Said once, though it is looked for among the names and among the signatures."""
        said = doctored(SCHEDULER, lambda text: text.replace("def _update_after_schedule", "def _advance"))
        assert said == ["Scheduler._update_after_schedule is not there"]

    def test_an_attribute_that_is_gone(self) -> None:
        """An ``__init__`` that no longer sets what adaptk reads on instances."""
        said = doctored(SCHEDULER, lambda text: text.replace("dynamic_sd_lookup", "schedule_lookup"))
        assert said == ["Scheduler.dynamic_sd_lookup is not there"]

    def test_a_function_that_has_moved(self) -> None:
        """The arguments of ``vllm serve`` could not be read."""
        place = next(p for p in serveargs._PARSERS if INSTALLED(f"{p.replace('.', '/')}.py"))
        path = f"{place.replace('.', '/')}.py"
        said = doctored(path, lambda text: text.replace("def make_arg_parser", "def build_arg_parser"))
        assert said == [f"make_arg_parser is in none of {', '.join(serveargs._PARSERS)}"]

    def test_another_argument(self) -> None:
        """The wrapper would not pass it on."""
        said = doctored(CONFIG, lambda text: text.replace(f"def {SCHEDULE}(self)", f"def {SCHEDULE}(self, more)"))
        assert said == [f"VllmConfig.{SCHEDULE} takes (self, more) and not (self)"]

    @since(26, "the guard for data parallelism")
    def test_a_guard_that_comes_after_the_schedule(self) -> None:
        """It would drop what adaptk set."""
        said = doctored(CONFIG, lambda text: swapped(text, f"self.{DP}()", f"self.{SCHEDULE}()"))
        assert said[0] == (
            f"VllmConfig.__post_init__ has {SCHEDULE} before {DP}: a schedule set at the second must not be dropped "
            "by the first"
        )

    def test_sizes_that_come_before_the_schedule(self) -> None:
        """They would not know the arms."""
        said = doctored(CONFIG, lambda text: swapped(text, f"self.{SIZES}()", f"self.{SCHEDULE}()"))
        assert (
            f"VllmConfig.__post_init__ has {SIZES} before {SCHEDULE}: capture sizes are derived from the schedule "
            in ("".join(said))
        )

    def test_placeholders_that_are_built_elsewhere(self) -> None:
        """K would be set too late, or for nothing."""
        said = doctored(ASYNC, lambda text: text.replace("scheduler_output.num_spec_tokens_to_schedule", "self.width"))
        assert said == [
            "AsyncScheduler._update_after_schedule does not mention num_spec_tokens_to_schedule: placeholders are "
            "built from the K that adaptk left in the output"
        ]

    def test_a_version_on_the_wrong_side_of_a_bound(self) -> None:
        """The bounds that adaptk's branches stand on are compared with every version."""
        own = compat.version_tuple(PARSED.version)
        said = doctored("vllm/_version.py", lambda text: text.replace(f"'{own[0]}.{own[1]}.", "'0.23."))
        assert "SchedulerOutput.num_spec_tokens_to_schedule is there: it was held to be from 0.24 on" in said


def test_branches_for_older_versions_are_still_needed() -> None:
    """Once ``OLDEST`` has passed a bound, the branch for versions before it can go: this test then names it."""
    over = [f"delete {bound.branch}" for bound in BOUNDS if bound.branch and (0, bound.since) <= compat.OLDEST]
    assert over == []


class TestSources:
    MODULES: ClassVar = {
        "vllm/__init__.py": "",
        "vllm/_version.py": "__version__ = version = '0.40.1'\n",
        "vllm/config/__init__.py": "from .inner import Config as Public\n",
        "vllm/config/inner.py": (
            "from vllm.base import Base\n"
            "class Config(Base[int]):\n"
            "    size: int = 3\n"
            "    if True:\n"
            "        def late(self): self.made = 1\n"
        ),
        "vllm/base.py": "class Base:\n    plain = 1\n    def method(self, a): return f(a=self.b)\n",
    }

    @pytest.fixture(params=["folder", "package", "wheel", "archive"])
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        if request.param == "wheel":
            with zipfile.ZipFile(tmp_path / "vllm.whl", "w") as wheel:
                for path, text in self.MODULES.items():
                    wheel.writestr(path, text)
            return tmp_path / "vllm.whl"
        if request.param == "archive":
            with tarfile.open(tmp_path / "vllm.tar.gz", "w:gz") as archive:
                for path, text in self.MODULES.items():
                    member = tarfile.TarInfo(f"vllm-0.40.1/{path}")
                    member.size = len(text)
                    archive.addfile(member, io.BytesIO(text.encode()))
            return tmp_path / "vllm.tar.gz"
        for path, text in self.MODULES.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path / "vllm" if request.param == "package" else tmp_path

    def test_names_are_followed_through_imports_and_bases(self, place: Path) -> None:
        """Relative imports under another name, a base with a parameter, names bound in a condition."""
        tree = Tree(reader(place))
        assert tree.version == "0.40.1"
        assert tree.members("vllm.config", "Public") == {"size", "late", "plain", "method"}
        assert tree.members("vllm.config", "Public", instance=True) == {"size", "late", "plain", "method", "made"}
        method = tree.function("vllm.config", "Public", "method")
        assert method is not None
        assert [len(mentions(method, name)) for name in ("f", "a", "b", "c")] == [1, 1, 1, 0]
        assert tree.find_class("vllm.config", "Other") is None
        assert tree.module("vllm.nowhere") is None

    def test_the_command_says_what_is_lacking(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """One line a version, one a thing; the status tells."""
        assert main([str(place)]) == 1
        out = capsys.readouterr().out
        assert out.startswith("vLLM 0.40.1: ")
        assert "  vllm.config.SchedulerConfig is not there\n" in out

    def test_places_without_vllm_are_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """An empty folder, a file of another kind, nothing at all, and no argument."""
        (tmp_path / "notes.txt").write_text("no archive")
        places = [str(tmp_path), str(tmp_path / "notes.txt"), str(tmp_path / "absent")]
        assert main(places) == 2
        assert capsys.readouterr().err.count("holds no package vllm") == 3
        assert main([]) == 2

    def test_the_command_passes_this_vllm(self, capsys: pytest.CaptureFixture[str]) -> None:
        """As ``make check-hooks`` runs it on others."""
        assert main([str(Path(vllm.__file__).parent)]) == 0
        assert capsys.readouterr().out.endswith("as adaptk needs it\n")
