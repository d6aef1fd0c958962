"""Figures, lists and verdicts in words: of sentences, of the page and of the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from adaptk.progress import span as clock
from adaptk.report.findings import Interval, RangeAdvice

NONE = "-"
BASES = {
    "measured": "measured",
    "near": "nearby",
    "table": "table",
    "shape": "a guess",
    "nothing": "nothing",
}
VERDICTS = {"change": "change", "keep": "keep", "undecided": "not decided", "nothing": "unknown"}


def percent(interval: Interval) -> str:
    """A share with its interval.

    Examples
    --------
    >>> percent(Interval(0.0612, 0.031, 0.0895)), percent(Interval(0.004, 0.001, 0.0123))
    ('6 % [3, 9]', '0.4 % [0.1, 1.2]')
    """
    value, low, high = _rounded(interval, "")
    return f"{value} % [{low}, {high}]"


def signed_interval(interval: Interval | None) -> str:
    """A change with its interval, rounded as :func:`percent` does.

    Examples
    --------
    >>> signed_interval(Interval(0.0642, 0.031, 0.099)), signed_interval(Interval(0.021, 0.01, 0.033))
    ('+6 % [+3, +10]', '+2.1 % [+1.0, +3.3]')
    """
    return NONE if interval is None else " ".join(signed(interval))


def signed(interval: Interval) -> tuple[str, str]:
    """A change, and its bounds.

    Examples
    --------
    >>> signed(Interval(0.0, -0.04, 0.04))
    ('0.0 %', '[-4.0, +4.0]')
    """
    value, low, high = _rounded(interval, "+")
    return f"{value} %", f"[{low}, {high}]"


def _rounded(interval: Interval, sign: str) -> list[str]:
    """Value and bounds with as many decimals as tell the ends apart: no more is known."""
    width = interval.high - interval.low
    wide = width >= 0.1 or (width >= 0.03 and abs(interval.value) >= 0.02)
    near = any(0.0 < abs(end) < 0.005 for end in (interval.low, interval.high))  # which is not to read as 0
    decimals = 0 if wide and not near else 1
    return [_percents(each, decimals, sign) for each in (interval.value, interval.low, interval.high)]


def _percents(share: float, decimals: int, sign: str) -> str:
    if not math.isfinite(share):
        return NONE
    text = f"{100.0 * share:{sign}z,.{decimals}f}"
    return text.lstrip("+") if float(text.replace(",", "")) == 0.0 else text


def gained(each: RangeAdvice) -> str:
    """What is known of the gain in a range: its interval, else how much is lost at most."""
    if each.gain is not None:
        return signed_interval(each.gain)
    known = each.most_lost is not None and (each.verdict == "keep" or each.most_lost > 0.0)
    return f"loses {share(each.most_lost)} at most" if known else NONE


def listed(items: Sequence[Any]) -> str:
    """Items in words.

    Examples
    --------
    >>> listed([0, 1, 7]), listed(["a"])
    ('0, 1 and 7', 'a')
    """
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def count(number: float) -> str:
    """A whole number with commas.

    Examples
    --------
    >>> count(120000)
    '120,000'
    """
    return f"{number:,.0f}"


def share(part: float | None) -> str:
    """A part of the whole.

    Examples
    --------
    >>> share(0.694), share(0.004), share(0.998), share(1.0), share(None)
    ('69 %', '0.4 %', '99.8 %', '100 %', '-')
    """
    if part is None or not math.isfinite(part):
        return NONE
    if 0.0 < part < 0.0005:
        return "<0.1 %"
    if 0.9995 <= part < 1.0:
        return ">99.9 %"
    return f"{100.0 * part:.1f} %" if 0.0 < part < 0.0095 or 0.995 <= part < 1.0 else f"{100.0 * part:.0f} %"


def plain(value: float | None, digits: int = 3) -> str:
    """A number with as many significant digits, never in powers of ten where people would not.

    Examples
    --------
    >>> plain(5000.4), plain(13.456), plain(0.7012), plain(0.0), plain(None), plain(1e12)
    ('5,000', '13.5', '0.701', '0.00', '-', '1.0e+12')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if abs(value) >= 1e9 or 0.0 < abs(value) < 1e-4:
        return f"{value:.1e}"
    places = math.floor(math.log10(abs(value))) + 1 if value else 1
    return f"{value:,.{max(digits - places, 0)}f}"


def plain_interval(interval: Interval | None, digits: int = 3) -> str:
    """A number with its interval.

    Examples
    --------
    >>> plain_interval(Interval(5000.0, 4980.0, 5020.0), 4)
    '5,000 [4,980, 5,020]'
    """
    if interval is None:
        return NONE
    return f"{plain(interval.value, digits)} [{plain(interval.low, digits)}, {plain(interval.high, digits)}]"


def ratio(value: float | None) -> str:
    """A share or a ratio near 1, to three places.

    Examples
    --------
    >>> ratio(0.0698), ratio(1.0), ratio(None)
    ('0.070', '1.000', '-')
    """
    return NONE if value is None or not math.isfinite(value) else f"{value:.3f}"


def ratio_interval(interval: Interval | None) -> str:
    """A share with its interval.

    Examples
    --------
    >>> ratio_interval(Interval(0.7, 0.68, 0.72))
    '0.700 [0.680, 0.720]'
    """
    return NONE if interval is None else f"{ratio(interval.value)} [{ratio(interval.low)}, {ratio(interval.high)}]"


def batches(first: int, last: int) -> str:
    """A range of batch sizes.

    Examples
    --------
    >>> batches(65, 101), batches(1, 1)
    ('65-101', '1')
    """
    return f"{first}" if first == last else f"{first}-{last}"


def span(first: int, last: int) -> str:
    """Batch sizes in a sentence.

    Examples
    --------
    >>> span(65, 101)
    'batch 65-101'
    """
    return f"batch {batches(first, last)}"


def goes_on(schedule: Sequence[Sequence[int]]) -> str:
    """What holds above the last range of a schedule, whose end is read as a limit else.

    Examples
    --------
    >>> goes_on([[1, 64, 3], [65, 512, 1]])
    'above 512 vLLM goes on with the last K, 1'
    """
    _, last, k = schedule[-1]
    return f"above {last} vLLM goes on with the last K, {k}"


def duration(seconds: float | None) -> str:
    """A time as people say it.

    Examples
    --------
    >>> duration(3600.0), duration(0.25), duration(0.0), duration(None)
    ('1:00 h', '250 ms', '0 s', 'unknown')
    """
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    if 0.0 < seconds < 0.9995:
        return f"{plain(1000.0 * seconds, 3)} ms"
    return f"{plain(seconds, 2)} s" if 0.0 < seconds < 9.5 else clock(seconds)


def shortened(text: str, most: int) -> str:
    """Text from outside, its middle left out where it is longer than ``most``.

    Examples
    --------
    >>> shortened("trace-of-monday.jsonl", 12)
    'trace-…jsonl'
    """
    end = most // 2 - 1
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[-end:]}"


def plural(number: float, one: str, many: str = "") -> str:
    """A count and what of.

    Examples
    --------
    >>> plural(1, "step"), plural(2000, "step"), plural(2, "switch", "switches")
    ('1 step', '2,000 steps', '2 switches')
    """
    return f"{count(number)} {one if number == 1 else many or one + 's'}"
