"""Ending a command that has an engine to stop."""

from __future__ import annotations

import os
import signal

import pytest

from adaptk.cli.measuring import ending_politely


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_is_an_interrupt_that_says_what_it_waits_for(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    """In one line; afterwards signals mean what they meant before."""
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), ending_politely():
        os.kill(os.getpid(), number)
    assert capfd.readouterr().err == "Stopping the engine, which takes some seconds.\n"
    assert signal.getsignal(number) == before
