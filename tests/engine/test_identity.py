"""The key of an engine: what a table of it is compared by."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import CUDAGraphMode

from adaptk.processor import processor_name
from adaptk.tablekey import FIELDS, differences
from adaptk.vllm_plugin import compat, drafters
from adaptk.vllm_plugin.identity import identity, model_name, table_key
from tests.engine.driver import build_config
from tests.engine.engine import NGRAM, running, scheduler_of


def test_a_real_configuration_says_all_there_is(model: Path) -> None:
    """Every field by name, plain values, and no folder of this machine."""
    config = build_config(model)
    key = table_key(config)
    assert tuple(key) == FIELDS
    assert key["device"]
    assert key == {
        "model": model.name,
        "drafter": None,
        "method": "ngram",
        "dtype": "float32",
        "quantization": "none",
        "kv_cache_dtype": config.cache_config.cache_dtype,
        "device": processor_name(),
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "runner": "V1",
        "vllm": compat.vllm_version(),
        "graph_mode": "NONE",
        "capture_sizes": [],
    }
    assert str(model.parent) not in json.dumps(key)
    assert differences(key, table_key(build_config(model))) == []


def test_what_differs_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafter with weights, tensor parallelism, and the graphs of a GPU."""
    here = table_key(build_config(model))
    config = build_config(model)
    config.speculative_config.method = "eagle"
    config.speculative_config.draft_model_config = SimpleNamespace(model="/models/EAGLE-Llama/")
    config.parallel_config.tensor_parallel_size = 2
    config.compilation_config.cudagraph_mode = CUDAGraphMode.FULL_AND_PIECEWISE
    config.compilation_config.cudagraph_capture_sizes = [8, 1]
    monkeypatch.setattr(compat, "on_cpu", lambda: False)
    monkeypatch.setattr(compat, "device_name", lambda: "NVIDIA H100")
    key = table_key(config)
    assert (key["drafter"], key["graph_mode"], key["capture_sizes"]) == ("EAGLE-Llama", "FULL_AND_PIECEWISE", [1, 8])
    named = [line.partition(":")[0] for line in differences(key, here)]
    assert named == ["method", "device", "tensor_parallel", "graph_mode", "capture_sizes"]


@pytest.mark.parametrize("config", [None, SimpleNamespace(), SimpleNamespace(model_config=None, cache_config=None)])
def test_absent_parts_are_unknown(config: Any) -> None:
    """A configuration of another version is no reason to fail; unknown parts forbid nothing."""
    key = table_key(config)
    assert tuple(key) == FIELDS
    assert key["vllm"] == compat.vllm_version()
    assert key["device"]
    for name in ("model", "drafter", "method", "dtype", "quantization", "kv_cache_dtype", "tensor_parallel"):
        assert key[name] is None
    assert differences({"model": "llama", "method": "ngram"}, key) == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("gpt2", "gpt2"),
        ("/data/models/llama/", "llama"),
        ("./llama", "llama"),
        ("../models/llama", "llama"),
        ("~/llama", "llama"),
        ("a/b/c", "c"),
        ("C:\\models\\llama", "llama"),
        ("s3://bucket/models/llama", "llama"),
        ("/hub/models--org--name/snapshots/0123abcd", "org/name"),
        ("/hub/models--gpt2/snapshots/0123abcd/", "gpt2"),
        ("/models/日本語 モデル", "日本語 モデル"),
        ("repo/model-GGUF:Q4_K_M", "repo/model-GGUF:Q4_K_M"),
        ("", None),
        (None, None),
        ("/", None),
    ],
)
def test_a_model_is_named_without_its_folder(path: str | None, name: str | None) -> None:
    """Also as a cache of a hub keeps it, where vLLM sets the name to when it is offline."""
    assert model_name(path) == name


def test_a_folder_that_reads_like_a_name_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "llama").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert model_name("models/llama") == "llama"


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu", "suffix"])
def test_drafters_without_weights_have_no_model(method: str) -> None:
    """vLLM gives them the target's configuration."""
    target = SimpleNamespace(model="llama")
    assert drafters.draft_model(SimpleNamespace(method=method, model=method, draft_model_config=target)) is None


def test_a_drafter_whose_configuration_is_not_there_yet_has_its_name() -> None:
    assert drafters.draft_model(SimpleNamespace(method="eagle", model="eagle-llama", draft_model_config=None)) == (
        "eagle-llama"
    )
    assert drafters.draft_model(None) is None


def test_a_device_that_cannot_be_named_is_unknown(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's library may be missing: the key has no device then, and nothing else is lost."""
    from vllm.platforms import current_platform

    def fail() -> str:
        raise OSError("no driver")

    monkeypatch.setattr(compat, "on_cpu", lambda: False)
    monkeypatch.setattr(current_platform, "get_device_name", fail)
    key = table_key(build_config(model))
    assert (key["device"], key["method"]) == (None, "ngram")
    monkeypatch.setattr(current_platform, "get_device_name", lambda: "NVIDIA H100")
    assert table_key(build_config(model))["device"] == "NVIDIA H100"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Xeon(R)  Gold   6430\nmodel name\t: other\n", "Xeon(R) Gold 6430"),
        ("processor\t: 0\nBogoMIPS\t: 50\n", None),
        ("", None),
    ],
)
def test_the_processor_is_named_by_the_kernel_or_by_its_architecture(
    tmp_path: Path, text: str, name: str | None
) -> None:
    """ARM kernels list no model name."""
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    found = processor_name(str(path))
    assert found == name if name else found == processor_name(str(tmp_path / "absent"))
    assert found


def test_a_snapshot_is_bound_to_model_drafter_and_device(model: Path) -> None:
    key = table_key(build_config(model))
    assert identity(key) == {"model": model.name, "drafter": None, "device": key["device"]}


def test_the_real_engine_has_the_key_of_its_configuration(model: Path, tmp_path: Path) -> None:
    """It reaches the controller's identity and the trace's header, with the names that a profile would write."""
    trace = tmp_path / "trace.jsonl"
    with running(model, NGRAM, ADAPTK="on", ADAPTK_TRACE=str(trace)) as llm:
        scheduler = scheduler_of(llm)
        key = table_key(scheduler.vllm_config)
        assert scheduler.adaptk.controller.identity == {"model": model.name, "device": key["device"]}
    header = json.loads(trace.read_text().splitlines()[0])
    found = next(value["key"] for value in (header, *header.values()) if isinstance(value, dict) and "key" in value)
    assert found == key
    assert (key["method"], key["dtype"], key["graph_mode"], key["capture_sizes"]) == ("ngram", "float32", "NONE", [])
