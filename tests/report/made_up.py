"""Findings made up by hand, with every field filled, for tests of what shows them."""

from __future__ import annotations

import math

import msgspec

from adaptk.report.findings import (
    Advice,
    Alarm,
    Bin,
    Cell,
    Counted,
    Findings,
    Interval,
    Ledger,
    Overview,
    PolicyValue,
    Position,
    RangeAdvice,
    Simulation,
    Source,
    Timeline,
    TimeShare,
)

KS = [0, 1, 3, 7]


def made_up(bins: int = 120) -> Findings:
    """A shadow trace of an hour with a schedule of two ranges, of which the second is wrong."""
    return Findings(
        adaptk="0.1.0",
        sources=[_source()],
        advice=_advice(),
        overview=Overview(
            steps=bins * 1000,
            timed_steps=bins * 990,
            span_s=3600.0,
            busy_s=3300.0,
            tokens=16_500_000,
            tokens_per_s=5000.0,
            batch_mean=48.0,
            batch_median=44.0,
            batch_most=128,
            context_mean=812.0,
            played=[(0, 0), (1, 20_000), (3, 100_000), (7, 0)],
            chosen=[(0, 14_000), (1, 30_000), (3, 70_000), (7, 6_000)],
            reasons=[Counted("exploit", 110_000), Counted("explore", 1_000), Counted("hold", 9_000)],
            switches=24,
            differing=21_500,
        ),
        timelines=[Timeline(source=0, clock=True, ks=KS, bins=_bins(bins), alarms=_alarms())],
        time=[
            TimeShare(kind="decode", label="decoding alone", steps=90_000, seconds=2500.0, share=0.69),
            TimeShare(kind="mixed", label="decoding and prompts", steps=25_000, seconds=700.0, share=0.19),
            TimeShare(kind="prefill", label="prompts alone", steps=2_000, seconds=60.0, share=0.02),
            TimeShare(kind="waited", label="waited for a grammar", steps=1_000, seconds=40.0, share=0.01),
            TimeShare(kind="untimed", label="steps without a time", steps=2_000, seconds=30.0, share=0.01),
            TimeShare(kind="idle", label="idle", steps=0, seconds=270.0, share=0.08),
        ],
        acceptance=[
            Position(
                position=i + 1,
                reached=int(1e6 * 0.7**i),
                accepted=int(1e6 * 0.7 ** (i + 1)),
                ratio=Interval(0.70, 0.68, 0.72) if i < 3 else None,
                believed=Interval(0.68 - 0.02 * i, 0.60 - 0.04 * i, 0.75),
                table=0.72,
            )
            for i in range(7)
        ],
        dropped=[
            Counted("prompt tokens in the step, more than can be told apart", 2_000),
            Counted("no time", 1_200),
            Counted("K changed", 24),
        ],
        cells=_cells(),
        off_policy=[
            PolicyValue(
                policy="fixed-3",
                about="K=3 at every step",
                tokens_per_s=Interval(4900.0, 4750.0, 5060.0),
                over_recorded=Interval(0.98, 0.95, 1.012),
                effective_steps=812.0,
            ),
            PolicyValue(
                policy="fixed-0",
                about="no drafts",
                tokens_per_s=None,
                over_recorded=None,
                reason="K=0 was never played, so that nothing recorded stands for it",
            ),
        ],
        simulation=Simulation(
            steps=20_000,
            seeds=3,
            measured_tokens_per_s=5000.0,
            policies=[
                _simulated("recorded", "what was played", 1.0, 0.93),
                _simulated("schedule", "your schedule", 1.0, 0.93),
                _simulated("advised", "the schedule advised above", 1.02, 0.97),
                _simulated("fixed-0", "no drafts", 0.72, 0.68),
                _simulated("fixed-3", "K=3 at every step", 0.98, 0.92),
                _simulated("adaptk", "adaptk, on", 1.025, 0.99),
                _simulated("oracle", "knows the future", 1.035, 1.0),
                PolicyValue(
                    policy="fixed-7",
                    about="K=7 at every step",
                    tokens_per_s=None,
                    over_recorded=None,
                    reason="K=7: played in 3 steps: not simulated; give --table",
                ),
            ],
            notes=["time in which the engine was idle is left out"],
        ),
        notes=["2 lines could not be read"],
        ledger=Ledger(explored_steps=1_000, explored_s=29.0, cost_s=2.1, share=0.0006, about="as now believed"),
    )


def contradicted(findings: Findings) -> Findings:
    """The same with a simulation in which the advised schedule is slower than the operator's, and than it was."""
    simulation = Simulation(
        steps=12_000,
        seeds=5,
        measured_tokens_per_s=5000.0,
        policies=[
            _simulated("schedule", "your schedule", 1.05, 0.99),
            _simulated("advised", "the schedule advised above", 0.93, 0.88),
            _simulated("oracle", "knows the future", 1.03, 1.0),
        ],
        notes=[],
    )
    return msgspec.structs.replace(findings, simulation=simulation)


