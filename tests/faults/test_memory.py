"""A process whose memory is used up but for a little: deciding and learning need none that they do not have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import random, resource, sys
from pathlib import Path
from adaptk import Controller, StepRecord
from adaptk.trace import TraceWriter

def steps(n):
    global before
    for _ in range(n):
        batch = draw.randrange(1, 257)
        k = controller.choose(batch, context_tokens=batch * draw.randrange(4000))
        drafted = [before] * batch
        accepted = [draw.randint(0, before) for _ in drafted]
        ms = (10.0 + 0.05 * batch + 0.4 * before) * draw.lognormvariate(0.0, 0.05)
        record = StepRecord(
            batch_size=batch, elapsed_ms=ms, k=k, drafted=drafted, accepted=accepted, context_tokens=100 * batch
        )
        writer.write(record, controller.observe(record))
        before = k

controller, draw, before = Controller(None, seed=3, k_max=7), random.Random(3), 0
writer = TraceWriter(sys.argv[1], {})
steps(300)  # what is imported and cached at first
used = int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmSize")).split()[1])
resource.setrlimit(resource.RLIMIT_AS, ((used << 10) + (32 << 20),) * 2)
try:
    bytearray(64 << 20)
    print("there was no limit")
except MemoryError:
    steps(3000)
    writer.close(20.0)
    print(controller.counters["steps"], writer.dropped, writer.failed)
"""


def test_a_process_with_32_mib_left(tmp_path: Path) -> None:
    """3,000 steps of up to 256 requests, all sizes, with a trace: each is decided, learnt from and written."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("ADAPTK")}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "trace.jsonl")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.split() == ["3300", "0", "0"]
    assert len((tmp_path / "trace.jsonl").read_bytes().splitlines()) == 3301
