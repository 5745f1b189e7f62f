"""How to use a trained model: the commands in its card, which work as they stand."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.terms import Base
from heavydistill.hub.weights import ADAPTER_CONFIG, is_adapter
from heavydistill.report.markdown import at
from heavydistill.store.training_record import TrainingRecord

_SERVER = "http://localhost:8000/v1"
# Bounds on the rank for which vLLM has compiled kernels.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_PLAIN = re.compile(r"[\w.-]+")
_USUAL = {"domain": "general", "language": "en"}


def usage(
    record: TrainingRecord, folder: Path, base: Base, options: PublishOptions
) -> dict[str, Any]:
    """Values of the section of the template that says how the model is used.

    Raises:
        ConfigError: The configuration of the adapter cannot be read.
    """
    adapter = _adapter(folder)
    rank = _servable_rank(adapter) if adapter else None
    parent = base.hub or f"path/to/{base.name if _PLAIN.fullmatch(base.name) else 'base'}"
    place, download = options.repo_id or "path/to/this/folder", []
    if options.repo_id and options.revision:
        place = options.repo_id.partition("/")[2]
        download = ["hf", "download", options.repo_id, "--revision", options.revision]
        download += ["--local-dir", place]
    problems = _run_flags(record)
    generate = ["heavydistill", "generate"]
    own = [*generate, *_models(record, base.profile or parent, place), *problems]
    parser = ["--reasoning-parser", base.parser] if base.parser else []
    if rank:  # base model and adapter on one server, each under a name of its own
        name = "student" if record.role == "both" else record.role
        serve = ["vllm", "serve", parent, *(["--revision", base.revision] if base.revision else [])]
        serve += ["--tokenizer", place, "--enable-lora", "--max-lora-rank", str(rank)]
        serve += ["--lora-modules", f"{name}={place}", *parser]
        ask, tokenizer = [*_models(record, parent, name), *problems], place
    else:
        tokenizer = "merged" if adapter else place
        serve = ["vllm", "serve", tokenizer, *parser]
        # One server has one model, so a deliberator gets attempts that are there already.
        ask = {
            "thinker": [],
            "deliberator": ["--pools", "runs/attempts", "--deliberator", tokenizer],
            "both": ["--teacher", tokenizer, *problems],
        }[record.role]
    # A served model is asked within the context that it learnt.
    ask += ["--endpoint", _SERVER, "--tokenizer", tokenizer] if ask else []
    ask += ["--set", f"endpoint.context={record.max_length}"] if ask else []
    return {
        "attempts": _attempts(record),
        "download": shlex.join(download),
        "generate": shlex.join(own),
        "name": json.dumps(place),
        "parent": json.dumps(parent),
        "at": f", revision={json.dumps(base.revision)}" if base.revision else "",
        "is_adapter": adapter is not None,
        "merge_first": adapter is not None and not rank,
        "serve": shlex.join(serve),
        "ask": shlex.join([*generate, *ask]) if ask else "",
        # In SFT, prompt and response are counted together.
        "response_tokens": (record.rl and record.rl.response_tokens) or record.max_length,
    }


def _attempts(record: TrainingRecord) -> int | None:
    """The largest K of the runs from which a deliberator learnt; None if no run tells."""
    configs = [run.config for used in record.sets for run in used.manifest.runs]
    if record.rl and record.rl.run:
        configs = [record.rl.run]
    return max((k for config in configs if (k := at(config, "think.k"))), default=None)


def _models(record: TrainingRecord, base: str, trained: str) -> list[str]:
    """Flags of a run in which the model has the role that it learnt, and its base the other."""
    if record.role == "both":
        return ["--teacher", trained]
    thinker, deliberator = (trained, base) if record.role == "thinker" else (base, trained)
    return ["--thinker", thinker, "--deliberator", deliberator]


def _run_flags(record: TrainingRecord) -> list[str]:
    """Problems, as many attempts as a deliberator learnt from, and the prompts that it learnt."""
    versions = {version for used in record.sets for version in used.manifest.prompts}
    wordings = [version.partition("@")[0].split(".") for version in sorted(versions)]
    flags = ["--problems", "problems.jsonl"]
    if record.role != "thinker" and (k := _attempts(record)):
        flags += ["--k", str(k)]
    for number, (key, usual) in enumerate(_USUAL.items(), start=1):
        learnt = {parts[number] for parts in wordings if len(parts) == 3}
        if record.rl and record.rl.run:
            learnt = {record.rl.run[key]}
        if len(learnt) == 1 and learnt != {usual}:
            flags += ["--set", f"{key}={learnt.pop()}"]
    return flags


def _adapter(folder: Path) -> dict[str, Any] | None:
    """The configuration of the adapter; None for a full model."""
    if not is_adapter(folder):
        return None
    path = folder / ADAPTER_CONFIG
    try:
        config: dict[str, Any] = json.loads(path.read_bytes())
        return {**config, "r": int(config["r"])}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{path} is no configuration of an adapter", "Train again, or put back the file."
        ) from error


def _servable_rank(adapter: dict[str, Any]) -> int | None:
    """The bound on the rank for vLLM; None if its ``PEFTHelper`` does not accept the adapter."""
    is_odd = any(adapter.get(key) for key in ("use_dora", "modules_to_save", "lora_bias"))
    largest = max(adapter["r"], *(adapter.get("rank_pattern") or {}).values(), 0)
    if is_odd or adapter.get("bias", "none") != "none":
        return None
    return next((rank for rank in _RANKS if rank >= largest), None)
