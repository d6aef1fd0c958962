"""A schedule as the JSON that vLLM's --speculative-config takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

FIELD = "num_speculative_tokens_per_batch_size"


def fragment(triples: Sequence[Sequence[int]]) -> str:
    """The fields for ``--speculative-config``, one range a line.

    ``num_speculative_tokens`` is among them, as vLLM cuts every K of a schedule at it; it must be at least 1.

    Examples
    --------
    >>> print(fragment([[1, 64, 3], [65, 512, 0]]))
    {
      "num_speculative_tokens": 3,
      "num_speculative_tokens_per_batch_size": [
        [1, 64, 3],
        [65, 512, 0]
      ]
    }
    """
    most = fields(triples)["num_speculative_tokens"]
    ranges = ",\n    ".join(json.dumps(list(triple)) for triple in triples)
    return f'{{\n  "num_speculative_tokens": {most},\n  "{FIELD}": [\n    {ranges}\n  ]\n}}'


def fields(triples: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The same as values."""
    return {"num_speculative_tokens": max(1, *(k for _, _, k in triples)), FIELD: [list(triple) for triple in triples]}
