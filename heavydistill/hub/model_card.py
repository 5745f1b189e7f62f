"""The model card of a trained model: its ``README.md``, with metadata for the Hub.

The card depends only on ``training.json``, the configuration of an adapter, the metrics of an
evaluation and the profiles of the models, so the same training has the same card.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.hub.cards import CARD, languages, render
from heavydistill.hub.options import IN_FOLDER, PublishOptions
from heavydistill.hub.terms import Base, Licence, Origin, origin_of
from heavydistill.hub.weights import adapter_config
from heavydistill.metrics.comparison import COMPARISON, Comparison, read_comparison
from heavydistill.metrics.controls import CONTROLS, read_controlled
from heavydistill.report.markdown import at
from heavydistill.store.sets.folder import Manifest
from heavydistill.store.training_record import EVALUATION, TrainingRecord, read_record

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

FIGURES = f"{EVALUATION}/{COMPARISON}"
CONTROL_FIGURES = f"{EVALUATION}/{CONTROLS}"
_SERVER = "http://localhost:8000/v1"
# Values of max_lora_rank for which vLLM has compiled kernels.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_ODD = ("use_dora", "modules_to_save", "lora_bias")
_PLAIN = re.compile(r"[\w.-]+")
_USUAL = {"domain": "general", "language": "en"}
_METHODS = {
    "full": "all weights",
    "lora": "LoRA",
    "rslora": "rank-stabilized LoRA",
    "dora": "DoRA",
    "qlora": "QLoRA",
}


def model_card(record: TrainingRecord, folder: Path, options: PublishOptions = IN_FOLDER) -> str:
    """Return the card of a model whose training has ended, with the Hub address from the options.

    Raises:
        ConfigError: A profile, the configuration of the adapter or the metrics of the evaluation
            cannot be read, or the card in the folder is not UTF-8 text.
    """
    origin, adapter = origin_of(record, options.profiles), adapter_config(folder)
    licence = origin.licence(options)
    title = f"{record.base.name} as {' and '.join(record.roles)}"
    comparison, controls = comparison_in(folder), folder / CONTROL_FIGURES
    ancestors, before = [], record.base.training  # as far as they are recorded
    while before:
        ancestors.append(before)
        before = before.base.training
    folders: dict[
        str, tuple[str, set[str], Manifest]
    ] = {}  # each set once, with the roles trained on it
    for used in record.sets:
        key = json.dumps([used.name, used.revision, used.manifest.files])
        folders.setdefault(key, (used.name, set(), used.manifest))[1].add(used.role)
    return render(
        "model_card.md",
        folder,
        metadata=_metadata(record, title, adapter is not None, origin, licence, comparison),
        title=title,
        method=_METHODS[record.method],
        ancestors=ancestors,
        attempts=_attempts(record),
        is_adapter=adapter is not None,
        use=_usage(record, adapter, origin.base, options),
        context=_context(record),
        comparison=comparison,
        controls=read_controlled(controls) if comparison and controls.is_file() else None,
        record=record,
        folders=list(folders.values()),
        origin=origin,
        licence=licence,
    )


def write_model_card(folder: Path) -> None:
    """Write the card of a trained model into its folder; raises the errors of ``model_card``."""
    (folder / CARD).write_text(model_card(read_record(folder), folder), encoding="utf-8")


def comparison_in(folder: Path) -> Comparison | None:
    """Return the evaluation in the folder of a trained model; None if there is none.

    Raises:
        ConfigError: The file has another version.
    """
    path = folder / FIGURES
    return read_comparison(path) if path.is_file() else None


def _metadata(
    record: TrainingRecord,
    title: str,
    is_adapter: bool,
    origin: Origin,
    licence: Licence,
    comparison: Comparison | None,
) -> str:
    from huggingface_hub import ModelCardData

    method = [record.method] * (record.method != "full")
    results = _results(comparison, record.role) if comparison else None
    relation = "adapter" if is_adapter else "finetune"
    data = ModelCardData(
        base_model=origin.base.hub,
        base_model_relation=relation if origin.base.hub else None,
        datasets=sorted({used.name for used in record.sets if used.revision}) or None,
        eval_results=results or None,
        language=languages(used.manifest for used in record.sets) or None,
        library_name="peft" if is_adapter else "transformers",
        license=licence.name,
        license_name=licence.hub_name,
        model_name=title if results else None,
        pipeline_tag="text-generation",
        tags=[
            *("heavydistill", *record.roles, "deliberation", "reasoning"),
            *(record.stage, "trl", *method),
        ],
    )
    return data.to_yaml()


def _results(comparison: Comparison, role: str) -> list[EvalResult]:
    """Return the shares after training in the Hub's format, only for the roles of this model."""
    from huggingface_hub import EvalResult

    source = str(at(comparison.config, "problems.source") or "another run").removeprefix("hub:")
    did_both = comparison.after.thinker == comparison.after.deliberator
    return [
        EvalResult(
            task_type="text-generation",
            dataset_type=source,
            dataset_name=source,
            metric_type="accuracy",
            metric_name=f"{name} ({meaning})",
            metric_value=round(change.after.mean, 4),
        )
        for name, meaning, change in comparison.metrics
        if "-" not in name
        and (did_both or role == ("deliberator" if name.startswith("H") else "thinker"))
    ]


