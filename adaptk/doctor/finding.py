"""One line of the doctor's report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

Status = Literal["ok", "note", "warn", "fail"]


class Finding(msgspec.Struct, frozen=True):
    """What was found of one thing.

    Parameters
    ----------
    id
        A stable name for scripts, ``field.thing``; findings of one field are shown together.
    status
        ``ok``: works. ``note``: works, and is worth knowing. ``warn``: something is lost or at risk, and adaptk goes
        on. ``fail``: adaptk does not work until it is mended.
    what
        The finding, one sentence without a stop at its end.
    detail
        Why, or what goes with it; may be empty.
    remedy
        What to do; empty where there is nothing to do.
    """

    id: str
    status: Status
    what: str
    detail: str = ""
    remedy: str = ""

    @property
    def field(self) -> str:
        """The part of the id before the first stop."""
        return self.id.partition(".")[0]


def fails(findings: Sequence[Finding]) -> bool:
    """Whether anything keeps adaptk from working.

    Examples
    --------
    >>> fails([Finding("vllm.hooks", "ok", "there"), Finding("table.file", "warn", "old")])
    False
    """
    return any(finding.status == "fail" for finding in findings)
