"""What is far too large is refused at once and with little memory; what is merely large costs no more than it must."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.security.bounds import REFUSED, TAKEN
from tests.security.test_parsers import MOST_SIGNS

MOST_MB = 160


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    """What came of each case; see :mod:`tests.security.bounds`."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.security.bounds"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    return {line["case"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_at_once(found: dict[str, dict[str, Any]], case: str) -> None:
    """Within two seconds of processor time, usually a tenth, in words that are short and can be shown."""
    line = found[case]
    assert line["outcome"] == "refused", line
    assert line["seconds"] < 2.0, line
    assert line["grown_mb"] < MOST_MB, line
    assert len(line["words"]) < MOST_SIGNS
    assert line["words"].isprintable()


@pytest.mark.parametrize("case", TAKEN)
def test_it_is_taken_at_the_price_of_its_size(found: dict[str, dict[str, Any]], case: str) -> None:
    """Within four seconds of processor time, usually half a second."""
    line = found[case]
    assert line["outcome"] == "taken", line
    assert line["seconds"] < 4.0, line
    assert line["grown_mb"] < MOST_MB, line
