"""What is said of a machine, and what is refused on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.surface import machine as machines
from adaptk.surface.machine import Machine, MachineError

torch = pytest.importorskip("torch")


def test_this_processor() -> None:
    """It has a name, memory, and runs mixtures in any number format."""
    here = Machine("cpu")
    assert here.name
    assert 2**20 < here.free_bytes() < 2**50
    assert here.described()["threads"] == torch.get_num_threads()
    here.check_mixture("float32")
    assert here.timer().graph_mode == "none"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_no_gpu() -> None:
    """Asked for, it is an error; by default the processor is taken."""
    with pytest.raises(MachineError, match=r"no CUDA device.*--device cpu"):
        Machine("cuda")
    assert Machine().device == "cpu"


def test_number_formats() -> None:
    """What was asked for, else what the model is stored in, else bfloat16: an unknown format is none to time in."""
    here = Machine("cpu")
    assert here.dtype("float32", "bfloat16") == "float32"
    assert here.dtype("auto", "float16") == "float16"
    assert here.dtype("auto", None) == here.dtype("auto", "float8_e4m3fn") == "bfloat16"


@pytest.mark.parametrize(("capability", "dtype"), [((8, 0), "bfloat16"), ((9, 0), "float16")])
def test_mixtures_need_a_grouped_product(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], dtype: str
) -> None:
    """Older cards and other number formats would run expert by expert, which no engine does: refused by name."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Old Card")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    with pytest.raises(MachineError, match=r"Old Card .*grouped product only from 9.0 on and in bfloat16"):
        Machine().check_mixture(dtype)


def test_container_limits(tmp_path: Path) -> None:
    """A container's limit less what it uses; without a limit, or where the files are none, no bound."""
    assert machines._left_in_group(tmp_path) == 2**62
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    assert machines._left_in_group(tmp_path) == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert machines._left_in_group(tmp_path) == 2**62


def test_what_is_out_of_memory() -> None:
    """Failed allocations on either device, and nothing else."""
    assert machines.is_out_of_memory(MemoryError())
    assert machines.is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert machines.is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: ..."))
    broken = RuntimeError("capture invalidated")
    broken.__context__ = torch.OutOfMemoryError("CUDA out of memory")
    assert machines.is_out_of_memory(broken)
    assert not machines.is_out_of_memory(RuntimeError("shapes differ"))
    assert not machines.is_out_of_memory(ValueError("not enough memory"))


def test_copies_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than nothing, less than any memory gives."""
    monkeypatch.setitem(machines._COPIED, "cpu", 2**22)
    assert 0.1 < Machine("cpu").copy_gb_per_s() < 10_000
