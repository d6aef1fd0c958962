"""The processor's name, by which tables are told apart, is had from any machine."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from adaptk.processor import processor_name


def test_the_first_processor_names_them_all(tmp_path: Path) -> None:
    """White space is folded; what follows is not read."""
    listed = tmp_path / "cpuinfo"
    listed.write_text("processor\t: 0\nmodel name\t: Some  CPU @ 2 GHz \nmodel name\t: another\n")
    assert processor_name(str(listed)) == "Some CPU @ 2 GHz"


@pytest.mark.parametrize(("names", "expected"), [(("x86", "y"), "x86"), (("", "arm64"), "arm64"), (("", ""), "cpu")])
def test_where_the_kernel_names_none_the_architecture_does(
    names: tuple[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no such list, as outside Linux; there is always some name."""
    monkeypatch.setattr(platform, "processor", lambda: names[0])
    monkeypatch.setattr(platform, "machine", lambda: names[1])
    (tmp_path / "cpuinfo").write_text("processor : 0\nHardware : board\n")
    assert [processor_name(str(tmp_path / name)) for name in ("cpuinfo", "none")] == [expected, expected]
