"""Least squares with coefficients of at least zero."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RIDGE = 1e-4
"""Weight of the penalty that settles columns which the data cannot tell apart, in shares of each column's own."""


def nonnegative_least_squares(columns: Array, target: Array, weights: Array) -> Array:
    """Coefficients ``c >= 0`` that make ``sum(weights * (target - columns @ c)**2)`` least.

    By active sets (Lawson and Hanson, "Solving Least Squares Problems", 1974, chapter 23), on the normal equations of
    columns scaled to length 1, with a slight ridge so that equal columns share.

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
    scaled = columns * root / lengths
    gram = scaled.T @ scaled + RIDGE * np.eye(columns.shape[1])
    right = scaled.T @ (target * root[:, 0])
    found = np.zeros(columns.shape[1])
    active = np.zeros(columns.shape[1], dtype=bool)
    least = 1e-10 * float(np.abs(right).max(initial=0.0))
    for _ in range(10 * columns.shape[1]):
        slope = np.where(active, -np.inf, right - gram @ found)
        if slope.max() <= least:
            break
        active[np.argmax(slope)] = True
        found = _settle(gram, right, found, active)
    return np.asarray(found / lengths)


def _settle(gram: Array, right: Array, found: Array, active: NDArray[np.bool_]) -> Array:
    """Solve for the active terms, dropping from them those that turn negative on the way."""
    while True:
        wanted = np.zeros_like(found)
        wanted[active] = np.linalg.solve(gram[np.ix_(active, active)], right[active])
        if wanted[active].min() > 0:
            return wanted
        falling = active & (wanted <= 0)
        step = np.min(found[falling] / np.maximum(found[falling] - wanted[falling], 1e-300))
        found = np.where(active, found + step * (wanted - found), 0.0)
        active &= found > 1e-12 * max(float(found.max()), 1e-300)
        found = np.where(active, found, 0.0)
        if not active.any():
            return found
