"""``adaptk doctor`` as a user starts it, and its rehearsal of adaptk's start by vLLM's own configurations."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import vllm.plugins
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from adaptk import GoodputTable, Settings
from adaptk.doctor import fitness, states
from adaptk.doctor.environment import read
from adaptk.doctor.examine import examine
from adaptk.doctor.facts import Engine, Facts, Question
from adaptk.doctor.look import look
from adaptk.doctor.rehearsal import Lines, rehearse
from adaptk.vllm_plugin import compat, patches
from adaptk.vllm_plugin.scheduler import adaptive
from adaptk.vllm_plugin.start import start
from tests.engine import test_graphs, versions
from tests.engine.driver import build_config, build_scheduler

NGRAM = ("--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 7}))
ROWS = [{"batch": b, "k": k, "itl_ms": 5.0 + k + b} for b in (1, 8) for k in (0, 1, 3, 7)]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A look changes its process; after the test this one is as it was."""
    before = dict(os.environ)
    monkeypatch.setattr(vllm.plugins, "plugins_loaded", True)  # adaptk's own entry would think that it is in
    level = logging.getLogger("vllm").level
    yield
    patches.remove()
    logging.getLogger("vllm").setLevel(level)
    os.environ.clear()
    os.environ.update(before)


def looked(model: Path, *arguments: str, table: Path | None = None, **variables: str) -> Facts:
    question = Question(
        arguments=(str(model), *arguments),
        variables=read({"ADAPTK": "on", **variables}).variables,
        table=None if table is None else str(table),
    )
    return look(question, lambda what: None)


def engine_of(model: Path, *arguments: str, **more: Any) -> Engine:
    facts = looked(model, *arguments, **more)
    assert facts.engine is not None, facts.refused or facts.broken
    return facts.engine


