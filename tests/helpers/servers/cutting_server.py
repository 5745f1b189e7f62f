"""A server that keeps the end of a prompt that exceeds its context, as Ollama does, over real HTTP.

Its list of models states no context.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fake_server import Answer, completion, serving
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split, Whitespace

from heavydistill.models.http.cut_prompts import PLAIN_WORDS

Body = dict[str, Any]
MODEL = "served"
TEMPLATE = 9  # tokens of its chat template


@dataclass
class CuttingServer:
    """What a test sees of it, and sets before it asks."""

    context: int | None = 2050  # tokens of a prompt that it reads; None reads all
    write: Callable[[str], str] = lambda read: (
        "\\boxed{4}"
    )  # answer to what it has read of a prompt
    cached: int = 0  # tokens that it leaves out of its count, and reports as cached
    of_plain: Answer | None = None  # answer to a long prompt without content
    counts: bool = True
    base_url: str = ""
    asked: list[str] = field(default_factory=list)  # prompts, in order

    @property
    def plain(self) -> list[str]:
        """The long prompts without content, in order."""
        return [prompt for prompt in self.asked if _is_plain(prompt)]


def words(text: str) -> list[str]:
    """The tokens of a text: words, and what stands between them."""
    return [text[start:end] for _, (start, end) in Whitespace().pre_tokenize_str(text)]


def tokenizer_in(folder: Path, of_characters: bool = False) -> Path:
    """A folder with the tokenizer of the server, or with another one of single characters."""
    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    characters = Split(Regex("."), "isolated")
    tokenizer.pre_tokenizer = characters if of_characters else Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 40960}))
    return folder


@contextlib.contextmanager
def cutting(**settings: Any) -> Iterator[CuttingServer]:
    """Serve until the block ends."""
    server = CuttingServer(**settings)

    def answer(body: Body) -> Answer:
        prompt = body["messages"][0]["content"]
        server.asked.append(prompt)
        if server.of_plain and _is_plain(prompt):
            return server.of_plain
        read = words(prompt)
        if server.context and len(read) + TEMPLATE > server.context:
            read = read[TEMPLATE - server.context :]
        status, reply = completion(server.write(" ".join(read)))
        if not server.counts:
            del reply["usage"]
            return status, reply
        count = max(1, len(read) + TEMPLATE - server.cached)
        details = {"prompt_tokens_details": {"cached_tokens": server.cached}}
        reply["usage"] = {"prompt_tokens": count, "completion_tokens": 5, **details}
        return status, reply

    models = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "library"}]}
    with serving(answer, (200, models)) as http:
        server.base_url = http.base_url
        yield server


def _is_plain(prompt: str) -> bool:
    *words, _ = prompt.split()  # the last one may be cut off
    return bool(words) and {*words} <= {*PLAIN_WORDS}
