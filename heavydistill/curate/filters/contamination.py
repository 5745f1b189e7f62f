"""Finds problems that occur in a benchmark, by hashes of the benchmark's texts.

Texts are compared as words, with every number replaced by ``0``, so that a problem with changed
numbers is found too. A problem is contaminated for one of these reasons:

    same_text    it has fewer than 8 words and equals a text of the benchmark, numbers and signs
                 included; without numbers every sum would equal every other
    13_words     13 consecutive words occur in a text of the benchmark; sequences that occur in
                 three or more of its texts are common phrases and do not count
    8_words      at least half of its sequences of 8 words occur in texts of the benchmark

A benchmark is a parquet file of hashes (``save``) or a user's .jsonl or .parquet file of texts.
Hashes keep a text out of searches and of training data. They do not keep it secret: a suspected or
very short text can be looked up, and so can the word that follows eight known ones.

Not covered: paraphrases, translations, and a problem inside a longer text whose 13-word sequences
are all common phrases.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from heavydistill.config.shipped import shipped
from heavydistill.curate.filters.duplicates import NearDuplicates
from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import Table, read_file
from heavydistill.schema import Problem
from heavydistill.store.sets.folder import BenchmarkUsed
from heavydistill.text.words import digest, masked, tokens_of

LONG, SHORT = 13, 8
COVERAGE = 0.5
MANNER = 3
"""A sequence of 13 words that occurs in this many texts of a benchmark is a common phrase."""
COLUMNS = ("text", "question", "problem", "prompt")
"""Names of columns that may hold the texts, in order of preference."""
Reason = Literal["same_text", "13_words", "8_words"]

_KINDS = ("text", "long", "short")
_ABOUT = b"heavydistill.benchmark"
# Version of the hashing. Files of another version are refused, because no hash would match.
_RULE = 1


@dataclass(frozen=True, slots=True)
class BenchmarkHashes:
    """The hashes of a benchmark."""

    name: str  # Name in reports
    size: int  # Number of distinct texts
    texts: frozenset[int]  # Hashes of the texts of fewer than 8 words
    long: frozenset[int]  # Hashes of sequences of 13 words in fewer than ``MANNER`` texts
    short: frozenset[int]  # Hashes of all sequences of 8 words

    @classmethod
    def of(cls, name: str, texts: Iterable[str]) -> BenchmarkHashes:
        """Compute the hashes of a benchmark with these texts; equal texts count once."""
        seen, brief, short = set[int](), set[int](), set[int]()
        long: Counter[int] = Counter()
        for text in texts:
            own = _hashes_of(text)
            if own.whole in seen:
                continue
            seen.add(own.whole)
            if own.is_brief:
                brief.add(own.whole)
            long.update(own.long)
            short.update(own.short)
        telling = frozenset(run for run, often in long.items() if often < MANNER)
        return cls(name, len(seen), frozenset(brief), telling, frozenset(short))

    def hit(self, text: str) -> Reason | None:
        """Return the reason why a text counts as part of the benchmark; None if it does not."""
        own = _hashes_of(text)
        if own.is_brief:
            return "same_text" if own.whole in self.texts else None
        if not self.long.isdisjoint(own.long):
            return "13_words"
        covered = sum(run in self.short for run in own.short)
        return "8_words" if covered >= COVERAGE * len(own.short) else None

    @property
    def sha256(self) -> str:
        """Return a hex digest of all hashes; equal hashes, read or computed, give equal digests."""
        content = hashlib.sha256()
        for kind, numbers in self._rows():
            content.update(kind.encode() + b"".join(number.to_bytes(8) for number in numbers))
        return content.hexdigest()

    def save(self, path: Path) -> None:
        """Write the hashes; with the same pyarrow, equal hashes give the same bytes."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = self._rows()
        kinds = [kind for kind, numbers in rows for _ in numbers]
        hashes = [number for _, numbers in rows for number in numbers]
        about = json.dumps({"name": self.name, "size": self.size, "rule": _RULE})
        columns = {"kind": pa.array(kinds, pa.string()), "hash": pa.array(hashes, pa.uint64())}
        table = pa.table(columns).replace_schema_metadata({_ABOUT: about})
        pq.write_table(
            table,
            path,
            use_dictionary=["kind"],
            column_encoding={"hash": "DELTA_BINARY_PACKED"},  # the hashes are sorted
            compression="none",  # the rest is random, so compressing gains nothing
        )

    def _rows(self) -> list[tuple[str, list[int]]]:
        return [
            (kind, sorted(numbers))
            for kind, numbers in zip(_KINDS, (self.texts, self.long, self.short), strict=True)
        ]


def read(path: Path) -> BenchmarkHashes:
    """Read a benchmark from a file of hashes, or of texts (the first of ``COLUMNS`` in it).

    Raises ProblemsError if the file is neither, or its hashes are damaged or of another version.
    """
    if path.suffix not in (".jsonl", ".parquet"):
        raise ProblemsError(
            f"{path} is neither a .parquet nor a .jsonl file",
            "Give a .parquet or .jsonl file with hashes or texts.",
        )
    return _read_hashes(path) or BenchmarkHashes.of(path.stem, texts_of(read_file(path)))


