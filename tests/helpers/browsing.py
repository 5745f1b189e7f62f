"""A real browser for the tests of pages: the system's chromium, headless, through Playwright."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 860}
_WAITS_MS = 240_000
# Counts the chunks that the page unpacks, beside the page's own scripts.
_COUNTING = """
window.unpacked = 0;
const Real = window.DecompressionStream;
window.DecompressionStream = class extends Real {
  constructor(...all) { window.unpacked++; super(...all); }
};
"""


def need_browser() -> str:
    """Its program; skips the test where there is none, which CI takes for a failure."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    with contextlib.suppress(ImportError):
        import playwright  # noqa: F401

        if found:
            return found
    reason = "no chromium, or no playwright: bash scripts/install_browser.sh, pip install .[test]"
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    raise AssertionError(reason)


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    """A browser."""
    program = need_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, timeout=_WAITS_MS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page of Playwright that was opened, and what it did."""

    page: Any
    complaints: list[str] = field(default_factory=list)  # in the console, raised or in a dialog
    requests: list[str] = field(default_factory=list)  # addresses but for its own file

    @property
    def listed(self) -> list[str]:
        """Ids of the problems in sight."""
        return self.page.locator(".row .row-id").all_inner_texts()

    @property
    def counted(self) -> str:
        return self.page.inner_text("#counted")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def shows(self, problem: str) -> None:
        """Wait until a problem is shown."""
        self.page.wait_for_selector(f'#trace[data-shows="{problem}"]')

    def opens(self, problem: str) -> None:
        """Choose the first trace, whose problem this is."""
        self.press("v", "j")
        self.shows(problem)

    def says(self, selector: str, text: str) -> None:
        """Wait until an element has a text; what is evaluated in the page, its policy forbids."""
        self.page.locator(selector, has_text=text).wait_for()

    def fits(self) -> bool:
        """Whether nothing is wider than the window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@contextlib.contextmanager
def visiting(browser: Any, file: Path, scheme: str = "light", size: Any = DESK) -> Iterator[Visit]:
    """A page in a window of its own, which must not complain or ask for anything."""
    context = browser.new_context(viewport=size, color_scheme=scheme)
    context.set_default_timeout(_WAITS_MS)
    page = context.new_page()
    page.add_init_script(_COUNTING)
    visit = Visit(page)
    page.on("console", lambda said: visit.complaints.append(said.text))
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (visit.complaints.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda asked: visit.requests.append(asked.url))
    address = file.absolute().as_uri()
    page.goto(address)
    yield visit
    visit.requests = [asked for asked in visit.requests if asked.partition("#")[0] != address]
    context.close()
    assert not visit.complaints and not visit.requests
