"""What the figures of a replay mean, in one wording for the terminal and the report."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """A figure: its name in the report, its column on the terminal, and what it is.

    ``said`` stands in both, ``clock`` too where requests arrive by the clock, ``more`` in the report alone. A term
    without a column, or with a column that was not printed, is in the report alone.
    """

    name: str
    column: str
    said: str
    clock: str = ""
    more: str = ""


TERMS = (
    Term(
        "Oracle",
        "",
        "the policy that plays the best arm of each step, which the simulator tells it",
        more="It looks one step ahead only, so that a lucky policy may have a little more.",
    ),
    Term(
        "Oracle ratio",
        "oracle",
        "tok/s over the oracle's with the same seed, in closed loops without the noise of step times",
        "where requests arrive by the clock, the time that the best arm would have needed for the tokens of each step, "
        "over the time taken, prompts in both",
        "1 is perfect.",
    ),
    Term(
        "Table ratio",
        "table",
        "the same against the static table, or the largest K where there is no table",
        more="Above 1: better.",
    ),
    Term(
        "Over seeds",
        "over seeds",
        "geometric means of these two ratios with 90 % intervals, medians of the rest",
        more="Intervals are bootstrap intervals over paired seeds, widened for small samples.",
    ),
    Term(
        "Tokens per second",
        "tok/s",
        "tokens emitted over the time of the run",
        more="A scripted load has the same steps for every policy, but not the same tokens: there each step counts "
        "with the tokens expected of the oracle in it.",
    ),
    Term("Switches per 1,000", "sw/1k", "changes of K per 1,000 steps"),
    Term("Below K=0", "<K=0", "share of the time in steps whose expected goodput is below that of K=0, drafter loaded"),
    Term("Milliseconds per token", "ms/tok", "time since arrival per token of the answer, mean over finished requests"),
    Term("Passed", "passed", "seeds in which every check of the scenario holds"),
    Term("p50 and p99", "", "quantiles of the time of a step, milliseconds"),
    Term("Exploring", "", "expected milliseconds lost against the oracle in steps that the policy calls exploration"),
    Term("Regret", "", "expected milliseconds lost against the best arm of each step, all steps together"),
    Term(
        "Recovery",
        "",
        "steps from the first change of the world until K is within 2 % of the best for 20 steps",
        more="Shown as - where nothing changes or it does not recover.",
    ),
)
"""All terms in the order in which they are explained."""


def legend(waits: bool, checked: bool) -> str:
    """What the terminal's columns are; ``waits``: requests arrive by the clock, ``checked``: there are checks."""
    left_out = {"", *([] if waits else ["ms/tok"]), *([] if checked else ["passed"])}
    shown = [term for term in TERMS if term.column not in left_out]
    clauses = [f"{term.column}: {term.said}" + (f"; {term.clock}" if waits and term.clock else "") for term in shown]
    return ". ".join(clauses) + "."


def explained(term: Term) -> str:
    """The whole of a term as sentences.

    Examples
    --------
    >>> explained(Term("Regret", "", "milliseconds lost", more="Below 0: luck."))
    'Milliseconds lost. Below 0: luck.'
    """
    said = f"{term.said}; {term.clock}" if term.clock else term.said
    return f"{said[0].upper()}{said[1:]}." + (f" {term.more}" if term.more else "")
