"""What the process that has vLLM in it is asked, and what it answers: plain data, as it goes through a pipe."""

from __future__ import annotations

from typing import Any

import msgspec

from adaptk.settings import Mode, Settings


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be looked at.

    Parameters
    ----------
    arguments
        Those of ``vllm serve``, the model first; none: vLLM alone is looked at.
    variables
        The ``ADAPTK`` variables that the engine would see, all of them valid, its mode ``on`` or ``shadow``.
    table
        A table that takes the place of the one in the settings.
    """

    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    table: str | None = None


class Doing(msgspec.Struct, frozen=True):
    """What the process is at, for whoever waits."""

    what: str


class Told(msgspec.Struct, frozen=True):
    """A line of a log; ``level`` as in :mod:`logging`."""

    level: int
    text: str


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """The vLLM of this Python.

    ``unfit``: why adaptk cannot enter it. ``platform``: ``cpu``, ``cuda``, ... ``serves``: whether its command
    ``vllm serve`` finds the distribution that it asks for.
    """

    version: str
    unfit: str | None = None
    platform: str = ""
    device: str | None = None
    serves: bool = True


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How adaptk's start ended in a scheduler of this configuration, and what it logged on the way."""

    active: bool
    reason: str = ""
    arms: tuple[int, ...] = ()
    told: tuple[Told, ...] = ()


class Reach(msgspec.Struct, frozen=True):
    """How far FULL graphs go for one arm: the largest batch that fits, and the batch sizes below it that have none."""

    k: int
    batch: int
    holes: tuple[int, ...] = ()


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """An engine as vLLM would configure it, and as adaptk would find it; sizes in requests and tokens.

    ``bare``: adaptk's start without a table; ``seeded``: with the one that is named, if one is; ``switched``: in mode
    on, where it is shadow and a control file may say on. ``ranks``: engines that vLLM starts, each with a port and
    paths of its own. ``notes``: what vLLM warned of. ``reaches`` is ``None`` where steps have no FULL graphs.
    """

    model: str
    settings: Settings
    moe: bool = False
    dtype: str = ""
    max_num_seqs: int = 0
    v2: bool = False
    asynchronous: bool = False
    scheduler: str = ""
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    ranks: int = 1
    method: str | None = None
    drafter: str | None = None
    k_max: int = 0
    saves_drafting: bool = True
    price_notes: tuple[str, ...] = ()
    operators_schedule: tuple[tuple[int, int, int], ...] | None = None
    graph_mode: str = "NONE"
    eager: bool = False
    reaches: tuple[Reach, ...] | None = None
    captures: int = 0
    key: dict[str, Any] = {}
    bare: Outcome = Outcome(active=False)
    seeded: Outcome | None = None
    switched: Outcome | None = None
    preparing: tuple[Told, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Outcome:
        """The start that would really happen."""
        return self.bare if self.seeded is None else self.seeded


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The entry for adaptk in ``additional_config``: the mode that it asks for, and what is wrong in it, in sentences.

    ``mode`` is ``None`` where there is no entry.
    """

    mode: Mode | None = None
    wrong: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that was learnt.

    ``broken``: why vLLM cannot be imported. ``refused``: why vLLM makes no configuration of the arguments. ``fault``:
    why adaptk's start in it could not be tried.
    """

    installed: Installed | None = None
    broken: str = ""
    refused: str = ""
    options: Options = Options()
    fault: str = ""
    engine: Engine | None = None
