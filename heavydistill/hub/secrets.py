"""Refuses to publish files that contain a key, and replaces keys in recorded requests.

Keys are the values of environment variables with a name such as ``..._API_KEY``, ``..._TOKEN``,
``..._SECRET`` or ``..._PASSWORD`` (a number may follow), of variables named by a provider or a
configuration, and the token for the Hub. Every file is searched for keys before it is sent; in
weights, only the header is searched.

Keys of others, which models may have seen and problems may quote, are recognised by their shapes.
The user may say that they are none.

Not covered: values of fewer than eight characters, which are placeholders for servers without keys,
and keys of others without a shape of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from heavydistill.errors import PublishError
from heavydistill.models.profiles import PROVIDERS

_KEY_NAME = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE)S?(?:_?\d+)?$", re.IGNORECASE
)
_FEWEST_CHARACTERS = 8
_KEY_FIELD = "api_key_env"
_LINE_ENDS = (rb"\n", rb"\r", rb"\t")  # and tabs, as JSON writes them
_Patterns = Mapping[str, re.Pattern[bytes]]
# Shapes of keys, as the rules of gitleaks (config/gitleaks.toml, commit 009e025a) have them, except
# that of DeepSeek (32 hexadecimal digits) and OpenRouter (its documentation: sk-or-v1-).
_SHAPES = {
    f"a key of {issuer}": re.compile(shape)
    for issuer, shape in {
        "OpenAI, Anthropic or DeepSeek": (
            rb"sk-(?:(?:proj|svcacct|admin|ant-[a-z]+\d\d)-[\w-]{40,}|[A-Za-z0-9]{32,})"
        ),
        "OpenRouter": rb"sk-or-v1-[0-9a-f]{64}",
        "Hugging Face": rb"hf_[A-Za-z0-9]{34}",
        "GitHub": rb"gh[pousr]_[0-9A-Za-z]{36}|github_pat_\w{82}",
        "GitLab": rb"glpat-[\w-]{20}",
        "AWS": rb"(?:AKIA|ASIA|ABIA|ACCA)(?!IOSFODNN7EXAMPLE)[A-Z2-7]{16}",
        "Google": rb"AIza[\w-]{35}",
        "Slack": rb"xox[bpears]-[0-9]{10,13}-[0-9A-Za-z-]{10,}",
        "Stripe": rb"[sr]k_(?:live|prod)_[A-Za-z0-9]{10,99}",
        "PyPI": rb"pypi-AgEIcHlwaS5vcmc[\w-]{50,}",
        "npm": rb"npm_[A-Za-z0-9]{36}",
        "its owner alone (a private key)": (
            rb"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\]{64,}"
        ),
    }.items()
}


def known_secrets(*trees: dict[str, object]) -> dict[str, str]:
    """Return the API keys and tokens that this process can read, by the name of their variable.

    ``trees`` are manifests, records and configurations, which may name further variables.
    """
    from huggingface_hub import get_token

    names = {name for name in os.environ if _KEY_NAME.search(name)}
    names |= {provider.key_env for provider in PROVIDERS.values()}
    for tree in trees:
        leaves = (value for key, value in _leaves(tree) if key == _KEY_FIELD)
        names.update(value for value in leaves if isinstance(value, str))
    secrets = {name: os.environ.get(name, "").strip() for name in sorted(names)}
    secrets["the token for the Hub"] = (get_token() or "").strip()
    return {name: value for name, value in secrets.items() if len(value) >= _FEWEST_CHARACTERS}


def scrubber(secrets: Mapping[str, str]) -> Callable[[str], str]:
    """Return a function that replaces keys in a text by ``[NAME]``, the name of key or issuer.

    ``secrets`` is the result of ``known_secrets``.
    """
    patterns = {name: re.compile(re.escape(value).encode()) for name, value in secrets.items()}

    def scrubbed(text: str) -> str:
        content = text.encode("utf-8", "replace")
        for name, pattern in (patterns | _SHAPES).items():
            if _found(pattern, content) is not None:
                content = pattern.sub(f"[{name}]".encode(), content)
        return content.decode()

    return scrubbed


def refuse_secrets(
    files: Mapping[str, Path | bytes],
    secrets: Mapping[str, str],
    remedy: str,
    allow_shapes: bool = False,
) -> None:
    """Check that no file contains a key.

    Args:
        files: Paths in the repository, each with a local file or the content.
        secrets: Result of ``known_secrets``.
        remedy: Instruction for removing a key from files other than the card.
        allow_shapes: Whether texts that only look like a key may be published.

    Raises:
        PublishError: A file contains a key, or a text that looks like one; names the file, the row
            or line, and the variable or kind of the key.
    """
    known = {name: re.compile(re.escape(value).encode()) for name, value in secrets.items()}
    patterns = known if allow_shapes else known | _SHAPES
    for name, source in files.items():
        is_rows = isinstance(source, Path) and source.suffix == ".parquet"
        for kind, place in (_in_rows if is_rows else _in_text)(source, patterns):
            revoke = "Revoke that key if others may have seen it."
            if kind in known:
                raise PublishError(
                    f"The value of {kind} is in {name}, {place}; nothing was sent",
                    f"{revoke} Remove it from the Notes of the card, or {remedy}.",
                )
            raise PublishError(
                f"A text that looks like {kind} is in {name}, {place}; nothing was sent",
                f"If it is a key, tell its owner to revoke it, and {remedy}. If it is none, add "
                "--allow-key-shapes.",
            )


def _leaves(tree: Any, key: object = None) -> Iterator[tuple[object, object]]:
    """Yield (key, value) of each value that is not a mapping or list."""
    if isinstance(tree, dict | list):
        for name, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _leaves(value, name)
    else:
        yield key, tree


def _in_text(source: Path | bytes, patterns: _Patterns) -> Iterator[tuple[str, str]]:
    """Yield (name of the pattern, line) of the keys in a text, or in the header of weights."""
    if isinstance(source, bytes):
        content = source
    elif source.suffix == ".safetensors":
        with source.open("rb") as file:
            content = file.read(int.from_bytes(file.read(8), "little"))
    else:
        content = source.read_bytes()
    for name, pattern in patterns.items():
        if (at := _found(pattern, content)) is not None:
            line = content.count(b"\n", 0, at) + 1
            yield name, f"line {line}"


def _found(pattern: re.Pattern[bytes], content: bytes) -> int | None:
    """Position of the first match that is not the end of a longer word; None if there is none.

    A line end in JSON is no part of a word.
    """
    for match in pattern.finditer(content):
        before = content[max(0, match.start() - 2) : match.start()]
        if not before[-1:].isalnum() or before in _LINE_ENDS:
            return match.start()
    return None


def _in_rows(source: Path | bytes, patterns: _Patterns) -> Iterator[tuple[str, str]]:
    """Yield (name of the pattern, row and column) of the keys in a parquet file, by row groups."""
    import pyarrow.parquet as pq

    first = 1
    with pq.ParquetFile(source) as file:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number)
            for name, column in zip(group.column_names, group.columns, strict=True):
                # The texts of a column are contiguous in memory, so most can be searched without
                # unpacking.
                buffers = [buffer for chunk in column.chunks for buffer in chunk.buffers()]
                memory = [buffer.to_pybytes() for buffer in buffers if buffer]
                for key, pattern in patterns.items():
                    if not any(pattern.search(part) for part in memory):
                        continue
                    for row, cell in enumerate(column.to_pylist(), first):
                        texts = (t.encode() for _, t in _leaves(cell) if isinstance(t, str))
                        if any(_found(pattern, text) is not None for text in texts):
                            yield key, f"row {row}, column {name}"
            first += group.num_rows
