"""What this machine's processor is called: tables are told apart by it."""

from __future__ import annotations

import platform
from pathlib import Path


def processor_name(cpuinfo: str = "/proc/cpuinfo") -> str:
    """The model name of this machine's processor, from the kernel's list where there is one, else its architecture."""
    try:
        with Path(cpuinfo).open(encoding="utf-8", errors="replace") as lines:
            named = next((line for line in lines if line.startswith("model name")), "")
    except OSError:
        named = ""
    return " ".join(named.partition(":")[2].split()) or platform.processor() or platform.machine() or "cpu"
