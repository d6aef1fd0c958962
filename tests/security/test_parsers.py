"""Damaged files: each reader takes them or refuses them in its own words, short, and without signs that steer."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from adaptk import Controller, Settings, StepRecord
from adaptk.live.page import PageError, snapshots
from adaptk.settings import SettingsError
from adaptk.snapshot import seal
from tests.security.damage import NUMBERS, VALUES, damage, with_another_value
from tests.security.readers import READERS, Reader, restore
from tests.snapshots import old_snapshot, used_snapshot

MOST_SIGNS = 600  # of a message, the path left out
_EXAMPLES = {"trace report": 6, "trace table": 60, "snapshot": 40, "state": 40, "corrected": 40}  # by what one costs
_DATA = st.randoms(use_true_random=False)


def check_words(error: Exception, path: Path | None = None) -> None:
    """A message can be shown: it is short and has no sign that would steer a terminal."""
    words = str(error) if path is None else str(error).replace(str(path), path.name).replace(str(path.parent), "")
    assert len(words) <= MOST_SIGNS, words[:200]
    assert words.isprintable(), repr(words)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_valid_files_are_taken(reader: Reader, tmp_path: Path) -> None:
    """So that it is the damage that is refused below."""
    for content in reader.valid():
        (tmp_path / reader.file).write_bytes(content)
        reader.read(tmp_path / reader.file)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_damaged_file_is_taken_or_refused(reader: Reader, tmp_path: Path) -> None:
    """Only the documented error comes, and what was taken can be used for all that it is used for."""
    path, valid = tmp_path / reader.file, reader.valid()

    @settings(max_examples=_EXAMPLES.get(reader.name, 100), suppress_health_check=list(HealthCheck), database=None)
    @given(_DATA)
    def check(random: Random) -> None:
        path.write_bytes(damage(random.choice(valid), random))
        try:
            reader.read(path)
        except reader.refuses as error:
            check_words(error, path)

    check()


@settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None)
@given(_DATA)
def test_a_snapshot_that_somebody_made_up_is_restored_whole_or_refused(random: Random) -> None:
    """With a seal that fits. Who is restored decides and learns without a warning, and can be saved again."""
    snapshot: Any = used_snapshot() if random.random() < 0.8 else old_snapshot()
    for _ in range(random.randint(1, 2)):
        snapshot = with_another_value(snapshot, random)
    if isinstance(snapshot, dict):
        try:
            snapshot = seal({name: value for name, value in snapshot.items() if name != "digest"})
        except (UnicodeEncodeError, OverflowError):  # half a character, an int beyond floats: no seal can be of them
            reject()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            restore(snapshot)
        except ValueError as error:
            check_words(error)


@pytest.mark.parametrize(
    ("way", "value"),
    [
        (("latency", "cov", 7, 7), 2.0**63),
        (("latency", "cov", 3, 5), 2.0**20),
        (("latency", "contamination", "residuals", 0), [[]]),
        (("latency", "groups", 0, 1, "values", 0), "0"),
        (("prefill", "last", 0), "1"),
        (("acceptance", "alpha", 0), -5.0),
        (("random", 1), "x"),
    ],
    ids=str,
)
def test_numbers_that_no_controller_can_have_left_are_refused(way: tuple[Any, ...], value: Any) -> None:
    """Though their form and the seal are right: they would fail in the midst of a step."""
    snapshot = used_snapshot()
    place: Any = snapshot
    for key in way[:-1]:
        place = place[key]
    place[way[-1]] = value
    from tests.publicengine import PUBLIC

    with pytest.raises(ValueError, match="snapshot") as error:
        Controller.restore(seal({name: part for name, part in snapshot.items() if name != "digest"}), PUBLIC)
    check_words(error.value)


_VARIABLES = st.sampled_from(
    ["ADAPTK", *(f"ADAPTK_{name.upper()}" for name in Settings.__struct_fields__ if name != "mode"), "ADAPTK_\x1b[2J",
     "ADAPTK_" + "X" * 10_000, "ADAPTK_budget", "ADAPTK_BUDGETT"]
)  # fmt: skip
_TEXTS = st.text(max_size=20) | st.sampled_from([*(n.decode() for n in NUMBERS), "x" * 10**5, "0," * 999])
_OPTIONS = st.dictionaries(
    st.sampled_from(Settings.__struct_fields__) | st.text(max_size=9), st.sampled_from(VALUES) | _TEXTS, max_size=4
)


@settings(max_examples=300, database=None)
@given(st.dictionaries(_VARIABLES, _TEXTS, max_size=4), _OPTIONS | st.sampled_from(VALUES))
def test_settings_are_taken_or_refused_whatever_they_are(env: dict[str, str], options: Any) -> None:
    """Of the environment and of vLLM's ``additional_config``."""
    for read in (lambda: Settings.from_env(env), lambda: Settings.from_config(options, env)):
        try:
            read()
        except SettingsError as error:
            check_words(error)


_FIELDS = st.sampled_from(StepRecord.__struct_fields__)


@settings(max_examples=300, database=None)
@given(st.dictionaries(_FIELDS, st.sampled_from(VALUES) | st.lists(st.sampled_from(VALUES), max_size=3), max_size=3))
def test_a_record_is_taken_and_learnt_from_or_refused(fields: dict[str, Any]) -> None:
    """Any value in any field: what is taken does not trouble a controller."""
    sound = {"batch_size": 2, "elapsed_ms": 9.0, "k": 1, "drafted": [1, 1], "accepted": [1, 0]}
    try:
        record = StepRecord(**{**sound, **fields})
    except (ValueError, TypeError) as error:
        check_words(error)
        return
    controller = Controller(None, k_max=3, seed=0)
    for _ in range(3):
        controller.choose(record.batch_size, record.context_tokens)
        controller.observe(record)
    json.dumps(controller.snapshot(), allow_nan=False)


_PAGE = "".join(
    f"{line}\n"
    for line in (
        'adaptk_active{engine="0"} 1', 'adaptk_mode{engine="0",mode="on"} 1', 'adaptk_batch_size{engine="0"} 12',
        'adaptk_steps_total{engine="0",batch="8-15",k="3"} 1200',
        'adaptk_tokens_total{engine="0",batch="8-15",k="3"} 9e3',
        'adaptk_config_info{engine="0",arms="0,1,3",baseline_schedule="[[1,4,7],[9,64,1]]",table="t.json"} 1',
        'adaptk_acceptance_ratio{engine="0",position="1"} 0.7',
        'adaptk_drift_ratio{engine="0",batch="8-15",k="3"} 1.1',
    )
).encode()  # fmt: skip


@settings(max_examples=150, suppress_health_check=list(HealthCheck), database=None)
@given(_DATA)
def test_a_damaged_page_of_metrics_is_taken_or_refused(random: Random) -> None:
    """Line by line: what cannot be understood is left out."""
    try:
        for seen in snapshots(damage(_PAGE, random).decode("utf-8", "replace")):
            assert seen.model.isprintable()
            assert seen.engine.isprintable()
    except PageError as error:
        check_words(error)
