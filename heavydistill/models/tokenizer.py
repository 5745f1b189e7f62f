"""Counts and cuts texts with the tokenizer of the model that reads a cache.

Needs neither torch nor transformers. If no tokenizer is known, the model's server counts. Not
covered: models without a ``tokenizer.json``.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import math
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from heavydistill.config.models import Endpoint
from heavydistill.heavy.pruning import Reader
from heavydistill.models.http.replies import Redactor, message_of
from heavydistill.models.http.transport import exchange, submit
from heavydistill.models.hub_files import file_in, unloadable
from heavydistill.models.request import Response
from heavydistill.store.journal import Journal
from heavydistill.store.segment import Record

SERVER = "server"  # special tokenizer name: the model's server counts
TEMPLATE_TOKENS = 64  # tokens reserved for the chat template around a prompt
ESTIMATED = "estimate: one token for each UTF-8 byte"
_REMEMBERED, _REMEMBERED_COUNTS = 512, 4096
_STAGE = "count"
_INSTEAD = (
    "a folder with tokenizer.json (for a served model --tokenizer FOLDER, or --tokenizer server, "
    "so that its server counts)"
)
_TIMEOUT_S = 30.0  # for a whole reply
_MOST_BYTES, _BYTES_A_TOKEN = 2**16, 64  # of a reply; a text has a token for each byte at most
_WAITS_S = (0.0, 0.5, 1.0)  # pause in seconds before each attempt
_AGAIN_S = 60.0  # after a failure, until the server is asked again
_BUSY, _REFUSED = (429, 500, 502, 503, 504), 400
_MOST_SAID = 200  # maximum characters of a shown error
_MOST_COUNTS_OF_A_CUT = 6
_Spans = list[tuple[int, int]]  # start and end of each token in a text
_log = logging.getLogger("heavydistill.models")


class ReaderTokenizer:
    """Counts tokens and cuts text with a model's own tokenizer.

    Raises:
        TeacherError: The tokenizer cannot be loaded.
    """

    def __init__(self, name: str) -> None:
        from tokenizers import Tokenizer

        self.name = name
        try:
            self._tokenizer = Tokenizer.from_file(str(file_in(name, "tokenizer.json")))
        except Exception as error:  # the library raises plain Exception
            raise unloadable("tokenizer", name, error, _INSTEAD) from error
        # The candidate sets of one problem contain the same attempts many times.
        self._counted = lru_cache(maxsize=_REMEMBERED)(self._count)
        self.control_tokens = tuple(
            token.content
            for token in self._tokenizer.get_added_tokens_decoder().values()
            if token.special
        )

    def count(self, text: str) -> int:
        """Number of tokens of ``text``; the last few hundred counts are cached."""
        return self._counted(text)

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def head(self, text: str, tokens: int) -> str:
        """The longest prefix of ``text`` with at most ``tokens`` tokens."""
        return self._cut(text, tokens, lambda spans: slice(spans[tokens - 1][1]), slice(-1))

    def tail(self, text: str, tokens: int) -> str:
        """The longest suffix of ``text`` with at most ``tokens`` tokens."""
        return self._cut(text, tokens, lambda spans: slice(spans[-tokens][0], None), slice(1, None))

    def _cut(self, text: str, tokens: int, part: Callable[[_Spans], slice], shorter: slice) -> str:
        if tokens <= 0:
            return ""
        spans: _Spans = self._tokenizer.encode(text, add_special_tokens=False).offsets
        if len(spans) <= tokens:
            return text
        cut = text[part(spans)]
        # The cut text may have more tokens than the same part has inside the whole text.
        while self.count(cut) > tokens:
            cut = cut[shorter]
        return cut


class ByteEstimate:
    """Upper bound of token counts: one token per UTF-8 byte.

    No byte-level or byte-fallback tokenizer makes more tokens, so a text cut by this count fits.
    The bound is loose: with a vocabulary of 49,000 tokens, English prose has 3.9 bytes per token,
    worked arithmetic 2.1, Chinese 1.7.
    """

    name = ESTIMATED
    control_tokens: tuple[str, ...] = ()  # unknown; see ``heavy.pruning.defuse``

    def count(self, text: str) -> int:
        """Number of bytes of ``text``."""
        return len(text.encode("utf-8", "surrogatepass"))

    def head(self, text: str, tokens: int) -> str:
        """The longest prefix with at most ``tokens`` bytes."""
        return text.encode("utf-8", "replace")[: max(0, tokens)].decode("utf-8", "ignore")

    def tail(self, text: str, tokens: int) -> str:
        """The longest suffix with at most ``tokens`` bytes."""
        encoded = text.encode("utf-8", "replace")
        return encoded[max(0, len(encoded) - max(0, tokens)) :].decode("utf-8", "ignore")


_ESTIMATE = ByteEstimate()


class ServerTokenizer:
    """Counts tokens and cuts text with the ``/tokenize`` endpoint of a model's server.

    After three failures of the server in a row, a warning is logged, and counts are estimated for a
    minute before the server is asked again.

    Args:
        model: Served name of the model.
        endpoint: Endpoint of the server; the first address is used.
        journal: Folder of the journal that stores the counts; None stores none.
        replay: Whether to read counts only from the journal and estimate missing ones.
    """

    control_tokens: tuple[str, ...] = ()  # unknown; see ``heavy.pruning.defuse``

    def __init__(
        self, model: str, endpoint: Endpoint, journal: Path | None = None, replay: bool = False
    ) -> None:
        self._model = model
        self._endpoint = endpoint
        self._redact = Redactor(endpoint.key)
        self._journal = Journal(journal) if journal else None
        # Time from which the server is asked; not 0 after a failure.
        self._asked_from = math.inf if replay else 0.0
        self._has_counted = False  # whether the server has counted any text
        self._has_estimated = False
        self._counted = lru_cache(maxsize=_REMEMBERED_COUNTS)(self._count)

    @property
    def name(self) -> str:
        """Source of the counts: the server, or an estimate if any count was estimated."""
        return ESTIMATED if self._has_estimated else f"{self._model}'s server"

    def renewed(self) -> ServerTokenizer:
        """A copy whose ``name`` does not depend on earlier counts."""
        other = copy.copy(self)
        other._has_estimated = False
        return other

    def is_answered(self) -> bool:
        """Whether the server can count tokens; sends a request."""
        return isinstance(self._ask("The answer is 42."), int)

    def count(self, text: str) -> int:
        """Number of tokens of ``text``, counted by the server or estimated."""
        tokens, is_estimated = self._counted(text)
        self._has_estimated |= is_estimated
        return tokens

    def head(self, text: str, tokens: int) -> str:
        """The longest prefix found with at most ``tokens`` tokens."""
        return self._cut(text, tokens, _ESTIMATE.head(text, tokens), lambda n: text[:n])

    def tail(self, text: str, tokens: int) -> str:
        """The longest suffix found with at most ``tokens`` tokens."""
        shortest = _ESTIMATE.tail(text, tokens)
        return self._cut(text, tokens, shortest, lambda n: text[len(text) - n :])

    def close(self) -> None:
        if self._journal:
            self._journal.close()

    def _cut(self, text: str, tokens: int, shortest: str, cut: Callable[[int], str]) -> str:
        """Find the cut length by regula falsi; after a few counts, the last fitting one is used."""
        whole = self.count(text) if tokens > 0 else 0
        if whole <= tokens:
            return text if tokens > 0 else ""
        fits, fits_tokens = len(shortest), min(tokens, whole * len(shortest) // len(text))
        over, over_tokens = len(text), whole
        for _ in range(_MOST_COUNTS_OF_A_CUT):
            if over - fits <= 1 or tokens - fits_tokens <= tokens // 50:
                break
            share = (tokens - fits_tokens) / (over_tokens - fits_tokens)
            guess = min(over - 1, max(fits + 1, fits + int((over - fits) * share)))
            counted = self.count(cut(guess))
            if counted <= tokens:
                fits, fits_tokens = guess, counted
            else:
                over, over_tokens = guess, counted
        return cut(fits)

    def _count(self, text: str) -> tuple[int, bool]:
        """(number of tokens, whether the number is an estimate)."""
        if not text:
            return 0, False
        content = f"{_STAGE}\n{self._model}\n{text}"
        key = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        known = self._journal.last(key) if self._journal else None
        if known is None:
            known = Response(finish_reason="error", failure="server", error="Estimated.")
            if time.monotonic() >= self._asked_from:
                count = self._ask(text)
                if isinstance(count, int):
                    known = Response(finish_reason="stop", prompt_tokens=count)
                self._note(count)
            # Estimates are not kept, because a replay estimates the same.
            if self._journal and self._has_counted:
                asked = {"stage": _STAGE, "prompt": key[:16], "sampling": {}, "seed": 0, "index": 0}
                at = round(time.time(), 3)
                self._journal.put([Record(key, f"{self._model} /tokenize", asked, known, at)])
        if known.failure:
            return _ESTIMATE.count(text), True
        return known.prompt_tokens, False

    def _note(self, count: int | str) -> None:
        """Note whether the server has counted, or why not."""
        has_counted = isinstance(count, int)
        if self._asked_from and has_counted:
            self._counted.cache_clear()  # of the estimates
        if not (self._asked_from or has_counted):
            _log.warning(
                "The server of %s does not count tokens at /tokenize (%s). Until it does, tokens "
                "of caches are estimated, one per UTF-8 byte, so caches may be cut shorter than "
                "necessary. Give --tokenizer FOLDER (or a Hub id).",
                self._model,
                count,
            )
        self._asked_from = 0.0 if has_counted else time.monotonic() + _AGAIN_S

    def _ask(self, text: str) -> int | str:
        """Number of tokens of a text, or why the first address does not count them."""
        if not self._endpoint.urls:
            return "it has no address yet"
        # llama.cpp expects the text as content, vLLM and SGLang as prompt.
        texts = {"content": text, "prompt": text}
        body = {"model": self._model, "add_special_tokens": False, **texts}
        url = f"{self._endpoint.urls[0].rstrip('/').removesuffix('/v1')}/tokenize"
        most = _MOST_BYTES + _BYTES_A_TOKEN * _ESTIMATE.count(text)
        message = ""
        for wait_s in _WAITS_S:
            time.sleep(wait_s)
            try:
                asked = exchange(
                    url, self._endpoint.key, body, timeout_s=_TIMEOUT_S, most_bytes=most
                )
                status, reply = submit(asked).result()
            except Exception as error:  # whatever a server or a network does
                message = f"{type(error).__name__}: {error}"
                continue
            tokens = reply.get("tokens") if isinstance(reply, dict) else None
            if isinstance(tokens, list) and 0 < len(tokens) <= _ESTIMATE.count(text) + 2:
                self._has_counted = True
                return len(tokens)
            is_refused = status >= _REFUSED
            message = f"HTTP {status}: {message_of(reply)}" if is_refused else "no list of tokens"
            if status not in _BUSY:
                break
        return self._redact(message, _MOST_SAID)


def reader_of(tokenizer: str) -> Reader:
    """A tokenizer that sends no request, for plans and checks.

    Raises:
        TeacherError: The tokenizer cannot be loaded.
    """
    return _ESTIMATE if tokenizer == SERVER else ReaderTokenizer(tokenizer)