def texts_of(table: Table, column: str | None = None) -> list[str]:
    """Return the texts in a column of a table (default: the first of ``COLUMNS`` that exists).

    Raises ProblemsError if there is no such column, or a row of the column has no text.
    """
    columns = table.rows[0].values
    names = (column,) if column else COLUMNS
    present = next((name for name in names if name in columns), None)
    if present is None:
        raise ProblemsError(
            f"{table.origin} has no column {' or '.join(names)}",
            "Rename the column of the texts, or make hashes with scripts/hash_benchmark.py "
            f"--column NAME. Columns there: {', '.join(columns)}.",
        )
    texts = [(row.where, row.values.get(present)) for row in table.rows]
    for where, text in texts:
        if not isinstance(text, str) or not tokens_of(text):
            raise ProblemsError(
                f"{where} has no text in the column {present}",
                f"Remove the row, or rename the column that holds the texts to {COLUMNS[0]}; "
                "scripts/hash_benchmark.py --column reads any column.",
            )
    return [str(text) for _, text in texts]


def _read_hashes(path: Path) -> BenchmarkHashes | None:
    """Return the benchmark in a file of hashes; None for another kind of file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        about = json.loads((pq.read_schema(path).metadata or {}).get(_ABOUT, b"null"))
    except (OSError, pa.ArrowException):
        return None  # read_file reports the error
    if about is None:
        return None
    if about.get("rule") != _RULE:
        raise ProblemsError(
            f"{path} holds hashes of version {about.get('rule')}, and this heavydistill reads "
            f"version {_RULE}",
            "Make the file again from the texts with scripts/hash_benchmark.py.",
        )
    kinds: dict[str, set[int]] = {kind: set() for kind in _KINDS}
    try:
        table = pq.read_table(path)
        columns = (table.column(name).to_pylist() for name in ("kind", "hash"))
        for kind, number in zip(*columns, strict=True):
            kinds[kind].add(number)
    except (OSError, pa.ArrowException, KeyError) as error:
        raise ProblemsError(
            f"{path} contains damaged hashes: {error}",
            "Copy it again, or make it again with scripts/hash_benchmark.py.",
        ) from error
    return BenchmarkHashes(
        about["name"], about["size"], *(frozenset(kinds[kind]) for kind in _KINDS)
    )


class ContaminationFilter:
    """Finds problems that must be left out: those of benchmarks, and near-duplicates.

    ``against`` lists benchmark files (default: those that come with heavydistill). Raises UserError
    if one cannot be read.
    """

    def __init__(self, against: Sequence[str] | None) -> None:
        bundled = shipped("data/benchmarks", ".parquet").values()
        files = bundled if against is None else [Path(file) for file in against]
        self._benchmarks = [read(file) for file in files]
        self._hits: list[Counter[str]] = [Counter() for _ in self._benchmarks]
        self._seen = NearDuplicates()

    def look(self, key: str, problem: Problem) -> tuple[str, str]:
        """Return (label, detail), both empty for a usable problem; call in run order."""
        texts = [turn.text for turn in problem.history if turn.role == "user"] + [problem.text]
        for benchmark, hits in zip(self._benchmarks, self._hits, strict=True):
            if reason := next(filter(None, map(benchmark.hit, texts)), None):
                hits[reason] += 1
                return "contaminated", f"{benchmark.name}: {reason}"
        if earlier := self._seen.add(key, problem.transcript, problem.verifier == "procedural"):
            return "near_duplicate", earlier
        return "", ""

    @property
    def used(self) -> list[BenchmarkUsed]:
        """Return the benchmarks that problems were compared with, and the matches by reason."""
        return [
            BenchmarkUsed(
                name=benchmark.name, texts_sha256=benchmark.sha256, hits=dict(sorted(hits.items()))
            )
            for benchmark, hits in zip(self._benchmarks, self._hits, strict=True)
        ]


class _Hashes(NamedTuple):
    """Hashes of a text, and of its sequences of 13 and 8 words."""

    is_brief: bool  # Whether the text has fewer than 8 words
    whole: int  # Hash of the text with its numbers and signs
    long: frozenset[int]
    short: Sequence[int]


@lru_cache(maxsize=1)  # the same text is compared with several benchmarks
def _hashes_of(text: str) -> _Hashes:
    tokens = tokens_of(text)
    words = masked(tokens)
    long, short = frozenset(_runs(words, LONG)), _runs(words, SHORT)
    return _Hashes(len(words) < SHORT, digest(tokens), long, short)


def _runs(words: list[str], length: int) -> list[int]:
    return [digest(words[at : at + length]) for at in range(len(words) - length + 1)]
