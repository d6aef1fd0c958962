"""Where time went, what exploring took of it, and what was not learnt from."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.htmlpage import escaped, table
from adaptk.report.findings import Counted, Ledger, TimeShare
from adaptk.report.page.parts import said, section
from adaptk.report.words import count, duration, plural, share


def time_spent(shares: Sequence[TimeShare]) -> str:
    """Where time went, as bars."""
    spent = [each for each in shares if each.seconds > 0.0 or each.steps]
    rows = "".join(
        f'<tr><th scope="row">{escaped(each.label)}</th>'
        f'<td><span class="bar" style="width:{100.0 * min(max(each.share, 0.0), 1.0):.1f}%"></span></td>'
        f"<td>{share(each.share)}</td><td>{duration(each.seconds)}</td>"
        f"<td>{count(each.steps) if each.steps else ''}</td></tr>"
        for each in spent
    )
    head = (
        '<tr><th scope="col">time for</th><th scope="col"></th><th scope="col">share</th>'
        '<th scope="col">time</th><th scope="col">steps</th></tr>'
    )
    body = f'<div class="bars wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
    return section("time", "Where time went", [body] if spent else [])


def explored(ledger: Ledger | None) -> str:
    """What exploring took."""
    if ledger is None:
        return ""
    cost = ""
    if ledger.cost_s is not None:
        part = "" if ledger.share is None else f", {share(abs(ledger.share))} of the time of work"
        # Below 0 where the K that were looked at proved better.
        cost = f" It {'cost' if ledger.cost_s >= 0.0 else 'saved'} {duration(abs(ledger.cost_s))}{part}."
    took = f" in {duration(ledger.explored_s)}" if ledger.explored_s > 0.0 else ""
    steps = f"{plural(ledger.explored_steps, 'step')} explored{took}.{cost}"
    return section("ledger", "Exploring", [said(steps), said(ledger.about, "quiet")])


def left_out(dropped: Sequence[Counted]) -> str:
    """What was not learnt from, by cause."""
    rows = [[each.what, count(each.number)] for each in dropped if each.number]
    why = "These steps, or their times, were not learnt from; they are in the figures above."
    return section(
        "left-out",
        "Left out",
        [said(why), f'<div class="words">{table(["cause", "steps"], rows)}</div>'] if rows else [],
    )
