"""One measurement of a surface: build, choose how many layers, visit the cells, keep a table at every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from adaptk.surface import plan
from adaptk.surface.architecture import Architecture
from adaptk.surface.caches import Caches
from adaptk.surface.drafters import Drafter
from adaptk.surface.machine import Machine, torch_dtype
from adaptk.surface.measure import LEAST, Measurement
from adaptk.surface.model import Model, Part
from adaptk.surface.pilot import cost_of_layers
from adaptk.surface.plan import Place
from adaptk.surface.room import divided
from adaptk.surface.weights import Weights

if TYPE_CHECKING:
    import torch

_USABLE = 0.85  # of the free memory: allocators and libraries need some
_FOR_LAYERS = 0.35  # of the budget, in the first pass over all cells; heads, drafts and second visits take the rest
_CALLS = LEAST + 2  # of a cell in that pass, warming up included


class Watcher(Protocol):
    """Is told what is being done; :class:`adaptk.progress.Progress` is one."""

    def begin(self, what: str, total: int) -> None:
        """Work of ``total`` pieces begins."""
        ...

    def done(self, what: str) -> None:
        """One piece is finished."""
        ...

    def doing(self, what: str) -> None:
        """The piece in work."""
        ...


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure.

    Parameters
    ----------
    target, drafter
        Sizes of the model and of what drafts for it, one rank's share of both; ``None``: drafting costs nothing.
    dtype
        Number format of weights and caches.
    batches, ks, contexts
        Requests, drafts per request, and tokens per request in the cache.
    budget_s
        Seconds for everything.
    """

    target: Architecture
    drafter: Architecture | None
    dtype: str
    batches: tuple[int, ...]
    ks: tuple[int, ...]
    contexts: tuple[int, ...]
    budget_s: float


class Outcome:
    """What came out so far; grows while the session runs."""

    def __init__(self) -> None:
        self.measurement: Measurement | None = None
        self.layers_built = 0
        self.too_large: list[Place] = []
        self.model_fits = True
        self.copy_gb_per_s: float | None = None
        self.machine: dict[str, Any] = {}
        self.seconds = 0.0
        self.interrupted = False

    @property
    def left_out(self) -> list[Place]:
        """Places that do not fit in memory."""
        return [*self.too_large, *(self.measurement.out_of_memory if self.measurement is not None else ())]

    @property
    def not_reached(self) -> list[Place]:
        """Places for which there was memory, but not time."""
        return self.measurement.not_reached if self.measurement is not None else []


class Workload:
    """The step of a model and its drafter."""

    def __init__(self, model: Model, drafter: Drafter | None, caches: Caches, weights: Weights) -> None:
        self._model, self._drafter, self._caches, self._weights = model, drafter, caches, weights

    def parts(self, place: Place, k: int) -> list[Part]:
        """Verification of ``k`` drafts per request, then making as many."""
        tokens = place.batch * (k + 1)
        made = self._model.parts(self._states(tokens, self._model.shape), place, self._caches)
        if self._drafter is not None:
            states = self._states(tokens, self._drafter.shape)
            made.append(self._drafter.part(states, k, place, self._caches))
        return made

    def _states(self, tokens: int, shape: Architecture) -> torch.Tensor:
        return self._weights.filled((tokens, shape.hidden))


def run(
    options: Options,
    machine: Machine,
    outcome: Outcome,
    watcher: Watcher,
    keep: Callable[[Outcome], None],
    clock: Callable[[], float] = time.monotonic,
    begun: float | None = None,
) -> None:
    """Measure; what there is when the budget ends, or at an interrupt, is in ``outcome``.

    Parameters
    ----------
    options
        What to measure.
    machine
        Where.
    outcome
        Is filled.
    watcher
        Is told of the progress.
    keep
        Called whenever there is more, so that it is on disk.
    clock
        Seconds, rising.
    begun
        When the budget began, by ``clock``; ``None``: now.

    Raises
    ------
    MachineError
        If nothing of it fits in memory, or the machine cannot run it.
    """
    import torch

    start = clock() if begun is None else begun
    try:
        with torch.inference_mode():
            _run(options, machine, outcome, watcher, keep, lambda: options.budget_s - (clock() - start))
    except KeyboardInterrupt:
        outcome.interrupted = True
    outcome.seconds = clock() - start
    if outcome.measurement is not None and outcome.measurement.finished:
        keep(outcome)


def _run(
    options: Options,
    machine: Machine,
    outcome: Outcome,
    watcher: Watcher,
    keep: Callable[[Outcome], None],
    left: Callable[[], float],
) -> None:
    target, drafter = options.target, options.drafter
    for shape in (target, drafter):
        if shape is not None and shape.experts:
            machine.check_mixture(options.dtype)
    outcome.machine, outcome.copy_gb_per_s = machine.described(), machine.copy_gb_per_s()
    dtype = torch_dtype(options.dtype)
    places = plan.coarse_first(options.batches, options.contexts)
    free = int(_USABLE * machine.free_bytes())
    room = divided(target, drafter, places, max(options.ks), free, dtype.itemsize)
    outcome.too_large, outcome.model_fits = room.too_large, room.model_fits
    weights = Weights(machine.device, dtype)
    caches = Caches(room.cache, weights)
    drafting = None if drafter is None else Drafter(drafter, weights)
    lines = cost_of_layers(target, options.ks, machine, weights, caches, room.places)
    shares = [
        plan.Share(
            count,
            target.block_weights(kind) * dtype.itemsize,
            _CALLS * sum(line.round_s(place, options.ks) for place in room.places),
        )
        for (kind, count), line in zip(target.kinds.items(), lines, strict=True)
    ]
    counts = plan.layers_to_measure(shares, room.layers, _FOR_LAYERS * left())

    def cost(place: Place) -> float:
        return sum(count * line.round_s(place, options.ks) for count, line in zip(counts, lines, strict=True))

    model = Model(target, counts, weights)
    outcome.layers_built = model.layers
    outcome.measurement = Measurement(Workload(model, drafting, caches, weights), machine.timer, options.ks, left, cost)
    _visit(outcome.measurement, room.places, watcher, lambda: keep(outcome))


def _visit(measurement: Measurement, places: Sequence[Place], watcher: Watcher, keep: Callable[[], None]) -> None:
    seen: set[Place] = set()
    watcher.begin("measuring", len(places))

    def visited(place: Place) -> None:
        keep()
        what = f"batch {place.batch}, context {place.context}"
        if place in seen:
            watcher.doing(f"again {what}")
        else:
            watcher.done(what)
        seen.add(place)

    measurement.run(places, visited)
