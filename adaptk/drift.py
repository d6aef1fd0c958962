"""Change detection on standardised residuals."""

from __future__ import annotations

from collections.abc import Sequence


class Cusum:
    """Two-sided cumulative sum of clipped, standardised residuals.

    A residual counts for at most ``clip`` standard deviations, so that more than ``threshold / (clip - slack)`` bad
    steps in a row are needed: with the defaults three from calm never fire it and four may. For independent standard
    normal residuals and ``slack`` 0.5 the mean time between false alarms of one side is about
    ``2 * exp(threshold + 1.17)`` steps (Siegmund 1985).

    Parameters
    ----------
    slack
        Drift that is forgiven at each step, standard deviations.
    threshold
        Sum that raises the alarm, standard deviations.
    clip
        Largest residual that is counted, standard deviations.

    Examples
    --------
    >>> c = Cusum()
    >>> [c.update(z) for z in (-3.0, -3.0, -3.0, -3.0)]
    [0, 0, 0, -1]

    References
    ----------
    Page, "Continuous inspection schemes", Biometrika 41, 1954. Siegmund, "Sequential Analysis", 1985, chapter 2.
    """

    __slots__ = ("clip", "down", "down_run", "run", "slack", "threshold", "up", "up_run")

    def __init__(self, slack: float = 0.5, threshold: float = 9.0, clip: float = 3.0) -> None:
        self.slack = slack
        self.threshold = threshold
        self.clip = clip
        self.up = 0.0
        self.down = 0.0
        self.up_run = 0  # steps since the side left zero
        self.down_run = 0
        self.run = 0  # steps since the side of the last alarm had left zero: those after the change, as it seems

    def update(self, z: float) -> int:
        """Take one residual; +1 or -1 when an upward or downward change is detected, which also resets, else 0."""
        clip = self.clip
        z = clip if z > clip else -clip if z < -clip else z
        up = self.up + z - self.slack
        down = self.down - z - self.slack
        self.up, self.up_run = (up, self.up_run + 1) if up > 0.0 else (0.0, 0)
        self.down, self.down_run = (down, self.down_run + 1) if down > 0.0 else (0.0, 0)
        if self.up > self.threshold or self.down > self.threshold:
            sign, self.run = (1, self.up_run) if self.up > self.down else (-1, self.down_run)
            self.up = self.down = 0.0
            self.up_run = self.down_run = 0
            return sign
        return 0

    def snapshot(self) -> list[float]:
        """Plain data, JSON-safe."""
        return [self.up, self.down, self.up_run, self.down_run]

    def load(self, data: Sequence[float]) -> None:
        """Take over the state of a ``snapshot``."""
        self.up, self.down = data[0], data[1]
        self.up_run, self.down_run = int(data[2]), int(data[3])
