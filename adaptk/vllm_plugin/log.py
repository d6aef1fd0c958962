"""The logger of the plugin: a child of vLLM's, so that it shows wherever vLLM's own lines do."""

from __future__ import annotations

import logging
import textwrap
from contextlib import suppress

from adaptk.quoted import plain, visible

_MOST_SIGNS = 4_000  # of a text in a line; a key that differs in every field takes 2,500


def one_line(value: object) -> str:
    """A text that may hold words of a file, a path or a host, for a line of the log: bounded, and no more than one.

    Examples
    --------
    >>> one_line("nowhere\\nINFO all is well"), len(one_line("x" * 10**6))
    ('nowhere�INFO all is well', 4000)
    """
    try:
        return plain(str(value), _MOST_SIGNS)
    except Exception:  # what cannot be told
        return f"a {type(value).__name__}"


class _Tame(logging.Filter):
    """Sees to it that no value in a message begins a line or steers a terminal, and no traceback looks like a line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record through, with its values made harmless."""
        if isinstance(record.args, tuple) and "\n" not in record.msg:  # where lines follow, they were looked at before
            record.args = tuple(value if isinstance(value, int | float) else one_line(value) for value in record.args)
        if record.exc_info and record.exc_info[0] is not None:
            with suppress(Exception):  # of an error that cannot be told the handlers make what they can
                record.exc_text = textwrap.indent(visible(logging.Formatter().formatException(record.exc_info)), "    ")
        return True


logger = logging.getLogger("vllm.adaptk")
logger.addFilter(_Tame())
