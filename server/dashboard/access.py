"""Who may look: everybody on this machine, if only this machine is served; else whoever shows a token.

Tokens are as the catalog's: `silosynth server grant NAME --dashboard`, told once, kept as digests, revoked at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs

from fastapi import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from silosynth.server.releases.tokens import Tokens

Handler = Callable[[Request], Awaitable[Response]]
_COOKIE = "silosynth-session"
_SESSIONS = 1000
_LARGEST_FORM = 4096
_OPEN = ("/login", "/healthz", "/static/")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Doorkeeper:
    """`tokens` is None where only this machine is served."""

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens
        self._sessions: dict[str, str] = {}

    async def __call__(self, request: Request, handler: Handler) -> Response:
        response = await handler(request) if self._admits(request) else _turned_away(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        # The same address may lead to another server's folder tomorrow, so whatever is kept is asked for again.
        response.headers["Cache-Control"] = "private, no-cache" if "etag" in response.headers else "no-store"
        return response

    async def log_in(self, request: Request) -> Response | None:
        """Where the browser goes with its new session; None if the token is nobody's."""
        token = (await _form(request)).get("token", "")
        holder = self._tokens.holder(token) if self._tokens and token else None
        if holder is None:
            return None
        session = secrets.token_urlsafe(32)
        if len(self._sessions) >= _SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        self._sessions[session] = holder
        response = RedirectResponse("/federation", status_code=303)
        response.set_cookie(_COOKIE, session, httponly=True, secure=True, samesite="strict")
        return response

    def log_out(self, request: Request) -> Response:
        self._sessions.pop(request.cookies.get(_COOKIE, ""), None)
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(_COOKIE)
        return response

    def _admits(self, request: Request) -> bool:
        if self._tokens is None:  # a page elsewhere must not read this one by a name that leads to this machine
            return request.url.hostname in _LOCAL_NAMES
        if request.url.path.startswith(_OPEN):
            return True
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme == "Bearer":
            return self._tokens.holder(token) is not None
        holder = self._sessions.get(request.cookies.get(_COOKIE, ""))
        return holder is not None and holder in self._tokens.consumers()


def _turned_away(request: Request) -> Response:
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/login", status_code=303)
    return PlainTextResponse("Show a token: Authorization: Bearer TOKEN\n", status_code=401)


async def _form(request: Request) -> dict[str, str]:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LARGEST_FORM:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}
