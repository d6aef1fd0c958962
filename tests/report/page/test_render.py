"""The report's page."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from adaptk.outputs import OutputError
from adaptk.report.findings import Alarm, Interval, Ledger, Simulation
from adaptk.report.page import stretches
from adaptk.report.page.parts import sentence
from adaptk.report.page.render import render, write_html
from adaptk.report.page.stretches import joined
from adaptk.report.words import signed_interval
from tests.report.made_up import contradicted, made_up
from tests.report.page.odd import empty, hostile, undrawn

change = msgspec.structs.replace
VOID = {"meta", "br"}


class Reader(HTMLParser):
    """Checks that tags nest and ids are single, and keeps what a browser would fetch, and texts by tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.fetched: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.tags: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []
        assert len(set(self.ids)) == len(self.ids)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "srcset", "action") or (name == "href" and not (value or "").startswith("#")):
                self.fetched.append(value or "")
            assert not name.startswith("on")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts.setdefault(tag, []).append(data)


def to_paste(page: str) -> list[str]:
    """What is there to be copied."""
    return [unescape(re.sub("<[^>]*>", "", found)) for found in re.findall("<pre>(.*?)</pre>", page, re.DOTALL)]


@pytest.fixture(scope="module")
def page() -> str:
    """The page of the findings that have everything."""
    return render(made_up())


def test_it_needs_no_other_file(page: str) -> None:
    """Nothing is fetched, by a tag or by the style sheet, and nothing runs."""
    read = Reader(page)
    assert read.fetched == []
    assert not {"script", "link", "iframe", "object", "img", "base"} & set(read.tags)
    assert not re.search(r"https?:|url\((?!#c)|@import|@font-face", page)


def test_the_verdict_comes_first(page: str) -> None:
    """Sentence, gain with interval and what to paste stand before anything else, each as text of its own."""
    read = Reader(page)
    assert read.texts["h1"] == ["Your schedule loses 6\xa0%\xa0[3,\xa09] at batch 65-101."]
    assert to_paste(page)[0] == ('"num_speculative_tokens_per_batch_size": [[1, 64, 3], [65, 101, 1], [102, 512, 3]]')
    places = [page.index(part) for part in ("Change the schedule", "<h1>", "+2.1 % [+1.0, +3.3]", "<pre>", "<h2>")]
    assert places == sorted(places)


def test_every_section_is_there(page: str) -> None:
    read = Reader(page)
    assert {
        "change",
        "happened",
        "time",
        "ledger",
        "belief",
        "acceptance",
        "policies",
        "left-out",
        "recording",
        "guide",
    } <= set(read.ids)
    assert read.tags.count("svg") == read.tags.count("figure") == read.tags.count("figcaption") == 5


def test_what_holds_above_the_last_range_stands_below_it(page: str) -> None:
    assert "<bdi>Above 512 vLLM goes on with the last K, 3.</bdi>" in page


@pytest.mark.parametrize(("config", "shown"), [('{"method": "ngram"}', False), ('{"model": "d"}', True)])
def test_the_whole_option_is_only_that_of_a_model(config: str, shown: bool) -> None:
    """Another drafter has options that no trace holds, and would be another one without them."""
    advice = change(made_up().advice, ranges=made_up().advice.ranges[:1], paste_json=config)
    assert ("The whole option" in render(undrawn(advice=advice))) is shown


class TestTheSimulation:
    """Where it says the contrary, the page says so beside its headline."""

    def test_what_it_does_not_bear_out(self) -> None:
        page = render(contradicted(undrawn()))
        said = "there the advised schedule is slower than yours (-7.0\xa0%\xa0[-7.3,\xa0-6.7] against what was recorded"
        assert "<strong><bdi>The simulation does not bear this out</bdi>:</strong>" in page
        assert said in page
        assert page.index("<h1>") < page.index(said) < page.index("Paste this")

    def test_a_schedule_that_is_right_but_not_there(self) -> None:
        """Keep is doubted where another policy is faster than the bound allows, and only there."""
        ranges = made_up().advice.ranges[:1]
        advice = change(undrawn().advice, verdict="keep", schedule_new=None, gain=None, ranges=ranges)
        made = made_up().simulation
        assert made is not None
        for over, doubted in ((1.015, False), (1.2, True)):
            put = Interval(over, over - 0.01, over + 0.01)
            policies = [change(each, over_recorded=put) if each.policy == "adaptk" else each for each in made.policies]
            page = render(undrawn(advice=advice, simulation=change(made, policies=policies)))
            assert ("there adaptk is faster than your schedule (+20.0" in page) is doubted

    def test_agreement_is_not_remarked(self, page: str) -> None:
        assert "does not bear" not in page
        assert "Faster than the oracle" not in page

    def test_an_oracle_that_is_beaten(self) -> None:
        assert "Faster than the oracle here: schedule. It looks one step ahead" in render(contradicted(undrawn()))


