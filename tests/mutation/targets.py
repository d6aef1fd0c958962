"""The modules that are mutated, and the tests that are held against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

SLOWEST_S = 10.0  # a test that takes longer is left out
MOST_S = 20.0  # of tests against one mutant: what is slower than the rest is left out then


class Target(NamedTuple):
    """A module by its path, and its test files; those of ``own`` are about it and are asked first."""

    path: str
    own: Sequence[str]
    others: Sequence[str] = ()

    @property
    def name(self) -> str:
        """As it is imported."""
        return self.path.removesuffix(".py").replace("/", ".")

    @property
    def tests(self) -> list[str]:
        """All of its test files."""
        return [*self.own, *self.others]


# Users of the posteriors and of the guard: what the planner and the controller make of them.
_USERS = (
    "tests/test_belief.py",
    "tests/test_controller.py",
    "tests/test_controller_graphs.py",
    "tests/test_controller_prior.py",
    "tests/test_controller_reasons.py",
    "tests/test_controller_state.py",
    "tests/test_controller_supply.py",
    "tests/test_controller_weights.py",
    "tests/test_corrected.py",
    "tests/test_planner.py",
)
TARGETS = {
    target.name.rpartition(".")[2]: target
    for target in (
        Target(
            "adaptk/acceptance.py",
            (
                "tests/test_acceptance.py",
                "tests/test_mathematics_counts.py",
                "tests/test_mathematics_draws.py",
                "tests/test_offsets.py",
                "tests/test_regime.py",
                "tests/test_cold.py",
                "tests/test_supply.py",
            ),
            ("tests/test_mirror.py", "tests/test_thompson.py", *_USERS),
        ),
        Target(
            "adaptk/latency.py",
            ("tests/test_latency.py", "tests/test_mathematics_times.py"),
            ("tests/test_waits.py", *_USERS),
        ),
        Target(
            "adaptk/thompson.py",
            ("tests/test_thompson.py", "tests/test_mathematics_draws.py"),
            ("tests/test_mathematics_decisions.py", *_USERS),
        ),
        Target("adaptk/guard.py", ("tests/test_guard.py",), _USERS),
        Target(
            "adaptk/vllm_plugin/collect.py",
            ("tests/engine/test_collect.py",),
            (
                "tests/engine/test_async_pipeline.py",
                "tests/engine/test_cases_adapter.py",
                "tests/engine/test_driven_scheduler.py",
                "tests/engine/test_graphs_missed.py",
                "tests/engine/test_kv_transfer.py",
                "tests/engine/test_waiting_steps.py",
            ),
        ),
    )
}
