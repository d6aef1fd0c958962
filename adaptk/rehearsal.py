"""Steps played to a controller that was made from a file, before one like it decides for an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptk.quoted import said, shown
from adaptk.step import StepRecord

if TYPE_CHECKING:
    from adaptk.controller import Controller

STEPS = 96  # three blocks: a plan, a draw and an update of every kind of belief
_USUAL_MS = 10.0
_WIDEST = 1e6  # variance of a log of time: a guess without any knowledge has less than 10
_ROUNDED = 1e-6  # of the largest variance, that rounding may take off a matrix of beliefs


def rehearse(controller: Controller) -> None:
    """Play some steps to a controller, which is of no use afterwards.

    What a snapshot holds may have the right form and still be numbers that nobody can reckon with, as a variance below
    0: that shows itself in the arithmetic.

    Raises
    ------
    ValueError
        If a step fails; the message says of what.
    """
    _check_covariance(controller._latency._cov)
    for name, values in _spreads(controller).items():
        if not min(values, default=0.0) >= 0.0:
            raise ValueError(f"snapshot.{name} holds {shown(min(values))}: a count or a variance is never below 0")
    usual = min(max(controller._usual_ms, 1.0), 1000.0) if controller._usual_ms else _USUAL_MS
    asked = controller.arms[0]
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise", under="ignore"):
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


def _spreads(controller: Controller) -> dict[str, list[float]]:
    """Counts and variances, whose sign no step would look at until it takes a root or draws."""
    state = controller.snapshot()
    acceptance, latency = state["acceptance"], state["latency"]
    return {
        "acceptance.alpha": acceptance["alpha"],
        "acceptance.beta": acceptance["beta"],
        "acceptance.offsets.variances": acceptance["offsets"]["variances"],
        "acceptance.supply": acceptance["supply"]["alpha"] + acceptance["supply"]["beta"],
        "latency.cells.variance": [variance for row in latency["cells"]["variance"] for variance in row],
        "latency.contamination": [latency["contamination"][name] for name in ("noise", "share", "excess_variance")],
    }


def _check_covariance(cov: NDArray[np.float64]) -> None:
    """Refuse what no updates can have left, and what would only tell in the cell that comes to use it."""
    largest = float(np.max(np.abs(cov)))
    spare = _ROUNDED * largest
    try:
        if largest > _WIDEST or not np.allclose(cov, cov.T, rtol=0.0, atol=spare):
            raise np.linalg.LinAlgError
        np.linalg.cholesky(cov + spare * np.eye(len(cov)))
    except np.linalg.LinAlgError:
        raise ValueError("snapshot.latency.cov is no covariance") from None
