"""Makes configurations and traces for publication: removes folders, addresses, private models.

The results are used in records that are published or compared. A configuration never contains
secrets (see ``config``).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from heavydistill.config.run import RunConfig
from heavydistill.config.thinkers import shares_of
from heavydistill.heavy.prompts import own_versions
from heavydistill.schema import Generation, Trace

_Sample = TypeVar("_Sample", bound=Generation)


def portable_config(config: RunConfig) -> dict[str, object]:
    """Convert a configuration to JSON, with names in place of folders and without addresses."""
    tree = config.model_dump(
        mode="json",
        exclude={
            **dict.fromkeys(("out", "journal", "pools", "verify", "plugins", "prompts"), True),
            "think": {"processes"},
            "deliberate": {"processes"},
        },
    )
    tree["endpoint"] = key_variable_of(tree["endpoint"])
    source = Path(tree["problems"]["source"])
    if source.suffix in (".jsonl", ".parquet"):
        tree["problems"]["source"] = source.name
    for role in ("teacher", "deliberator"):
        tree[role] = tree[role] and name_alone(tree[role])
    if config.thinker:
        shares = shares_of(config.thinker)
        several = (f"{name_alone(name)}={share}" for name, share in shares.items())
        tree["thinker"] = ",".join(several) if len(shares) > 1 else name_alone(config.thinker)
    tree["thinkers"] = {
        name_alone(name): {**own, "endpoint": key_variable_of(own["endpoint"])}
        for name, own in tree["thinkers"].items()
    }
    if not config.thinkers:  # as in versions that had no such keys
        del tree["thinkers"]
    if not config.think.tools.python:
        del tree["think"]["tools"]
    if versions := own_versions(config):  # the words may be somebody else's
        tree["prompts"] = versions
    if config.judge and tree["judge"]:
        tree["judge"]["model"] = name_alone(tree["judge"]["model"])
        tree["judge"]["endpoint"] = key_variable_of(tree["judge"]["endpoint"])
    return tree


def portable_trace(trace: Trace) -> Trace:
    """Return a trace with the names of models in place of their folders."""

    def named(sample: _Sample) -> _Sample:
        names = name_alone(sample.model), name_alone(sample.served_model)
        return replace(sample, model=names[0], served_model=names[1])

    return replace(
        trace,
        pool=list(map(named, trace.pool)),
        deliberations=list(map(named, trace.deliberations)),
        caches=[replace(cache, reader=name_alone(cache.reader)) for cache in trace.caches],
    )


def key_variable_of(endpoint: dict[str, object] | None) -> dict[str, object] | None:
    """Reduce an endpoint to the name of its key variable; publishing searches for the value."""
    return endpoint and {"api_key_env": endpoint["api_key_env"]}


def name_alone(source: str) -> str:
    """The name of a file or folder without its path; other sources, such as Hub ids, are unchanged.

    A relative path that does not exist counts as an id.
    """
    if not source:
        return source
    path = Path(source)
    is_place = path.exists() or path.is_absolute() or path.parts[:1] == ("..",)
    return path.resolve().name if is_place else source
