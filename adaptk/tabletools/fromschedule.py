"""Tables from vLLM's own schedule, alone or in a whole ``--speculative-config``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from adaptk.quoted import said
from adaptk.schedule import read_schedule
from adaptk.table import GoodputTable
from adaptk.tablerows import TableError
from adaptk.tabletools.exported import FIELD
from adaptk.tabletools.imported import Imported, read_text, unknown_acceptance

_KEY_FIELDS = {"model": "drafter", "method": "method", "quantization": "drafter_quantization"}


def read_vllm(path: Path, acceptance: Sequence[float] | None = None) -> Imported:
    """A table without step times from a JSON list of triples, or from an object that holds one under vLLM's name.

    ``num_speculative_tokens`` cuts every K, as in vLLM; the drafter's name and method go into the key.

    Raises
    ------
    TableError
        If the file is no JSON, holds no schedule, or one that vLLM would refuse.
    """
    try:
        content: Any = msgspec.json.decode(read_text(path))
    except (msgspec.DecodeError, RecursionError) as error:
        raise TableError(f"{path}: is no JSON ({said(error)}): give the list of [first batch, last batch, K]") from None
    config = _config(path, content)
    try:
        triples = [list(triple) for triple in read_schedule(config[FIELD])]
    except TableError as error:
        raise TableError(f"{path}: {error}") from None
    notes = []
    most = config.get("num_speculative_tokens")
    if isinstance(most, int) and not isinstance(most, bool) and most > 0:
        if any(k > most for _, _, k in triples):
            notes.append(f"num_speculative_tokens is {most}: larger K of the schedule are cut at it, as vLLM does")
        triples = [[first, last, min(k, most)] for first, last, k in triples]
    notes.append("it has no step times: best K is as the schedule says, adaptk starts from it and learns the times")
    key = {ours: config[theirs] for theirs, ours in _KEY_FIELDS.items() if isinstance(config.get(theirs), str)}
    meta = {"name": path.stem, "key": key, "provenance": {"imported_from": path.name, "kind": "vLLM schedule"}}
    return Imported(GoodputTable.from_schedule(triples, acceptance, meta), [*notes, *unknown_acceptance(acceptance)])


def _config(path: Path, content: Any) -> dict[str, Any]:
    """The speculative config, itself or below the name that a server's config file gives it."""
    if isinstance(content, list):
        return {FIELD: content}
    for name in ("speculative_config", "speculative-config"):
        if isinstance(content, dict) and isinstance(content.get(name), dict):
            content = content[name]
    if isinstance(content, dict) and "schema_version" in content and {"rows", "schedule"} & content.keys():
        raise TableError(f"{path}: is a table of adaptk already: use it as it is")
    if not isinstance(content, dict) or content.get(FIELD) is None:
        raise TableError(f"{path}: holds no {FIELD}: give a JSON list of [first batch, last batch, K], "
                         "or a --speculative-config that has one")  # fmt: skip
    return content
