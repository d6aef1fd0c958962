"""Prompts for acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.profile.prompts import PromptsError, digest, read_prompts


def test_the_built_in_set() -> None:
    """Two dozen different texts."""
    prompts = read_prompts(None)
    assert len(prompts) == len(set(prompts)) == 24


def test_both_forms(tmp_path: Path) -> None:
    """A prompt, or turns of which the first is asked; empty lines are passed over."""
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "Grüße"}\n\n{"question_id": 1, "turns": ["first", "second"], "category": "x"}\n')
    assert read_prompts(path) == ("Grüße", "first")


def test_spec_bench() -> None:
    """The public file is read as it is."""
    path = Path(__file__).parents[3] / "shared" / "data" / "spec_bench_questions.jsonl"
    if not path.exists():
        pytest.skip("Spec-Bench's questions are not beside this checkout")
    assert len(read_prompts(path)) == 480


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no prompt"),
        ('{"prompt": "a"}\nnonsense\n', "line 2: is no JSON"),
        ("[1]\n", "line 1: is \\[1\\]"),
        ('{"prompt": 3}\n', "line 1: has no text"),
        ('{"prompt": "  "}\n', "line 1: has no text"),
        ('{"turns": []}\n', "line 1: has no text"),
        ('{"turns": [7]}\n', "line 1: has no text"),
        ('{"text": "a"}\n', "line 1: has no text"),
        ("[" * 100_000 + "\n", "line 1: is no JSON"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """By file and line, with what to give instead."""
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(PromptsError, match=message):
        read_prompts(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    """A missing file and a folder."""
    for path, why in ((tmp_path / "missing.jsonl", "there is no such file"), (tmp_path, "is no regular file")):
        with pytest.raises(PromptsError, match=why):
            read_prompts(path)


def test_the_digest_tells_sets_apart() -> None:
    """Also where the same text is cut elsewhere."""
    assert len({digest(p) for p in (("a", "b"), ("ab",), ("b", "a"), ())}) == 4
