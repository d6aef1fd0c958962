from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.demo.engine import precision


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("flags : fpu sse2 avx avx2 fma", "float32"),
        ("flags : fpu avx2 avx512f avx512bw", "bfloat16"),
        ("flags : avx2 avx512_bf16 amx_bf16", "bfloat16"),
        ("Features : fp asimd bf16 i8mm", "bfloat16"),
        ("Features : fp asimd", "float32"),
    ],
)
def test_weights_are_what_the_processor_computes_in(tmp_path: Path, flags: str, found: str) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\n{flags}\n")
    assert precision(cpuinfo) == found


def test_where_nothing_is_known_of_it_nothing_is_changed(tmp_path: Path) -> None:
    assert precision(tmp_path / "nothing") == "bfloat16"
