"""Finds near-duplicate problems by MinHash; the earliest one is kept.

Two problems are near-duplicates if they have the same numbers in the same order, and share at least
``THRESHOLD`` of their sequences of three words (Jaccard similarity). The similarity is computed
exactly for the pairs that MinHash finds; MinHash misses about one in twenty pairs at the threshold.
Procedural problems are duplicates only if their texts are equal, because instances of one template
may differ only in words, drawings or code.

Not covered: paraphrases; a problem with an additional number, such as a problem number in front;
templates of unknown origin that differ only in words.
"""

from __future__ import annotations

import unicodedata
from array import array

from heavydistill.text.words import digest, is_number, tokens_of

THRESHOLD = 0.8
_RUN = 3
# A pair with similarity s is compared with probability 1 - (1 - s**8)**16.
_BANDS, _ROWS = 16, 8
_LOW_BITS = 0xFFFFFFFF
# Sequences shared by this many problems are the wording of a template. A new problem is compared
# with the first of them only; otherwise time would grow with the square of their number.
_MOST_ALIKE = 50


class NearDuplicates:
    """Compares each new problem with all earlier ones; stores hashes but no texts."""

    def __init__(self) -> None:
        from datasketch import MinHash

        self._blank = MinHash(num_perm=_BANDS * _ROWS, seed=1, hashfunc=_LOW_BITS.__and__)
        self._by_text: dict[int, str] = {}
        self._names: list[str] = []
        self._runs: list[array[int]] = []
        self._alike: dict[bytes, array[int]] = {}

    def add(self, name: str, text: str, procedural: bool = False) -> str | None:
        """Add a problem under a unique ``name``.

        Returns the name of the first earlier problem that is a near-duplicate; None if there is
        none.
        """
        same = digest(unicodedata.normalize("NFKC", text).casefold().split())
        if same in self._by_text:
            return self._by_text[same]
        if not procedural and (earlier := self._near(name, tokens_of(text))):
            return earlier
        self._by_text[same] = name
        return None

    def _near(self, name: str, tokens: list[str]) -> str | None:
        """Return the first near-duplicate among earlier problems; if none, add the problem."""
        if not tokens:
            return None
        runs = sorted(_runs(tokens))
        sketch = self._blank.copy()
        sketch.update_batch(runs)
        rows = sketch.hashvalues.reshape(_BANDS, _ROWS)
        bands = [bytes([number]) + row.tobytes() for number, row in enumerate(rows)]
        own = frozenset(runs)
        for place in sorted({place for band in bands for place in self._alike.get(band, ())}):
            shared = len(own.intersection(self._runs[place]))
            if shared / (len(own) + len(self._runs[place]) - shared) >= THRESHOLD:
                return self._names[place]
        for band in bands:
            group = self._alike.setdefault(band, array("I"))
            if len(group) < _MOST_ALIKE:
                group.append(len(self._names))
        self._names.append(name)
        self._runs.append(array("Q", runs))
        return None


def _runs(tokens: list[str]) -> set[int]:
    """Return hashes of all three-word sequences, each combined with the problem's numbers."""
    numbers = digest(token for token in tokens if is_number(token)).to_bytes(8)
    starts = range(max(1, len(tokens) - _RUN + 1))
    return {digest(tokens[at : at + _RUN], key=numbers) for at in starts}
