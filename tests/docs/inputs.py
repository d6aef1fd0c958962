"""Small files under the names that the pages use, so that their commands can be run."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.cli import examplefiles


def make(folder: Path) -> None:
    """Write what the examples of ``--help`` name, and what only the pages name: a CSV of times, prompts, a model."""
    examplefiles.make(folder)
    (folder / "sweep.csv").write_text("batch,k,itl_ms\n1,0,6.5\n1,3,8.8\n64,0,9.0\n64,3,20.0\n")
    (folder / "prompts.jsonl").write_text('{"prompt": "one two three"}\n')
    (folder / "MODEL").mkdir()
    shutil.copy(folder / "config.json", folder / "MODEL")
