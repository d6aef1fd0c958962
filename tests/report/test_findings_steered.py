"""Shadow and on told apart step by step: modes are switched while a trace is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adaptk.decision import Reason
from adaptk.report.analysis import analyse
from adaptk.report.findings import Findings
from adaptk.report.reading import read
from adaptk.report.steered import steered
from adaptk.trace import TraceWriter
from tests.replay.recordings import decision, step

LENGTHS = {"shadow": 1000, "on": 600}


def rows(*modes: str, start: int = 0) -> list[Any]:
    """The operator's K is 3; adaptk decides K=0 or 3 by a coin, now and then as a visit."""
    rng = np.random.default_rng(0)
    made: list[Any] = []
    before = 3
    for mode in modes:
        for _ in range(LENGTHS[mode]):
            chosen = 3 * int(rng.integers(2))
            k = chosen if mode == "on" else 3
            row = step([before] * 2, [before * 2 // 3] * 2, k=k, draft_k=before, elapsed_ms=10.0 + 2.0 * before / 3)
            reason = Reason.EXPLORE if rng.random() < 0.02 else Reason.EXPLOIT
            made.append((row, decision(chosen, (0, 3), seq=start + len(made), propensity=0.5, reason=reason)))
            before = k
    return made


def written(path: Path, made: list[Any], mode: str | None) -> Path:
    writer = TraceWriter(path, {"mode": mode, "arms": [0, 3], "k_max": 3} if mode else {}, max_pending=1 << 20)
    for row in made:
        writer.write(*row)
    writer.close(60.0)
    return path


def found(path: Path, made: list[Any], mode: str | None) -> Findings:
    return analyse([written(path / "t.jsonl", made, mode)], simulate=False)


@pytest.mark.parametrize(
    ("modes", "header", "told"),
    [
        (("shadow", "on"), "shadow", "shadow, then on"),
        (("on", "shadow"), "on", "on, then shadow"),
        (("shadow", "on", "shadow"), "shadow", "shadow and on in turns"),
        (("shadow",), "shadow", "shadow"),
        (("shadow",), None, "shadow"),
        (("on",), "on", "on"),
        (("on",), None, "on"),
        (("on",), "shadow", "on"),
    ],
)
def test_the_mode_is_told_from_the_steps(tmp_path: Path, modes: tuple[str, ...], header: str | None, told: str) -> None:
    """Whatever the header says of the beginning; at most a few steps around a switch are told wrong."""
    made = rows(*modes)
    path = written(tmp_path / "t.jsonl", made, header)
    truth = np.repeat([mode == "on" for mode in modes], [LENGTHS[mode] for mode in modes])
    assert np.sum(steered(read([path], None, False, lambda share: None).columns, [header]) != truth) <= 10 * (
        len(modes) - 1
    )
    assert found(tmp_path, made, header).sources[0].mode == told


class TestShadowThenOn:
    @pytest.fixture(scope="class")
    def findings(self, tmp_path_factory: pytest.TempPathFactory) -> Findings:
        return found(tmp_path_factory.mktemp("trace"), rows("shadow", "on"), "shadow")

    def test_the_ledger_counts_the_visits_that_were_played(self, findings: Findings) -> None:
        played = sum(d.reason == Reason.EXPLORE for _, d in rows("shadow", "on")[1000:])
        drawn = sum(d.reason == Reason.EXPLORE for _, d in rows("shadow", "on")[:1000])
        assert findings.ledger is not None
        assert findings.ledger.explored_steps == pytest.approx(played, abs=1)
        assert findings.ledger.explored_s > 0.0
        assert f"{drawn} more were drawn in shadow" in findings.ledger.about

    def test_the_steps_in_which_it_was_on_are_valued(self, findings: Findings) -> None:
        """K=3 gives 3 tokens a request in 12 ms, K=0 one in 10 ms."""
        values = {value.policy: value.tokens_per_s for value in findings.off_policy}
        assert values["fixed-3"] is not None
        assert values["fixed-3"].value == pytest.approx(500.0, rel=0.02)
        assert values["fixed-0"] is not None
        assert values["fixed-0"].value == pytest.approx(200.0, rel=0.02)


def test_an_operator_whom_adaptk_agrees_with_is_still_shadow(tmp_path: Path) -> None:
    """Decided and played are the same for long: no step was another K than the operator's."""
    made = [(step([3], [1]), decision(3 if n >= 200 else 0, (0, 3), seq=n)) for n in range(1000)]
    assert found(tmp_path, made, "shadow").sources[0].mode == "shadow"
