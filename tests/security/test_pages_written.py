"""Reports made of what others wrote: nothing in them breaks out, runs, loads or is sent, and no terminal is steered."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adaptk.cli.main import main
from adaptk.htmlpage import document, escaped
from adaptk.replay.report import Content
from adaptk.replay.report import render as render_replay
from adaptk.report.page.render import render
from tests.cli.examplefiles import make
from tests.live.pages import served
from tests.replay.tiny import row, tiny
from tests.report.made_up import made_up
from tests.report.page.odd import undrawn

# Each would do something in one of the places where a text can stand: between tags, in attributes, styles, comments.
PAYLOADS = (
    "<script>parent.owned=1</script>", "\"'><img src=http://127.0.0.1:9/a onerror=alert(1)>", "<svg onload=alert(1)>",
    "</style></title></textarea></p><script>alert(1)</script>", "' onmouseover='alert(1)", "--><!--", "]]>",
    "javascript:alert(1)", "url(http://127.0.0.1:9/b)", "<base href=//127.0.0.1:9/>", "&lt;script&gt;", "&#60;b&#62;",
    "<meta http-equiv=refresh content=0;url=http://127.0.0.1:9/c>", "<form action=//127.0.0.1:9><input autofocus>",
    "$\\frac{$", "{{7*7}}", "%s%n{0}", "\x1b]0;owned\x07\x9b31m\x00\ud800\u202e\ufffe", "מודל", "<bdo dir=rtl>",
)  # fmt: skip
HOSTILE = " ".join(reversed(PAYLOADS))
ALLOWED = {
    "html", "head", "meta", "title", "style", "body", "header", "footer", "section", "div", "p", "h1", "h2", "h3", "ul",
    "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td", "span", "strong", "em", "small", "code", "pre",
    "bdi", "br", "figure", "figcaption", "img", "svg", "g", "path", "text", "tspan", "use", "defs", "clippath", "rect",
    "details", "summary", "caption", "a", "i", "b", "lineargradient", "stop", "circle", "line", "polyline",
}  # fmt: skip
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Reader(HTMLParser):
    """What a browser makes of a page: tags, attributes by name, and all text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, list[str]] = {}
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attributes:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def check(page: str) -> Reader:
    """Nothing on it runs, and nothing but pictures in the page itself is fetched."""
    read = Reader(page)
    assert set(read.tags) <= ALLOWED, set(read.tags) - ALLOWED
    assert [name for name in read.attributes if name.startswith("on") or name in ("srcdoc", "action")] == []
    for name in ("src", "href", "xlink:href"):
        assert [v for v in read.attributes.get(name, ()) if not v.startswith(("#", "data:image/png;base64,"))] == []
    assert [v for v in read.attributes.get("style", ()) if "127.0.0.1" in v or "expression" in v] == []
    assert read.tags.count("meta") == 4
    assert "\x1b" not in page
    assert page.encode()
    return read


