"""Which tokens are accepted: hashed from seed, request and token, alike for every policy. Compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from adaptk.replay.compiled.layout import Conf, Real, Req, Slot, State
from adaptk.replay.drafter import HIT, MISS

_A, _B, _C = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 1.0 / 9007199254740992.0


@njit(inline="always")
def _mixed(x: Any) -> Any:
    x = (x ^ (x >> _S30)) * _B
    x = (x ^ (x >> _S27)) * _C
    return x ^ (x >> _S31)


@njit
def uniform(seed: int, stream: int, a: int, b: int) -> float:
    """A number in [0, 1) that belongs to these four (splitmix64's finaliser over a Weyl sequence)."""
    x = _mixed(np.uint64(seed) * _A + np.uint64(stream))
    x = _mixed(x + np.uint64(a) * _A)
    x = _mixed(x + np.uint64(b) * _A)
    return float(x >> _S11) * _UNIT


@njit
def kind_of(home: int, request: int, token: int, conf: Any, mix: Any) -> int:
    """Kind of text of a token of a request whose home kind is given."""
    if mix.shape[0] == 0:
        return home
    u = uniform(conf[Conf.SEED], 2, request, token // conf[Conf.SEGMENT])
    for kind in range(mix.shape[1]):
        u -= mix[home, kind]
        if u < 0.0:
            return kind
    return home


@njit
def warmth(state: Any, real: Any) -> float:
    """Factor of acceptance: below 1 while a drafter that was off finds its way back."""
    if state[State.COLD] == 0 or real[Real.COLD] == 0.0:
        return 1.0
    return 1.0 - real[Real.COLD] * np.exp(-state[State.WARM] / real[Real.COLD_STEPS])


@njit
def accepted_drafts(
    slots: Any, i: int, drafted: int, warmth: float, requests: Any, known: Any, conf: Any, chances: Any, mix: Any
) -> int:
    """Drafts of a request that are accepted."""
    request, cursor = slots[Slot.REQUEST, i], slots[Slot.CURSOR, i]
    for j in range(drafted):
        token = cursor + j
        if known.shape[0] > 0 and token < requests[Req.OUTPUT, request]:
            seen = known[requests[Req.OFFSET, request] + token]
            if seen == MISS:
                return j
            if seen == HIT:
                continue
        kind = kind_of(slots[Slot.KIND, i], request, token, conf, mix)
        if uniform(conf[Conf.SEED], 1, request, token) >= warmth * chances[0, kind, j]:
            return j
    return drafted


@njit
def supplied_drafts(slots: Any, i: int, k: int, conf: Any, chances: Any, mix: Any) -> int:
    """Drafts that the drafter returns for a request when asked for k."""
    request, cursor = slots[Slot.REQUEST, i], slots[Slot.CURSOR, i]
    kind = kind_of(slots[Slot.KIND, i], request, cursor, conf, mix)
    for j in range(k):
        chance = chances[1, kind, j]
        if chance < 1.0 and uniform(conf[Conf.SEED], 3 + j, request, cursor) >= chance:
            return j
    return k
