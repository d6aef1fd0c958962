"""Steps played to a controller that was made from a file, before one like it decides for an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from adaptk.quoted import said
from adaptk.step import StepRecord

if TYPE_CHECKING:
    from adaptk.controller import Controller

STEPS = 96  # three blocks: a plan, a draw and an update of every kind of belief
_USUAL_MS = 10.0


def rehearse(controller: Controller) -> None:
    """Play some steps to a controller, which is of no use afterwards.

    What a snapshot holds may have the right form and still be numbers that nobody can reckon with, as a variance below
    0: that shows itself in the arithmetic.

    Raises
    ------
    ValueError
        If a step fails; the message says of what.
    """
    usual = min(max(controller._usual_ms, 1.0), 1000.0) if controller._usual_ms else _USUAL_MS
    asked = controller.arms[0]
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            for i in range(STEPS):
                batch = 1 if i < STEPS // 3 else 16
                k = controller.choose(batch, 1000 * batch)
                controller.observe(
                    StepRecord(
                        batch_size=batch,
                        elapsed_ms=usual * (1.0 + 0.01 * (i % 7)),
                        k=k,
                        drafted=[asked] * batch,
                        accepted=[min(asked, i % 3)] * batch,
                        context_tokens=1000 * batch,
                        prefill_tokens=512 if i % 32 == 31 else 0,
                    )
                )
                asked = k
            controller.belief(16)
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"snapshot cannot be reckoned with ({type(error).__name__}: {said(error)})") from None