class TestConfigurations:
    """Made by vLLM from the arguments of its server; no engine is started."""

    @pytest.fixture(autouse=True)
    def _here(self, here: None) -> None:
        pass

    def test_a_drafter_with_k(self, model: Path) -> None:
        """What adaptk finds there, and that it starts with the arms that it would have."""
        engine = engine_of(model, *NGRAM, "--max-num-seqs", "8")
        assert engine.bare.active
        assert (engine.bare.arms, engine.method, engine.k_max, engine.max_num_seqs) == ((0, 1, 3, 7), "ngram", 7, 8)
        assert (engine.scheduler, engine.v2, engine.asynchronous) == ("Scheduler", False, False)
        assert engine.key["method"] == "ngram"
        assert any("Async scheduling" in note for note in engine.notes)
        assert any("adaptk set num_speculative_tokens_per_batch_size" in told.text for told in engine.preparing)
        assert any("mode on, arms (0, 1, 3, 7)" in told.text for told in engine.bare.told)

    def test_no_drafter(self, model: Path) -> None:
        """The reason is the start's own."""
        outcome = engine_of(model).outcome
        assert (outcome.active, outcome.reason) == (
            False, "no speculative decoding is configured, so there is nothing to choose",
        )  # fmt: skip

    def test_no_files_no_threads_no_port(self, model: Path, tmp_path: Path) -> None:
        """A look leaves nothing behind, and the settings come back whole."""
        named = {"ADAPTK_TRACE": str(tmp_path / "t"), "ADAPTK_CONTROL": str(tmp_path / "c"), "ADAPTK_STRICT": "1"}
        engine = engine_of(model, *NGRAM, ADAPTK_METRICS_PORT="9475", **named)
        assert engine.bare.active
        assert list(tmp_path.iterdir()) == []
        assert (engine.settings.metrics_port, engine.settings.strict) == (9475, True)

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("--no-such-option",), "unrecognized arguments: --no-such-option"),
            (("--max-model-len", "1000000"), "max_model_len"),
            (("--speculative-config", "{method"), "--speculative-config"),
        ],
    )
    def test_what_vllm_refuses(self, arguments: tuple[str, ...], said: str, model: Path) -> None:
        """In its own words, without its usage and its frames."""
        facts = looked(model, *arguments)
        assert facts.engine is None
        assert said in facts.refused
        assert "usage:" not in facts.refused
        assert "pydantic" not in facts.refused

    @pytest.mark.parametrize("content", [None, "", "{", '{"model_type": "nope"}', "[]"])
    def test_odd_models(self, content: str | None, tmp_path: Path) -> None:
        """A folder without a configuration, or with one that is none."""
        if content is not None:
            (tmp_path / "config.json").write_text(content)
        assert looked(tmp_path).refused

    def test_options(self, model: Path) -> None:
        """Those of additional_config hold over the variables; the wrong ones are named, all of them."""
        options = json.dumps({"adaptk": {"budget": 0.5, "sede": 1, "arms": "x", "mode": "off"}})
        facts = looked(model, *NGRAM, "--additional-config", options, ADAPTK_BUDGET="0.1")
        assert len(facts.options.wrong) == 2
        assert facts.options.mode == "off"
        assert facts.engine is not None
        assert (facts.engine.settings.budget, facts.engine.settings.mode) == (0.5, "on")

    def test_a_table(self, model: Path, tmp_path: Path) -> None:
        """One of this engine starts it; of another engine's the start says what differs, and a look the same."""
        file, key = tmp_path / "t.json", engine_of(model, *NGRAM).key
        GoodputTable.from_rows(ROWS, [0.5], {"key": key}).save(file)
        engine = engine_of(model, *NGRAM, table=file)
        assert engine.seeded is not None
        assert engine.seeded.active
        GoodputTable.from_rows(ROWS, [0.5], {"key": {**key, "device": "H100"}}).save(file)
        engine = engine_of(model, *NGRAM, ADAPTK_TABLE=str(file))
        assert engine.bare.active
        assert engine.seeded is not None
        assert not engine.seeded.active
        report = examine(["m"], {"ADAPTK_TABLE": str(file)}, asking=lambda *_: Facts(engine=engine))
        (key_line,) = [finding for finding in report.findings if finding.id == "table.key"]
        assert key_line.detail in engine.seeded.reason

    def test_ranks_of_a_dense_model(self, model: Path) -> None:
        """Engines of their own, in which adaptk starts and a schedule of the operator stays."""
        schedule = {"method": "ngram", "num_speculative_tokens": 3,
                    "num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 8, 0]]}  # fmt: skip
        arguments = ("--speculative-config", json.dumps(schedule), "--max-num-seqs", "8", "--data-parallel-size", "2")
        engine = engine_of(model, *arguments)
        assert (engine.ranks, engine.bare.active) == (2, True)
        assert engine.operators_schedule == ((1, 4, 3), (5, 8, 0))

    def test_a_pipeline(self, model: Path) -> None:
        """The refusals' own words."""
        assert "pipeline_parallel_size is above 1" in engine_of(
            model, *NGRAM, "--pipeline-parallel-size", "2").bare.reason  # fmt: skip


class TestGpus:
    """As on a GPU with model runner V2, on the parts of a configuration that adaptk's start looks at."""

    pytestmark = versions.since(25, "full graphs under a schedule")

    def rehearsed(self, monkeypatch: pytest.MonkeyPatch, v2: bool = True, **parts: Any) -> Engine:
        monkeypatch.setattr(compat, "on_cpu", lambda: False)
        monkeypatch.setattr(compat, "runner_v2", lambda _: v2)
        monkeypatch.setattr(compat, "device_name", lambda: "a GPU")
        config = test_graphs.prepare(test_graphs.configuration(7, 256, **parts))
        config.scheduler_config.async_scheduling = True
        config.scheduler_config.get_scheduler_cls = lambda: adaptive(AsyncScheduler, settings=Settings(mode="on"))
        with Lines() as lines:
            return rehearse(config, lines)

    def test_every_arm_has_graphs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As far as vLLM's ceiling lets them."""
        engine = self.rehearsed(monkeypatch)
        assert engine.bare.active, engine.bare.reason
        assert (engine.scheduler, engine.asynchronous, engine.v2) == ("AsyncScheduler", True, True)
        assert engine.reaches is not None
        assert {each.k: each.batch for each in engine.reaches} == {0: 256, 1: 256, 3: 128, 7: 64}
        assert all(each.holes == () for each in engine.reaches)

    def test_sizes_that_leave_holes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of an operator's schedule nothing is left out, and where graphs are missing is told."""
        schedule = [(1, 8, 7), (9, 32, 2), (33, 256, 0)]
        engine = self.rehearsed(monkeypatch, schedule=schedule, sizes=[1, 2, 4, 8, 16, 32, 64])
        assert engine.reaches is not None
        assert any(each.holes for each in engine.reaches)
        assert engine.operators_schedule == tuple(schedule)

    def test_a_runner_that_would_lose_its_graphs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Inert, with the refusals' reason."""
        engine = self.rehearsed(monkeypatch, v2=False)
        assert not engine.bare.active
        assert "model runner V1 gives up its FULL CUDA graphs" in engine.bare.reason

    def test_ranks_of_a_mixture(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """They would have to agree: inert, with the refusals' reason, and nothing is counted up for them."""
        parallel = SimpleNamespace(tensor_parallel_size=1, data_parallel_size=2, pipeline_parallel_size=1)
        mixture = SimpleNamespace(enforce_eager=False, is_moe=True)
        engine = self.rehearsed(monkeypatch, parallel_config=parallel, model_config=mixture)
        assert (engine.moe, engine.ranks, engine.bare.active) == (True, 1, False)
        assert "must agree on the number of drafts" in engine.bare.reason


def test_a_scheduler_that_a_function_makes(model: Path, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, and the start is tried in vLLM's own."""
    patches.apply()
    config = build_config(model)

    def factory(*_: Any, **__: Any) -> None:
        pytest.fail("built")

    monkeypatch.setattr(type(config.scheduler_config), "get_scheduler_cls", lambda _: factory)
    with Lines() as lines:
        engine = rehearse(config, lines)
    assert engine.bare.active
    assert "factory" in engine.scheduler


def test_a_rehearsal_is_the_start(model: Path, here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same arms and the same first line as in a scheduler that vLLM has really built."""
    monkeypatch.setenv("ADAPTK", "on")
    monkeypatch.setenv("ADAPTK_MIN_K", "1")
    patches.apply()
    config = build_config(model)
    with Lines() as lines:
        engine = rehearse(config, lines)
        scheduler = build_scheduler(config.scheduler_config.get_scheduler_cls(), config)
        said = [told.text for told in lines.told if "mode on" in told.text]
    assert said == [told.text for told in engine.bare.told if "mode on" in told.text]
    assert engine.bare.arms == scheduler.adaptk.controller.arms


def test_a_state_is_read_as_the_start_reads_it(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an engine left is what the doctor says the next one goes on from; the rehearsal neither reads nor locks."""
    path = tmp_path / "state.json"
    settings = Settings(mode="on", state=str(path))
    steering = start(build_scheduler(Scheduler, build_config(model)), settings)
    steering.controller.note_weights_changed()
    held = list(states.findings(settings, 1, {}))
    steering.close()
    assert "another engine saves" in held[0].what
    monkeypatch.setenv("ADAPTK", "on")
    monkeypatch.setenv("ADAPTK_STATE", str(path))
    patches.apply()
    before = sorted(tmp_path.iterdir()), path.stat()
    with Lines() as lines:
        engine = rehearse(build_config(model), lines)
    assert (sorted(tmp_path.iterdir()), path.stat()) == before
    assert engine.bare.active
    (finding,) = states.findings(engine.settings, 1, engine.key)
    assert (finding.status, finding.what) == ("ok", f"an engine with the same table and K goes on from {path}")


def test_this_vllm_fits(model: Path) -> None:
    """The command in a process of its own, as at a prompt: what it finds here, as text and as a document."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("ADAPTK")}
    command = [sys.executable, "-m", "adaptk", "doctor", str(model), "--max-num-seqs", "8", *NGRAM]
    done = subprocess.run([*command, "--json"], env={**env, "ADAPTK": "on"}, capture_output=True, text=True,
                          timeout=300, check=False)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    document = msgspec.json.decode(done.stdout)
    found = {finding["id"]: finding for finding in document["findings"]}
    assert compat.vllm_version() in found["vllm.version"]["what"]
    assert compat.version_tuple(compat.vllm_version()) >= fitness.OLDEST
    assert found["engine.start"]["what"] == "adaptk starts, and chooses from K = 0, 1, 3, 7"
    assert document["fails"] is False


def test_two_real_engines_side_by_side(model: Path, tmp_path: Path) -> None:
    """In a process of its own, without a terminal: every K has a ratio to the engine without a drafter."""
    versions.need_engine()
    speculation = {"method": "draft_model", "model": str(model), "num_speculative_tokens": 3}
    file = tmp_path / "d.json"
    command = [sys.executable, "-m", "adaptk.cli.main", "doctor", "--measure", str(model), "--json", str(file)]
    command += ["--budget", "5", "--batches", "4", "--arms", "0,3", "--speculative-config", json.dumps(speculation)]
    command += ["--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "4", "--enforce-eager"]
    command += ["--gpu-memory-utilization", "0.3"]
    env = {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    held = json.loads(file.read_bytes())
    assert held["side_by_side"] is True
    rows = {row["k"]: row for row in held["rows"]}
    assert set(rows) == {None, 0, 3}
    assert all(row["ratio"]["value"] > 0 for row in rows.values())
    assert held["acceptance"][0] > 0.9  # the drafter is the target itself
    assert "Batch 4: " in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if str(file) not in line) <= 80
