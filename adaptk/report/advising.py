"""Advice from a plan: the ranges of batch sizes, what holds for each, and the sentence that says it first."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adaptk.report.blocks import interval
from adaptk.report.columns import Floats
from adaptk.report.findings import Advice, Basis, Interval, RangeAdvice, Verdict
from adaptk.report.headers import Header
from adaptk.report.loads import Baseline, Groups
from adaptk.report.schedules import LEAST_GAIN, Plan, written_out
from adaptk.report.words import batches, listed, percent, span

RIGHT_WITHIN = 0.02  # a schedule that loses no more, at 95 %, is called right
FEW = 200  # steps of a range below which more of them are asked for


class Evidence(NamedTuple):
    """What the words need beside the plan."""

    base: Baseline
    arms: tuple[int, ...]
    grounds: list[list[Basis]]  # of each group and arm
    headers: Sequence[Header]
    rests_on: list[str]
    caveats: list[str]
    has_table: bool
    foreign: bool  # whether a table is there that is of another engine
    by_table: Callable[[int, int], bool]  # whether the table speaks for a group's new K at a batch size not recorded
    steered: bool  # whether adaptk's own K were ever played
    timed: frozenset[int]  # K of which any step was timed


def advise(plan: Plan, groups: Groups, evidence: Evidence) -> Advice:
    """Put the plan into words."""
    if len(groups) == 0:
        return nothing(evidence, "There is nothing to judge: no step with a time in which a request decoded.")
    ranges = _ranges(plan, groups, evidence)
    new = plan.new if any(each.verdict == "change" for each in ranges) else plan.now
    schedule = written_out(groups, new, evidence.base, evidence.arms, evidence.by_table)
    changed = bool((new != plan.now).any())
    n = np.arange(len(groups))
    saved = (plan.saved[:, n, new] * plan.weight).sum(axis=1)
    verdict, sentence = _verdict(plan, ranges, evidence)
    key = next((header.key for header in evidence.headers if header.key), {})
    most = next((header.k_max for header in evidence.headers if header.k_max is not None), max(evidence.arms))
    return Advice(
        verdict=verdict,
        sentence=sentence,
        schedule_now=evidence.base.schedule,
        schedule_now_is=evidence.base.told,
        schedule_new=schedule if changed else None,
        paste=f'"num_speculative_tokens_per_batch_size": {json.dumps(schedule)}' if changed else "",
        paste_json=_config(key, most, schedule) if changed else "",
        gain=interval(1.0 / (1.0 - saved) - 1.0) if changed else None,
        loss=interval(saved) if changed else None,
        ranges=ranges,
        rests_on=evidence.rests_on,
        caveats=evidence.caveats + _caveats(key, evidence, changed),
        next_steps=_next_steps(ranges, plan, evidence, verdict),
    )


def nothing(evidence: Evidence, sentence: str, next_steps: Sequence[str] = ()) -> Advice:
    """No advice, and why."""
    return Advice(
        verdict="nothing",
        sentence=sentence,
        schedule_now=evidence.base.schedule,
        schedule_now_is=evidence.base.told,
        schedule_new=None,
        paste="",
        paste_json="",
        gain=None,
        loss=None,
        ranges=[],
        rests_on=evidence.rests_on,
        caveats=evidence.caveats,
        next_steps=list(next_steps) or ["Record while requests are served: ADAPTK=shadow ADAPTK_TRACE=trace.jsonl."],
    )


def _ranges(plan: Plan, groups: Groups, evidence: Evidence) -> list[RangeAdvice]:
    """Neighbouring groups of the same K, now and advised, put together."""
    runs: list[list[int]] = []
    for group in range(len(groups)):
        before = runs[-1][-1] if runs else -1
        same = (
            before >= 0
            and all(each[before] == each[group] for each in (plan.now, plan.new))
            and bool((plan.known[before] == plan.known[group]).all())
        )
        if same:
            runs[-1].append(group)
        else:
            runs.append([group])
    return [_range(plan, groups, run, evidence) for run in runs]


def _range(plan: Plan, groups: Groups, run: list[int], evidence: Evidence) -> RangeAdvice:
    arms, now, new = evidence.arms, int(plan.now[run[0]]), int(plan.new[run[0]])
    weight = plan.weight[run]
    total = float(weight.sum())
    share = weight / total if total > 0.0 else np.full(len(run), 1.0 / len(run))
    saved = (plan.saved[:, run] * share[:, None]).sum(axis=1)  # (draws, arms)
    known = plan.known[run].all(axis=0)
    best = new if new != now else int(np.where(known, saved.mean(axis=0), -np.inf).argmax()) if known.any() else now
    lost = np.where(known, saved, 0.0).max(axis=1) if known.any() else None
    most = None if lost is None or not _others(known, now) else float(np.quantile(lost, 0.95))
    verdict: Verdict = "undecided"
    if new != now:
        verdict = "change"
    elif most is not None and most <= RIGHT_WITHIN and known.all():
        verdict = "keep"
    steps = int(groups.steps[run].sum())
    return RangeAdvice(
        first=int(groups.first[run[0]]),
        last=int(groups.last[run[-1]]),
        k_now=int(groups.k_now[run[0]]),
        k_new=arms[new] if new != now else int(groups.k_now[run[0]]),
        k_best=arms[best] if best != now else int(groups.k_now[run[0]]),
        verdict=verdict,
        gain=interval(1.0 / (1.0 - saved[:, best]) - 1.0) if best != now else None,
        probability=float(np.mean(saved[:, best] > 0.0)) if best != now else None,
        basis_now=_mostly(evidence.grounds, run, now, share),
        basis_best=_mostly(evidence.grounds, run, best, share),
        most_lost=most,
        steps=steps,
        time_share=total,
        note=_note(known, now, arms, steps),
    )


def _others(known: Any, now: int) -> bool:
    return any(bool(each) for a, each in enumerate(known) if a != now)


def _note(known: Any, now: int, arms: tuple[int, ...], steps: int) -> str:
    notes = []
    unknown = [k for a, k in enumerate(arms) if not known[a] and a != now]
    if unknown:
        notes.append(f"Nothing can be said of K={listed(unknown)}: no step time, measured or of a table.")
    if steps < FEW:
        notes.append(f"{steps} steps only.")
    return " ".join(notes)


def _mostly(grounds: list[list[Basis]], run: list[int], arm: int, share: Floats) -> Basis:
    """What an arm's step times rest on for the most part of a range's time."""
    sums: dict[Basis, float] = {}
    for group, part in zip(run, share.tolist(), strict=True):
        basis = grounds[group][arm]
        sums[basis] = sums.get(basis, 0.0) + part
    return max(sums, key=lambda basis: sums[basis])


def _verdict(plan: Plan, ranges: list[RangeAdvice], evidence: Evidence) -> tuple[Verdict, str]:
    subject = evidence.base.subject
    changes = [each for each in ranges if each.verdict == "change" and each.gain is not None]
    if changes:
        shown = sorted(changes, key=lambda each: -each.time_share * (each.gain.value if each.gain else 0.0))[:3]
        parts = [f"{percent(_loss(each.gain))} at {span(each.first, each.last)}" for each in shown if each.gain]
        more = len(changes) - len(shown)
        told = listed(parts) + (f" and more at {more} further ranges" if more else "")
        return "change", f"{subject} loses {told}."
    judged = [each for each in ranges if each.most_lost is not None]
    lost = np.where(plan.known, plan.saved, 0.0).max(axis=2) @ plan.weight
    bound = float(np.quantile(lost, 0.95))
    if len(judged) == len(ranges) and bool(plan.known.all()) and bound <= RIGHT_WITHIN:
        most = max(0.1, math.ceil(1000.0 * bound) / 10.0)
        return "keep", f"{subject} is right within {most:g} % over the recorded traffic."
    if not judged:
        return "undecided", _why_unjudged(ranges, evidence)
    likely = [each for each in judged if each.gain is not None and each.gain.value > LEAST_GAIN]
    if likely:
        best = max(likely, key=lambda each: each.time_share * (each.gain.value if each.gain else 0.0))
        assert best.gain is not None
        return "undecided", (
            f"Not decided: at {span(best.first, best.last)} K={best.k_best} in place of {best.k_now} would bring "
            f"{percent(best.gain)}, which may be nothing."
        )
    most = math.ceil(1000.0 * bound) / 10.0
    begin = f"{subject[0].lower()}{subject[1:]}" if subject.startswith(("Your", "What")) else subject
    unknown = sorted({k for a, k in enumerate(evidence.arms) if not plan.known[:, a].all()})
    if unknown:
        return "undecided", (
            f"Not decided: where two K can be compared, {begin} loses {most:g} % at most; elsewhere too little is "
            f"known of K={listed(unknown)}."
        )
    return "undecided", f"Not decided: no other K is faster beyond doubt; {begin} loses {most:g} % at most."


def _why_unjudged(ranges: list[RangeAdvice], evidence: Evidence) -> str:
    """Why nothing can be compared."""
    timed = {each.k_now for each in ranges if each.basis_now not in ("shape", "nothing")}
    hardly = sorted({each.k_now for each in ranges} - timed)
    if hardly:
        were = "was" if len(hardly) == 1 else "were"
        return f"Not decided: K={listed(hardly)}, which you have, {were} hardly played in this trace."
    own = sorted({each.k_now for each in ranges})
    played = listed([f"K={k}" for k in own])
    often = " often enough" if evidence.steered or evidence.timed.difference(own) else ""
    were = f"{'was' if len(own) == 1 else 'were'} timed{often} here"
    if evidence.has_table:
        return f"Not decided: only {played} {were}, and the table has no other K."
    lacking = "the table is of another engine" if evidence.foreign else "there is no table to tell what another K costs"
    return f"Not decided: only {played} {were}, and {lacking}."


def _next_steps(ranges: list[RangeAdvice], plan: Plan, evidence: Evidence, verdict: Verdict) -> list[str]:
    steps = []
    unsure = sorted(
        {
            k
            for a, k in enumerate(evidence.arms)
            for g, row in enumerate(evidence.grounds)
            if row[a] not in ("measured", "near") and a != plan.now[g]
        }
    )
    undecided = [each for each in ranges if each.verdict == "undecided"]
    if undecided and unsure:
        where = listed([batches(each.first, each.last) for each in undecided[:3]])
        table = "" if evidence.has_table else ", or give a table of this engine with --table (adaptk profile makes one)"
        how = (
            "record for longer with adaptk on"
            if evidence.steered
            else ("switch adaptk to on for some minutes while you record")
        )
        steps.append(f"To decide at batch {where}, K={listed(unsure)} must be played: {how}{table}.")
    elif undecided:
        steps.append("Record for longer: the intervals become narrower with the number of steps.")
    if verdict == "change":
        steps.append("Paste the schedule, restart, record again; or let adaptk follow it: ADAPTK=on.")
    return steps


def _caveats(key: dict[str, Any], evidence: Evidence, changed: bool) -> list[str]:
    if not changed:
        return []
    table = ", or the table speaks for another" if evidence.has_table else ""
    said = [f"Batch sizes that were not recorded keep their K, unless they are next to recorded ones{table}."]
    had = any(header.schedule for header in evidence.headers)
    if not had and key.get("runner") == "V1" and "FULL" in str(key.get("graph_mode")):
        said.append("On model runner V1 any schedule costs vLLM its full CUDA graphs, which is not in these figures.")
    return said


def _config(key: dict[str, Any], most: int, schedule: list[list[int]]) -> str:
    config: dict[str, Any] = {}
    if isinstance(key.get("method"), str):
        config["method"] = key["method"]
    if isinstance(key.get("drafter"), str):
        config["model"] = key["drafter"]
    config |= {"num_speculative_tokens": most, "num_speculative_tokens_per_batch_size": schedule}
    return json.dumps(config)


def _loss(gain: Interval | None) -> Interval:
    assert gain is not None
    return Interval(*(each / (1.0 + each) for each in (gain.value, gain.low, gain.high)))
