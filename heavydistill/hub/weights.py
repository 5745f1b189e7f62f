"""Finds the weights of a trained model in a folder and checks that their files are complete.

Weights are safetensors files. The header of each file is compared with the length of the file.

Not covered: the values of the weights, and whether an adapter fits its base model.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError, PublishError

FULL = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"

_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")
WEIGHTS = "|".join([*map(re.escape, (FULL, INDEX, ADAPTER)), _SHARD.pattern])
"""Pattern of the names of weight files."""
_AGAIN = "Repeat the training; an interrupted one continues from its last checkpoint."


def is_adapter(folder: Path) -> bool:
    """Return whether a folder has the weights of an adapter."""
    return (folder / ADAPTER).is_file()


def adapter_config(folder: Path) -> dict[str, object] | None:
    """Return the configuration of the adapter in a folder; None for a full model.

    Raises:
        ConfigError: The adapter's configuration cannot be read.
    """
    if not is_adapter(folder):
        return None
    path = folder / ADAPTER_CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
        return {**config, "r": int(config["r"])}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} is not the configuration of an adapter", "Put the file back, or train again."
        ) from error


def weights_of(folder: Path) -> list[str]:
    """Return the names of the weight files, and of their index if there is one.

    As in transformers, a single file with all weights has precedence over an index.

    Raises:
        PublishError: There are no weights, weights of both a full model and an adapter, or a file
            is missing, incomplete or without values.
    """
    is_full = (folder / FULL).is_file() or (folder / INDEX).is_file()
    if is_adapter(folder) and is_full:
        raise PublishError(
            f"{folder} holds the weights of a full model and of an adapter",
            "Remove the files of the other training.",
        )
    for name in (ADAPTER, FULL):
        if (folder / name).is_file():
            _tensors(folder / name)
            return [name]
    if (folder / INDEX).is_file():
        return [*_shards(folder), INDEX]
    raise PublishError(f"{folder} holds no weights: neither {FULL} nor {ADAPTER}", _AGAIN)


def _shards(folder: Path) -> list[str]:
    """Return the files that the index names, after checking them for all tensors that it lists."""
    try:
        places: dict[str, str] = json.loads((folder / INDEX).read_bytes())["weight_map"]
        names = sorted(set(places.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PublishError(f"{folder / INDEX} is not an index of weights", _AGAIN) from error
    for name in names:
        if not _SHARD.fullmatch(name) or not (folder / name).is_file():
            raise PublishError(f"{folder / INDEX} names {name}, which is missing", _AGAIN)
        tensors = _tensors(folder / name)
        if missing := sorted(key for key in places if places[key] == name and key not in tensors):
            raise PublishError(f"{folder / name} lacks {missing[0]}, which is in the index", _AGAIN)
    return names


def _tensors(path: Path) -> set[str]:
    """Return the names of the tensors in a file."""
    from safetensors import SafetensorError, safe_open

    try:
        # safe_open refuses a file whose length does not match its header.
        with safe_open(path, framework="numpy") as file:
            names = set(file.keys())
            empty = [name for name in sorted(names) if 0 in file.get_slice(name).get_shape()]
    except (SafetensorError, OSError, ValueError) as error:
        raise PublishError(f"{path} is incomplete: {error}", _AGAIN) from error
    if empty or not names:
        # ZeRO-3 saves weights without values if they were not gathered.
        raise PublishError(f"{path} has no values for {(empty or ['anything'])[0]}", _AGAIN)
    return names
