"""The boundary between vLLM's methods and adaptk: what is done when anything on our side fails."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from adaptk.vllm_plugin import faulttext
from adaptk.vllm_plugin.capture import CaptureSchedule
from adaptk.vllm_plugin.log import logger
from adaptk.vllm_plugin.steering import Steering


def stand_down(scheduler: Any, error: Exception, doing: str) -> Steering:
    """Leave ``scheduler`` to vLLM for good, tell it once and count it once; never raises an ``Exception``.

    Whatever failed may fail again, so that nothing here relies on another function of adaptk's.

    Parameters
    ----------
    scheduler
        The adaptive scheduler, whose steering need not exist yet.
    error
        What was raised.
    doing
        What adaptk was at, for the log.

    Returns
    -------
    Steering
        The steering of ``scheduler``, inactive.
    """
    steering: Steering | None = scheduler.__dict__.get("adaptk")
    if steering is None:
        # Its __init__ may be what failed; the class holds a default for every attribute.
        steering = scheduler.__dict__["adaptk"] = object.__new__(Steering)
    steering.active = False
    if steering.faults:
        return steering
    steering.faults = 1
    steering.reason = f"a fault while {doing}"
    with suppress(Exception):
        give_lookup_back(scheduler)
    with suppress(Exception):
        if steering.control is not None:
            steering.control.stop()
    with suppress(Exception):
        if steering.state is not None:
            steering.state.give_up()
    told = type(error).__name__
    with suppress(Exception):  # an error that cannot be told
        steering.reason = f"a fault while {doing}: {faulttext.short(error)}"
        told = faulttext.full(error)
    with suppress(Exception):  # a log handler that fails
        logger.error(
            "adaptk stands down after a fault while %s: the number of drafts is vLLM's from now on. Please report it."
            "\n%s",
            doing,
            told,
        )
    return steering


def close(scheduler: Any) -> None:
    """End what the steering of ``scheduler`` keeps open, if it has one; never raises an ``Exception``."""
    try:
        steering = scheduler.__dict__.get("adaptk")
        if steering is not None:
            steering.close()
    except Exception as error:
        with suppress(Exception):
            told = faulttext.full(error)
            logger.error("adaptk could not end what it had begun: trace and state may lack the last steps\n%s", told)


def give_lookup_back(scheduler: Any) -> None:
    """Undo adaptk's own schedule, as ``capture.neutralise`` does when all is well: that may not have been reached."""
    lookup = getattr(scheduler, "dynamic_sd_lookup", None)
    speculative = getattr(getattr(scheduler, "vllm_config", None), "speculative_config", None)
    schedule = getattr(speculative, "num_speculative_tokens_per_batch_size", None)
    if lookup is not None and isinstance(schedule, CaptureSchedule):
        scheduler.dynamic_sd_lookup = [scheduler.num_spec_tokens] * len(lookup)
