"""The page of docs/examples, served by the service: who gets it, and what a browser shows."""

import contextlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import messages
import pytest
from browsing import browsing
from fault_server import FaultServer, faulty
from serving import QUESTION, body_of, is_deliberation, post, serving

from heavydistill.config.serve import ServeConfig
from heavydistill.config.yaml import load
from heavydistill.serve.app import Site
from heavydistill.serve.service import Service

PAGE = Path(__file__).parents[2] / "docs" / "examples" / "chat.html"


@pytest.fixture(scope="module")
def models() -> Iterator[FaultServer]:
    with faulty(usage="never") as server:  # or it is asked whether it cuts prompts
        yield server


@pytest.fixture(scope="module")
def address(models: FaultServer) -> Iterator[str]:
    with serving(models.base_url, serve__page=str(PAGE)) as at:
        yield at


def root_of(address: str) -> str:
    return address.removesuffix("v1")


def test_the_page_is_at_the_root_and_needs_no_key(models, address, monkeypatch):
    monkeypatch.setenv("HEAVYDISTILL_SERVE_KEY", "secret")
    with serving(models.base_url, serve__page=str(PAGE)) as guarded:
        for at in (address, guarded):
            with urllib.request.urlopen(root_of(at), timeout=60) as reply:
                assert reply.read().decode() == PAGE.read_text(encoding="utf-8")
                assert reply.headers.get_content_type() == "text/html"
        assert post(guarded, body_of())[0] == 401
    monkeypatch.delenv("HEAVYDISTILL_SERVE_KEY")
    with serving(models.base_url) as without, pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(root_of(without), timeout=60)


def test_a_page_that_cannot_be_read_is_refused_at_the_start(tmp_path):
    for file in (tmp_path / "none.html", tmp_path):
        with messages.raises("page_unreadable", file=file):
            Site(Service(load(ServeConfig, None, {"serve.page": str(file)})))


@contextlib.contextmanager
def chatting(address: str) -> Iterator[Any]:
    """The page in a browser, which must not complain."""
    complaints: list[str] = []
    with browsing() as browser:
        page = browser.new_page()
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(root_of(address))
        yield page
    # The browser itself notes each refusal of the service.
    assert not [each for each in complaints if "status of 400" not in each]


def ask(page: Any, question: str) -> None:
    page.fill("#text", question)
    page.click("#send")
    page.wait_for_selector("#send:not([disabled])")


def test_a_browser_shows_the_reasoning_the_answer_and_its_path(models, address):
    markup = "<img src=x onerror=alert(1)> " + QUESTION
    with chatting(address) as page:
        page.fill("#k", "3")
        del models.requests[:]
        ask(page, markup)
        (deliberation,) = filter(is_deliberation, models.asked)
        assert len(models.asked) == 4
        thought, answer = models.text_of(deliberation, 0)
        assert page.locator("#turns > p").all_inner_texts() == [markup, answer, "deliberated"]
        page.click("summary")
        told = page.locator("details pre").inner_text()
        assert "Deliberating on 3 attempts." in told and thought in told
        ask(page, "And 1 + 1?")
        turns = models.asked[-1]["messages"]
        assert [each["content"] for each in turns[:-1]] == [markup, answer]


def test_a_browser_shows_what_went_wrong_and_goes_on(models, address):
    with chatting(address) as page:
        models.plan = lambda body, attempt: "refused"
        ask(page, QUESTION)
        models.plan = lambda body, attempt: None
        assert "None of 4 attempts is usable" in page.locator("#turns").inner_text()
        page.fill("#k", "99")
        ask(page, QUESTION)
        assert "at most 32 are served" in page.locator("#turns > p").last.inner_text()
        page.fill("#k", "")
        page.select_option("#model", "single")
        ask(page, QUESTION)
        assert page.locator("#turns > p").last.inner_text() == "single"
        assert len(models.asked[-1]["messages"]) == 1
