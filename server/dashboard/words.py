"""How values read on a page: filters that keep the tag."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from silosynth.common.publication.accounting import in_words
from silosynth.server.dashboard.tags import NOTHING, Tagged
from silosynth.server.narration import human_bytes, human_seconds

Filter = Callable[..., Tagged | Markup]
_SHORT = 12
_MARKDOWN = MarkdownIt("js-default", {"linkify": False})  # html is off
_MARKDOWN.add_render_rule("image", lambda *_: "")  # they are on the page already


def _reads(words: Callable[[Any], str]) -> Filter:
    def filtered(tagged: Tagged) -> Tagged:
        return replace(tagged, text=NOTHING if tagged.value is None else words(tagged.value))

    return filtered


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %Y, %H:%M UTC").lstrip("0")


def _day(text: str) -> str:
    """Of a time as manifests and receipts have it."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%d %b %Y, %H:%M UTC").lstrip("0")
    except ValueError:
        return text


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %b %H:%M:%S").lstrip("0")


def _figure(value: float) -> str:
    return f"{value:.4g}"


def _epsilon(tagged: Tagged) -> Tagged:
    """None stands for infinite: there was no noise."""
    value = tagged.value
    return replace(tagged, text="∞" if value is None or math.isinf(value) else in_words(value))


def _amount(tagged: Tagged) -> Tagged:
    """Of a budget; None stands for not declared. Two digits after the point, so that columns line up."""
    value = tagged.value
    if value is None:
        return replace(tagged, text=NOTHING)
    return replace(tagged, text="∞" if math.isinf(value) else f"{math.ceil(value * 1000) / 1000:.2f}")


def _counted(tagged: Tagged, noun: str, many: str | None = None) -> Tagged:
    """1 run, 2 runs."""
    return replace(tagged, text=f"{tagged.value:,} {noun if tagged.value == 1 else many or noun + 's'}")


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"


def plain(tagged: Tagged) -> Markup:
    """Inside an attribute: the value alone."""
    return escape(tagged.value)


def _text(tagged: Tagged) -> Markup:
    """Inside an attribute: as it reads."""
    return escape(tagged.value if tagged.text is None else tagged.text)


def percentage(tagged: Tagged) -> Tagged:
    """A share as the width of a bar."""
    return replace(tagged, value=round(100 * tagged.value, 2))


def pairs(first: Tagged, second: Tagged) -> list[tuple[Tagged, Tagged]]:
    return list(zip(first, second, strict=True))


def named(names: Tagged, place: Tagged) -> Tagged:
    """A place on an axis: by its name, where places have names."""
    text = names.value[int(place.value)] if names.value else _figure(place.value)
    return replace(place, text=text)


def _markdown(tagged: Tagged) -> Tagged:
    """Documents of releases, whose headings come below the page's own."""
    html = _MARKDOWN.render(tagged.value).replace("<h2>", "<h4>").replace("</h2>", "</h4>")
    html = html.replace("<h1>", "<h3>").replace("</h1>", "</h3>").replace("<th></th>", "<td></td>")
    return replace(tagged, text=Markup(html), element="div")  # noqa: S704 (html is off in the parser)


FILTERS: dict[str, Filter] = {
    "percent": _reads(lambda share: f"{100 * share:.1f} %"),
    "epsilon": _epsilon,
    "amount": _amount,
    "figure": _reads(_figure),
    "small": _reads(lambda value: f"{value:g}"),
    "count": _reads(lambda value: f"{value:,}"),
    "counted": _counted,
    "bytes": _reads(human_bytes),
    "seconds": _reads(human_seconds),
    "when": _reads(_when),
    "day": _reads(_day),
    "clock": _reads(_clock),
    "short": _reads(_short),
    "list": _reads(", ".join),
    "plain": plain,
    "text": _text,
    "markdown": _markdown,
}
FUNCTIONS: dict[str, Callable[..., object]] = {"percentage": percentage, "pairs": pairs, "named": named}
