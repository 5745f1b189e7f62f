"""What others may read of a configuration: no folder, no address, nothing of the machine.

Records that are published or compared say it of the runs that they come from, and give a model
or a file by its name alone. Secrets are never configuration (see ``config``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heavydistill.config.run import RunConfig


def without_places(config: RunConfig) -> dict[str, Any]:
    """A configuration as JSON for others to read, without folders, addresses and machine."""
    tree = config.model_dump(
        mode="json",
        exclude={
            **dict.fromkeys(("out", "journal", "pools", "verify"), True),
            "think": {"processes"},
            "deliberate": {"processes"},
        },
    )
    tree["endpoint"] = key_name_of(tree["endpoint"])
    source = Path(tree["problems"]["source"])
    if source.suffix in (".jsonl", ".parquet"):
        tree["problems"]["source"] = source.name
    for role in ("teacher", "thinker", "deliberator"):
        tree[role] = tree[role] and name_alone(tree[role])
    if tree["judge"]:
        tree["judge"]["model"] = name_alone(tree["judge"]["model"])
        tree["judge"]["endpoint"] = key_name_of(tree["judge"]["endpoint"])
    return tree


def key_name_of(endpoint: dict[str, Any] | None) -> dict[str, Any] | None:
    """The name of an endpoint's key variable alone: publishing searches for that key's value."""
    return endpoint and {"api_key_env": endpoint["api_key_env"]}


def name_alone(source: str) -> str:
    """The name of a file or folder, and any other source as it is.

    What is not here and looks like an id on the Hub or at a provider is taken for one.
    """
    path = Path(source)
    is_place = path.exists() or path.is_absolute() or path.parts[:1] == ("..",)
    return path.resolve().name if is_place else source
