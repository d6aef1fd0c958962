"""How much of the processor each test takes, and which lines of the modules under mutation it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.targets import MOST_S, SLOWEST_S, Target
from tests.mutation.trials import Failures, in_fork

LIMIT_S = 7200.0


class Seen(NamedTuple):
    """A test that passed: its seconds, while lines were counted, and the lines it ran, by the path of the module."""

    seconds: float
    lines: Mapping[str, Sequence[int]]


def survey(items: Sequence[pytest.Item], root: Path, targets: Sequence[Target]) -> dict[str, Seen]:
    """Run all tests once, in a fork; those that pass, by their node id."""
    paths = {str(root / target.path): target.path for target in targets}
    status, answer = in_fork(lambda: _measured(items, paths), LIMIT_S)
    if status:
        raise SystemExit(f"the tests ended with status {status} before there was any mutant")
    return {test: Seen(*seen) for test, seen in answer.items()}


def _measured(items: Sequence[pytest.Item], paths: Mapping[str, str]) -> dict[str, Seen]:
    import coverage

    counter = coverage.Coverage(data_file=None, config_file=False, include=list(paths))
    failures, seconds = Failures(), dict[str, float]()
    items[0].config.pluginmanager.register(failures)
    counter.start()
    for item, after in zip(items, [*items[1:], None], strict=True):
        failures.failed = False
        counter.switch_context(item.nodeid)
        begun = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if not failures.failed:
            seconds[item.nodeid] = time.process_time() - begun
    counter.stop()
    lines: dict[str, dict[str, list[int]]] = {test: {} for test in seconds}
    data = counter.get_data()
    for path in data.measured_files():
        for line, contexts in data.contexts_by_lineno(path).items():
            for test in lines.keys() & set(contexts):
                lines[test].setdefault(paths[path], []).append(line)
    return {test: Seen(taken, lines[test]) for test, taken in seconds.items()}


def chosen(mutant: Mutant, target: Target, tests: Mapping[str, Seen]) -> list[str]:
    """Tests that run the changed lines: those about the module first, the fastest first, ``MOST_S`` in all."""
    found = []
    for test, (seconds, lines) in tests.items():
        file = test.partition("::")[0]
        runs = not set(lines.get(target.path, ())).isdisjoint(mutant.lines)
        if runs and file in target.tests and seconds < SLOWEST_S:
            found.append((file not in target.own, seconds, test))
    found.sort()
    in_all = accumulate(seconds for _, seconds, _ in found)
    return [test for (*_, test), total in zip(found, in_all, strict=True) if total < MOST_S]
