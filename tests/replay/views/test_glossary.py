"""What figures mean: the same words on the terminal and in the report."""

from __future__ import annotations

import pytest

from adaptk.replay.views.glossary import TERMS, Term, explained, legend


def test_the_terminal_explains_its_columns_and_no_others() -> None:
    text = legend(waits=False, checked=False)
    assert text.startswith("oracle: tok/s over the oracle's")
    assert "sw/1k: " in text
    assert not any(word in text for word in ("ms/tok", "passed", "by the clock", "Regret"))
    assert "ms/tok: time since arrival" in legend(True, False)
    assert "by the clock" in legend(True, False)
    assert "passed: seeds" in legend(False, True)


@pytest.mark.parametrize("term", TERMS, ids=[term.name for term in TERMS])
def test_the_report_says_at_least_as_much(term: Term) -> None:
    """In the same words."""
    whole = explained(term)
    assert term.said[1:] in whole
    assert whole.endswith(f"{term.clock}. {term.more}" if term.more else ".")
    if term.column:
        assert term.said in legend(True, True)
