"""Metrics pages read."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adaptk.live.page import _BELIEFS, _COUNTERS, _NUMBERS, _POSITIONS, _WORDS, PageError, snapshots
from adaptk.live.snapshot import Cell
from adaptk.vllm_plugin.metrics.names import BASE, METRICS
from tests.dashboards import contract
from tests.live.pages import NOW, REAL_S, Engine, page


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_page_of_the_contract_is_read_whole(openmetrics: bool) -> None:
    """In Prometheus text and in OpenMetrics."""
    (seen,) = snapshots(page(openmetrics=openmetrics))
    assert (seen.model, seen.engine, seen.version, seen.vllm_version) == ("org/model", "0", "0.1.0", "0.32.0")
    assert (seen.arms, seen.table, seen.runner, seen.mode, seen.active) == ("0,1,3,7", "H100", "V2", "on", True)
    assert (seen.batch, seen.chosen_k, seen.played_k, seen.last_step_at) == (12.0, 3, 3, NOW)
    assert (seen.drafter_dead, seen.timing_untrusted, seen.balance, seen.skipped) == (False, False, 0.25, 0)
    belief = seen.cells[Cell("8-15", 3)]
    assert belief.itl == pytest.approx(REAL_S * 1.9)
    assert belief.table_itl == pytest.approx(REAL_S * 1.9 / 1.05)
    assert (belief.al, belief.drift, belief.p_best) == (pytest.approx(1.9), 1.05, 0.85)
    assert seen.positions[2].low == pytest.approx(0.75)
    assert seen.table_k["4-7"] == 1
    counts = seen.counts
    assert counts.steps == {Cell("8-15", 3): 300.0, Cell("1", 7): 100.0}
    assert counts.decisions == {(3, "exploit"): 360.0, (7, "explore"): 40.0}
    assert counts.reference["k0"] == 0.8 * 30.0 * 400
    assert counts.accepted[1] == 790.0
    assert counts.exploration == {"allowed": 0.5, "spent": 0.25}


def test_the_names_are_those_that_engines_serve() -> None:
    """Those that are read, and those of the made-up engine: with a metric renamed ``adaptk top`` would go blind."""
    served = {metric.name: metric for metric in METRICS}
    parts = {f"{name}{part}": name for name in served for part in ("", "_sum", "_count")}
    for name in {*_COUNTERS, *_BELIEFS, *_POSITIONS, *_NUMBERS, *_WORDS, "adaptk_mode", "adaptk_table_k"}:
        assert name in parts, name
    for name, words in _WORDS.items():
        assert set(words.values()) <= set(served[name].labels)
    engine = Engine()
    engine.inactive = "a reason"
    families = text_string_to_metric_families(page(engine))
    made = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    whole = {name: {*metric.labels, *BASE} for name, metric in served.items() if metric.kind != "histogram"}
    assert made == whole


def test_a_page_of_all_metrics_is_understood() -> None:
    """Histograms, too."""
    (seen,) = snapshots(contract.page())
    assert seen.skipped == 0
    assert seen.counts.clocked == {"sum": 0.05, "count": 3000.0}
    assert seen.beliefs_at is not None
    assert seen.beliefs_at > 1.7e9


def test_each_engine_of_a_page_is_one() -> None:
    """As where ranks share a page, or a collector puts pages together."""
    seen = snapshots(page(Engine(engine="0"), Engine(engine="1", mode="shadow", steps=8)))
    assert [(one.engine, one.mode, sum(one.counts.steps.values())) for one in seen] == [
        ("0", "on", 400.0),
        ("1", "shadow", 8.0),
    ]


def test_any_page_that_breaks_off_is_read_up_to_there() -> None:
    """A last line without its end is not believed: 12 may have been 1234."""
    whole = page()
    (full,) = snapshots(whole)
    for end in range(whole.index("adaptk_chosen_k{"), len(whole), 97):
        (seen,) = snapshots(whole[:end])
        assert seen.skipped <= 1
        for field in ("steps", "tokens", "reference"):
            read = getattr(seen.counts, field)
            assert {key: value for key, value in getattr(full.counts, field).items() if key in read} == read


def test_lines_that_are_not_understood_are_counted_and_left_out() -> None:
    """The rest of the page stands."""
    lines = [
        'adaptk_batch_size{engine="0"} 12',
        'adaptk_steps_total{engine="0",batch="1",k="three"} 12',  # no number
        'adaptk_steps_total{engine="0",batch="1"} 12',  # no K
        'adaptk_steps_total{engine="0",batch="1",k="99999999999999999999"} 12',
        'adaptk_chosen_k{engine="0"} -1',
        'adaptk_steps_total{engine="0",batch="1",k="3"} many',
        'adaptk_steps_total{engine="0"batch="1"} 5',
        "adaptk_steps_total{",
        "adaptk_steps_total",
        "",
    ]
    (seen,) = snapshots("\n".join(lines))
    assert (seen.batch, seen.chosen_k, dict(seen.counts.steps), seen.skipped) == (12.0, None, {}, 8)


def test_what_is_no_number_says_nothing() -> None:
    """NaN and infinities are unknown, also in counters; a counter below 0 is 0."""
    lines = [
        'adaptk_believed_itl_seconds{engine="0",batch="1",k="3"} NaN',
        'adaptk_drift_ratio{engine="0",batch="1",k="3"} +Inf',
        'adaptk_best_probability_ratio{engine="0",batch="1",k="3"} 0.5',
        'adaptk_tokens_total{engine="0",batch="1",k="3"} NaN',
        'adaptk_tokens_total{engine="0",batch="1",k="1"} -3',
        'adaptk_batch_size{engine="0"} NaN',
        'adaptk_played_k{engine="0"} NaN',
        "",
    ]
    (seen,) = snapshots("\n".join(lines))
    belief = seen.cells[Cell("1", 3)]
    assert (belief.itl, belief.drift, belief.p_best) == (None, None, 0.5)
    assert (seen.batch, seen.played_k, dict(seen.counts.tokens), seen.skipped) == (None, None, {Cell("1", 1): 0.0}, 0)


def test_values_are_those_of_the_clients_own_parser() -> None:
    """Our reading of a line's end must not differ from prometheus_client's."""
    lines = [
        'adaptk_tokens_total{engine="0",batch="1",k="0"} 1.5e3',
        'adaptk_tokens_total{engine="0",batch="1",k="1",} 7 1700000000000',
        'adaptk_tokens_total{ engine="0" , batch="1" , k="2" }\t8',
        'adaptk_tokens_total{engine="0",batch="1",k="3"} 9 # {trace_id="} 5"} 1.0 1700000000',
        'adaptk_tokens_total{engine="} 5 # 6",batch="1",k="4"} 10',
    ]
    ours = {
        (seen.engine, cell.k): value
        for seen in snapshots("\n".join([*lines, ""]))
        for cell, value in seen.counts.tokens.items()
    }
    theirs = {
        (sample.labels["engine"], int(sample.labels["k"])): sample.value
        for line in lines
        for family in text_string_to_metric_families(line)
        for sample in family.samples
    }
    assert ours == theirs
    assert len(ours) == 5


def test_names_cannot_steer_the_terminal() -> None:
    """Escapes, line ends and right-to-left marks in a model's name are replaced; letters of any script are kept."""
    (seen,) = snapshots(page(Engine(model='模型/"\\\n\x1b[31mred\u202e')))
    assert seen.model == '模型/"\\�\ufffd[31mred\ufffd'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("<html>hello</html>", "no adaptk metrics"),
        ('vllm:num_requests_running{engine="0"} 1\n', "vLLM's own"),
        ("\x00\xff" * 100, "no adaptk metrics"),
    ],
)
def test_pages_of_others_are_refused(text: str, says: str) -> None:
    """With what they may be, and which port is wanted."""
    with pytest.raises(PageError, match=says):
        snapshots(text)


def test_missing_families_leave_gaps_only() -> None:
    """Without any one family the rest is as it was."""
    whole = page()
    (full,) = snapshots(whole)
    for family in {line.split("{")[0] for line in whole.split("\n") if line.startswith("adaptk_")}:
        (seen,) = snapshots("\n".join(line for line in whole.split("\n") if not line.startswith(f"{family}{{")))
        changed = [field for field in seen.__struct_fields__ if getattr(seen, field) != getattr(full, field)]
        assert len(changed) <= 4, family  # of build_info and config_info
        assert math.isfinite(seen.batch or 0.0)