def test_a_verdict_without_a_change_shows_the_schedule_in_use() -> None:
    """No gain, no new schedule, and no word of pasting."""
    kept = change(undrawn().advice, verdict="keep", schedule_new=None, paste="", paste_json="", gain=None,
                  sentence="Your schedule is right within 1 %.")  # fmt: skip
    page = render(undrawn(advice=kept))
    assert "Keep the schedule" in page
    assert "Paste this" not in page
    assert "whole option" not in page
    assert to_paste(page) == ["[[1, 64, 3], [65, 512, 3]]"]


@pytest.mark.parametrize("verdict", ["undecided", "nothing"])
def test_what_to_do_next_stands_where_nothing_is_decided(verdict: str) -> None:
    advice = change(undrawn().advice, verdict=verdict, schedule_new=None, gain=None)
    page = render(undrawn(advice=advice))
    assert "To decide at batch 102-512, play K=1 there" in page
    assert {"undecided": "Not decided", "nothing": "Nothing to judge"}[verdict] in page


def test_an_empty_trace_has_a_page() -> None:
    """It says so, and shows no section that would be empty."""
    read = Reader(render(empty()))
    assert read.texts["h1"] == ["The trace has no steps."]
    assert "Record one." in read.texts["li"]
    assert read.ids == ["guide"]


def test_names_are_text() -> None:
    """Nothing breaks out of its place, turns the direction of what follows, or cannot be written."""
    page = render(hostile())
    read = Reader(page)
    assert "script" not in read.tags
    assert page.count("alert(1)") >= 20
    assert not re.search("[\u202e\x00\ud800]", page)
    assert page.encode()
    assert read.texts["title"] == ["adaptk report"]