def _context(record: TrainingRecord) -> int:
    """Return the number of tokens of prompt and response that the model was trained on."""
    if record.rl:
        return record.max_length
    return max(used.manifest.student.max_tokens for used in record.sets)


def _usage(
    record: TrainingRecord, adapter: dict[str, Any] | None, base: Base, options: PublishOptions
) -> dict[str, object]:
    """Return names and commands for the section on how to use the model."""
    rank = None  # maximum rank for vLLM, if its `PEFTHelper` accepts the adapter
    if adapter and adapter.get("bias", "none") == "none" and not any(map(adapter.get, _ODD)):
        largest = max(adapter["r"], *(adapter.get("rank_pattern") or {}).values(), 0)
        rank = next((bound for bound in _RANKS if bound >= largest), None)
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
    if rank:  # base model and adapter on one server, with different names
        name = "student" if record.role == "both" else record.role
        serve = ["vllm", "serve", parent, *(["--revision", base.revision] if base.revision else [])]
        serve += ["--tokenizer", place, "--enable-lora", "--max-lora-rank", str(rank)]
        serve += ["--lora-modules", f"{name}={place}", *parser]
        ask, tokenizer = [*_models(record, parent, name), *problems], place
    else:
        tokenizer = place if adapter is None else "merged"
        serve = ["vllm", "serve", tokenizer, *parser]
        # The server has one model, so a deliberator needs the attempts of an earlier run.
        ask = {
            "thinker": [],
            "deliberator": ["--pools", "runs/attempts", "--deliberator", tokenizer],
            "both": ["--teacher", tokenizer, *problems],
        }[record.role]
    if ask:
        ask = [*generate, *ask, "--endpoint", _SERVER, "--tokenizer", tokenizer]
        # within the context length of the training
        ask += ["--set", f"endpoint.context={_context(record)}"]
    return {
        "download": shlex.join(download),
        "generate": shlex.join(own),
        "architecture": record.base.architecture or "AutoModelForCausalLM",
        "name": json.dumps(place),
        "parent": json.dumps(parent),
        "at": f", revision={json.dumps(base.revision)}" if base.revision else "",
        "merge_first": adapter is not None and not rank,
        "serve": shlex.join(serve),
        "ask": shlex.join(ask),
    }


def _attempts(record: TrainingRecord) -> int | None:
    """Return the largest K of the runs that a deliberator was trained on; None if not recorded."""
    configs = [run.config for used in record.sets for run in used.manifest.runs]
    if record.rl and record.rl.run:
        configs = [record.rl.run]
    return max((k for config in configs if (k := at(config, "think.k"))), default=None)


def _models(record: TrainingRecord, base: str, trained: str) -> list[str]:
    """Return flags for a run with the trained model in its role and the base model in the other."""
    if record.role == "both":
        return ["--teacher", trained]
    thinker, deliberator = (trained, base) if record.role == "thinker" else (base, trained)
    return ["--thinker", thinker, "--deliberator", deliberator]


def _run_flags(record: TrainingRecord) -> list[str]:
    """Return flags for the problems, and for the number of attempts and the prompts of training."""
    versions = {version for used in record.sets for version in used.manifest.prompts}
    wordings = [version.partition("@")[0].split(".") for version in versions]
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
