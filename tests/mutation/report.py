"""What became of the mutants, as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.mutation.trials import KILLED, SURVIVED, TIMEOUT

Z = 1.96  # of a 95 % interval


class Result(NamedTuple):
    """A mutant by its key, and how it fared."""

    key: str
    module: str
    function: str
    line: int
    diff: str
    outcome: str
    test: str
    seconds: float


def wilson(k: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a share ``k / n`` by Wilson's score."""
    if n == 0:
        return 0.0, 1.0
    p, z2 = k / n, Z * Z
    centre, half = p + z2 / (2 * n), Z * math.sqrt(p * (1.0 - p) / n + z2 / (4 * n * n))
    return (centre - half) / (1.0 + z2 / n), (centre + half) / (1.0 + z2 / n)


def table(results: Sequence[Result]) -> str:
    """Per module and in all: drawn, killed by a failing test, survived, timed out, and the share that did not live on.

    A mutant that never ends is noticed like one that fails a test.
    """
    lines = [f"{'module':28}{'drawn':>7}{'killed':>8}{'timed out':>11}{'survived':>10}   share"]
    for name in [*dict.fromkeys(r.module for r in results), ""]:
        of = [r for r in results if not name or r.module == name]
        killed, endless = (sum(r.outcome == outcome for r in of) for outcome in (KILLED, TIMEOUT))
        low, high = wilson(killed + endless, len(of))
        share = (killed + endless) / max(len(of), 1)
        row = f"{name or 'all':28}{len(of):7}{killed:8}{endless:11}{len(of) - killed - endless:10}"
        lines.append(f"{row}   {share:.1%} [{low:.1%}, {high:.1%}]")
    return "\n".join(lines)


def survivors(results: Iterable[Result]) -> str:
    """Those that no test noticed, as diffs."""
    alive = (r for r in results if r.outcome == SURVIVED)
    heads = ((r, f"{r.module}:{r.line} {r.function}{f' ({r.test})' if r.test else ''}") for r in alive)
    return "\n\n".join(f"{head}\n{r.diff}" for r, head in heads)
