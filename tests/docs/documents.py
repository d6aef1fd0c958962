"""The project's pages for people, taken apart: blocks of code, commands in them, links, headings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *(f"docs/{path.name}" for path in ROOT.glob("docs/*.md")),
)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of ``page`` that begins at ``line``."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Command(NamedTuple):
    """One command of a shell block: the variables set in front of it, and its words."""

    where: str
    variables: dict[str, str]
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where} {' '.join(self.words[:3])}"


def read(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text()


def blocks(*languages: str) -> list[Block]:
    """All blocks of these languages, page by page; of every language where none is named."""
    found = [
        Block(page, text.count("\n", 0, match.start()) + 1, match[1], match[2])
        for page in PAGES
        for text in [read(page)]
        for match in _FENCED.finditer(text)
    ]
    return [block for block in found if not languages or block.language in languages]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a shell block, without comments and without what they are piped into."""
    for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
        words = shlex.split(line, comments=True)
        if "|" in words:
            words = words[: words.index("|")]
        variables: dict[str, str] = {}
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if words:
            yield Command(str(block), variables, tuple(words))


def all_commands(*programs: str) -> list[Command]:
    """Commands of all shell blocks that begin with one of these words."""
    return [command for block in blocks("sh") for command in commands(block) if command.words[0] in programs]


def prose(page: str) -> str:
    """A page without its blocks."""
    return _FENCED.sub("", read(page))


def spoken(page: str) -> list[str]:
    """What stands in backticks in a page's prose, on one line each."""
    return [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose(page))]


def anchors(page: str) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", read(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: str) -> list[str]:
    """Where a page's links and pictures lead."""
    return re.findall(r"\]\(([^)\s]+)\)", prose(page))
