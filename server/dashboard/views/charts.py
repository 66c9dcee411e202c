"""Charts as data: the page's script draws them, and a table beside each says the same."""

from __future__ import annotations

from dataclasses import dataclass

from silosynth.server.dashboard.tags import Post, Public, View


@dataclass(frozen=True)
class Series(View):
    name: Public[str]
    x: Post[tuple[float, ...]]
    y: Post[tuple[float | None, ...]]
    low: Post[tuple[float | None, ...]] = ()  # of an interval around y
    high: Post[tuple[float | None, ...]] = ()
    names: Public[tuple[str, ...]] = ()  # of the points


@dataclass(frozen=True)
class Chart(View):
    """`style`: line, steps or points. `x_names` are shown in place of x = 0, 1, 2, ..."""

    title: Public[str]
    style: Public[str]
    x_label: Public[str]
    y_label: Public[str]
    series: tuple[Series, ...]
    x_names: Public[tuple[str, ...]] = ()
    logarithmic: Public[str] = ""  # "x", "xy" or neither
    percent: Public[str] = ""  # the axes whose values are shares: "x", "y" or "xy"
