"""Tokens: by which consumers are known to the catalog, and viewers to the dashboard. Only their digests are kept."""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path

from silosynth.common.errors import ConfigError

TOKENS_FOLDER = "tokens"  # of the catalog
DASHBOARD_TOKENS_FOLDER = "dashboard-tokens"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_TOKEN_BYTES = 32


class Tokens:
    """tokens/<consumer> holds the SHA-256 of its token; read anew each time, so that revoking works at once."""

    def __init__(self, server_folder: Path, kind: str = TOKENS_FOLDER) -> None:
        self._folder = server_folder / kind

    def grant(self, consumer: str) -> str:
        """A new token for `consumer`: told once, never kept."""
        if not _NAME.fullmatch(consumer):
            raise ConfigError(
                f"{consumer!r} cannot name a consumer: letters, digits, dots, hyphens and underscores, at most 63"
            )
        self._folder.mkdir(mode=0o700, exist_ok=True)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        try:
            with (self._folder / consumer).open("x") as file:
                file.write(_digest(token))
        except FileExistsError as error:
            raise ConfigError(f"{consumer} has a token already: revoke it first, or choose another name") from error
        return token

    def revoke(self, consumer: str) -> None:
        if consumer not in self.consumers():
            raise ConfigError(f"{consumer} has no token; {', '.join(self.consumers()) or 'nobody'} has")
        (self._folder / consumer).unlink()

    def consumers(self) -> list[str]:
        return sorted(path.name for path in self._folder.glob("*"))

    def holder(self, token: str) -> str | None:
        """Whose token this is. Digests are compared, so that timing tells nothing of a token."""
        digest = _digest(token)
        holders = (path.name for path in self._folder.glob("*") if _read(path) == digest)
        return next(holders, None)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:  # revoked at this moment
        return ""


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
