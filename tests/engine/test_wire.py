"""What goes over the wire, and what the environment may say about it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from fault_server import faulty
from loopback import Handler, listening
from replying_server import completion

from heavydistill.config import Endpoint, Sampling
from heavydistill.engine.ledger import Ledger
from heavydistill.engine.openai_client import OpenAIEngine
from heavydistill.engine.request import Request, Response, user_turn
from heavydistill.errors import TeacherError

REQUEST = Request(user_turn("3+4?"), Sampling(top_k=0, max_tokens=64), 1)


def ask(base_url: str, ledger: Ledger | None = None, **more: Any) -> Response:
    engine = OpenAIEngine("served", Endpoint(base_url=base_url), ledger=ledger, **more)
    try:
        return engine.generate([REQUEST])[0]
    finally:
        engine.close()


@pytest.mark.parametrize("machine", ["default", "machine 127.0.0.1"])
def test_a_login_for_the_host_in_netrc_is_left_alone(tmp_path, monkeypatch, machine):
    netrc = tmp_path / "netrc"
    netrc.write_text(f"{machine} login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with faulty() as server:
        assert ask(server.base_url).finish_reason == "stop"


@pytest.mark.parametrize(
    ("address", "extra_body"),
    [("http://me:secret@127.0.0.1:9/v1", {}), ("http://127.0.0.1:9/v1", {"day": {1, 2}})],
)
def test_what_cannot_be_sent_ends_the_run_and_costs_nothing(tmp_path, address, extra_body):
    ledger = Ledger(tmp_path / "run.ledger", most_tokens=10**6)
    with pytest.raises(TeacherError, match=r"Nothing can be sent to http://127\.0") as caught:
        ask(address, ledger, extra_body=extra_body)
    assert "secret" not in str(caught.value)
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
        assert ask("http://models.invalid/v1").answer_text == "7"
        assert ask(server.base_url).finish_reason == "stop"
    login = f"Basic {base64.b64encode(b'me:secret').decode()}"
    assert asked == [("http://models.invalid/v1/chat/completions", login, "Bearer sk-mine")]
