"""The order of cells and the number of layers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptk.surface.plan import Place, Share, coarse_first, layers_to_measure

SIZES = st.lists(st.integers(1, 500), min_size=1, max_size=9, unique=True)


@given(SIZES, SIZES)
def test_every_place_once_and_the_corners_first(batches: list[int], contexts: list[int]) -> None:
    """Nothing is forgotten; a run cut short after four places still spans the grid."""
    order = coarse_first(batches, contexts)
    assert sorted(order) == sorted(Place(batch, context) for batch in batches for context in contexts)
    ends = {min(batches), max(batches)}, {min(contexts), max(contexts)}
    corners = {Place(batch, context) for batch in ends[0] for context in ends[1]}
    assert set(order[: len(corners)]) == corners


def test_gaps_are_halved() -> None:
    """After the ends comes the middle, then what lies between."""
    assert [place.batch for place in coarse_first([1, 2, 3, 4, 5, 6, 7, 8, 9], [10])] == [1, 9, 5, 3, 7, 2, 4, 6, 8]
    assert coarse_first([4], [10]) == [Place(4, 10)]


def test_all_layers_where_they_fit() -> None:
    """With memory and time to spare nothing is scaled."""
    assert layers_to_measure([Share(3, 2**30, 0.01), Share(1, 2**20, 0.01)], 2**40, 60.0) == [3, 1]


def test_memory_and_time_bound_the_layers() -> None:
    """As many of each kind as fit, and as there is time for, but one at least."""
    assert layers_to_measure([Share(40, 2**30, 0.0), Share(40, 2**30, 0.0)], 10 * 2**30, 60.0) == [5, 5]
    assert layers_to_measure([Share(40, 2**30, 2.0)], 2**40, 8.0) == [4]
    assert layers_to_measure([Share(40, 2**30, 100.0)], 2**40, 8.0) == [1]


def test_few_layers_are_no_fewer_than_a_cache_holds() -> None:
    """Layers of 8 MiB would be read from a processor's cache: eight of them, however short the time."""
    assert layers_to_measure([Share(30, 2**23, 100.0)], 2**40, 1.0) == [8]
    assert layers_to_measure([Share(3, 2**23, 100.0)], 2**40, 1.0) == [3]


def test_nothing_fits() -> None:
    """No layer at all is an answer, too."""
    assert layers_to_measure([Share(30, 2**23, 1.0)], 2**20, 1.0) == [0]
