"""The files that adaptk writes and reads while an engine runs: can it, and is there room."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from adaptk.doctor.finding import Finding
from adaptk.onefile import refuse_one_file
from adaptk.settings import Mode, Settings, SettingsError

_ROOM = 2**30  # bytes
_SHOWN_RANKS = 64


def findings(settings: Settings, ranks: int) -> Iterator[Finding]:
    """What of ``trace`` and ``control`` works, their ranks filled in, and whether two settings name one file.

    Parameters
    ----------
    settings
        As the engine will have them.
    ranks
        Data-parallel engines, ``>= 1``.
    """
    for rank in range(min(ranks, _SHOWN_RANKS)):
        try:
            refuse_one_file(settings, rank)
        except SettingsError as error:
            two, _, remedy = str(error).partition(": ")
            yield Finding("paths", "fail", two, "each would destroy what the other one holds", remedy)
            break
    if settings.trace is not None:
        yield from _trace(settings.trace, settings, ranks)
    if settings.control is not None:
        yield from _control(settings.control, settings.mode, ranks)


def filled(path: str, ranks: int) -> list[str]:
    """The paths of all ranks, each once.

    Examples
    --------
    >>> filled("/run/a-{rank}", 2), filled("t.jsonl", 2)
    (['/run/a-0', '/run/a-1'], ['t.jsonl'])
    """
    return list(dict.fromkeys(path.replace("{rank}", str(rank)) for rank in range(min(ranks, _SHOWN_RANKS))))


def _trace(path: str, settings: Settings, ranks: int) -> Iterator[Finding]:
    name = "paths.trace"
    for each in filled(path, ranks):
        trouble = unwritable(Path(each)) or _other_file(Path(each))
        if trouble is not None:
            what = f"no trace would be written to {each}"
            yield Finding(name, "fail" if settings.strict else "warn", what, trouble, "give another ADAPTK_TRACE")
            return
    if ranks > 1 and "{rank}" not in path:
        what = f"{ranks} engines would write the trace {path}"
        yield Finding(name, "warn", what, "each moves the file of the one before aside", "put {rank} into its name")
        return
    first = Path(filled(path, ranks)[0])
    aside = "; the one there now is moved aside at the start" if first.exists() else ""
    capped = "" if settings.trace_max_mb is None else f", {settings.trace_max_mb} MB at most"
    free = shutil.disk_usage(first.absolute().parent).free
    what = f"the trace {path} can be written{capped}{aside}"
    if free < (_ROOM if settings.trace_max_mb is None else settings.trace_max_mb * 10**6):
        room = f"{free / 2**20:.0f} MiB are left there; a step at batch 8 takes about 400 bytes"
        yield Finding(name, "warn", what, room, "make room: rows that do not fit are dropped")
    else:
        yield Finding(name, "ok", what, f"{free / 2**30:.0f} GiB are free there")


def _control(path: str, started: Mode, ranks: int) -> Iterator[Finding]:
    found = [_control_of(Path(each), started) for each in filled(path, ranks)]
    yield found[0]
    for finding in found[1:]:
        if finding.status != found[0].status:  # else it is the same again, with another number
            yield finding
    if ranks > 1 and "{rank}" not in path:
        what = f"all {ranks} engines obey one file, {path}"
        yield Finding("paths.control", "note", what, "with {rank} in its name each would have its own")


def _control_of(path: Path, started: Mode) -> Finding:
    from adaptk.vllm_plugin.control import read

    name = "paths.control"
    try:
        mode = read(path)
    except FileNotFoundError:
        what = f"{path} is not there yet: the mode is that of the start"
        trouble = unwritable(path)
        if trouble is None:
            return Finding(name, "ok", what, f"adaptk mode {path} shadow, and on or off, switches it while it serves")
        return Finding(name, "note", what, f"from here it cannot be made: {trouble}")
    except (SettingsError, OSError, ValueError) as error:
        said = str(error) if isinstance(error, SettingsError) else f"it cannot be read ({error})"
        return Finding(name, "warn", f"{path} is no control file, and would be ignored", said, "mend or remove it")
    if mode == started:
        return Finding(name, "ok", f"{path} says {mode}, the mode of the start")
    what = f"{path} says {mode}, and holds over the mode of the start, {started}, from the first step on"
    remedy = f"if it was left over: remove it, or adaptk mode {path} {started}"
    return Finding(name, "warn", what, "a control file is obeyed by every engine that is started with it", remedy)


def unwritable(path: Path) -> str | None:
    """Why a file cannot be made or replaced at ``path``; ``None`` where it can. The file itself is not touched."""
    if "\0" in str(path):
        return "a path holds no null byte"
    try:
        if path.exists() and not path.is_file():
            return "it is there, and no regular file"
        folder = path.absolute().parent
        if not folder.is_dir():
            return f"the folder {folder} does not exist"
        with tempfile.TemporaryFile(dir=folder) as file:  # permissions are no sign of space, or of a writable disk
            file.write(b"adaptk" * 1024)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return str(error)
    return None


def _other_file(path: Path) -> str | None:
    """What is at the path, where a trace would not be written because of it."""
    from adaptk.tracepieces import TraceError
    from adaptk.traceplace import holds_trace

    try:
        holds_trace(path)
    except (TraceError, OSError) as error:
        return str(error).removeprefix(f"{path}: ")
    return None