def _source() -> Source:
    return Source(
        path="trace.jsonl",
        mode="shadow",
        steps=120_000,
        span_s=3600.0,
        schedule=[[1, 64, 3], [65, 512, 3]],
        arms=KS,
        table="table.json (model=Llama-3.1-8B, device=H100)",
        adaptk="0.1.0",
        vllm="0.32.0",
        setup={"model": "meta-llama/Llama-3.1-8B", "method": "eagle3", "device": "NVIDIA H100"},
        skipped=2,
    )


def _advice() -> Advice:
    schedule = [[1, 64, 3], [65, 101, 1], [102, 512, 3]]
    return Advice(
        verdict="change",
        sentence="Your schedule loses 6 % [3, 9] at batch 65-101.",
        schedule_now=[[1, 64, 3], [65, 512, 3]],
        schedule_now_is="your num_speculative_tokens_per_batch_size",
        schedule_new=schedule,
        paste=f'"num_speculative_tokens_per_batch_size": {schedule}',
        paste_json='{"method": "eagle3", "num_speculative_tokens": 7, "num_speculative_tokens_per_batch_size": '
        f"{schedule}}}",
        gain=Interval(0.021, 0.010, 0.033),
        loss=Interval(0.0206, 0.0099, 0.0319),
        ranges=[
            RangeAdvice(
                first=1, last=64, k_now=3, k_new=3, k_best=3, verdict="keep", gain=None, probability=None,
                basis_now="measured", basis_best="measured", most_lost=0.004, steps=90_000, time_share=0.64,
            ),
            RangeAdvice(
                first=65, last=101, k_now=3, k_new=1, k_best=1, verdict="change", gain=Interval(0.064, 0.031, 0.099),
                probability=0.998, basis_now="measured", basis_best="table", most_lost=0.09, steps=28_000,
                time_share=0.34,
            ),
            RangeAdvice(
                first=102, last=512, k_now=3, k_new=3, k_best=1, verdict="undecided",
                gain=Interval(0.04, -0.03, 0.12), probability=0.8, basis_now="near", basis_best="table",
                most_lost=0.11, steps=40, time_share=0.02, note="40 steps only: record for longer at this load.",
            ),
        ],
        rests_on=["Step times of K=3 were measured in 118,000 steps; those of K=1 come from the table."],
        caveats=["Acceptance changed at 31 min: what is advised holds for what came after it."],
        next_steps=["To decide at batch 102-512, play K=1 there: switch to on for a minute."],
    )  # fmt: skip


def _bins(n: int) -> list[Bin]:
    made = []
    for i in range(n):
        batch = 48.0 + 40.0 * math.sin(i / 12.0)
        k = 1 if batch > 64 else 3
        made.append(
            Bin(
                start_s=3600.0 * i / n,
                end_s=3600.0 * (i + 1) / n,
                steps=1000,
                batch_mean=batch,
                batch_most=int(batch) + 8,
                played=[0, 0, 1000, 0],
                chosen=[0, 950 if k == 1 else 0, 950 if k == 3 else 0, 50],
                tokens=137_500,
                busy_s=27.5,
                prefill_tokens=4_000,
                reached=[48_000, 33_000, 23_000],
                accepted=[33_000, 23_000, 16_000],
            )
        )
    return made


def _alarms() -> list[Alarm]:
    return [Alarm(step=62_000, at_s=1860.0, kind="acceptance"), Alarm(step=90_000, at_s=2700.0, kind="time")]


def _cells() -> list[Cell]:
    cells = []
    for first, last in ((1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, 63), (64, 127)):
        for k in KS:
            played, batch = k == 3, (first + last) / 2
            table = 8.0 + 0.02 * batch * (k + 1)
            ratio = 1.0 + 0.05 * math.log2(batch) * (k - 1) / 7
            cells.append(
                Cell(
                    first=first,
                    last=last,
                    batch=batch,
                    k=k,
                    steps=17_000 if played else 0,
                    timed=15_000 if played else 0,
                    measured_ms=table * ratio if played else None,
                    itl_ms=Interval(table * ratio, table * ratio * 0.96, table * ratio * 1.04),
                    table_ms=table,
                    ratio=Interval(ratio, ratio * 0.96, ratio * 1.04),
                    acceptance_length=Interval(1 + 0.4 * k**0.8, 0.9 + 0.4 * k**0.8, 1.1 + 0.4 * k**0.8),
                    goodput=1000.0 * (1 + 0.4 * k**0.8) / (table * ratio),
                    best_probability=0.94 if played else 0.02,
                    basis="measured" if played else "table",
                )
            )
    return cells


def _simulated(policy: str, about: str, over: float, oracle: float) -> PolicyValue:
    speed = Interval(5000.0 * over, 4980.0 * over, 5020.0 * over)
    ratio = Interval(over, over * 0.997, over * 1.003)
    return PolicyValue(policy=policy, about=about, tokens_per_s=speed, over_recorded=ratio, oracle_ratio=oracle)
