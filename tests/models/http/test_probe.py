"""What tells the models of one name apart, and a server that comes back with another one."""

import threading
from collections.abc import Iterator
from typing import Any

import messages
import pytest
from fair_clock import fair_requests
from fake_server import completion, serving
from loopback import Handler, listening
from marked import eventually
from weights_server import Weights, WeightsServer, serving_weights

from heavydistill.config.models import Capabilities, Endpoint, Sampling
from heavydistill.errors import StoppedError
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.http.probe import QUESTION, TOKEN_IDS, Evidence, probe
from heavydistill.models.http.transport import submit
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Request, user_turn

COUNT = len(TOKEN_IDS) - 1


@pytest.fixture(autouse=True)
def no_test_waits_for_the_clients_clock() -> Iterator[None]:
    """These do: a server comes back when it does."""
    with fair_requests():
        yield


AT_A = Evidence(address="a")


def flat(logprob: float, noise: float = 0.0) -> Evidence:
    return Evidence(logprobs=(logprob,) * COUNT, noise=noise, address="a")


@pytest.mark.parametrize(
    ("known", "now", "is_same"),
    [
        (flat(-1), flat(-1.049), True),
        (flat(-1), flat(-1.051), False),
        (flat(-1, noise=0.1), flat(-1.149), True),
        (flat(-1, noise=0.1), flat(-1.151), False),
        (flat(-1), Evidence(logprobs=(-1,) * COUNT, address="b"), True),
        (Evidence(folder="f", logprobs=(-1,)), Evidence(folder="g", logprobs=(-1,)), False),
        (Evidence(folder="f", logprobs=(-1,)), Evidence(folder="f", logprobs=(-2,)), False),
        (Evidence(folder="f", address="a"), Evidence(folder="f", address="b"), True),
        (Evidence(text="t", address="a"), Evidence(text="t", address="b"), True),
        (Evidence(text="t", address="a"), Evidence(text="u", address="a"), False),
        (Evidence(text="t", address="a"), flat(-1), False),
        (Evidence(root="r", address="a"), Evidence(root="r", address="b"), True),
        (Evidence(root="r"), Evidence(root="s"), False),
        (AT_A, Evidence(address="b"), False),
        (AT_A, AT_A, True),
        (AT_A, Evidence(), True),
    ],
)
def test_what_is_another_model(known, now, is_same):
    assert (known.difference(now) == "") is is_same


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (flat(-1), flat(-1.0005), True),
        (flat(-1), flat(-1.01), False),
        (flat(-1, noise=0.02), flat(-1.01), True),
        (Evidence(text="t"), Evidence(text="t"), True),
        (Evidence(text="t"), Evidence(text="u"), False),
        (Evidence(), Evidence(), False),
        (flat(-1), Evidence(text="t"), False),
    ],
)
def test_two_names_with_one_answer_are_one_model(one, other, is_same):
    assert one.is_same_answer(other) is other.is_same_answer(one) is is_same


def test_a_probe_that_varies_tells_nothing():
    assert flat(-1).repeated(flat(-1.2)).noise == pytest.approx(0.2)
    assert flat(-1).repeated(flat(-2)) == AT_A
    assert Evidence(text="t", address="a").repeated(Evidence(text="u")) == AT_A
    assert Evidence(text="t", address="a").repeated(Evidence()) == AT_A


def probed(url: str, **keys: Any) -> Evidence:
    endpoint = Endpoint(base_url=url, **keys)
    return submit(probe(url, profile_at("served", endpoint), endpoint)).result()


ENTRY = {"logprob": -1.5, "rank": 3, "decoded_token": "a"}
WHOLE = [None, *({str(token): ENTRY} for token in TOKEN_IDS[1:])]


@pytest.mark.parametrize(
    "entries",
    [
        None,
        [],
        WHOLE[:-1],
        [None, *([{}] * COUNT)],
        [None, *([None] * COUNT)],
        [*WHOLE[:-1], {str(TOKEN_IDS[-1]): {"logprob": float("-inf")}}],
        [*WHOLE[:-1], {str(TOKEN_IDS[-1]): {"logprob": "-1"}}],
        {"1": ENTRY},
        "none",
    ],
)
def test_log_probabilities_in_another_form_are_no_probe(entries):
    class _Server(Handler):
        def do_POST(self) -> None:
            is_chat = "messages" in self.body()
            reply = completion("one")[1] if is_chat else {"choices": [{"prompt_logprobs": entries}]}
            self.send_json(200, reply)

    with listening(_Server) as url:
        found = probed(url)
    assert found.text and not found.logprobs


def test_the_probe_is_what_vllm_takes_and_sends_no_parameter_that_is_refused():
    server = WeightsServer([Weights("served", str)], "greedy")
    able = Capabilities(refused=["temperature"], max_tokens_name="max_completion_tokens")
    with serving_weights(server):
        found = probed(server.base_url, capabilities=able)
    first, second = server.probes
    assert first["prompt"] == TOKEN_IDS and first["prompt_logprobs"] == 0
    assert first["max_tokens"] == 1 and max(TOKEN_IDS) < 256
    assert second["messages"] == user_turn(QUESTION) and found.text
    assert "temperature" not in second and second["max_completion_tokens"] < 100


def test_a_server_that_answers_no_probe_costs_a_run_nothing_but_the_attempt(monkeypatch):
    monkeypatch.setattr("heavydistill.models.http.probe._PAUSES_S", (0.0, 0.0))

    class _Busy(Handler):
        def do_POST(self) -> None:
            self.body()
            statuses.append(status)
            self.send_json(status, {"error": {"message": "no"}})

    asked = {}
    for status in (400, 404, 500, 501, 429, 503):
        statuses: list[int] = []
        with listening(_Busy) as url:
            assert probed(url) == Evidence()
        asked[status] = len(statuses)
    assert asked == {400: 2, 404: 2, 500: 2, 501: 2, 429: 6, 503: 6}
    assert probed("http://127.0.0.1:9/v1") == Evidence()


@pytest.mark.parametrize("seed", ["same", "other"])
def test_a_server_that_comes_back_must_have_the_same_model(seed):
    """The server ends while a request waits, and answers again at the same port."""
    model = Weights("served", lambda body: "\\boxed{2}", seed="same")
    server, kept = WeightsServer([model]), []
    request = Request(user_turn("What is 1 + 1?"), Sampling(), seed=1)
    endpoint = Endpoint(base_url="http://127.0.0.1:9/v1", reasoning="optional")
    with serving_weights(server):
        endpoint = endpoint.model_copy(update={"base_url": server.base_url})
        seen = probed(server.base_url)
        engine = OpenAIEngine(profile_at("served", endpoint), endpoint, None, seen)
        engine.generate([request])
    assert len(server.probes) == 1
    ends: list[Any] = []

    def ask() -> None:
        try:
            ends.append(engine.generate([request], kept.extend))
        except StoppedError as error:
            ends.append(error)

    waiting = threading.Thread(target=ask)
    waiting.start()
    assert eventually(lambda: engine._model_check._doubted, 60)
    model.seed = seed
    with serving_weights(server, int(server.base_url.split(":")[2].split("/")[0])):
        waiting.join(120)
    engine.close()
    assert len(server.probes) == 2
    if seed == "same":
        assert ends[0][0].failure is None and len(kept) == 1
    else:
        assert messages.is_in(str(ends[0]), "another_model", role="served since it failed")
        assert not kept


def test_servers_of_other_tests_have_one_model_of_each_name():
    with serving(lambda body: completion("one")) as server:
        assert probed(server.base_url) == probed(server.base_url) != Evidence()
    assert not server.requests
