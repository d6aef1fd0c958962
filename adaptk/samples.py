"""A few step times of one arm and range of tokens, held together until they are booked as one observation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Samples:
    """Deviations of log step time from the prior, with the mean place they were taken at.

    Examples
    --------
    >>> s = Samples()
    >>> for y in (0.01, 0.0, 1.5):
    ...     s.take(arm=1, cell=8, width=3.0, log_batch=2.0, covariate=0.0, y=y)
    >>> s.quickest(tolerance=0.1)
    (0.005, 2)
    """

    __slots__ = ("arm", "cell", "covariate", "level", "log_batch", "patient", "values", "width")

    def __init__(self) -> None:
        self.arm = self.cell = -1
        self.width = self.log_batch = self.covariate = 0.0
        self.values: list[float] = []
        self.patient = False  # the place is well known and quiet: larger groups do
        self.level = 0.0  # mean of the last quiet group

    def __len__(self) -> int:
        return len(self.values)

    def near(self, arm: int, cell: int) -> bool:
        """Whether a sample of this arm and range of tokens belongs with these; an empty group takes any."""
        return not self.values or (arm == self.arm and cell == self.cell)

    def take(
        self, arm: int, cell: int, width: float, log_batch: float, covariate: float, y: float, times: int = 1
    ) -> None:
        """Add a sample, ``times`` over."""
        share = times / (len(self.values) + times)
        self.arm, self.cell = arm, cell
        self.width += (width - self.width) * share
        self.log_batch += (log_batch - self.log_batch) * share
        self.covariate += (covariate - self.covariate) * share
        self.values.extend([y] * times)

    def quickest(self, tolerance: float) -> tuple[float, int]:
        """Mean and size of the cluster within ``tolerance`` above the smallest value."""
        limit = min(self.values) + tolerance
        cluster = [v for v in self.values if v <= limit]
        return sum(cluster) / len(cluster), len(cluster)

    def mean(self) -> float:
        """Mean of all values."""
        return sum(self.values) / len(self.values)

    def clear(self) -> None:
        """Forget the samples, not the place."""
        self.width = self.log_batch = self.covariate = 0.0
        self.values = []

    def snapshot(self) -> dict[str, Any]:
        """Plain data, JSON-safe."""
        return {name: getattr(self, name) for name in self.__slots__} | {"values": list(self.values)}

    def load(self, data: Mapping[str, Any]) -> None:
        """Take over the state of a ``snapshot``."""
        for name in self.__slots__:
            setattr(self, name, data[name])
        self.values = list(map(float, data["values"]))
