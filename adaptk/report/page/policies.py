"""What other policies would have done, from the recorded steps themselves and by simulation."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.htmlpage import table
from adaptk.report.borne import beyond_oracle
from adaptk.report.findings import Findings, Interval, PolicyValue, Simulation
from adaptk.report.page.charts import Bar, forest
from adaptk.report.page.parts import beside, listed, said, section
from adaptk.report.page.svg import Chart
from adaptk.report.words import NONE, plain, plain_interval, plural, ratio, signed_interval

_HUES = {"adaptk": "blue", "advised": "orange", "recorded": "black", "schedule": "black", "oracle": "green"}


def policies(findings: Findings) -> str:
    """The section; empty where nothing was estimated and no reason is known."""
    parts = []
    if findings.off_policy:
        parts += ["<h3>From the recorded steps</h3>", *_estimated(findings.off_policy)]
    if findings.simulation is not None:
        parts += ["<h3>By simulation</h3>", *_simulated(findings.simulation)]
    return section("policies", "What other policies would have done", parts)


def _estimated(values: Sequence[PolicyValue]) -> list[str]:
    about = (
        "Recorded steps weighted by how likely each policy was to play what was played there (doubly robust, 90 % "
        "intervals). Effective steps say on how many equally weighted steps an estimate rests."
    )
    told, untold = _parted(values)
    if not told:
        return [listed(untold)]
    return [
        said(about),
        beside(
            [_table(told, "effective steps", [plain(each.effective_steps) for each in told])],
            _chart(told, "From the recorded steps: speed against that of what was recorded, with 90 % intervals."),
        ),
        listed(untold),
    ]


def _simulated(simulation: Simulation) -> list[str]:
    told, untold = _parted(simulation.policies)
    parts = [said(simulation.reason)] if simulation.reason else []
    if simulation.cut_short:
        parts.append(said("Interrupted: these policies were finished until then.", "warn"))
    if told:
        measured = simulation.measured_tokens_per_s
        and_measured = "" if measured is None else f" These steps were measured at {plain(measured)} tokens per second."
        parts += [
            said(f"The last {plural(simulation.steps, 'step')} of the trace, made into a simulated engine and load, "
                 f"in {plural(simulation.seeds, 'world')} per policy.{and_measured}"),
            beside(
                [_table(told, "oracle ratio", [ratio(each.oracle_ratio) for each in told])],
                _chart(told, "Simulated: speed against that of what was recorded, with 90 % intervals."),
            ),
        ]  # fmt: skip
        beyond = beyond_oracle(told)
        parts += [said(beyond)] if beyond else []
    return [*parts, listed([*untold, *simulation.notes])]


def _parted(values: Sequence[PolicyValue]) -> tuple[list[PolicyValue], list[str]]:
    """Policies with a value, best first, and a sentence for the others, one for all with the same reason."""
    told = [each for each in values if each.over_recorded is not None or each.tokens_per_s is not None]
    told.sort(key=_value, reverse=True)
    reasons: dict[str, list[str]] = {}
    for each in values:
        if each not in told and each.reason:
            reasons.setdefault(each.reason, []).append(each.policy)
    return told, [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


def _value(each: PolicyValue) -> float:
    of = each.over_recorded or each.tokens_per_s
    return 0.0 if of is None else of.value


def _table(told: Sequence[PolicyValue], more: str, of: Sequence[str]) -> str:
    """Policies with a further column ``more``, left out where nothing of it is known."""
    extra = [more] if any(cell != NONE for cell in of) else []
    rows = []
    for each, cell in zip(told, of, strict=True):
        cells = [plain_interval(each.tokens_per_s, 4), signed_interval(_change(each.over_recorded))]
        rows.append([each.policy, *cells, *([cell] if extra else ())])
    about = "; ".join(f"{each.policy}: {each.about}" for each in told)
    return table(["policy", "tokens/s", "against recorded", *extra], rows) + said(f"{about}.", "quiet small")


def _chart(told: Sequence[PolicyValue], about: str) -> list[Chart]:
    bars = []
    for each in told:
        change = _change(each.over_recorded)
        if change is not None:
            percents = (100.0 * change.value, 100.0 * change.low, 100.0 * change.high)
            bars.append(Bar(each.policy, *percents, _HUES.get(each.policy, "grey")))
    return [forest(bars, "tokens per second, % more than recorded", about, zero=0.0)] if len(bars) > 1 else []


def _change(over: Interval | None) -> Interval | None:
    return None if over is None else Interval(over.value - 1.0, over.low - 1.0, over.high - 1.0)
