"""What is shown of engines: in lines that fit, and readable without colour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adaptk.live import fleet
from adaptk.live.address import Address, addresses
from adaptk.live.brief import state_of
from adaptk.live.browser import _HELP, Browser
from adaptk.live.detail import detail
from adaptk.live.fetch import Look
from adaptk.live.fleet import Fleet, Seen
from adaptk.live.marks import MARKS
from adaptk.live.overview import overview
from adaptk.live.page import snapshots
from adaptk.live.plain import plain_line
from adaptk.live.texts import View, cut, fitted, width_of
from adaptk.spans import Span, plain
from tests.live.pages import NOW, Engine, page

PLACES = addresses(["10.0.12.133:9475-9480"])


def engines(*made: Engine, lost: int = 0) -> list[Seen]:
    """Engines after two pages ten seconds apart, each at an address of its own, and ``lost`` addresses without."""
    fleet = Fleet(PLACES[: len(made) + lost], wall=lambda: NOW + 0.3)
    for at in (0.0, 10.0):
        for place, engine in zip(PLACES, made, strict=False):
            fleet.update(Look(place, at, snapshots(page(engine))))
            engine.steps += 1000
    for place in PLACES[len(made) : len(made) + lost]:
        fleet.update(Look(place, 10.0, error="no answer within 2 s"))
    return fleet.engines(11.0)


def _texts(view: View) -> list[str]:
    return [plain(line) for line in (*view.fixed, *view.scrolled)]


def _screen(browser: Browser, shown: list[Seen], width: int = 80, height: int = 24) -> list[str]:
    return [plain(line) for line in browser.picture(shown, width, height)]


def test_one_engine_in_full() -> None:
    """All that an operator asks for, in 80 columns, nothing cut."""
    (seen,) = engines(Engine())
    lines = _texts(detail(seen, 80))
    head = "on org/model  10.0.12.133:9475  adaptk 0.1.0, vLLM 0.32.0 V2"
    assert lines[0] == f"{head:<66}page 1.0 s old"
    assert lines[1] == "batch 12  K 3  3.0k tok/s  100 steps/s  last step 0.3 s ago"
    assert lines[2] == "gain over            K=0     table     vLLM  exploit explore  hold guard"
    assert lines[3] == "last 10 s        +25.0 %   +11.1 %   +0.0 %     90 %    10 %   0 %   0 %"
    assert lines[6].split() == ["accepted,", "%", "79", "78", "77", "76", "75", "74", "73"]
    assert lines[7].split()[3] == "76-82"
    assert "exploring cost 250 ms of 500 ms, 250 ms left" in lines[8]
    assert "not learnt from: no_time 7" in "\n".join(lines)
    row = next(line for line in lines if line.startswith(">"))
    assert row.split() == [
        ">",
        "8-15",
        "3",
        "1.1k",
        "19.00",
        "[18.81,",
        "19.19]",
        "18.10",
        "+5.0",
        "%",
        "100",
        "85",
        "%*",
    ]
    assert next(line for line in lines if re.match(r" t 8-15 +1 ", line))
    assert not any("…" in line for line in lines)


def test_of_many_positions_the_first_and_the_last_are_shown() -> None:
    """Where there is no room for all of them."""
    rows = "".join(f'adaptk_draft_reached_total{{engine="0",position="{p}"}} {100 + p}\n' for p in range(1, 32))
    fleet = Fleet(PLACES[:1])
    fleet.update(Look(PLACES[0], 0.0, snapshots(rows)))
    head = next(line for line in _texts(detail(fleet.engines(0.0)[0], 80)) if line.startswith("draft position"))
    assert head.split()[2:] == ["1", "2", "3", "4", "5", "6", "7", "8", "31"]


def test_shadow_says_what_adaptk_would_gain() -> None:
    """And which K it chose beside the one that is played."""
    (seen,) = engines(Engine(mode="shadow"))
    lines = _texts(detail(seen, 80))
    assert "K 3 chosen, 1 played" in lines[1]
    assert lines[2].startswith("would gain over")
    assert lines[3].split()[3:9] == ["+50.0", "%", "+33.3", "%", "+20.0", "%"]


@pytest.mark.parametrize(("drift", "mark"), [(1.05, ""), (1.15, "!"), (0.8, "!"), (1.4, "!!"), (0.6, "!!")])
def test_drift_is_marked_without_colour(drift: float, mark: str) -> None:
    """A reader in black and white sees it."""
    engine = Engine()
    engine.drift = drift
    (seen,) = engines(engine)
    rows = [plain(line) for line in detail(seen, 80).scrolled]
    assert all(re.search(rf"[+-]\d+\.0 %{re.escape(mark)} +[\d.]+ +\d+ %", row) for row in rows)


def test_the_row_that_is_played_is_of_the_requests_that_decode() -> None:
    """With prompts beside them the batch is larger than any range that was served."""
    engine = Engine()
    engine.gauges["batch_size"] = 17
    (seen,) = engines(engine)
    view = detail(seen, 80)
    assert view.focus is not None
    assert plain(view.scrolled[view.focus]).split()[:3] == [">", "8-15", "3"]


def test_troubles_are_told_in_full() -> None:
    """In as many lines as they need."""
    engine = Engine()
    engine.gauges["active"], engine.inactive = 0, "ranks of a mixture of experts would have to agree on K " * 2
    (seen,) = engines(engine)
    said = " ".join(line.strip() for line in _texts(detail(seen, 80))[2:6])
    assert said.startswith("!! inactive: adaptk stands aside, vLLM's own K is played: ranks of a mixture")
    assert _texts(detail(seen, 80))[0].startswith("inactive org/model")


def test_all_engines_a_line_each() -> None:
    """The state tells what is wrong first; addresses are whole in 80 columns."""
    dead = Engine(mode="shadow", model="/models/llama")
    dead.gauges["drafter_dead"] = 1
    lines = _texts(overview(engines(Engine(), dead, lost=1), 80, 1))
    assert lines[0] == "3 engines: 1 on, 1 shadow, 1 unreachable, 2 in trouble"
    assert lines[2].split() == ["10.0.12.133:9475", "on", "12", "3", "3.0k", "+25.0", "+0.0", "+5.0", "ok"]
    assert lines[3].startswith("> ")
    assert lines[3].split()[2:] == ["shadow", "12", "1/3", "3.0k", "+50.0", "+20.0", "+5.0", "!!dead", "drafter"]
    assert lines[4].endswith("no answer within 2 s")
    wide = _texts(overview(engines(Engine(), dead), 108, None))
    assert "llama" in wide[3]
    assert wide[1].split()[5:11] == ["K=0", "%", "vLLM", "%", "table", "%"]
    assert wide[3].split()[-6:-2] == ["+50.0", "+20.0", "+33.3", "+5.0"]


def test_a_guessed_gain_is_marked() -> None:
    """In every view, without colour; in 80 columns whatever the gains."""
    engine = Engine(mode="shadow")
    engine.visits = 0.0
    engine.reference["k0"] = 0.4
    (seen,) = engines(engine)
    assert _texts(detail(seen, 80))[3].startswith("last 10 s        ~+200 %  ~+33.3 % ~+20.0 %")
    assert "3.0k  ~+200 ~+20.0" in _texts(overview([seen, seen], 80, None))[2]
    assert plain_line(seen, "12:00:00").endswith(" 3.0k tok/s ~+20.0 % on vLLM")


def test_an_engine_that_was_lost_says_since_when() -> None:
    """In place of its state."""
    fleet = Fleet(PLACES[:1], wall=lambda: NOW)
    fleet.update(Look(PLACES[0], 0.0, snapshots(page(Engine()))))
    fleet.update(Look(PLACES[0], 5.0, error="connection refused"))
    shown = fleet.engines(42.0)
    assert _texts(overview(shown, 80, None))[2].endswith("!!lost 42 s")
    assert "!! unreachable: connection refused" in _texts(detail(shown[0], 80))


def test_a_screen_of_80_by_24_holds_what_matters() -> None:
    """What is played now, above it all that stands, below it the keys; wider ones hold more."""
    shown = engines(Engine())
    lines = _screen(Browser(), shown)
    assert len(lines) == 24
    assert any(line.startswith(">") for line in lines)
    assert lines[-1].startswith("q quit  ? help")
    assert "> played now  t the table's K" in lines[-1]
    assert not any("…" in line for line in lines)
    head = next(line for line in _screen(Browser(), shown, 120, 40) if "step ms" in line)
    assert "lately" in head
    assert " AL " in head


def test_keys_open_scroll_and_leave() -> None:
    """As their help says."""
    shown = engines(Engine(model="a"), Engine(model="b"), lost=1)
    browser = Browser()
    assert _screen(browser, shown)[2].startswith("> 10.0.12")
    for key in ("down", "down", "down", "up", "enter"):
        browser.press(key, shown)
    opened = _screen(browser, shown, height=16)
    assert opened[0].startswith("on b")
    assert "esc all" in opened[-1]
    browser.press("home", shown)
    follows = _screen(browser, shown, height=16)
    browser.press("end", shown)
    assert _screen(browser, shown, height=16)[-2] == plain(detail(shown[1], 80).scrolled[-1])
    browser.press("page up", shown)
    browser.press("up", shown)
    assert _screen(browser, shown, height=16) != follows
    browser.press("home", shown)
    assert any(line.startswith(">") for line in _screen(browser, shown, height=16))
    browser.press("escape", shown)
    assert _screen(browser, shown)[0].startswith("3 engines")
    browser.press("?", shown)
    assert any("this page" in line for line in _screen(browser, shown))
    read = []
    while not (lines := _screen(browser, shown))[0].startswith("3 engines"):
        read += lines[:-1]
        browser.press("down", shown)
    assert "\n".join(read).rstrip() == _HELP
    assert _screen(browser, shown)[0].startswith("3 engines")
    assert not browser.done
    browser.press("q", shown)
    assert browser.done


def test_a_pause_keeps_the_engines_of_that_moment() -> None:
    """And says so, until the same key."""
    before, after = engines(Engine()), engines(Engine(mode="shadow"))
    browser = Browser()
    browser.press("space", before)
    assert browser.paused == before
    assert _screen(browser, before)[-1].startswith("STOPPED")
    browser.press("space", before)
    assert browser.paused is None
    assert not _screen(browser, after)[-1].startswith("STOPPED")


def test_trouble_first_keeps_what_was_selected() -> None:
    """The engine moves, and the mark with it."""
    dead = Engine(model="dead")
    dead.gauges["drafter_dead"] = 1
    shown = engines(Engine(model="fine"), dead)
    browser = Browser()
    browser.press("down", shown)
    browser.press("p", shown)
    assert [line[0] for line in _screen(browser, shown)[2:4]] == [">", " "]
    browser.press("enter", shown)
    assert " dead " in _screen(browser, shown)[0]


def test_an_opened_engine_that_starts_anew_stays_open() -> None:
    """Under another name at the same address; with the address gone, all are shown."""
    shown = engines(Engine(model="old"), Engine(model="other"))
    browser = Browser()
    browser.press("enter", shown)
    assert "on old" in _screen(browser, shown)[0]
    assert "on new" in _screen(browser, engines(Engine(model="new"), Engine(model="other")))[0]
    assert _screen(browser, shown[1:] * 2)[0].startswith("2 engines")


@pytest.mark.parametrize(("mode", "late"), [("on", 10.0), ("off", 0.0), ("inactive", 0.0)])
def test_no_gain_is_shown_as_one_of_now_where_adaptk_gains_nothing(mode: str, late: float) -> None:
    """An idle engine, or one where it is off or stands aside; what was gained since its start stays."""
    engine = Engine(mode="on" if mode == "inactive" else mode)
    engine.gauges["active"] = float(mode != "inactive")
    fleet = Fleet(PLACES[:1], wall=lambda: NOW + late)
    for at in (0.0, 10.0):
        fleet.update(Look(PLACES[0], at, snapshots(page(engine))))
        engine.steps += 1000
    (seen,) = fleet.engines(10.0)
    line = plain_line(seen, "12:00:00")
    assert line.startswith(f"12:00:00 10.0.12.133:9475 {mode} batch 12 K=")
    assert "% on" not in line
    assert _texts(overview([seen, seen], 80, None))[2].split()[5:7] == ["-", "-"]
    lines = _texts(detail(seen, 80))
    assert next(line for line in lines if line.startswith("last 10 s ")).split()[3:6] == ["-"] * 3
    assert next(line for line in lines if line.startswith("since its start")).split()[3:5] == ["+25.0", "%"]


def test_every_mark_is_explained() -> None:
    """Each word of a trouble has a line, and the lines fit."""
    words = re.findall(r'Trouble\("([a-z ]+)"', Path(fleet.__file__).read_text())
    for word in set(words) - {"asking", "idle"}:
        assert re.search(rf"^!!?{word} ", MARKS, re.MULTILINE), word
    assert {"inactive", "stale", "ledger"} < set(words)
    assert max(map(len, _HELP.splitlines())) <= 80


_NAMES = st.text(max_size=60)


def test_a_line_leaves_out_what_matters_least() -> None:
    """The drift goes first, then the gain over K=0, the rate, the batch; what is wrong stays."""
    engine = Engine()
    (seen,) = engines(engine)
    start = "12:00:00 10.0.12.133:9475 on batch 12 K=3 3.0k tok/s"
    assert plain_line(seen, "12:00:00") == f"{start} +0.0/+25.0 % on vLLM/K=0"
    engine.drift = 1.2
    assert plain_line(engines(engine)[0], "12:00:00") == f"{start} +0.0/+25.0 % on vLLM/K=0"
    engine.gauges["exploration_balance_seconds"] = -1.0
    assert plain_line(engines(engine)[0], "12:00:00") == f"{start} +0.0 % on vLLM !ledger"
    engine.reference = {"played": 1.0, "k0": 0.8}
    assert plain_line(engines(engine)[0], "12:00:00") == f"{start} +25.0 % on K=0 !ledger"


@settings(max_examples=200)
@example("shadow", {"dead", "balance"}, 0, 0, "x" * 28)
@given(
    st.sampled_from(["on", "shadow", "off"]),
    st.sets(st.sampled_from(["active", "faults", "dead", "balance", "drift", "untimed", "rows", "error", "late"])),
    st.integers(0, 99_999),
    st.integers(0, 9_999_999),
    _NAMES,
)
def test_a_line_has_at_most_80_columns(mode: str, ills: set[str], k: int, batch: int, name: str) -> None:
    """Whatever is wrong, however long names and numbers are; the worst is always said."""
    engine = Engine(mode=mode)
    engine.gauges |= {"chosen_k": k, "batch_size": batch, "active": float("active" not in ills)}
    engine.gauges |= {"drafter_dead": float("dead" in ills)}
    engine.gauges |= {"exploration_balance_seconds": -1.0 if "balance" in ills else 1.0}
    engine.counters |= {"faults": float("faults" in ills), "trace_dropped_rows": 99.0 * ("rows" in ills)}
    engine.drift = 1.6 if "drift" in ills else 1.2
    engine.visits = 0.0 if "untimed" in ills else 20.0
    place = Address(f"http://{name}:9475/metrics", f"{name}:9475")
    fleet = Fleet([place], wall=lambda: NOW + 1e5 * ("late" in ills))
    for at in (0.0, 10.0):
        fleet.update(Look(place, at, snapshots(page(engine))))
        engine.steps += 100_000
    if "error" in ills:
        fleet.update(Look(place, 11.0, error="no answer, " * 20))
    (seen,) = fleet.engines(12.0)
    line = plain_line(seen, "12:00:00")
    assert width_of(line) <= 80
    assert "error" in ills or line.endswith(state_of(seen) if state_of(seen) != "ok" else "")
    assert "error" in ills or f" {'inactive' if 'active' in ills else mode} " in line


@settings(max_examples=50)
@given(st.integers(1, 200), st.integers(1, 60))
def test_help_fits(width: int, height: int) -> None:
    """Its pages, too."""
    browser = Browser()
    browser.press("?", [])
    for _ in range(3):
        lines = browser.picture([], width, height)
        assert len(lines) == height
        assert all(width_of(plain(line)) <= width for line in lines)
        browser.press("down", [])


@settings(max_examples=50)
@given(st.integers(1, 200), st.integers(1, 60), _NAMES, st.sampled_from(["", "enter", "?", "end"]), st.integers(0, 3))
def test_nothing_is_ever_wider_or_higher_than_the_terminal(
    width: int, height: int, model: str, key: str, count: int
) -> None:
    """Whatever its size, the names and the view."""
    made = [Engine(model=model, mode="shadow") for _ in range(count)]
    shown = engines(*made, lost=2 - count if count < 2 else 0)
    browser = Browser()
    browser.picture(shown, width, height)
    browser.press(key, shown)
    lines = browser.picture(shown, width, height)
    assert len(lines) <= height
    assert all(sum(width_of(span.text) for span in line) <= width for line in lines)
    assert not any(sign in span.text for line in lines for span in line for sign in "\n\r\t\x1b")


@given(_NAMES, st.integers(0, 40), st.integers(0, 8))
def test_fitted_text_has_its_width(text: str, room: int, tail: int) -> None:
    """In columns, for signs of any width."""
    assert width_of(fitted(text, room, tail)) == room
    assert width_of(plain(cut((Span(text), Span(text)), room))) <= room
