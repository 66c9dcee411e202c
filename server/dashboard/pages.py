"""Views into pages: templates that can print nothing without a tag, and each page's twin for programs."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, JSONResponse, Response

from silosynth.server.dashboard.tags import Shown, View, document, only_tagged
from silosynth.server.dashboard.words import FILTERS, FUNCTIONS

HERE = Path(__file__).parent
PAGES = (
    ("federation", "Federation"),
    ("budget", "Budget"),
    ("runs", "Runs"),
    ("releases", "Releases"),
    ("evaluation", "Evaluation"),
    ("evidence", "Privacy evidence"),
    ("audit", "Audit"),
)


class Pages:
    def __init__(self, with_login: bool) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            finalize=only_tagged,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals.update(
            pages=tuple((Markup(path), Markup(title)) for path, title in PAGES),  # noqa: S704 (our own words)
            with_login=with_login,
            **FUNCTIONS,
        )

    def html(self, template: str, page: str, view: View | None, status: int = 200, **words: Markup) -> Response:
        """`page` is the entry of the menu that this belongs to."""
        shown = None if view is None else Shown(view)
        text = self._environment.get_template(template).render(view=shown, here=page, **words)
        return HTMLResponse(text, status)

    def problem(self, message: str, status: int) -> Response:
        words = Markup("{}").format(message)
        return self.html("problem.html", "", None, status, message=words)


def twin(view: View) -> Response:
    return JSONResponse(document(view))


def as_release(text: str | None) -> tuple[str, int] | None:
    """A release named in an address: "demo/3"."""
    name, _, version = (text or "").rpartition("/")
    return (name, int(version)) if name and version.isascii() and version.isdecimal() else None
