"""Processor, cores and clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.doctor import machine
from tests.doctor.made import by_id


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", None), ("50000 100000\n", 0.5), ("", None), ("5 0", None), ("a b c", None)]
)
def test_a_container_s_quota(text: str, cores: float | None, tmp_path: Path) -> None:
    """Read from the kernel's file, whatever stands there."""
    (tmp_path / "cpu.max").write_text(text)
    assert machine.cpu_quota(tmp_path / "cpu.max") == cores
    assert machine.cpu_quota(tmp_path / "none") is None


def test_a_limit_below_the_cores_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such an engine is stopped in the middle of steps."""
    file = tmp_path / "cpu.max"
    file.write_text("50000 100000")
    monkeypatch.setattr(machine, "_QUOTA", file)
    found = by_id(machine.findings())
    assert found["machine.processor"].status == "warn"
    assert "a limit of 0.5" in found["machine.processor"].what


@pytest.mark.parametrize(("resolution", "status"), [(1e-7, "ok"), (0.015, "warn")])
def test_the_clock(resolution: float, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks in hundredths of a second times no step."""
    monkeypatch.setattr(machine, "clock_resolution_s", lambda: resolution)
    assert by_id(machine.findings())["machine.clock"].status == status


def test_the_resolution_is_that_of_the_readings() -> None:
    """Above nothing, and far below a step."""
    assert 0.0 < machine.clock_resolution_s() < 1e-3
