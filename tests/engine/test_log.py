"""Lines of the log: what files, paths and hosts put into them begins no line, steers no terminal, and is short."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import GoodputTable, Settings
from adaptk.vllm_plugin import adaptive
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.start import StartError
from tests.engine.conftest import Lines
from tests.engine.driver import build_config, build_scheduler
from tests.engine.metricspages import free_port

EVIL = "x\n2026 INFO adaptk: all is well\x1b]0;y\x07\u2028"
TABLES = [
    {"name": EVIL},
    {"name": "y" * 100_000},
    {"key": {"model": EVIL}},
    {"key": {EVIL: EVIL}},
    {"key": {f"{EVIL}{i}": "z" * 1_000 for i in range(1_000)}},
    {"key": {"vllm": 10**4_000}},
]


def table(meta: dict[str, Any], path: Path) -> str:
    rows = [{"batch": b, "k": k, "itl_ms": 10.0 + 0.1 * k} for b in (1, 16) for k in (0, 1, 3, 7)]
    GoodputTable.from_rows(rows, [0.9], meta).save(path)
    return str(path)


def settings_of(folder: Path) -> list[dict[str, Any]]:
    evil = f"{folder}/{EVIL}"
    tables = [{"table": table(meta, folder / f"table{i}.json")} for i, meta in enumerate(TABLES)]
    named = {"table": table({}, folder / EVIL.replace("/", ""))}
    (folder / "mode\nINFO").write_text("on\nINFO")
    (folder / "state\nINFO").write_text("no state")
    hosts = [{"metrics_port": free_port(), "metrics_host": host} for host in (EVIL, "x" * 300)]
    paths = [{name: f"{evil}/missing"} for name in ("table", "trace", "state", "control")]
    there = [{name: f"{folder}/{name}\n{EVIL}"} for name in ("trace", "state", "control")]
    found = [{"control": str(folder / "mode\nINFO")}, {"state": str(folder / "state\nINFO")}]
    return [*tables, named, *hosts, *paths, *there, *found]


def check(line: str) -> None:
    assert line.isprintable()
    assert len(line) < 6_000


def test_what_is_named_or_read_makes_one_short_line(model: Path, tmp_path: Path, log: Lines) -> None:
    """Notes of tables, paths of every setting and the host of the metrics, whether all goes well with them or not."""
    for fields in settings_of(tmp_path):
        log.lines.clear()
        cls = adaptive(Scheduler, settings=Settings(mode="on", **fields))
        build_scheduler(cls, build_config(model)).shutdown()
        assert log.lines, fields
        for line in log.lines:
            check(line)


def test_so_does_what_stops_the_start(model: Path, tmp_path: Path) -> None:
    """Under strict vLLM logs the error itself."""
    refused = 0
    for fields in settings_of(tmp_path):
        cls = adaptive(Scheduler, settings=Settings(mode="on", strict=True, **fields))
        try:
            build_scheduler(cls, build_config(model)).shutdown()
        except StartError as error:
            refused += 1
            check(str(error))
    assert refused >= 6


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a handler of the usual kind writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("LINE %(message)s"))
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def test_a_traceback_looks_like_no_line(written: io.StringIO) -> None:
    """Its lines are set in, so that the message of an exception cannot begin one, and nothing in it steers."""
    try:
        raise OSError(EVIL)
    except OSError:
        logger.exception("adaptk lacks %s", Path(EVIL))
    first, *more = written.getvalue().splitlines()
    assert first == f"LINE adaptk lacks {EVIL.translate(dict.fromkeys((10, 27, 7, 0x2028), '�'))}"
    assert len(more) > 4
    assert all(line.startswith("    ") and line.isprintable() for line in more)
    assert any("all is well" in line for line in more)


def test_numbers_and_lists_are_written_as_they_are(written: io.StringIO) -> None:
    """And so is a traceback that was made harmless before, of as many lines as it has."""
    logger.error("%d of %s at %.1f: %s", 3, (1, 2), 0.25, [[1, 2, 7]])
    logger.error("told\n%s", "one\ntwo")
    assert written.getvalue() == "LINE 3 of (1, 2) at 0.2: [[1, 2, 7]]\nLINE told\none\ntwo\n"


def test_what_cannot_be_told_is_named(written: io.StringIO) -> None:
    """A line of the log is no reason to fail."""

    class Mute:
        def __str__(self) -> str:
            raise ValueError

    logger.error("adaptk: %s", Mute())
    assert written.getvalue() == "LINE adaptk: a Mute\n"
