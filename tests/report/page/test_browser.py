"""Pages in a real browser: at the width of a phone and of a desk, light and dark, and in print."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from adaptk.replay.report import Content
from adaptk.replay.report import render as render_replay
from adaptk.report.page.render import render
from tests.replay.tiny import row, tiny
from tests.report.made_up import contradicted, made_up
from tests.report.page.odd import hostile

playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

PHONE, DESK, PAPER = (390, 844), (1280, 900), (718, 1000)

# Each text that is seen, with the contrast of its colour to the first ground below it that is not transparent.
CONTRASTS = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parts(getComputedStyle(node).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const ink = parts(node instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(node))].sort((x, y) => x - y);
    found.push([(b + 0.05) / (a + 0.05), walk.currentNode.data.trim().slice(0, 40)]);
  }
  return found;
}"""
# Texts of figures that lie outside them, more than a pixel or two.
OUTSIDE = """() => [...document.querySelectorAll('figure svg text')].filter((text) => {
  const [own, all] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
  return own.left < all.left - 2 || own.right > all.right + 2 || own.top < all.top - 2 || own.bottom > all.bottom + 2;
}).map((text) => text.textContent)"""
NAMES = """() => [...document.querySelectorAll('figure')].map((figure) => {
  const shown = figure.querySelector('svg, img');
  return [shown.getAttribute('aria-label') || shown.alt, figure.querySelector('figcaption').textContent];
})"""


class Seen(NamedTuple):
    """A page that is open, in which colour scheme, what it asked for, and what it complained of."""

    page: Any
    scheme: str
    asked: list[str]
    errors: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages: a report, one whose texts try to break out, and a replay's."""
    folder = tmp_path_factory.mktemp("pages")
    undecided = msgspec.structs.replace(made_up().advice, verdict="undecided", schedule_new=None, gain=None)
    content = Content(
        title="adaptk replay", command=["adaptk", "replay"], created=datetime(2026, 1, 2, tzinfo=UTC),
        rows=[row("T1", policy, seed) for policy in ("adaptk", "table") for seed in (0, 1)], scenarios=[tiny("T1")],
    )  # fmt: skip
    pages = {
        "report": render(made_up()),
        "hostile": render(contradicted(hostile())),
        "undecided": render(msgspec.structs.replace(made_up(), advice=undecided, timelines=[], simulation=None)),
        "replay": render_replay(content),
    }
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in pages}


@pytest.fixture
def seen(browser: Any, files: dict[str, Path], request: pytest.FixtureRequest) -> Iterator[Seen]:
    """The page of the parameters ``(name, width and height, scheme)``."""
    name, (width, height), scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda asked_for: asked.append(asked_for.url))
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("dialog", lambda dialog: (errors.append(dialog.message), dialog.dismiss()))
    page.goto(files[name].as_uri())
    yield Seen(page, scheme, asked, errors)
    context.close()


SCREENS = [
    (name, size, scheme)
    for name in ("report", "hostile", "undecided", "replay")
    for size in (PHONE, DESK)
    for scheme in ("light", "dark")
]


@pytest.mark.parametrize("seen", SCREENS, indirect=True, ids=[f"{n}-{s[0]}-{c}" for n, s, c in SCREENS])
def test_it_can_be_read(seen: Seen) -> None:
    """Only the file is asked for, nothing complains, nothing scrolls sideways, and all text has contrast."""
    width = seen.page.viewport_size["width"]
    assert len(seen.asked) == 1
    assert seen.errors == []
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    found = seen.page.evaluate(CONTRASTS)
    assert len(found) > 50
    assert [(ratio, text) for ratio, text in found if ratio < 4.5] == []
    assert seen.page.evaluate(OUTSIDE) == []


@pytest.mark.parametrize("seen", [("report", PHONE, "light"), ("replay", DESK, "dark")], indirect=True)
def test_figures_have_names(seen: Seen) -> None:
    """Each has words for those who cannot see it, and a line below."""
    names = seen.page.evaluate(NAMES)
    assert names
    assert all(len(alt) > 20 and len(caption) > 10 for alt, caption in names)


@pytest.mark.parametrize("seen", [("report", PHONE, "light"), ("report", PHONE, "dark")], indirect=True)
def test_the_verdict_is_on_the_first_screen(seen: Seen) -> None:
    """Sentence, what to paste, how long the trace is and what it rests on: without scrolling, on a phone."""
    for what in ("h1", "pre >> nth=0", "text=+2.1 % [+1.0, +3.3]", "text=1:00 h", "text=What this rests on"):
        box = seen.page.locator(what).first.bounding_box()
        assert box["y"] + box["height"] <= 844, what


@pytest.mark.parametrize("seen", [("report", PHONE, "light"), ("report", PHONE, "dark")], indirect=True)
def test_the_ground_is_that_of_the_scheme(seen: Seen) -> None:
    """White where the reader's scheme is light, dark where it is dark."""
    ground = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[seen.scheme]


@pytest.mark.parametrize("seen", [("report", DESK, "light")], indirect=True)
def test_what_is_copied_is_whole(seen: Seen) -> None:
    """A click selects all that is to be pasted, without what stands around it."""
    seen.page.locator("pre").first.click()
    assert seen.page.evaluate("getSelection().toString()").strip() == (
        '"num_speculative_tokens_per_batch_size": [[1, 64, 3], [65, 101, 1], [102, 512, 3]]'
    )


@pytest.mark.parametrize("seen", [("report", PAPER, "dark"), ("replay", PAPER, "dark")], indirect=True)
def test_paper_is_white(seen: Seen) -> None:
    """In print all is dark on white, fits the paper, and takes few sheets, also where the screen is dark."""
    seen.page.emulate_media(media="print")
    assert seen.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= PAPER[0]
    assert [(ratio, text) for ratio, text in seen.page.evaluate(CONTRASTS) if ratio < 4.5] == []
    sheets = seen.page.pdf(format="A4", print_background=True).count(b"/Type /Page\n")
    assert 1 <= sheets <= 6
