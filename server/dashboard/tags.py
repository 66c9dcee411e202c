"""Where everything on the dashboard comes from. A field without a tag cannot be shown: the test and the code see to it.

dp                noisy, drawn by a silo's guard and charged to its ledger
public            declared by people, or computed from public numbers alone: names, settings, events, epsilons
post-processing   computed from what silos released and from public data: synthetic records, their accuracy
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from markupsafe import Markup


class Tag(StrEnum):
    dp = "dp"
    public = "public"
    post = "post-processing"


Value = TypeVar("Value")
Dp = Annotated[Value, Tag.dp]
Public = Annotated[Value, Tag.public]
Post = Annotated[Value, Tag.post]

NOTHING = "\N{EN DASH}"


@dataclass(frozen=True)
class View:
    """What a page or a part of it shows. Fields are tagged values, or further views."""


@lru_cache(maxsize=256)
def tags_of(view: type) -> dict[str, Tag | None]:
    """The tag of each field; None where a field holds further views. TypeError if one has neither."""
    hints = get_type_hints(view, include_extras=True)
    return {field.name: _tag(view, field.name, hints[field.name]) for field in fields(view)}


def _tag(view: type, name: str, hint: Any) -> Tag | None:
    if get_origin(hint) is Annotated:
        found = [mark for mark in get_args(hint)[1:] if isinstance(mark, Tag)]
        if len(found) == 1:
            return found[0]
    elif views_in(hint):
        return None
    raise TypeError(f"{view.__name__}.{name} has no tag: is it dp, public or post-processing? If none, never show it")


def views_in(hint: Any) -> list[type[View]]:
    """The views among the classes that a field's type is made of."""
    if inner := get_args(hint):
        return [part for argument in inner for part in views_in(argument)]
    return [hint] if isinstance(hint, type) and issubclass(hint, View) else []


@dataclass(frozen=True)
class Tagged:
    """A value on its way into a page; how it reads is `text`, if not as it is."""

    value: Any
    tag: Tag
    text: str | None = None
    element: str = "span"

    def __html__(self) -> str:
        text = NOTHING if self.value is None and self.text is None else self.value if self.text is None else self.text
        return Markup('<{0} data-tag="{1}">{2}</{0}>').format(self.element, self.tag.value, text)

    def __iter__(self) -> Iterator[Tagged]:
        return (Tagged(value, self.tag) for value in self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __eq__(self, other: object) -> bool:
        return bool(self.value == (other.value if isinstance(other, Tagged) else other))

    def __hash__(self) -> int:
        return hash(self.value)


class Shown:
    """A view as templates see it: whatever they take from it is tagged."""

    def __init__(self, view: View) -> None:
        kind: type = type(view)
        self._view, self._tags = view, tags_of(kind)

    def __getattr__(self, name: str) -> Any:
        if name not in self._tags:
            raise AttributeError(f"{type(self._view).__name__} shows no {name}")
        value, tag = getattr(self._view, name), self._tags[name]
        return _shown(value) if tag is None else Tagged(value, tag)


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(Shown(part) for part in value)
    return None if value is None else Shown(value)


def only_tagged(value: Any) -> Any:
    """What templates may print: tagged values, and markup they have made themselves."""
    if isinstance(value, Tagged | Markup):
        return value
    raise TypeError(f"a template prints {value!r}, which carries no tag")


def document(view: View) -> dict[str, Any]:
    """For programs: the same view, and the tag of every field."""
    return {"tags": dict(sorted(_paths(type(view)))), "data": _plain(view)}


def _paths(view: type, before: str = "") -> Iterator[tuple[str, str]]:
    hints = get_type_hints(view, include_extras=True)
    for name, tag in tags_of(view).items():
        if tag is not None:
            yield before + name, tag.value
            continue
        for part in views_in(hints[name]):
            yield from _paths(part, f"{before}{name}.")


def _plain(value: Any) -> Any:
    if isinstance(value, View):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no infinity
