"""The machine that is measured: its name, its memory, how fast it copies, how its clocks stand."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptk.processor import processor_name
from adaptk.surface.timing import GraphTimer, Timer, WallTimer

if TYPE_CHECKING:
    import torch

_COPIED = {"cuda": 2**30, "cpu": 2**28}  # bytes: far beyond any cache
_QUERY = ("clocks.sm", "clocks.mem", "clocks.max.sm", "power.limit", "driver_version")
_NAMES = ("bfloat16", "float16", "float32")


class MachineError(RuntimeError):
    """This machine cannot measure what is asked for; the message says what to do."""


class Machine:
    """Where blocks are built and timed.

    Parameters
    ----------
    device
        ``cuda``, ``cpu``, or ``auto`` for the first of them that there is.

    Raises
    ------
    MachineError
        If torch is not installed, or there is no such device.
    """

    def __init__(self, device: str = "auto") -> None:
        try:
            import torch
        except ModuleNotFoundError:
            raise MachineError(
                "torch is not installed: pip install torch, or run in the engine's environment"
            ) from None
        there = torch.cuda.is_available()
        if device == "cuda" and not there:
            raise MachineError("this torch sees no CUDA device: check nvidia-smi and the build, or give --device cpu")
        self.device = ("cuda" if there else "cpu") if device == "auto" else device

    @property
    def cuda(self) -> bool:
        """Whether it is a GPU."""
        return self.device == "cuda"

    @property
    def name(self) -> str:
        """The card's or the processor's name."""
        if self.cuda:
            import torch

            return str(torch.cuda.get_device_name())
        return processor_name()

    def dtype(self, wanted: str, stored: str | None) -> str:
        """Name of the number format: ``wanted``; for ``auto`` what the model was ``stored`` in, else bfloat16."""
        if wanted != "auto":
            return wanted
        name = stored if stored in _NAMES else "bfloat16"
        if name == "bfloat16" and self.cuda:
            import torch

            return name if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
        return name

    def timer(self) -> Timer:
        """A timer for calls on this machine."""
        return GraphTimer() if self.cuda else WallTimer()

    def free_bytes(self) -> int:
        """Memory that can still be taken, bytes."""
        if self.cuda:
            import torch

            return int(torch.cuda.mem_get_info()[0])
        return min(_available(), _left_in_group())

    def check_mixture(self, dtype: str) -> None:
        """Refuse a mixture where its experts could not run as one call.

        Raises
        ------
        MachineError
            If the card is older than the grouped matrix product, or the number format is not its own.
        """
        if not self.cuda:
            return
        import torch

        major, minor = torch.cuda.get_device_capability()
        if major < 9 or dtype != "bfloat16":
            raise MachineError(
                f"{self.name} (compute capability {major}.{minor}) in {dtype}: experts run as one grouped product only "
                "from 9.0 on and in bfloat16; measure this model with adaptk profile"
            )

    def copy_gb_per_s(self) -> float:
        """Bytes read and written per second by a large copy, in 1e9."""
        import torch

        size = _COPIED[self.device]
        source = torch.ones(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        timer = self.timer()
        sample = timer.prepare(partial(target.copy_, source))
        best_ms = min(sample() for _ in range(5))
        del sample, source, target  # before the timer gives memory back
        timer.close()
        return 2 * size / best_ms / 1e6

    def described(self) -> dict[str, Any]:
        """What a table should say of the machine besides its name."""
        import torch

        said: dict[str, Any] = {"torch": str(torch.__version__), "python": platform.python_version()}
        if not self.cuda:
            load = round(os.getloadavg()[0], 1)
            return {**said, "threads": torch.get_num_threads(), "cores": os.cpu_count() or 1, "load_before": load}
        return {**said, "cuda": str(torch.version.cuda), **_card()}


def torch_dtype(name: str) -> torch.dtype:
    """torch's number format of that name."""
    import torch

    made: torch.dtype = getattr(torch, name)
    return made


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an allocation failed, on a GPU or on the CPU; also where a broken capture was reported instead."""
    import torch

    if error is None or isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return error is not None
    if isinstance(error, RuntimeError) and "not enough memory" in str(error):
        return True
    return is_out_of_memory(error.__context__)


def _card() -> dict[str, Any]:
    """Clocks and limits as nvidia-smi tells them; empty where it does not."""
    import torch

    command = shutil.which("nvidia-smi")
    if command is None:
        return {}
    card = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    where = [] if card is None else ["-i", f"GPU-{card}"]
    try:
        said = subprocess.run(  # noqa: S603 -- no shell; nothing of it was given by a user
            [command, *where, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = said.stdout.strip().splitlines()
    values = [each.strip() for each in lines[0].split(",")] if lines else []
    return dict(zip(_QUERY, values, strict=False))


def _available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _left_in_group(group: Path = Path("/sys/fs/cgroup")) -> int:
    """What a container's limit leaves; without bound where there is none."""
    try:
        limit, used = ((group / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        return 2**62 if limit == "max" else max(0, int(limit) - int(used))
    except (OSError, ValueError):
        return 2**62
