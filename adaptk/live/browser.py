"""What the reader looks at: which engine, how far scrolled, paused or not; and the picture of that."""

from __future__ import annotations

from collections.abc import Sequence

from adaptk.live.cellrows import LEGEND
from adaptk.live.detail import detail
from adaptk.live.fleet import Seen, troubles
from adaptk.live.marks import MARKS
from adaptk.live.overview import overview
from adaptk.live.texts import View, cut, fitted, width_of
from adaptk.spans import Span, Spans

_AIRY = 34  # lines of a terminal from which on there is room for blank ones
_ABOUT = 2  # rows seen on both sides of the one that is followed
_LEAST_ROWS = 3  # of what scrolls; with less room everything scrolls
_HELP = f"""\
up, down, page up/down, home, end   move, or scroll
enter, escape                       open an engine, go back to all of them
p                                   engines in trouble first, or in their order
space                               stop the picture, go on
?                                   this page; any key turns it, or leaves it
q, Ctrl-C                           quit

K              drafts per request; 1/3: the engine plays 1, adaptk chose 3
gain over      tokens more than that policy would have emitted in the same
               time, as believed; in shadow: what adaptk would gain; vLLM:
               its own K; of all engines: K=0 %, vLLM %, over the last minute
exploit ...    why K was chosen: believed best; a priced visit to another K;
               kept though another looks slightly better; a visit that the
               budget or a limit refused (min_k: the smallest K allowed)
accepted       share of drafts at a position, those before it accepted; since
               the engine's start; below it what is believed now, with 90 %
step ms        believed time of a step; with 90 % it lies in the interval
drift          believed over the table's; of all engines: the worst played
> t            the row that is played now, the K of the table
tok/s, best    believed tokens per request and second; chance of being best
exploring cost what visits cost, of what the budget allowed so far
not learnt     steps whose time or drafts say nothing, by cause

{MARKS}"""


class Browser:
    """Turns keys and engines into pictures; a lone engine is always shown in full."""

    def __init__(self) -> None:
        self.paused: Sequence[Seen] | None = None  # the engines as they were then
        self.done = False
        self._help: int | None = None  # its first line on the screen
        self._trouble_first = False
        self._opened: tuple[str, ...] | None = None
        self._selected: tuple[str, ...] | None = None
        self._row = 0
        self._offset = 0
        self._follows = True  # the row that is played now, until the reader scrolls
        self._page = 1

    def press(self, key: str, engines: Sequence[Seen]) -> None:
        """Do what a key asks for, where these engines are shown."""
        if self._help is not None and key != "q":
            ahead = self._help + self._page
            self._help = ahead if ahead < len(_HELP.split("\n")) and key != "escape" else None
        elif key in ("q", "Q"):
            self.done = True
        elif key in ("?", "h"):
            self._help = 0
        elif key == "space":
            self.paused = None if self.paused is not None else engines
        elif key == "p":
            self._trouble_first = not self._trouble_first
        elif key in ("enter", "right") and self._shown(engines) is None and engines:
            self._opened, self._offset, self._follows = self._ordered(engines)[self._row].identity, 0, True
        elif key in ("escape", "left"):
            self._opened = None
        else:
            self._move(key, engines)

    def _move(self, key: str, engines: Sequence[Seen]) -> None:
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -self._page, "page down": self._page}
        far = 1 << 30
        by = steps.get(key, {"home": -far, "end": far}.get(key))
        if by is None:
            return
        if self._shown(engines) is not None:
            self._offset, self._follows = max(self._offset + by, 0), key == "home"
        elif engines:
            self._row = min(max(self._row + by, 0), len(engines) - 1)
            self._selected = self._ordered(engines)[self._row].identity

    def picture(self, engines: Sequence[Seen], width: int, height: int) -> list[Spans]:
        """The lines of a screen of ``width`` by ``height``."""
        if self._help is not None:
            return self._explained(self._help, width, height)
        shown = self._shown(engines)
        if shown is not None:
            view = detail(shown, width, airy=height >= _AIRY)
            says = LEGEND if view.scrolled else ""
        else:
            ordered = self._ordered(engines)
            self._row = _index(ordered, self._selected, self._row)
            view, says = overview(ordered, width, self._row), ""
        if height - 1 - len(view.fixed) < _LEAST_ROWS:
            focus = None if view.focus is None else view.focus + len(view.fixed)
            view = View([], [*view.fixed, *view.scrolled], focus if shown is None else None)
        room = max(height - 1 - len(view.fixed), 0)
        self._page = max(room - 1, 1)
        self._scroll(view, room, follows=self._follows or shown is None)
        rows = view.scrolled[self._offset : self._offset + room]
        blank = [()] * (room - len(rows))
        footer = self._footer(view, room, width, says, one_of_many=shown is not None and len(engines) > 1)
        return [*view.fixed, *rows, *blank, footer][-height:]

    def _explained(self, first: int, width: int, height: int) -> list[Spans]:
        """A page of the help from its line ``first`` on."""
        lines = _HELP.split("\n")
        self._page = max(height - 1, 1)
        shown = lines[first : first + self._page]
        blank = [""] * (self._page - len(shown))
        footer = "any key: more" if first + self._page < len(lines) else "any key: back"
        return [*(cut((Span(line),), width) for line in (*shown, *blank)), cut((Span(footer, "dim"),), width)][-height:]

    def _shown(self, engines: Sequence[Seen]) -> Seen | None:
        """The engine that is shown in full."""
        if len(engines) == 1:
            return engines[0]
        if self._opened is None:
            return None
        return next(
            (seen for seen in engines if seen.identity == self._opened),
            next((seen for seen in engines if seen.identity[0] == self._opened[0]), None),
        )

    def _ordered(self, engines: Sequence[Seen]) -> Sequence[Seen]:
        if not self._trouble_first:
            return engines
        return sorted(engines, key=lambda seen: -sum(1 + 9 * found.grave for found in troubles(seen)))

    def _scroll(self, view: View, room: int, follows: bool) -> None:
        """Keep the row that should be seen within the picture, with some rows about it, moving as little as can be."""
        if follows:
            about = min(_ABOUT, max(room - 1, 0) // 2)
            focus = view.focus or 0
            self._offset = min(max(self._offset, focus + about - room + 1), max(focus - about, 0))
        self._offset = max(min(self._offset, len(view.scrolled) - room), 0)

    def _footer(self, view: View, room: int, width: int, says: str, one_of_many: bool) -> Spans:
        keys = "q quit  ? help  space " + ("go on" if self.paused is not None else "stop")
        keys += "  esc all" if one_of_many else "" if says else "  enter open  p trouble"
        hidden = len(view.scrolled) - room
        place = f"  {self._offset + 1}-{self._offset + room} of {len(view.scrolled)}" if hidden > 0 else ""
        stopped = "STOPPED  " if self.paused is not None else ""
        free = width - width_of(stopped) - len(place)
        says = says if len(keys) + 2 + len(says) <= free else ""  # the help tells it, too
        left = fitted(keys, free - len(says))
        return cut((Span(stopped, "bold reverse"), Span(f"{left}{says}{place}", "dim")), width)


def _index(engines: Sequence[Seen], identity: tuple[str, ...] | None, row: int) -> int:
    """Where an engine stands now; ``row`` where it has gone."""
    found = (i for i, seen in enumerate(engines) if seen.identity == identity)
    again = (i for i, seen in enumerate(engines) if identity is not None and seen.identity[0] == identity[0])
    return next(found, next(again, min(max(row, 0), max(len(engines) - 1, 0))))
