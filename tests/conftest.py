"""Settings of the whole suite."""

from __future__ import annotations

from hypothesis import settings

# How long one example takes says more about the machine's other work than about the code.
settings.register_profile("adaptk", deadline=None)
settings.load_profile("adaptk")
