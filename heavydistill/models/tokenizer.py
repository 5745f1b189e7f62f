"""The tokenizer of the model that will read a cache, for counting and cutting.

Implements ``heavy.pruning.Reader`` with the ``tokenizers`` library alone, so that the step which
builds caches needs neither torch nor transformers. Not covered: models without a
``tokenizer.json``.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from heavydistill.errors import TeacherError
from heavydistill.models.hub_files import file_in, remedy, why

SERVER = "server"  # in place of a tokenizer's name: the model's server counts; see ``counting``
_REMEMBERED = 512
TEMPLATE_TOKENS = 64  # left free for what a chat template wraps around a prompt


class ReaderTokenizer:
    """Counts and cuts in a model's own tokens.

    Args:
        name: Folder with a ``tokenizer.json``, or a Hub id.

    Raises:
        TeacherError: There is no tokenizer of that name.
    """

    def __init__(self, name: str) -> None:
        from tokenizers import Tokenizer

        self.name = name
        try:
            self._tokenizer = Tokenizer.from_file(str(file_in(name, "tokenizer.json")))
        except Exception as error:  # the library raises bare Exception
            what = error if Path(name).is_dir() else why(name, error)
            raise TeacherError(
                f"The tokenizer {name!r} cannot be loaded: {what}",
                remedy("a folder that holds tokenizer.json"),
            ) from error
        # The sets of one problem show the same attempts over and over.
        self._counted = lru_cache(maxsize=_REMEMBERED)(self._count)
        self.control_tokens = tuple(
            token.content
            for token in self._tokenizer.get_added_tokens_decoder().values()
            if token.special
        )

    def count(self, text: str) -> int:
        """Tokens of ``text``; those of the last few hundred texts are remembered."""
        return self._counted(text)

    def _count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def head(self, text: str, tokens: int) -> str:
        """A longest prefix of ``text`` of at most so many tokens."""
        if tokens <= 0:
            return ""
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        if len(offsets) <= tokens:
            return text
        cut = text[: offsets[tokens - 1][1]]
        # A prefix may split into more tokens than it had inside the whole text.
        while self.count(cut) > tokens:
            cut = cut[:-1]
        return cut

    def tail(self, text: str, tokens: int) -> str:
        """A longest suffix of ``text`` of at most so many tokens."""
        if tokens <= 0:
            return ""
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        if len(offsets) <= tokens:
            return text
        cut = text[offsets[-tokens][0] :]
        while self.count(cut) > tokens:
            cut = cut[1:]
        return cut
