"""What a recording holds that could not be used, by cause."""

from __future__ import annotations

import numpy as np

from adaptk.report.columns import beyond
from adaptk.report.findings import Counted
from adaptk.report.loads import clean
from adaptk.report.reading import Recording


def dropped(recording: Recording, with_prompts: bool) -> list[Counted]:
    """Rows whose time says nothing of one K, by cause, and what could not be read; each row counts once."""
    columns = recording.columns
    left = ~clean(columns)
    found: list[Counted] = []
    for what, which in {
        "outcome never came": columns.lost,
        "no time": np.isnan(columns.ms),
        "no request decoded": columns.decodes <= 0,
        "numbers that no table holds": beyond(columns),
        "the step before is not in the file": ~columns.linked,
        "K changed": columns.asked != columns.made,
        "more drafts than asked for": columns.verified > (columns.asked + 0.01) * columns.decodes,
        "prompt tokens in the step": columns.prefill > 0,
        "waited for a grammar": columns.waited,
    }.items():
        here = left & which
        left &= ~which
        if with_prompts and what.startswith("prompt"):
            continue
        if here.any():
            found.append(Counted(what, int(here.sum())))
    found.sort(key=lambda each: -each.number)
    skipped = sum(source.skipped for source in recording.sources)
    return found + ([Counted("lines that could not be read", skipped)] if skipped else [])
