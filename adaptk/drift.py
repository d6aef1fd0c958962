"""Change detection on standardised residuals and on likelihood ratios."""

from __future__ import annotations

from collections.abc import Sequence


class Cusum:
    """Two-sided cumulative sum of what each step says for a change.

    A step is given as a standardised residual, or as the log likelihood ratios of a rise and of a fall against no
    change. The expectation of such a ratio is 1 while nothing changes, whatever the distribution, so a side passes
    ``threshold`` at most once in ``exp(threshold)`` steps on average: few, skewed trials raise no more false alarms
    than many. A residual ``z`` counts ``±z - slack``; with ``slack`` 0.5 that is the log likelihood ratio of a normal
    moved by one standard deviation, and a side passes once in about ``2 * exp(threshold + 1.17)`` steps
    (Siegmund 1985).

    A step counts for at most ``clip - slack``, so that more than ``threshold / (clip - slack)`` bad steps in a row are
    needed: with the defaults three from calm never fire it and four may.

    Parameters
    ----------
    slack
        Drift that is forgiven at each step, standard deviations.
    threshold
        Sum that raises the alarm.
    clip
        Largest residual that is counted, standard deviations.

    Examples
    --------
    >>> c = Cusum()
    >>> [c.update(z) for z in (-3.0, -3.0, -3.0, -3.0)]
    [0, 0, 0, -1]

    References
    ----------
    Page, "Continuous inspection schemes", Biometrika 41, 1954. Lorden, "Procedures for reacting to a change in
    distribution", Annals of Mathematical Statistics 42, 1971. Siegmund, "Sequential Analysis", 1985, chapter 2.
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
        clip, slack = self.clip, self.slack
        z = clip if z > clip else -clip if z < -clip else z
        return self.weigh(z - slack, -z - slack)

    def weigh(self, rise: float, fall: float) -> int:
        """Take the log likelihood ratios of a rise and of a fall; the same answer as ``update``."""
        most = self.clip - self.slack
        up = self.up + (rise if rise < most else most)
        down = self.down + (fall if fall < most else most)
        self.up, self.up_run = (up, self.up_run + 1) if up > 0.0 else (0.0, 0)
        self.down, self.down_run = (down, self.down_run + 1) if down > 0.0 else (0.0, 0)
        if self.up > self.threshold or self.down > self.threshold:
            sign, self.run = (1, self.up_run) if self.up > self.down else (-1, self.down_run)
            self.reset()
            return sign
        return 0

    def reset(self) -> None:
        """Start again from calm."""
        self.up = self.down = 0.0
        self.up_run = self.down_run = 0

    def snapshot(self) -> list[float]:
        """Plain data, JSON-safe."""
        return [self.up, self.down, self.up_run, self.down_run]

    def load(self, data: Sequence[float]) -> None:
        """Take over the state of a ``snapshot``."""
        self.up, self.down = data[0], data[1]
        self.up_run, self.down_run = int(data[2]), int(data[3])
