"""The repair of vLLM's sampler: right, and still needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine


def test_values_are_repeated_and_replaced() -> None:
    """Two, no and three drafts; a greedy request's 0 becomes 1, as the sampler divides by it."""
    torch = pytest.importorskip("torch")
    from adaptk.demo.sampling import expand_batch_to_tokens

    got = expand_batch_to_tokens(torch.tensor([0.5, 0.7, 0.0]), torch.tensor([2, 2, 5], dtype=torch.int32), 5, 0, 1)
    assert got.tolist() == pytest.approx([0.5, 0.5, 1.0, 1.0, 1.0])
    assert got.dtype is torch.float32


NEEDED = """
import torch
from vllm.platforms import current_platform
current_platform.import_kernels()  # the build for this processor
from vllm.utils.cpu_triton_utils import _expand_kernel_impl
out = torch.full((3,), -1.0)
_expand_kernel_impl(out, torch.tensor([0.5, 0.7]), torch.tensor([1, 3]), 0, 1)
print(out.tolist())
"""


def test_vllm_still_needs_it() -> None:
    """vLLM's CPU kernel leaves its result as it was; once this fails, the repair can go."""
    pytest.importorskip("vllm")
    done = subprocess.run([sys.executable, "-c", NEEDED], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[-1.0, -1.0, -1.0]"
