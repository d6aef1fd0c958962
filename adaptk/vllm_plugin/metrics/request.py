"""What a client of the metrics page asks for, read from the bytes that it sent, and what it is answered with."""

from __future__ import annotations

import re
from typing import NamedTuple

PATH = "/metrics"
MOST_BYTES = 1 << 13  # of a request's line and headers
TEXT = "text/plain; charset=utf-8"
_END = re.compile(rb"\r?\n\r?\n")
_LINE = re.compile(r"([A-Z]{1,16}) (\S+) HTTP/1\.\d")
_STATUS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
# Nothing of what was asked is in them.
_REFUSALS = {
    400: "this is no HTTP/1 request\n",
    404: f"adaptk's metrics are at {PATH}\n",
    405: "GET or HEAD\n",
    431: f"a request has at most {MOST_BYTES} bytes\n",
    500: "the metrics could not be made: see the engine's log\n",
    503: "too many connections: try again\n",
}


class Request(NamedTuple):
    """A whole request: its status, 200 where the page is asked for, whether without its text, and its Accept header."""

    status: int
    head_only: bool = False
    accept: str = ""


def read(data: bytes) -> Request | None:
    """The request at the beginning of ``data``; ``None`` while its headers have not come to their end.

    Examples
    --------
    >>> read(b"GET /metrics HTTP/1.1\\r\\naccept: text/plain\\r\\n\\r\\n")
    Request(status=200, head_only=False, accept='text/plain')
    >>> read(b"GET /metrics HTTP/1.1\\r\\n"), read(b"\\x16\\x03\\x01").status
    (None, 400)
    """
    if data and not data[:1].isalpha():  # also what speaks TLS
        return Request(400)
    end = _END.search(data, 0, MOST_BYTES)
    if end is None:
        return Request(431) if len(data) >= MOST_BYTES else None
    line, *headers = data[: end.start()].decode("latin-1").split("\n")
    asked = _LINE.fullmatch(line.rstrip("\r"))
    if asked is None:
        return Request(400)
    method, target = asked.groups()
    if method not in ("GET", "HEAD"):
        return Request(405)
    status = 200 if target.partition("?")[0] == PATH else 404
    fields = (header.partition(":") for header in headers)
    accept = next((value.strip() for name, _, value in fields if name.lower() == "accept"), "")
    return Request(status, method == "HEAD", accept)


def answer(status: int, kind: str, body: bytes, head_only: bool = False) -> bytes:
    """An answer, after which the connection ends."""
    lines = [
        f"HTTP/1.1 {status} {_STATUS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        *(["Allow: GET, HEAD"] if status == 405 else []),
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (b"" if head_only else body)


def refusal(status: int, head_only: bool = False) -> bytes:
    """The answer to what gets no page."""
    return answer(status, TEXT, _REFUSALS[status].encode(), head_only)
