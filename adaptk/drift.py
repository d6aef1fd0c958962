"""Change detection on standardised residuals."""

from __future__ import annotations


class Cusum:
    """Two-sided cumulative sum of clipped, standardised residuals.

    A residual counts for at most ``clip`` standard deviations, so that ``threshold / (clip - slack)`` bad steps in a row
    are needed: with the defaults three never fire it and four may. For independent standard normal residuals the mean
    time between false alarms of one side is about ``2 * exp(threshold)`` steps with ``slack`` 0.5 (Siegmund 1985).

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
    Page, "Continuous inspection schemes", Biometrika 41, 1954.
    """

    __slots__ = ("clip", "down", "slack", "threshold", "up")

    def __init__(self, slack: float = 0.5, threshold: float = 9.0, clip: float = 3.0) -> None:
        self.slack = slack
        self.threshold = threshold
        self.clip = clip
        self.up = 0.0
        self.down = 0.0

    def update(self, z: float) -> int:
        """Take one residual; +1 or -1 when an upward or downward change is detected, which also resets, else 0."""
        clip = self.clip
        z = clip if z > clip else -clip if z < -clip else z
        up = self.up + z - self.slack
        down = self.down - z - self.slack
        self.up = up if up > 0.0 else 0.0
        self.down = down if down > 0.0 else 0.0
        if self.up > self.threshold or self.down > self.threshold:
            sign = 1 if self.up > self.down else -1
            self.up = self.down = 0.0
            return sign
        return 0

    @property
    def quiet(self) -> bool:
        """Whether neither side has left zero: nothing is suspected."""
        return self.up == 0.0 and self.down == 0.0
