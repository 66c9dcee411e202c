"""Nothing is shown without a tag that says why it may be."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from silosynth.server.dashboard import views
from silosynth.server.dashboard.pages import HERE
from silosynth.server.dashboard.tags import Dp, Post, Public, Shown, Tag, View, document, only_tagged, tags_of
from silosynth.server.dashboard.words import FILTERS

for module in pkgutil.iter_modules(views.__path__, f"{views.__name__}."):
    importlib.import_module(module.name)


def all_views() -> list[type[View]]:
    return [view for view in View.__subclasses__() if view.__module__.startswith(views.__name__)]


@pytest.mark.parametrize("view", all_views(), ids=lambda view: view.__name__)
def test_every_field_of_every_view_is_tagged_or_holds_views(view: type[View]) -> None:
    assert set(tags_of(view)) == {field.name for field in fields(view)}


def test_a_field_without_a_tag_is_refused() -> None:
    @dataclass(frozen=True)
    class Leaky(View):
        name: Public[str]
        records_of_the_silo: int

    with pytest.raises(TypeError, match="records_of_the_silo has no tag"):
        tags_of(Leaky)
    with pytest.raises(TypeError, match="records_of_the_silo has no tag"):
        Shown(Leaky("a", 17))
    with pytest.raises(TypeError, match="records_of_the_silo has no tag"):
        document(Leaky("a", 17))


@dataclass(frozen=True)
class Inner(View):
    noisy: Dp[float]


@dataclass(frozen=True)
class Outer(View):
    name: Public[str]
    many: tuple[Inner, ...]
    one: Inner | None
    share: Post[float]


OUTER = Outer("<b>", (Inner(1.5), Inner(2.5)), None, 0.25)


def rendered(template: str) -> str:
    environment = Environment(autoescape=True, finalize=only_tagged)
    environment.filters.update(FILTERS)
    return environment.from_string(template).render(view=Shown(OUTER), count=17)


def test_templates_print_tagged_values_with_their_tags() -> None:
    assert rendered("{{ view.name }}") == '<span data-tag="public">&lt;b&gt;</span>'
    assert rendered("{{ view.share|percent }}") == '<span data-tag="post-processing">25.0 %</span>'
    looped = rendered("{% for inner in view.many %}{{ inner.noisy }}{% endfor %}{% if view.one %}no{% endif %}")
    assert looped == '<span data-tag="dp">1.5</span><span data-tag="dp">2.5</span>'


@pytest.mark.parametrize("template", ["{{ count }}", "{{ view.share.value }}", "{{ view.many|length }}"])
def test_templates_cannot_print_anything_else(template: str) -> None:
    with pytest.raises(TypeError, match="carries no tag"):
        rendered(template)


def test_no_template_takes_a_value_out_of_its_tag_to_print_it() -> None:
    for path in (HERE / "templates").glob("*.html"):
        printed = re.findall(r"\{\{(.*?)\}\}", path.read_text(), flags=re.DOTALL)
        assert not [expression for expression in printed if ".value" in expression], path.name


def test_a_twin_tells_the_tag_of_every_field() -> None:
    found = document(OUTER)
    assert found["tags"] == {"many.noisy": "dp", "name": "public", "one.noisy": "dp", "share": "post-processing"}
    assert set(leaves(found["data"])) <= set(found["tags"])


def leaves(data: dict[str, Any], before: str = "") -> Iterator[str]:
    for name, value in data.items():
        parts = value if isinstance(value, list) else [value]
        nested = [part for part in parts if isinstance(part, dict)]
        for part in nested:
            yield from leaves(part, f"{before}{name}.")
        if not nested and value not in (None, []):
            yield before + name


def test_tags_are_the_three_that_privacy_allows() -> None:
    assert {tag.value for tag in Tag} == {"dp", "public", "post-processing"}
    assert Path(HERE / "templates/base.html").read_text().count("data-mark=") == len(Tag)
