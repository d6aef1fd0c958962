"""What the report's page has of its own: the verdict's panel, key figures, bars and heat maps."""

from __future__ import annotations

from adaptk.report.page.svg import STYLE as CHARTS

# Heat maps: each colour with the text on it. Changes go from blue (less) over the ground to orange (more), shares of
# the best from the ground to blue; both keep their order for the colour-blind and in grey.
_HEAT_LIGHT = """
  --m4: #1f6aa5; --m4-ink: #fff; --m3: #7fb6de; --m3-ink: #101418; --m2: #b5d6ee; --m2-ink: #101418;
  --m1: #dcebf6; --m1-ink: #101418; --z0: #f1f2f4; --z0-ink: #101418; --p1: #fdeadb; --p1-ink: #101418;
  --p2: #fbcda6; --p2-ink: #101418; --p3: #f2a05e; --p3-ink: #101418; --p4: #a84a00; --p4-ink: #fff;"""
_HEAT_DARK = """
  --m4: #6cb8ef; --m4-ink: #0c1116; --m3: #2f78ad; --m3-ink: #fff; --m2: #22567d; --m2-ink: #fff;
  --m1: #1d3a52; --m1-ink: #fff; --z0: #272e35; --z0-ink: #e8ebee; --p1: #4a3420; --p1-ink: #fff;
  --p2: #744518; --p2-ink: #fff; --p3: #a05a12; --p3-ink: #fff; --p4: #f3a24f; --p4-ink: #0c1116;"""
_DEPTHS = ("m4", "m3", "m2", "m1", "z0", "p1", "p2", "p3", "p4")
_CELLS = " ".join(f".{depth} {{ background: var(--{depth}); color: var(--{depth}-ink); }}" for depth in _DEPTHS)

STYLE = f"""
:root {{{_HEAT_LIGHT} }}
@media screen and (prefers-color-scheme: dark) {{ :root {{{_HEAT_DARK} }} }}
.kicker {{ margin: 0 0 .5rem; font-size: .85rem; }}
.verdict {{ background: var(--panel); border-left: 6px solid var(--rule); border-radius: 6px; padding: .8rem 1rem; }}
.verdict.change {{ background: var(--warn); border-color: var(--warn-edge); }}
.verdict.keep {{ background: var(--good); border-color: var(--good-edge); }}
.verdict h1 {{ font-size: 1.35rem; margin: .1rem 0 .5rem; max-width: 46rem; overflow-wrap: anywhere; }}
.badge {{ font-size: .75rem; font-weight: 700; letter-spacing: .04em; text-transform: uppercase; margin: 0; }}
.verdict strong {{ font-size: 1.1rem; }}
.verdict .doubt strong {{ font-size: 1rem; }}
.doubt {{ border-left: 4px solid var(--red); padding-left: .7rem; }}
pre {{ white-space: pre-wrap; background: var(--ground); border: 1px solid var(--line); border-radius: 6px;
  padding: .5rem .7rem; margin: .4rem 0; max-width: 60rem; user-select: all; }} pre span {{ white-space: nowrap; }}
ul {{ padding-left: 1.2rem; margin: .4rem 0; }} li {{ margin: .2rem 0; overflow-wrap: anywhere; }}
.top {{ display: grid; gap: 0 2rem; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); }}
.top h2 {{ font-size: 1rem; margin: 1rem 0 .2rem; }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .5rem; margin: .8rem 0; }}
.tiles div {{ background: var(--panel); border-radius: 6px; padding: .4rem .7rem; }}
.tiles dt {{ font-weight: 400; font-size: .8rem; color: var(--quiet); }}
.tiles dd {{ margin: 0; font-size: 1.05rem; font-weight: 600; font-variant-numeric: tabular-nums; }}
.tiles dd + dd {{ font-size: .8rem; font-weight: 400; color: var(--quiet); }}
.small {{ font-size: .8rem; }} .words tbody th {{ white-space: normal; min-width: 11rem; }}
.bars td:nth-child(2) {{ width: 45%; min-width: 7rem; }}
.bars table {{ width: 100%; max-width: 46rem; }} .bars th {{ white-space: normal; }}
.bar {{ display: block; height: .8rem; min-width: 1px; border-radius: 2px; background: var(--blue); }}
.heat table {{ border-spacing: 2px; border-collapse: separate; }}
.heat th, .heat td {{ border: 0; }}
.heat td {{ text-align: center; padding: .25rem .4rem; border-radius: 4px; line-height: 1.15; min-width: 4.2rem; }}
.heat small {{ display: block; font-size: .72rem; }}
.heat td.far {{ font-style: italic; }} .heat td.best {{ outline: 2px solid var(--ink); outline-offset: -2px; }}
.heat td.none {{ color: var(--quiet); background: none; }}
.maps, .beside {{ display: grid; gap: 0 2.5rem; align-items: start; }}
.maps > *, .beside > * {{ min-width: 0; }}
@media (min-width: 64rem) {{ .maps:not(.many), .beside {{ grid-template-columns: 1fr 1fr; }}
  .beside p {{ max-width: 34rem; }} }}
{_CELLS}
.setup dt {{ float: left; clear: left; margin-right: .5rem; }} .setup dd {{ margin: 0; overflow-wrap: anywhere; }}
@media (max-width: 30rem) {{ body {{ padding: .75rem; }} .verdict {{ padding: .6rem .8rem; }}
  .verdict h1 {{ font-size: 1.2rem; }} .heat td {{ min-width: 3.4rem; padding: .2rem 0; }}
  .heat small {{ font-size: .66rem; }} .bars td:nth-child(2) {{ min-width: 3.5rem; }}
  pre {{ font-size: .74rem; padding: .4rem; }} }}
@media print {{ .verdict, .heat table, .bars, pre, .beside {{ break-inside: avoid; }} h2 {{ margin-top: 1.4rem; }}
  .maps:not(.many) {{ grid-template-columns: 1fr 1fr; }}
  .many .heat td {{ min-width: 0; padding: .1rem; font-size: .7rem; }} .many .heat small {{ font-size: .56rem; }}
  .beside {{ grid-template-columns: minmax(min-content, 1fr) minmax(15rem, 1fr); gap: 0 1.2rem; }}
  .beside figure {{ max-width: none; }} }}
{CHARTS}"""
