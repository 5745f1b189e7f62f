"""A server that counts tokens at ``/tokenize``, over HTTP on the loopback."""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from loopback import Handler, listening


@dataclass
class Counter:
    """A server whose tokens are words and single signs, in the forms of one of two servers."""

    form: str = "content"  # as llama.cpp; "prompt" is vLLM's
    url: str = ""
    asked: list[str] = field(default_factory=list)
    refuses_after: int | None = None
    refusal: Any = "gone"


def tokens_of(text: str) -> list[str]:
    return re.findall(r"\w{1,4}|\s+|.", text, re.DOTALL)


@contextlib.contextmanager
def counting(counter: Counter) -> Iterator[Counter]:
    class _Handler(Handler):
        def do_POST(self) -> None:
            body: dict[str, Any] = self.body()
            if self.path != "/tokenize":
                return self.send_json(404, {"error": "no such path"})
            left = counter.refuses_after
            if left is not None and len(counter.asked) >= left:
                return self.send_json(400, {"error": counter.refusal})
            if counter.form not in body and counter.form == "prompt":
                return self.send_json(400, {"error": "prompt: field required"})
            text = body.get(counter.form, "")
            counter.asked.append(text)
            self.send_json(200, {"tokens": list(range(len(tokens_of(text))))})

    with listening(_Handler) as url:
        counter.url = url
        yield counter
