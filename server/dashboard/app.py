"""The dashboard's addresses: seven pages, each with a `.json` twin, and what hangs on them. GET only, but for login."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial

from fastapi import FastAPI, Request
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.staticfiles import StaticFiles

from silosynth.common.errors import SilosynthError
from silosynth.server.dashboard.access import Doorkeeper
from silosynth.server.dashboard.downloads import zipped
from silosynth.server.dashboard.live import Bell
from silosynth.server.dashboard.pages import HERE, Pages, as_release, twin
from silosynth.server.dashboard.sources import Sources
from silosynth.server.dashboard.tags import View
from silosynth.server.dashboard.views.audit import audit_export, audit_page
from silosynth.server.dashboard.views.budget import budget_page
from silosynth.server.dashboard.views.evaluation import evaluation_page
from silosynth.server.dashboard.views.evidence import evidence_page
from silosynth.server.dashboard.views.federation import federation_page
from silosynth.server.dashboard.views.plan import Wish
from silosynth.server.dashboard.views.releases import PICTURE, comparison_page, release_page, releases_page
from silosynth.server.dashboard.views.runs import run_page, runs_page
from silosynth.server.releases.tokens import Tokens

Build = Callable[[Request], View]


def create_app(sources: Sources, tokens: Tokens | None) -> FastAPI:
    """`tokens`: who may look, where more than this machine is served."""
    bell = Bell(sources)
    app = FastAPI(lifespan=partial(_lifespan, bell), docs_url=None, redoc_url=None, openapi_url=None)
    pages, doorkeeper = Pages(with_login=tokens is not None), Doorkeeper(tokens)
    app.middleware("http")(doorkeeper)
    app.mount("/static", StaticFiles(directory=HERE / "static"))
    _add_errors(app, pages)
    _add_pages(app, pages, sources)
    _add_files(app, sources)
    _add_login(app, pages, doorkeeper)

    @app.get("/")
    def start() -> Response:
        return RedirectResponse("/federation")

    @app.get("/healthz")
    def health() -> Response:
        sources.server()  # a folder that has gone away is no health
        return JSONResponse({"state": "ok"})

    @app.get("/events")
    def events() -> Response:
        return StreamingResponse(bell.stream(), media_type="text/event-stream")

    return app


@contextlib.asynccontextmanager
async def _lifespan(bell: Bell, app: FastAPI) -> AsyncIterator[None]:
    watching = asyncio.create_task(bell.watch())
    yield
    watching.cancel()


def _add_pages(app: FastAPI, pages: Pages, sources: Sources) -> None:
    def add(path: str, template: str, build: Build) -> None:
        _add_page(app, pages, path, template, build)

    add("/federation", "federation.html", lambda _: federation_page(sources))
    add("/budget", "budget.html", lambda request: budget_page(sources, Wish.of(request.query_params)))
    add("/runs", "runs.html", lambda _: runs_page(sources))
    add("/runs/{number:int}", "run.html", lambda request: run_page(sources, request.path_params["number"]))
    add("/releases", "releases.html", lambda _: releases_page(sources))
    add("/releases/{name}/{version:int}", "release.html", lambda request: release_page(sources, **request.path_params))
    add("/compare", "compare.html", lambda request: comparison_page(sources, *_named(request, "left", "right")))
    add("/evaluation", "evaluation.html", lambda request: evaluation_page(sources, *_named(request, "release")))
    add("/evidence", "evidence.html", lambda _: evidence_page(sources))
    add("/audit", "audit.html", lambda _: audit_page(sources))


def _add_page(app: FastAPI, pages: Pages, path: str, template: str, build: Build) -> None:
    menu = "releases" if path == "/compare" else path.split("/")[1]

    def page(request: Request) -> Response:
        return pages.html(template, menu, build(request))

    def json(request: Request) -> Response:
        return twin(build(request))

    app.add_api_route(path, page, methods=["GET"])
    app.add_api_route(f"{path}.json", json, methods=["GET"])


def _named(request: Request, *parameters: str) -> list[tuple[str, int] | None]:
    return [as_release(request.query_params.get(name)) for name in parameters]


def _add_files(app: FastAPI, sources: Sources) -> None:
    @app.get("/runs/{number:int}/forming.png")
    def forming(number: int) -> Response:
        path = sources.picture(sources.run(number).number)
        if not path.exists():
            raise HTTPException(404, "This run has no picture yet.")
        return FileResponse(path, media_type="image/png")

    @app.get("/releases/{name}/{version:int}/picture.png")
    def picture(name: str, version: int) -> Response:
        entry = sources.release(name, version).entry
        return FileResponse(sources.file(entry, PICTURE), media_type="image/png")

    @app.get("/releases/{name}/{version:int}/download")
    def download(name: str, version: int) -> Response:
        one = sources.release(name, version)
        if one.withdrawn is not None:
            raise HTTPException(410, f"{one.name} was withdrawn and is no longer handed out: {one.withdrawn}")
        disposition = f'attachment; filename="{name}-{version}.zip"'
        return StreamingResponse(
            zipped(sources, one.entry), media_type="application/zip", headers={"Content-Disposition": disposition}
        )

    @app.get("/audit/export")
    def export() -> Response:
        headers = {"Content-Disposition": 'attachment; filename="silosynth-audit.json"'}
        return JSONResponse(audit_export(sources), headers=headers)


def _add_login(app: FastAPI, pages: Pages, doorkeeper: Doorkeeper) -> None:
    @app.get("/login")
    def ask() -> Response:
        return pages.html("login.html", "", None, message=Markup(""))

    @app.post("/login")
    async def log_in(request: Request) -> Response:
        complaint = Markup("This token is not valid, or was revoked.")
        return await doorkeeper.log_in(request) or pages.html("login.html", "", None, 403, message=complaint)

    @app.post("/logout")
    async def log_out(request: Request) -> Response:
        return doorkeeper.log_out(request)


def _add_errors(app: FastAPI, pages: Pages) -> None:
    def answered(request: Request, message: str, status: int) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return pages.problem(message, status)
        return JSONResponse({"error": message}, status)

    @app.exception_handler(SilosynthError)
    async def ours(request: Request, error: SilosynthError) -> Response:
        return answered(request, str(error), 404)

    @app.exception_handler(OSError)
    async def damage(request: Request, error: OSError) -> Response:
        return answered(request, f"A file in the server's folder cannot be read: {error.strerror}.", 500)

    @app.exception_handler(HTTPException)
    async def others(request: Request, error: HTTPException) -> Response:
        words = {404: "There is no such page.", 405: "The dashboard only shows; it changes nothing."}
        said = error.detail if error.detail not in ("Not Found", "Method Not Allowed") else words.get(error.status_code)
        return answered(request, said or error.detail, error.status_code)
