"""What of a command line is nobody else's affair: keys, tokens and the folders of this machine."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

_SECRET = re.compile(r"api-key|token$|password|secret")
# Secrets inside a value: entries of JSON, users in addresses, their queries, and what the well-known ones look like.
_NAME = r'"[^"]{0,80}(?:api[-_]?key|password|secret|credential|token(?="))[^"]{0,80}"'
_INSIDE = (
    (rf"({_NAME}\s{{0,9}}:\s{{0,9}})" + r'(?:"(?:[^"\\]|\\.)*"|[^,}\]\s"]+)', r'\1"..."'),
    (r"(?<=://)[^/\s@\"']{1,300}@", "...@"),
    (r"([?&][\w-]{0,40}(?:key|token|secret|password|sig|signature)=)[^&\s\"']+", r"\1..."),
    (r"\b(?:hf_|sk-|AKIA|ghp_|glpat-)[\w-]{16,}", "..."),
)
_FOLDER = re.compile(r"(?<![\w.:/-])(?:~|\.{1,2})?/(?:[^/\s\"',]+/)*(?=[^/\s\"',]+)")


def shown_command(command: Sequence[str]) -> str:
    """A command as it may be passed on: without keys, tokens and passwords, and of paths the last part.

    Examples
    --------
    >>> shown_command(["adaptk", "profile", "/models/m", "--api_key", "a", "b", "--hf-token=x", "--port", "1"])
    'adaptk profile m --api_key ... --hf-token=... --port 1'
    >>> print(shown_command(["adaptk", "--speculative-config", '{"model": "/a/b/drafter"}', "--download-dir=/x/y"]))
    adaptk --speculative-config '{"model": "drafter"}' --download-dir=y
    """
    shown: list[str] = []
    for part, secret in _parts(command):
        name, equals, _ = part.partition("=")
        if not secret:
            shown.append(shlex.quote(_FOLDER.sub("", _public(part))))
        elif part.startswith("--"):
            shown.append(f"{name}=..." if equals else name)
        elif shown[-1] != "...":
            shown.append("...")
    return " ".join(shown)


def _public(part: str) -> str:
    for pattern, instead in _INSIDE:
        part = re.sub(pattern, instead, part, flags=re.IGNORECASE)
    return part


def without_secrets(arguments: Sequence[str]) -> tuple[str, ...]:
    """An engine's arguments without its keys and tokens, which no file need hold.

    Examples
    --------
    >>> without_secrets(["m", "--api-key", "abc", "--hf-token", "--max-num-batched-tokens", "64"])
    ('m', '--max-num-batched-tokens', '64')
    """
    return tuple(part for part, secret in _parts(arguments) if not secret)


def _parts(arguments: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each part, and whether it is a secret option or a value of one."""
    secret = False
    for part in arguments:
        if part.startswith("--"):
            name = part.partition("=")[0].replace("_", "-").lower()
            secret = _SECRET.search(name) is not None
            yield part, secret
            secret = secret and "=" not in part
        else:
            yield part, secret
