"""HTML pages that need no other file: their style, light and dark, and the pieces that every report is made of."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

# Colours have names, so that figures drawn as SVG take part in both schemes; every text on its ground has a contrast of
# at least 4.5. Series come from Okabe and Ito's palette, darkened or lightened to 3 against the ground.
_LIGHT = """
  --ground: #ffffff; --panel: #f4f6f8; --ink: #1b1f24; --quiet: #525b66; --line: #d5dae0; --rule: #8a939e;
  --accent: #005f99; --own: #e4f0f9; --warn: #fff1cc; --warn-edge: #b37400; --good: #e0f4ec; --good-edge: #00734f;
  --black: #1b1f24; --grey: #7b8490; --blue: #0072b2; --orange: #c47f00; --green: #008a64; --red: #d55e00;
  --purple: #b0578c; --sky: #3a94c8; --yellow: #a08f00;"""
_DARK = """
  --ground: #14181c; --panel: #1e242a; --ink: #e8ebee; --quiet: #a7b0ba; --line: #343c44; --rule: #6c7681;
  --accent: #74bdee; --own: #16324a; --warn: #3b2f10; --warn-edge: #e0a52e; --good: #123528; --good-edge: #35b88a;
  --black: #e8ebee; --grey: #8e98a3; --blue: #4ba3db; --orange: #e69f00; --green: #1fb58a; --red: #ee7b33;
  --purple: #d684ae; --sky: #86ccf2; --yellow: #e0d24a;"""

STYLE = f"""
:root {{ color-scheme: light dark;{_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{{_DARK} }} }}
@media print {{ :root {{ color-scheme: light; }} }}
* {{ box-sizing: border-box; }}
html {{ -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); margin: 0 auto;
  padding: 1rem; max-width: 72rem; }}
h1 {{ font-size: 1.6rem; line-height: 1.2; }} h2 {{ font-size: 1.3rem; margin-top: 2.2rem; }}
h3 {{ font-size: 1.1rem; margin-bottom: .2rem; }}
p, li {{ max-width: 46rem; }} p {{ margin: .5rem 0; overflow-wrap: anywhere; }}
.quiet {{ color: var(--quiet); }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin: .6rem 0; }}
th, td {{ padding: .2rem .45rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }}
thead th {{ border-bottom: 2px solid var(--rule); white-space: normal; vertical-align: bottom; }}
tbody th {{ font-weight: inherit; }}
th:first-child, td:first-child {{ text-align: left; position: sticky; left: 0; background: var(--ground); }}
tr.own td, tr.own th, tr.own :first-child {{ font-weight: 600; background: var(--own); }}
.figures {{ display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start; }}
figure {{ margin: .4rem 0; flex: 1 1 22rem; max-width: 31rem; min-width: 0; }}
figure img {{ width: 100%; height: auto; background: #fff; border-radius: 4px; }}
figcaption {{ font-size: .8rem; color: var(--quiet); }}
.warn {{ background: var(--warn); border-left: 4px solid var(--warn-edge); padding: .4rem .7rem; }}
code, pre {{ font: .9em/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }}
dt {{ font-weight: 600; }} dd {{ margin: 0 0 .5rem 1rem; max-width: 45rem; }}
@media print {{ html {{ font-size: 11px; }}
  body {{ font-size: 1rem; max-width: none; padding: 0; -webkit-print-color-adjust: exact; print-color-adjust: exact; }}
  .wide {{ overflow: visible; }} h2, h3 {{ break-after: avoid; }} figure, tr {{ break-inside: avoid; }}
  th, td {{ padding: .1rem .3rem; }} th:first-child, td:first-child {{ position: static; }}
  figure {{ max-width: 48%; flex-basis: 45%; }} }}
"""

# What HTML cannot hold, surrogates, which UTF-8 cannot, and marks that turn the direction of what follows: a file's
# header may hold any of them.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def cleaned(text: str) -> str:
    """``text`` with a replacement character for all that no page should hold.

    Examples
    --------
    >>> cleaned("a\\x00b")
    'a\ufffdb'
    """
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text)


def escaped(text: str) -> str:
    """``text`` cleaned, as it stands in HTML, quotes included.

    Examples
    --------
    >>> escaped('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(cleaned(text), quote=True)


def outside(text: str) -> str:
    """Text that comes from outside, escaped and kept apart: script from right to left reorders nothing around it.

    Examples
    --------
    >>> outside("model <1>")
    '<bdi>model &lt;1&gt;</bdi>'
    """
    return f"<bdi>{escaped(text)}</bdi>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], own: str = "adaptk") -> str:
    """A table that scrolls by itself where the page is too narrow.

    Parameters
    ----------
    head, rows
        Cells as plain text, every row as long as the head; the first cell of a row names it.
    own
        Name of the row that is set off.
    """
    top = "".join(f'<th scope="col">{escaped(cell)}</th>' for cell in head)
    body = []
    for name, *cells in rows:
        kind = ' class="own"' if name == own else ""
        named = f'<th scope="row">{escaped(name)}</th>'
        body.append(f"<tr{kind}>{named}" + "".join(f"<td>{escaped(cell)}</td>" for cell in cells) + "</tr>")
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


# Should a text ever escape its place, it could still run nothing, load nothing and send nothing: figures are data in
# the page, styles stand in it, and there is no script.
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(title: str, body: Sequence[str], style: str = "") -> str:
    """The whole page.

    Parameters
    ----------
    title
        Plain text.
    body
        Parts, as HTML.
    style
        Rules beside those that all pages share.
    """
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="referrer" content="no-referrer">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escaped(title)}</title><style>{STYLE}{style}</style>"
    )
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body></html>\n"