def test_several_ranks_have_a_chart_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of very many the first ones, and the page says so."""
    monkeypatch.setattr(stretches, "MOST_TIMELINES", 2)
    made = made_up(12)
    many = [change(made.sources[0], path=f"trace-{i}.jsonl") for i in range(20)]
    lines = [change(made.timelines[0], source=i) for i in range(20)]
    page = render(undrawn(sources=many, timelines=lines))
    assert "<figcaption>trace-1.jsonl: Requests in the batch" in page
    assert "<figcaption>trace-2.jsonl" not in page
    assert "Drawn are 2 of 20 traces." in page
    assert "And 4 traces more." in page


def test_it_does_not_grow_with_the_trace() -> None:
    """Ten thousand stretches take hardly more room than a few hundred, and stay below 1 MB."""
    short, long = (len(render(undrawn(timelines=made_up(bins).timelines))) for bins in (240, 10_000))
    assert long < 1.3 * short
    assert long < 1_000_000


def test_stretches_are_joined_without_loss() -> None:
    bins = made_up(1001).timelines[0].bins
    few = joined(bins, 100)
    assert len(few) == 91
    assert sum(one.steps for one in few) == 1_001_000
    assert [sum(counts) for counts in zip(*(one.chosen for one in few), strict=True)] == [
        sum(counts) for counts in zip(*(one.chosen for one in bins), strict=True)
    ]
    assert (few[0].start_s, few[-1].end_s) == (bins[0].start_s, bins[-1].end_s)
    assert joined([], 100) == []


def test_heat_maps_say_what_colours_say(page: str) -> None:
    """Cells hold the change and its interval, darker where it is larger, set off where nothing was timed."""
    assert '<td class="p4 far" title="K=7: 0 steps, 0 of them timed">+28 %<small>[+23, +33]</small></td>' in page
    assert (
        '<td class="z0" title="K=3: 17,000 steps, 15,000 of them timed">0.0 %<small>[-4.0, +4.0]</small></td>' in page
    )
    assert "m2 far" in page
    assert re.search(r'<td class="m4[^"]* best" title="[^"]*">100 %<small>p 0.\d\d</small></td>', page)


def test_without_a_table_step_times_are_shown() -> None:
    page = render(undrawn(cells=[change(cell, ratio=None, table_ms=None) for cell in made_up().cells]))
    assert "<h3>Step time</h3>" in page
    assert "over the table" not in page


def test_cells_without_anything_believed() -> None:
    made = made_up()
    bare = [change(cell, ratio=None, table_ms=None, itl_ms=None, goodput=None, best_probability=None)
            for cell in made.cells]  # fmt: skip
    assert '<section id="belief">' not in render(undrawn(cells=bare))
    holes = [cell for i, cell in enumerate(made.cells) if i % 5]
    assert '<td class="none" title="">-</td>' in render(undrawn(cells=holes))


def test_policies_that_could_not_be_valued_say_why(page: str) -> None:
    assert "fixed-0: K=0 was never played, so that nothing recorded stands for it" in page
    assert "fixed-7: K=7: played in 3 steps: not simulated; give --table" in page
    nothing = Simulation(steps=0, seeds=0, measured_tokens_per_s=None, policies=[], notes=[], reason="no times")
    assert "<bdi>no times</bdi>" in render(undrawn(simulation=nothing))


def test_an_interrupted_analysis_is_marked() -> None:
    assert "Interrupted: this is what was found until then." in render(undrawn(cut_short=True))
    assert "Interrupted" not in render(undrawn())


def test_exploring_that_paid_is_no_cost() -> None:
    """Where the K looked at proved better, the ledger is below 0."""
    ledger = Ledger(explored_steps=17, explored_s=1.9, cost_s=-0.04, share=-0.0003, about="By this trace.")
    page = render(undrawn(ledger=ledger))
    assert "It saved 40.0 ms, &lt;0.1\u00a0% of the time of work." in page
    assert "It cost 40.0 ms" in render(undrawn(ledger=change(ledger, cost_s=0.04)))


def test_remarks_stand_once() -> None:
    """Behind all the batch sizes that they are of."""
    made = made_up()
    ranges = [change(each, note="Nothing can be said of K=0.", gain=None) for each in made.advice.ranges]
    page = render(undrawn(advice=change(made.advice, ranges=ranges, schedule_now=[], schedule_new=None)))
    assert page.count("Nothing can be said of K=0.") == 1
    assert "<bdi>1-64, 65-101, 102-512: Nothing can be said of K=0.</bdi>" in page


def test_many_changes_are_told_in_a_sentence() -> None:
    """A chart full of lines would hide what it shows."""
    made = made_up(12)
    alarms = [Alarm(step=i, at_s=60.0 * i, kind="time") for i in range(1, 31)]
    page = render(undrawn(timelines=[change(made.timelines[0], alarms=alarms)]))
    assert "Step times changed 30 times: first after 1:00 min, last after 30:00 min." in page
    assert "Dotted lines" not in page


def test_a_schedule_of_one_k_is_not_drawn() -> None:
    made = made_up()
    one = change(made.advice, schedule_now=[[1, 512, 3]], schedule_new=None, ranges=made.advice.ranges[:1])
    assert "svg" not in Reader(render(undrawn(advice=one))).tags


def test_percentages_and_intervals_stay_in_one_piece() -> None:
    assert sentence("loses 6 % [3, 9] <at> batch 65") == "<bdi>loses 6\xa0%\xa0[3,\xa09] &lt;at&gt; batch 65</bdi>"


def test_the_same_findings_give_the_same_bytes(page: str) -> None:
    assert render(made_up()) == page


def test_it_is_written_whole(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("old")
    write_html(out, undrawn())
    assert out.read_text(encoding="utf-8") == render(undrawn())
    assert list(tmp_path.iterdir()) == [out]
    with pytest.raises(OutputError, match="cannot be written"):
        write_html(tmp_path / "missing" / "report.html", undrawn())


def test_numbers_are_written_as_people_do() -> None:
    assert signed_interval(None) == "-"
    assert signed_interval(Interval(-0.5, -0.6, float("inf"))) == "-50 % [-60, -]"
