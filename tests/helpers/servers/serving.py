"""The service of a pair of models in this process, on a free port."""

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from command_line import MICRO

from heavydistill.config.serve import ServeConfig
from heavydistill.config.yaml import load
from heavydistill.serve.app import Site
from heavydistill.serve.service import Service

Body = dict[str, Any]
QUESTION = "What is 3 + 4?"


def service_of(models: str | None, **keys: Any) -> Service:
    """The service of the models at an address, or of the micro model.

    ``keys`` are those of the configuration, with ``__`` in place of the dots.
    """
    asked: Body = {"think.k": 4, "serve.port": 0}
    if models:
        asked |= {"teacher": "served", "endpoint.base_url": models, "endpoint.tokenizer": MICRO}
        asked |= {"endpoint.retries": 0, "endpoint.context": 4096}
    asked |= {name.replace("__", "."): value for name, value in keys.items()}
    return Service(load(ServeConfig, None, asked))


@contextlib.contextmanager
def serving(models: str | None, **keys: Any) -> Iterator[str]:
    """Serve until the block ends, as ``service_of``; yields the base address."""
    service = service_of(models, **keys)
    with contextlib.closing(service), Site(service).listening() as address:
        service.load()
        yield address


def body_of(question: str = QUESTION, model: str = "heavy", **more: Any) -> Body:
    return {"model": model, "messages": [{"role": "user", "content": question}], **more}


def post(
    address: str, body: Any, route: str = "chat/completions", **headers: str
) -> tuple[int, Any, Any]:
    """(status, JSON of the reply, headers) of a request."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"{address}/{route}", data, given)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=120) as reply:
            return reply.status, json.loads(reply.read()), reply.headers
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read()), error.headers


def stream(address: str, body: Body) -> list[Any]:
    """The events of a streamed answer; comments as texts."""
    data = json.dumps({**body, "stream": True}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/chat/completions", data, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as reply:
        lines = [line for line in reply.read().decode().split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [
        json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else line
        for line in lines[:-1]
    ]


def texts_of(events: list[Any], choice: int = 0) -> tuple[str, str]:
    """(reasoning, content) of a choice of a streamed answer."""
    deltas = [
        each["delta"]
        for event in events
        if isinstance(event, dict)
        for each in event.get("choices", [])
        if each["index"] == choice
    ]
    names = "reasoning", "content"
    reasoning, content = ("".join(each.get(name) or "" for each in deltas) for name in names)
    return reasoning, content


def is_deliberation(body: Body) -> bool:
    """Whether a request to the models shows attempts."""
    return "==== Attempt 1\n" in body["messages"][-1]["content"]
