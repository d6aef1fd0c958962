"""Work spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def mapped(work: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], jobs: int) -> Iterator[Any]:
    """What ``work`` makes of each task, with more than one process in any order.

    Another joblib backend (Dask, Ray) is used where the caller has entered ``joblib.parallel_config``.
    """
    if min(jobs, len(tasks)) <= 1:
        yield from (work(*task) for task in tasks)
        return
    from joblib import Parallel, delayed

    yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(delayed(work)(*task) for task in tasks)
