"""What goes over the wire, and what the environment may say about it."""

import base64
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import messages
import pytest
from asking import ask_one, completion
from fake_clock import rest
from fault_server import faulty
from loopback import Handler, listening, redirecting

from heavydistill.config.models import Endpoint
from heavydistill.errors import TeacherError
from heavydistill.models.contact import ServerProbe
from heavydistill.models.ledger import Ledger


@pytest.mark.parametrize("machine", ["default", "machine 127.0.0.1"])
def test_a_login_for_the_host_in_netrc_is_left_alone(tmp_path, monkeypatch, machine):
    netrc = tmp_path / "netrc"
    netrc.write_text(f"{machine} login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with faulty() as server:
        assert ask_one(server.base_url).finish_reason == "stop"


def test_what_cannot_be_sent_ends_the_run_and_costs_nothing(tmp_path):
    ledger = Ledger(tmp_path / "run.ledger", most_tokens=10**6)
    with pytest.raises(TeacherError, match=r"Nothing can be sent to http://127\.0"):
        ask_one("http://127.0.0.1:9/v1", ledger=ledger, extra_body={"day": {1, 2}})
    balance = Ledger(tmp_path / "run.ledger").balance
    assert (balance.spent_tokens, balance.reserved_tokens) == (0, 0)


def test_the_proxy_of_the_environment_is_used_but_where_it_is_bypassed(monkeypatch):
    asked: list[tuple[str, str | None, str | None]] = []

    class _Proxy(Handler):
        def do_POST(self) -> None:
            self.body()
            names = ("Proxy-Authorization", "Authorization")
            asked.append((self.path, *map(self.headers.get, names)))
            self.send_json(200, completion())

    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    with listening(_Proxy) as proxy, faulty() as server:
        address = proxy.removesuffix("/v1").replace("http://", "http://me:secret@")
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert ask_one("http://models.invalid/v1").answer_text == "7"
        assert ask_one(server.base_url).finish_reason == "stop"
    login = f"Basic {base64.b64encode(b'me:secret').decode()}"
    assert asked == [("http://models.invalid/v1/chat/completions", login, "Bearer sk-mine")]


def piece(text: str, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish_reason}
    return f"data: {json.dumps({'id': 'r', 'choices': [choice]})}\n\n".encode()


@dataclass
class Endless:
    """A server that never ends; it counts what it sent and how often it was asked."""

    kind: str
    again: bytes  # What it sends over and over; nothing ends the reply after all
    status: int = 200
    first: bytes = b""  # What it sends before
    pause_s: float = 0.0
    base_url: str = ""
    asked: int = 0
    sent: int = 0
    endings: int = 0  # How often a client closed the connection


@contextlib.contextmanager
def endless(kind: str, again: bytes, **more: Any) -> Iterator[Endless]:
    """Serve until the block ends."""
    server = Endless(kind, again, **more)

    class _Endless(Handler):
        def do_POST(self) -> None:
            self.body()
            server.asked += 1
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
            try:
                self.send_response(server.status)
                self.send_header("Content-Type", server.kind)
                self.end_headers()
                self.wfile.write(server.first)
                while server.again:
                    self.wfile.write(server.again)
                    server.sent += len(server.again)
                    rest(self.connection, server.pause_s)
            except ConnectionError:
                server.endings += 1

    with listening(_Endless) as server.base_url:
        yield server


# What the kernel may hold between the two, whatever the client reads.
IN_THE_PIPE = 8 * 2**20
READ_AT_ONCE = 2**19
EVENTS = "text/event-stream"


MOST_BYTES = 64 * 4096 + 2**20  # 4 KiB for each of the 64 tokens, and 1 MiB


@pytest.mark.parametrize(
    ("kind", "again", "booked"),
    [
        ("application/json", b" " * 4096, MOST_BYTES + 1),
        (EVENTS, b"x" * 4096, MOST_BYTES + 1),
        (EVENTS, piece("x"), MOST_BYTES // len(piece("x"))),
        (EVENTS, piece(""), 64),
        (EVENTS, piece("x" * 9000), MOST_BYTES // len(piece("x" * 9000)) * 9000),
    ],
    ids=["body", "line", "pieces", "empty pieces", "characters"],
)
def test_a_reply_without_end_is_cut_off_once_and_booked(tmp_path, kind, again, booked):
    ledger = Ledger(tmp_path / "run.ledger")
    with endless(kind, again) as server:
        response = ask_one(server.base_url, ledger=ledger, timeout_s=60)
        while not server.endings:
            time.sleep(0.01)
        assert server.asked == 1
        assert server.sent <= MOST_BYTES + IN_THE_PIPE
    assert response.failure == "cut_off"
    assert "goes on past 64 tokens: more than 1,310,720 bytes came" in response.error
    assert (response.reasoning, response.answer_text) == ("", "")
    balance = Ledger(tmp_path / "run.ledger").balance
    # A token is at least a byte: of a text that was read, or else of what came.
    assert booked <= balance.spent_tokens <= booked + READ_AT_ONCE


def test_an_error_without_end_is_read_to_its_first_words():
    with endless("text/plain", b"broken " * 1000, status=500) as server:
        response = ask_one(server.base_url, retries=0, timeout_s=60)
        while not server.endings:
            time.sleep(0.01)
        assert server.sent <= 2**16 + IN_THE_PIPE
    assert response.failure == "server" and "HTTP 500: broken broken" in response.error


def test_what_is_sent_after_the_end_costs_no_response():
    end = piece("It is 7.", "stop") + b"data: [DONE]\n\n"
    with endless(EVENTS, piece("x"), first=end) as server:
        response = ask_one(server.base_url, timeout_s=60)
    assert (response.finish_reason, server.asked) == ("stop", 1)


@pytest.mark.parametrize("drip", [b": keep-alive\n\n", b'data: {"choices": []}\n\n', piece("")])
def test_what_keeps_a_connection_alive_without_text_is_silence(drip):
    with endless(EVENTS, drip, pause_s=0.05) as server:
        response = ask_one(server.base_url, retries=0, timeout_s=0.5)
    assert response.failure == "timeout" and "no text came for 0.5 s" in response.error


@pytest.mark.parametrize("drip", [b'data: {"choices": []}\n\n', piece(" or 8", "stop")])
def test_what_drips_after_the_end_is_neither_read_nor_waited_for(drip):
    end = piece("It is 7.", "length") + b"data: [DONE]\n\n"
    with endless(EVENTS, drip, first=end, pause_s=0.05) as server:
        response = ask_one(server.base_url, timeout_s=60)
        assert server.endings or server.sent < 200 * len(drip)
    assert (response.answer_text, response.finish_reason) == ("It is 7.", "length")


def test_a_redirect_to_another_host_is_refused_before_the_prompt_goes_there():
    with faulty() as other:
        here = f"{other.base_url}/chat/completions"
        elsewhere = redirecting(here.replace("127.0.0.1", "localhost"))
        with elsewhere as url, messages.raises("redirected_elsewhere", host="localhost"):
            ask_one(url)
        assert not other.requests
        with redirecting(here) as url:
            assert ask_one(url).finish_reason == "stop"


@pytest.mark.parametrize("value", [":::not a url:SECRET", "http://", "http://me:SECRET@host:port"])
def test_a_proxy_that_is_no_address_is_named_and_never_shown(monkeypatch, caplog, value):
    monkeypatch.setenv("http_proxy", value)
    for ask in (ask_one, lambda url: ServerProbe().context("m", Endpoint(base_url=url))):
        with pytest.raises(TeacherError, match="http_proxy") as caught:
            ask("http://models.invalid/v1")
        assert "SECRET" not in str(caught.value) + caplog.text


def test_the_longest_tokens_of_an_honest_server_are_not_cut_off():
    # All 64 of them; one piece, in which every character is escaped, and a piece for each.
    whole = piece("\x01" * 128 * 64, "length")
    pieces = b"".join(piece("-" * 128, "length") for _ in range(64))
    for first in (whole, pieces):
        with endless(EVENTS, b"", first=first + b"data: [DONE]\n\n") as server:
            response = ask_one(server.base_url, timeout_s=60)
        assert response.finish_reason == "length" and len(response.answer_text) == 128 * 64
