"""The system's Chromium, driven by Playwright; what goes wrong in a page is collected."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright

AXE = Path(__file__).parent / "axe/axe.min.js"
SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
_QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"


def chromium() -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: install the package chromium")
    return found


@contextlib.contextmanager
def running_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*_QUIET.split(), "--no-first-run"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Window:
    """A tab of a fresh profile, and everything in it that should not have happened."""

    context: BrowserContext
    address: str
    problems: list[str] = field(default_factory=list)
    page: Page = field(init=False)

    def __post_init__(self) -> None:
        self.page = self.context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._see)

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.address}/{path}", wait_until="load")
        for chart in self.page.locator("[data-chart]").all():
            chart.locator("canvas").wait_for(state="visible")
        return self.page

    def complaints(self) -> list[str]:
        """Of axe: what people who cannot see, or only use the keyboard, would stumble over; contrast too."""
        self.context.set_default_timeout(60_000)
        self.page.evaluate(AXE.read_text())  # by the debugger: the page's own policy would not let it in
        rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
        found: dict[str, Any] = self.page.evaluate("rules => axe.run(document, rules)", rules)
        return [
            f"{violation['id']}: {violation['help']}: {node['html'][:120]}"
            for violation in found["violations"]
            for node in violation["nodes"]
        ]

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type}: {message.text}")

    def _see(self, request: Request) -> None:
        if urlsplit(request.url).netloc != urlsplit(self.address).netloc:
            self.problems.append(f"external request: {request.url}")


@contextlib.contextmanager
def window(browser: Browser, address: str, size: str = "laptop", scheme: Any = "light") -> Iterator[Window]:
    width, height = SIZES[size]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, ignore_https_errors=True
    )
    try:
        yield Window(context, address)
    finally:
        context.close()
