"""Least squares with coefficients of at least zero."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]

RIDGE = 1e-4
"""Weight of the penalty that settles columns which the data cannot tell apart, in shares of each column's own."""


def nonnegative_least_squares(columns: Array, target: Array, weights: Array) -> Array:
    """Coefficients ``c >= 0`` that make ``sum(weights * (target - columns @ c)**2)`` least.

    Columns are scaled to length 1 and get a slight ridge, so that equal ones share.

    Parameters
    ----------
    columns
        Shape ``(samples, terms)``.
    target, weights
        Shape ``(samples,)``; weights above 0.

    Examples
    --------
    >>> x = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> nonnegative_least_squares(x, np.array([1.0, 3.0, 5.0]), np.ones(3)).round(2).tolist()
    [1.0, 2.0]
    >>> nonnegative_least_squares(x, np.array([5.0, 3.0, 1.0]), np.ones(3)).round(2).tolist()
    [3.0, 0.0]
    """
    root = np.sqrt(weights)[:, None]
    lengths = np.linalg.norm(columns * root, axis=0)
    lengths[lengths == 0] = 1.0
    terms = columns.shape[1]
    rows = np.vstack((columns * root / lengths, math.sqrt(RIDGE) * np.eye(terms)))
    found, _ = nnls(rows, np.concatenate((target * root[:, 0], np.zeros(terms))))
    return np.asarray(found / lengths)