def with_texts(value: Any, text: str, hint: Any = None) -> Any:
    """The value with every text in it replaced, except those that can be one of a few words only."""
    if isinstance(value, str):
        closed = any(get_origin(part) is Literal for part in (hint, *get_args(hint)))
        return value if closed else text
    if isinstance(value, msgspec.Struct):
        hints = get_type_hints(type(value))
        fields = {name: with_texts(old, text, hints[name]) for name, old in msgspec.structs.asdict(value).items()}
        return type(value)(**fields)
    if isinstance(value, dict):
        return {with_texts(key, text): with_texts(each, text) for key, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(with_texts(each, text) for each in value)
    return value


def test_whatever_text_the_findings_hold_stays_text() -> None:
    """Each field of each finding, those included that nobody has thought of yet."""
    findings = with_texts(made_up(30), HOSTILE)
    assert findings.sources[0].path == findings.advice.sentence == findings.dropped[0].what == HOSTILE
    read = check(render(findings))
    assert "<script>parent.owned=1</script>" in read.text


@settings(max_examples=30)
@given(st.text(max_size=40))
@example("")
@example(HOSTILE)
@example("\ud800\udfff" * 10)
@example("x" * 100_000)
def test_any_text_stays_text(text: str) -> None:
    """As text of the page, in attributes and in titles."""
    page = render(with_texts(undrawn(), text))
    check(page)
    assert Reader(f'<p title="{escaped(text)}">').tags == ["p"]


def content(text: str) -> Content:
    """A replay's content in which every text is ``text``."""
    scenario = tiny(text)
    rows = [row(text, policy, seed) for policy in (text, "adaptk") for seed in (0, 1)]
    return Content(
        title=text, command=["adaptk", text], created=datetime(2026, 1, 2, tzinfo=UTC), rows=rows,
        scenarios=[scenario], left_out=text, notes=[text],
    )  # fmt: skip


@pytest.mark.parametrize("text", [HOSTILE, "$\\frac{$ $x$", "x" * 10_000], ids=["hostile", "formula", "long"])
def test_a_replays_texts_stay_text(text: str) -> None:
    """Of scenarios and policies by name, of notes and of the command line; in pictures, too."""
    check(render_replay(content(text)))


def hostile_files(folder: Path) -> dict[str, Path]:
    """A trace, a table and a schedule whose every text is hostile, under names that are hostile too."""
    made = make(folder / "sane")
    name = sendable(HOSTILE)[:60].replace("/", "_").replace("\0", "_")
    header, *rows = (made / "trace.jsonl").read_bytes().splitlines()
    fields = msgspec.json.decode(header)
    kept = {"kind", "schema_version", "arms", "schedule", "k_max", "run", "part"}
    fields = {key: value if key in kept else with_texts(value, sendable(HOSTILE)) for key, value in fields.items()}
    fields |= {"mode": sendable(HOSTILE), "table": sendable(HOSTILE), "key": {sendable(HOSTILE): sendable(HOSTILE)}}
    trace = folder / f"{name}.jsonl"
    trace.write_bytes(b"\n".join([msgspec.json.encode(fields), *rows]) + b"\n")
    table = msgspec.json.decode((made / "table.json").read_bytes())
    table["meta"] = {sendable(HOSTILE): sendable(HOSTILE), "name": sendable(HOSTILE), "device": sendable(HOSTILE)}
    table["meta"]["provenance"] = {sendable(HOSTILE): sendable(HOSTILE), "note": sendable(HOSTILE)}
    other = folder / f"{name}.json"
    other.write_bytes(msgspec.json.encode(table))
    return {"trace": trace, "table": other, "sane": made}


def sendable(text: str) -> str:
    """The text as far as JSON can hold it."""
    return text.encode("utf-8", "replace").decode()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return hostile_files(tmp_path_factory.mktemp("hostile"))


def test_a_report_of_hostile_files(files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Header, key, table and the file's own name: escaped in the page, and no terminal is steered by the words."""
    out = tmp_path / "report.html"
    assert main(["report", str(files["trace"]), "--table", str(files["table"]), "--out", str(out)]) == 0
    check(out.read_text(encoding="utf-8"))
    obeys_nothing(capsys)


COMMANDS = [
    (0, "report", "{trace}", "--json", "--out", "{out}"),
    (0, "report", "{trace}", "--schedule"),
    (1, "report", "{sane}/nothing-\x1b[2J"),
    (0, "table", "show", "{table}"),
    (0, "table", "show", "{table}", "--json"),
    (0, "table", "check", "{table}"),
    (0, "table", "diff", "{table}", "{sane}/table.json"),
    (0, "table", "export", "{table}", "--vllm"),
    (0, "replay", "--trace", "{trace}", "--policy", "adaptk", "table", "--seeds", "1"),
    (0, "replay", "--trace", "{trace}", "--table", "{table}", "--policy", "table", "--seeds", "1", "--json"),
    (1, "mode", "{sane}/nothing-\x1b[2J\u202e"),
    (1, "top", "--once", "127.0.0.1:1"),
]


@pytest.mark.parametrize(
    ("status", "command"), [(status, command) for status, *command in COMMANDS], ids=[str(c[1]) for c in COMMANDS]
)
def test_no_command_passes_on_what_steers(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int, command: list[str]
) -> None:
    """Names and notes out of files, and names of files, are printed as signs that can be seen, or escaped in JSON."""
    places = {**files, "out": tmp_path / "out.html"}
    assert main([part.format(**places) for part in command]) == status
    obeys_nothing(capsys)


def test_no_error_of_the_command_line_passes_it_on(capsys: pytest.CaptureFixture[str]) -> None:
    """A shell puts names of files there."""
    with pytest.raises(SystemExit):
        main(["grafana", "--bogus-\x1b]0;owned\x07"])
    obeys_nothing(capsys)


def obeys_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert text.replace("\n", "").replace("\t", "").isprintable(), [
            sign for sign in text if not sign.isprintable() and sign not in "\n\t"
        ]
    assert printed.out + printed.err


def test_json_keeps_what_it_escapes(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Unlike the words for people it is to be read by programs: nothing is lost."""
    assert main(["report", str(files["trace"]), "--json"]) == 0
    text = capsys.readouterr().out
    source = json.loads(text)["sources"][0]
    assert source["path"] == str(files["trace"])
    assert "\x1b]0;owned\x07\x9b31m" in source["table"]
    assert "\\u001b]0;owned\\u0007\\u009b31m" in text


playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Seen(NamedTuple):
    """What a browser did with a page: dialogs, whether a script ran, who was asked, and its elements by tag."""

    dialogs: list[str]
    ran: bool
    asked: list[str]
    tags: Counter[str]


def opened(browser: Any, page: str, folder: Path) -> Seen:
    """Have it opened, with a real server behind every address on it."""
    asked: list[str] = []

    def answer() -> tuple[int, dict[str, str], bytes]:
        asked.append("something")
        return 200, {"Content-Type": "text/plain"}, b""

    dialogs: list[str] = []
    with served(answer) as place:
        file = folder / "page.html"
        file.write_text(page.replace("127.0.0.1:9", place), encoding="utf-8")
        seen = browser.new_page()
        seen.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        seen.goto(file.as_uri())
        seen.mouse.move(200, 200)
        seen.wait_for_timeout(500)
        tags = seen.evaluate("[...document.querySelectorAll('*')].map((element) => element.localName)")
        ran = seen.evaluate("window.owned === 1")
        seen.close()
    return Seen(dialogs, ran, asked, Counter(tags))


@pytest.mark.parametrize("which", ["report", "replay"])
def test_in_a_browser_nothing_happens(browser: Any, tmp_path: Path, which: str) -> None:
    """A page with hostile texts everywhere has the elements of the same page with sane ones, and does nothing more."""

    def page(text: str) -> str:
        return render(with_texts(undrawn(), text)) if which == "report" else render_replay(content(text))

    hostile, sane = (opened(browser, page(text), tmp_path) for text in (HOSTILE, "sane"))
    assert hostile[:3] == sane[:3] == ([], False, [])
    hostile.tags.pop("span", None), sane.tags.pop("span", None)  # sets ranges of a schedule apart, where text holds any
    assert hostile.tags == sane.tags
    assert "script" not in hostile.tags


def test_what_escaped_its_place_could_do_nothing(browser: Any, tmp_path: Path) -> None:
    """The page's own policy stops scripts, and pictures and frames from elsewhere, that stand in it as they are."""
    raw = "<iframe src=http://127.0.0.1:9/d></iframe>" + "".join(PAYLOADS[:3])
    guarded, bare = (opened(browser, page, tmp_path) for page in (document("t", [raw]), f"<!DOCTYPE html>{raw}"))
    assert guarded[:3] == ([], False, [])
    assert bare.dialogs  # these do work where nothing stops them
    assert bare.ran
    assert bare.asked
