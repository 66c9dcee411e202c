"""The dashboard as people see it: a real federation, a real Chromium.

Screenshots of every page are written to $SILOSYNTH_SCREENSHOTS, if it is set.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from support.browsers import Window, running_browser, window
from support.shown_server import ShownServer, attack_report

from silosynth.common.datasets import Records, load, save_npz
from silosynth.common.partition import partition
from silosynth.common.queries import Query
from silosynth.deploy.addresses import free_port, listening
from silosynth.deploy.federation import LocalFederation
from silosynth.deploy.processes import Processes
from silosynth.deploy.server_folder import ServerFolder
from silosynth.server.journal import JournalReader

PAGES = ("federation", "budget", "runs", "runs/1", "releases", "releases/browsed/1", "evaluation", "evidence", "audit")
SHOWN = ("federation", "budget", "runs", "runs/5", "releases", "releases/biopsies/1", "compare", *PAGES[-3:])


@dataclass
class Watched:
    """A federation with the dashboard beside it."""

    federation: LocalFederation
    server: ServerFolder
    onlookers: Processes

    @property
    def address(self) -> str:
        return self.server.config().dashboard_address

    def start_dashboard(self) -> None:
        self.server.start_dashboard(self.onlookers)
        self.onlookers.wait_until(lambda: listening(self.address.removeprefix("http://")), "the dashboard")

    def submit(self) -> Path:
        return self.federation.submit(
            {
                "name": "browsed",
                "recipe": "prototypes",
                "records": {"shape": [8, 8, 1], "classes": 10},
                "privacy": {"epsilon": 4.0, "delta": 1e-5},
                "federation": {"silos": self.federation.silos, "quorum": 2},
                "evaluation": {
                    "steps": 60,
                    "test": {"source": "npz", "path": str(self.federation.folder / "test.npz"), "classes": 10},
                },
            }
        )


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    train, test = load("digits", split="train"), load("digits", split="test")
    with Processes(folder / "logs") as processes, Processes(folder / "onlookers") as onlookers:
        federation = LocalFederation(folder, processes)
        save_npz(test, folder / "test.npz")
        for number, indices in enumerate(partition("iid", train.labels, 2, seed=0)):
            add_silo(federation, f"silo-{number}", train.take(indices))
        watched = Watched(federation, ServerFolder(folder / "federation/server"), onlookers)
        federation.start()
        watched.start_dashboard()
        yield watched
    federation.close()


def add_silo(federation: LocalFederation, name: str, records: Records) -> None:
    policy = {"mechanisms": sorted(Query.kinds), "consent": "auto"}
    federation.add_silo(name, records, {"epsilon": 10.0, "delta": 1e-5}, policy)


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.1)


def kinds(run: Path) -> set[str]:
    return {entry["kind"] for entry in JournalReader(run / "journal.jsonl").new_entries()}


@pytest.mark.timeout(600)
def test_a_run_is_watched_live_and_a_dead_dashboard_does_not_disturb_it(watched: Watched, browser: Browser) -> None:
    frozen = watched.federation.guard_pid("silo-1")
    with window(browser, watched.address) as tab:
        page = tab.open("federation")
        expect(page.get_by_text("This server has had no run yet")).to_be_visible()
        expect(page.locator("#live-words")).to_have_text("Live")
        page.evaluate("window.sameDocument = true")
        os.kill(frozen, signal.SIGSTOP)  # the run will wait for it, and so can we
        try:
            run = watched.submit()
            expect(page.get_by_role("link", name="Run 1: browsed")).to_be_visible(timeout=120_000)
            expect(page.locator("main")).to_contain_text("silo-0 attends", timeout=120_000)
            assert page.evaluate("window.sameDocument")  # no reload
            assert tab.problems == []
            watched.onlookers.stop("dashboard", signal.SIGKILL)
            expect(page.locator("#live-words")).to_have_text("Not connected: as last seen", timeout=30_000)
            assert not kinds(run) & {"failed", "finished"}
        finally:
            os.kill(frozen, signal.SIGCONT)
        wait_for(lambda: "finished" in kinds(run))
        watched.start_dashboard()
        expect(page.locator("#live-words")).to_have_text("Live", timeout=30_000)
        expect(page.get_by_role("link", name="browsed/1")).to_be_visible(timeout=30_000)
        expect(page.locator("main")).to_contain_text("2 of 2 silos answered")
        assert page.evaluate("window.sameDocument")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_of_a_real_federation(watched: Watched, browser: Browser, path: str) -> None:
    """Runs after the one above, whose release it looks at."""
    with window(browser, watched.address) as tab:
        page = tab.open(path)
        expect(page.locator("h1")).to_be_visible()
        assert page.locator("nav a[aria-current=page]").count() == 1
        assert tab.problems == []
        keep(tab, f"real-{path}", "laptop", "light")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[str]:
    """A longer history than anybody would wait for, served; its address."""
    folder = tmp_path_factory.mktemp("shown")
    shown = ShownServer(folder / "server", dashboard_port=free_port())
    for recipe, accuracy in (("prototypes", 0.71), ("ldpdc", 0.8), ("sps", 0.88)):
        shown.run(recipe, accuracy)
    shown.failed()
    shown.unfinished()
    shown.evidence("ldpdc/attacks.json", attack_report())
    server = ServerFolder(shown.folder)
    address = server.config().dashboard_address
    with Processes(folder / "logs") as processes:
        server.start_dashboard(processes)
        processes.wait_until(lambda: listening(address.removeprefix("http://")), "the dashboard")
        yield address


@pytest.mark.parametrize(("size", "scheme"), [("laptop", "light"), ("phone", "dark")])
def test_pages_are_accessible(shown: str, browser: Browser, size: str, scheme: str) -> None:
    with window(browser, shown, size, scheme) as tab:
        for path in SHOWN:
            page = tab.open(path)
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, f"{path} is wider than the {size}"
            assert tab.complaints() == [], path
            keep(tab, path, size, scheme)
        assert tab.problems == []


def test_everything_is_reached_by_keyboard(shown: str, browser: Browser) -> None:
    with window(browser, shown) as tab:
        page = tab.open("federation")
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.getAttribute('href') ?? document.activeElement.id"))
        assert {f"/{path}" for path in ("budget", "runs", "releases", "evaluation", "evidence", "audit")} <= reached
        assert {"show-tags", "/runs/5"} <= reached
        page.locator("#show-tags").focus()
        page.keyboard.press("Enter")
        expect(page.locator("html")).to_have_class("show-tags")
        page.get_by_role("link", name="Evaluation", exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Evaluation")


def test_a_plan_is_made_in_the_page(shown: str, browser: Browser) -> None:
    with window(browser, shown) as tab:
        page = tab.open("budget")
        page.get_by_label("recipe").select_option("prototypes")
        page.get_by_label("records a silo").fill("5000")
        page.get_by_role("button", name="Plan").click()
        expect(page.locator("#plan")).to_contain_text("each silo spends", timeout=60_000)
        expect(page.get_by_label("records a silo")).to_have_value("5000")
        assert tab.problems == []


def keep(tab: Window, name: str, size: str, scheme: str) -> Any:
    folder = os.environ.get("SILOSYNTH_SCREENSHOTS")
    if folder:
        tab.page.screenshot(path=Path(folder) / f"{name.replace('/', '-')}-{size}-{scheme}.png", full_page=True)
