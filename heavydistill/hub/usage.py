"""How to use a trained model: the part of its card with commands that work as they stand."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError
from heavydistill.hub.terms import Base
from heavydistill.hub.weights import ADAPTER_CONFIG, is_adapter
from heavydistill.report.markdown import at
from heavydistill.store.training_record import TrainingRecord

_HERE = "path/to/this/folder"
_SERVER = "http://localhost:8000/v1"
# Bounds on the rank for which vLLM has compiled kernels.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_PLAIN = re.compile(r"[\w.-]+")
_USUAL = {"domain": "general", "language": "en"}


def usage_sections(
    record: TrainingRecord, folder: Path, base: Base, repo_id: str | None, revision: str | None
) -> Iterator[str]:
    """A heading, and sentences and code blocks in Markdown.

    Raises:
        ConfigError: The configuration of the adapter cannot be read.
    """
    adapter = _adapter(folder)
    parent = base.hub or f"path/to/{base.name if _PLAIN.fullmatch(base.name) else 'base'}"
    thinker = base.profile or parent
    place = repo_id or _HERE
    yield "## Use"
    yield _role(record)
    if repo_id and revision:
        place = repo_id.partition("/")[2]
        yield "It is on a branch, which is fetched first:"
        yield _bash(["hf", "download", repo_id, "--revision", revision, "--local-dir", place])
    yield "In one process, which suits small models:"
    yield _bash(["heavydistill", "generate", *_models(record, thinker, place), *_run_flags(record)])
    yield "With transformers:"
    yield _python(record, base, parent, place, is_adapter=adapter is not None)
    if adapter is None:
        yield from _served(record, base, place)
    elif _fits_vllm(adapter):
        yield from _served_adapter(record, base, parent, place, adapter)
    else:
        yield "vLLM does not take an adapter of this kind, so merge it, and serve the folder:"
        yield _fenced(
            "python",
            'model.merge_and_unload().save_pretrained("merged")',
            'tokenizer.save_pretrained("merged")',
        )
        yield from _served(record, base, "merged")


def _role(record: TrainingRecord) -> str:
    if record.role == "thinker":
        return (
            "It is asked with a problem in the wording that it learnt. heavydistill writes it; the "
            "chat template comes with the model."
        )
    k = _attempts(record)
    wide = f" It learnt from runs of up to {k} attempts a problem; more are new to it." if k else ""
    also = " As a thinker it is asked with a problem alone." if record.role == "both" else ""
    return (
        "As a deliberator it is asked with a cache: a problem and attempts at it, serialized, in "
        "the wording that it learnt. heavydistill lets a thinker write the attempts, makes the "
        f"cache and asks; the chat template comes with the model.{wide}{also}"
    )


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


def _python(
    record: TrainingRecord, base: Base, parent: str, place: str, *, is_adapter: bool
) -> str:
    name, of_base = json.dumps(place), json.dumps(parent)
    at = f", revision={json.dumps(base.revision)}" if base.revision else ""
    options = 'dtype="auto", device_map="auto"'
    loaded = (
        (
            f"base = AutoModelForCausalLM.from_pretrained({of_base}{at}, {options})",
            f"model = PeftModel.from_pretrained(base, {name})",
        )
        if is_adapter
        else (f"model = AutoModelForCausalLM.from_pretrained({name}, {options})",)
    )
    return _fenced(
        "python",
        *["from peft import PeftModel"] * is_adapter,
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({name})",
        *loaded,
        'messages = [{"role": "user", "content": "..."}]',
        "inputs = tokenizer.apply_chat_template(",
        '    messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"',
        ").to(model.device)",
        f"output = model.generate(**inputs, max_new_tokens={_response_tokens(record)})",
        'print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :]))',
    )


def _response_tokens(record: TrainingRecord) -> int:
    """Limit of its responses in GRPO; in SFT, prompt and response are counted together."""
    return (record.rl and record.rl.response_tokens) or record.max_length


def _served(record: TrainingRecord, base: Base, place: str) -> Iterator[str]:
    """Commands for a full model with vLLM."""
    yield "With vLLM:"
    commands = [["vllm", "serve", place, *_parser(base)]]
    # One server has one model, so a deliberator gets attempts that are there already.
    roles = {
        "thinker": [],
        "deliberator": ["--pools", "runs/attempts", "--deliberator", place],
        "both": ["--teacher", place, *_run_flags(record)],
    }
    if asked := roles[record.role]:
        commands += [["heavydistill", "generate", *asked, *_endpoint(record, place)]]
    yield _bash(*commands)


def _served_adapter(
    record: TrainingRecord, base: Base, parent: str, place: str, adapter: dict[str, Any]
) -> Iterator[str]:
    """Commands for base model and adapter on one server, each under a name of its own."""
    yield "With vLLM, which serves the base model beside it:"
    name = "student" if record.role == "both" else record.role
    rank = next(rank for rank in _RANKS if rank >= _rank(adapter))
    serve = ["vllm", "serve", parent, *(["--revision", base.revision] if base.revision else [])]
    serve += ["--tokenizer", place, "--enable-lora", "--max-lora-rank", str(rank)]
    serve += ["--lora-modules", f"{name}={place}", *_parser(base)]
    models = _models(record, parent, name)
    ask = ["heavydistill", "generate", *models, *_run_flags(record), *_endpoint(record, place)]
    yield _bash(serve, ask)


def _parser(base: Base) -> list[str]:
    return ["--reasoning-parser", base.parser] if base.parser else []


def _endpoint(record: TrainingRecord, tokenizer: str) -> list[str]:
    """Flags for a served model, which is asked within the context that it learnt."""
    context = f"endpoint.context={record.max_length}"
    return ["--endpoint", _SERVER, "--tokenizer", tokenizer, "--set", context]


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


def _fits_vllm(adapter: dict[str, Any]) -> bool:
    """Whether vLLM's ``PEFTHelper`` accepts the adapter."""
    odd = ("use_dora", "modules_to_save", "lora_bias")
    return (
        not any(adapter.get(key) for key in odd)
        and adapter.get("bias", "none") == "none"
        and _rank(adapter) <= _RANKS[-1]
    )


def _rank(adapter: dict[str, Any]) -> int:
    """The largest rank of any matrix of the adapter."""
    ranks: list[int] = [adapter["r"], *(adapter.get("rank_pattern") or {}).values()]
    return max(ranks)


def _bash(*commands: list[str]) -> str:
    return _fenced("bash", *map(shlex.join, commands))


def _fenced(language: str, *lines: str) -> str:
    return "\n".join((f"```{language}", *lines, "```"))
