"""The two parts of a posterior of step times as arrays, to hold against what is worked out otherwise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from adaptk.cells import CELLS
from adaptk.latency import LatencyPosterior

Array = npt.NDArray[np.float64]


def smooth_part(posterior: LatencyPosterior) -> tuple[Array, Array]:
    """Mean and covariance of the smooth part, node-major."""
    data = posterior.snapshot()
    return np.array(data["mean"]), np.array(data["cov"])


def cell_part(posterior: LatencyPosterior) -> tuple[Array, Array]:
    """Means and variances of the offsets, arm by arm, of a posterior that knows no captured sizes."""
    cells = posterior.cells
    variances = [cells.variance(arm, at) for arm in range(len(posterior.arms)) for at in range(CELLS)]
    return np.array(cells.mean).ravel(), np.array(variances)
