"""An engine's scheduler under adaptk with all that adaptk can open, in a process whose every opening is written down.

``python -m tests.security.auditing MODEL FOLDER`` prints what adaptk's own code opened, made, moved, bound and started,
as the interpreter's audit events tell it, one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_WATCHED = frozenset({
    "open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown",
    "os.truncate", "os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.bind",
    "socket.connect", "pickle.find_class", "marshal.loads", "tempfile.mkstemp", "tempfile.mkdtemp", "shutil.move",
    "shutil.copyfile",
})  # fmt: skip
seen: list[dict[str, Any]] = []
_ROOT = str(Path(__file__).parents[2] / "adaptk")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _WATCHED:
        return
    by = _whose()
    if by is not None:
        values = [arg.decode(errors="replace") if isinstance(arg, bytes) else arg for arg in arguments]
        plain = [value if isinstance(value, int | str | None) else str(value) for value in values]
        seen.append({"event": event, "arguments": plain, "by": by})


def _whose() -> str | None:
    """The function of adaptk that is at work, the innermost; ``None`` where there is none, or a module is imported."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib"):
            return None
        if file.startswith(_ROOT):
            return f"{file[len(_ROOT) + 1 :]}:{frame.f_code.co_name}"
        frame = frame.f_back
    return None


def main(model: Path, folder: Path) -> None:
    """Serve some steps, have the metrics asked for once, end."""
    from tests.engine.metricspages import scraped
    from tests.engine.test_guest import Everything
    from tests.tabletools.measured import public_table

    table = folder / "table.json"
    public_table().save(table)
    table.chmod(0o444)
    (folder / "mode").write_text("shadow\n")
    sys.addaudithook(_watch)
    engine = Everything(model, folder, table=str(table), allow_mismatch=True)
    engine.run(120)
    url = engine.steering.metrics.url
    scraped(url)
    engine.scheduler.shutdown()
    state = {"active": engine.steering.active, "faults": engine.steering.faults, "url": url}
    print(json.dumps({"seen": seen, **state}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
