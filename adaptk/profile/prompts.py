"""Prompts to measure acceptance on: the user's, or a small built-in set."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec

from adaptk.inputs import InputError, name_of, read_whole
from adaptk.quoted import said, shown

MAX_PROMPTS = 100_000
MAX_BYTES = 64 * 2**20  # six hundred prompts of 25,000 tokens
_MOST_LINES = 2 * MAX_PROMPTS  # empty ones among them


class PromptsError(ValueError):
    """The prompts cannot be used; the message names file, line and remedy."""


def read_prompts(path: Path | None) -> tuple[str, ...]:
    """Prompts of a JSONL file, one object per line with ``prompt``, or ``turns`` of which the first is taken.

    Parameters
    ----------
    path
        ``None``: the built-in set, which mixes chat, code, copying, summaries, mathematics and translation.

    Raises
    ------
    PromptsError
        If the file cannot be read, a line is no such object, or there is no prompt in it.
    """
    if path is None:
        return _read(files("adaptk.data").joinpath("prompts.jsonl").read_bytes(), "the built-in prompts")
    try:
        data = read_whole(path, MAX_BYTES)
    except InputError as error:
        raise PromptsError(f"{name_of(path)}: {error}: give a JSONL file with a prompt on each line") from None
    return _read(data, name_of(path))


def digest(prompts: Sequence[str]) -> str:
    """What tells one set of prompts from another one; says nothing of what they hold."""
    return hashlib.sha256("\0".join(prompts).encode(errors="surrogatepass")).hexdigest()[:16]


def _read(data: bytes, name: str) -> tuple[str, ...]:
    prompts: list[str] = []
    for number, line in enumerate(BytesIO(data), start=1):
        if number > _MOST_LINES:
            raise PromptsError(f"{name}: has more than {_MOST_LINES} lines: give a prompt on each, and fewer")
        if not line.strip():
            continue
        if len(prompts) >= MAX_PROMPTS:
            raise PromptsError(f"{name}: has more than {MAX_PROMPTS} prompts: give fewer")
        prompts.append(_prompt(line, f"{name}, line {number}"))
    if not prompts:
        raise PromptsError(f"{name}: holds no prompt: give one object with prompt or turns per line")
    return tuple(prompts)


def _prompt(line: bytes, where: str) -> str:
    remedy = 'give an object with "prompt": text, or "turns": [text, ...]'
    try:
        entry: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise PromptsError(f"{where}: is no JSON ({said(error)}): {remedy}") from None
    if not isinstance(entry, dict):
        raise PromptsError(f"{where}: is {shown(entry)}: {remedy}")
    text = entry.get("prompt")
    if text is None and isinstance(entry.get("turns"), list) and entry["turns"]:
        text = entry["turns"][0]
    if not isinstance(text, str) or not text.strip():
        raise PromptsError(f"{where}: has no text in prompt or turns: {remedy}")
    return text
