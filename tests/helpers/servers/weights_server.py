"""A server in the shapes of vLLM: models with weights, among them adapters of others.

``/v1/models`` states the time of the request as ``created``, the folder as ``root`` and the base as
``parent``; a completion of token ids has ``prompt_logprobs``, which depend on the weights alone.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_server import completion
from loopback import Handler, listening

from heavydistill.models.http.probe import QUESTION

Body = dict[str, Any]


@dataclass
class Weights:
    """A model: what it answers, and what decides its log-probabilities."""

    name: str
    answer: Callable[[Body], str | None]  # None fails
    root: str = "org/base"
    parent: str | None = None
    seed: str = ""  # of its log-probabilities; empty for its name


@dataclass
class WeightsServer:
    """What a test sees of it; ``models`` may change while it serves."""

    models: list[Weights]
    gives: str = "logprobs"  # or "greedy", "sampled": its probe; "nothing" refuses both
    noise: float = 0.0  # nats a token, of each reply
    base_url: str = ""
    asked: list[Body] = field(default_factory=list)  # without probes
    probes: list[Body] = field(default_factory=list)

    def entry(self, model: Weights) -> Body:
        limit = None if model.parent else 40960
        told = {"id": model.name, "object": "model", "created": int(time.time())}
        told |= {"owned_by": "vllm", "root": model.root, "parent": model.parent}
        return {**told, "max_model_len": limit, "permission": [{"id": f"modelperm-{time.time()}"}]}

    def reply(self, path: str, body: Body) -> tuple[int, Body]:
        model = next((each for each in self.models if each.name == body["model"]), None)
        if not model:
            return 404, {"error": {"message": f"The model `{body['model']}` does not exist."}}
        if not path.endswith("/chat/completions"):
            self.probes.append(body)
            if self.gives != "logprobs":
                return 404, {"detail": "Not Found"}
            choice = {"index": 0, "text": "x", "logprobs": None, "finish_reason": "length"}
            entries = [self._entry(model, *each) for each in enumerate(body["prompt"])]
            told = {"id": "cmpl-1", "object": "text_completion", "model": model.name}
            usage = {"prompt_tokens": len(entries), "completion_tokens": 1}
            return 200, {**told, "choices": [{**choice, "prompt_logprobs": entries}], **usage}
        if body["messages"][0]["content"] == QUESTION:
            self.probes.append(body)
            if self.gives == "nothing":
                return 400, {"error": {"message": "No"}}
            text = f"{model.seed or model.name} " + str(random.random())[2:]
            return completion(text if self.gives == "sampled" else text.split()[0])
        self.asked.append(body)
        if (text := model.answer(body)) is None:
            return 400, {"error": {"message": "This prompt fails."}}
        status, whole = completion(text)
        whole["usage"]["prompt_tokens"] = len(body["messages"][0]["content"])
        return status, {**whole, "model": model.name, "system_fingerprint": "vllm-0.31.0-c40ab1fc"}

    def _entry(self, model: Weights, position: int, token: int) -> Body | None:
        if position == 0:
            return None
        of_weights = random.Random(f"{model.seed or model.name} {position} {token}")
        logprob = -of_weights.uniform(1, 20) + random.uniform(-self.noise, self.noise)
        return {str(token): {"logprob": logprob, "rank": 9, "decoded_token": "a"}}


@contextlib.contextmanager
def serving_weights(server: WeightsServer, port: int = 0) -> Iterator[WeightsServer]:
    """Serve until the block ends."""

    class _Handler(Handler):
        def do_GET(self) -> None:
            entries = [server.entry(model) for model in server.models]
            self.send_json(200, {"object": "list", "data": entries})

        def do_POST(self) -> None:
            body = self.body()
            if body:
                return self.send_json(*server.reply(self.path, body))
            self.send_json(400, {"error": {"message": "nothing to complete"}})

    with listening(_Handler, port) as server.base_url:
        yield server
