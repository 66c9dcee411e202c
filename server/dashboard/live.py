"""Server-sent events: one task looks at the folder, everybody who listens is told when there is something new."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from silosynth.server.dashboard.sources import Sources

_LOOK_SECONDS = 0.5
_SILENCE_SECONDS = 15.0  # after which a word keeps proxies from closing the stream


class Bell:
    """Rings when the folder has changed."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._rung = asyncio.Event()

    async def watch(self) -> None:
        seen = await asyncio.to_thread(self._sources.version)
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            with contextlib.suppress(OSError):  # a run folder that goes away at this moment
                version = await asyncio.to_thread(self._sources.version)
                if version != seen:
                    seen = version
                    self._rung.set()
                    self._rung = asyncio.Event()

    async def stream(self) -> AsyncIterator[str]:
        yield "retry: 2000\nevent: hello\ndata: {}\n\n"
        while True:
            try:
                await asyncio.wait_for(self._rung.wait(), _SILENCE_SECONDS)
                yield "event: news\ndata: {}\n\n"
            except TimeoutError:
                yield ": still here\n\n"
