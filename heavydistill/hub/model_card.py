"""The card of a trained model: its ``README.md``, with the metadata that the Hub reads.

All of it comes from ``training.json``, the configuration of an adapter, the figures of an
evaluation and the profiles of the models, so the same training has the same card.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.hub.cards import CARD, languages, render
from heavydistill.hub.options import IN_FOLDER, PublishOptions
from heavydistill.hub.terms import Licence, Origin, origin_of, problem_sources
from heavydistill.hub.weights import adapter_config, is_adapter
from heavydistill.metrics.comparison import COMPARISON, Comparison, read_comparison
from heavydistill.metrics.counts import COLUMNS
from heavydistill.metrics.intervals import FEW_PROBLEMS, FEW_WARNING
from heavydistill.report.comparison import metrics, samples, unanswered_lines
from heavydistill.report.grid import UNKNOWN, Value, count, part, percent
from heavydistill.report.markdown import at, cell, code, interval, table, text
from heavydistill.store.sets.folder import Manifest, RunUsed
from heavydistill.store.training_record import (
    EVALUATION,
    RECORD,
    Result,
    RlUsed,
    SetsUsed,
    TrainingRecord,
    read_record,
)

if TYPE_CHECKING:
    from huggingface_hub import EvalResult
import re
import shlex

from heavydistill.hub.terms import Base

FIGURES = f"{EVALUATION}/{COMPARISON}"
_USED = "used"
_SERVER = "http://localhost:8000/v1"
# Bounds on the rank for which vLLM has compiled kernels.
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_ODD = ("use_dora", "modules_to_save", "lora_bias")
_PLAIN = re.compile(r"[\w.-]+")
_USUAL = {"domain": "general", "language": "en"}
_ROLES = {
    "thinker": "thinker",
    "deliberator": "deliberator",
    "both": "thinker and deliberator",
}
_WHAT_THEY_DO = {
    "thinker": "A thinker attempts a problem, several times and each time on its own. A "
    "deliberator, which this model is not, reads such attempts and answers.",
    "deliberator": "A deliberator reads a set of attempts at a problem, each written on its own by "
    "a thinker, compares and criticises them, derives again and answers.",
    "both": "A thinker attempts a problem several times, each time on its own. A deliberator reads "
    "a set of such attempts, compares and criticises them, derives again and answers. This model "
    "does both.",
}
_METHODS = {
    "full": "all weights",
    "lora": "LoRA",
    "rslora": "rank-stabilized LoRA",
    "dora": "DoRA",
    "qlora": "QLoRA",
}
_OF_VERDICTS = "reinforcement learning, in which the verdict of a verifier on {} was the reward"
_HOW = {
    "sft": "supervised fine-tuning on traces that verifiers judged, of which only thinking and "
    "answers that ended right were learnt",
    "deliberator": _OF_VERDICTS.format("its answers to caches"),
    "joint": _OF_VERDICTS.format("its deliberation on its own attempts")
    + ", and attempts and deliberation were learnt as one episode",
    "thinker": _OF_VERDICTS.format("its attempts"),
}


def model_card(record: TrainingRecord, folder: Path, options: PublishOptions = IN_FOLDER) -> str:
    """The card of a trained model, whose training has ended, for the place where it goes.

    Raises:
        ConfigError: A profile of the options is none, the card in the folder is no text, or the
            figures of the evaluation or the configuration of the adapter cannot be read.
    """
    origin = origin_of(record, options.profiles)
    licence = origin.licence
    if options.licence is not None:
        licence = Licence(options.licence, "whoever published the model chose it")
    title = f"{record.base.name} as {_ROLES[record.role]}"
    comparison = comparison_in(folder)
    arguments = [
        (
            code(key),
            code(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)),
        )
        for key, value in record.arguments.items()
    ]
    folders: dict[str, tuple[str, set[str], Manifest]] = {}  # each once, with the roles learnt
    for used in record.sets:
        key = json.dumps([used.name, used.revision, used.manifest.files])
        folders.setdefault(key, (used.name, set(), used.manifest))[1].add(used.role)
    return render(
        "model_card.md",
        folder,
        metadata=_metadata(record, title, is_adapter(folder), origin, licence, comparison),
        title=title,
        what_it_is=_what_it_is(record, folder, origin),
        use=_usage(record, folder, origin.base, options),
        evaluation=_evaluation(comparison) if comparison else None,
        record=record,
        record_name=RECORD,
        prompts=_prompts(record, record.rl) if record.rl else "",
        learnt_rows=_learnt_rows(record),
        folders=list(folders.values()),
        manifests=[used.manifest for used in record.sets],
        problem_sources=problem_sources,
        runs_line=lambda manifest: "; ".join(map(_run_line, manifest.runs)),
        filter_lines=_filter_lines,
        authors=origin.authors,
        licence=licence,
        base=origin.base,
        training=table(("What", "How much"), _training_rows(record)),
        arguments=table(("Argument", "Value"), arguments),
    )


def write_model_card(folder: Path) -> None:
    """Write the card of a trained model into its folder; errors as in ``model_card``."""
    (folder / CARD).write_text(model_card(read_record(folder), folder), encoding="utf-8")


def comparison_in(folder: Path) -> Comparison | None:
    """The evaluation in the folder of a trained model; None if it was not evaluated.

    Raises:
        ConfigError: The file is of another version.
    """
    path = folder / FIGURES
    return read_comparison(path) if path.is_file() else None


def _metadata(
    record: TrainingRecord,
    title: str,
    adapts: bool,
    origin: Origin,
    licence: Licence,
    comparison: Comparison | None,
) -> str:
    from huggingface_hub import ModelCardData

    roles = [role for role in ("thinker", "deliberator") if record.role in (role, "both")]
    method = [record.method] * (record.method != "full")
    tags = ["heavydistill", *roles, "deliberation", "reasoning", record.stage, "trl", *method]
    more: dict[str, Any] = {}
    if licence.name == "other":
        more["license_name"] = "see-card"
    if origin.base.hub:
        more["base_model_relation"] = "adapter" if adapts else "finetune"
    if comparison and (results := _results(comparison, record.role)):
        more |= {"model_name": title, "eval_results": results}
    data = ModelCardData(
        base_model=origin.base.hub,
        datasets=sorted({used.name for used in record.sets if used.revision}) or None,
        language=languages(used.manifest for used in record.sets) or None,
        library_name="peft" if adapts else "transformers",
        license=licence.name,
        pipeline_tag="text-generation",
        tags=tags,
        **more,
    )
    return data.to_yaml()


def _results(comparison: Comparison, role: str) -> list[EvalResult]:
    """The shares after training, as the Hub lists them: what this model did, and no other one."""
    from huggingface_hub import EvalResult

    source = _source(comparison).removeprefix("hub:")
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


def _what_it_is(record: TrainingRecord, folder: Path, origin: Origin) -> str:
    base = origin.base
    where = f"{code(base.name)}, which is not on the Hub"
    if base.hub:
        where = f"[{text(base.hub)}](https://huggingface.co/{base.hub}) ({code(base.revision)})"
    adapter = f"{_METHODS[record.method]} adapter"
    if record.method == "qlora":
        adapter = "LoRA adapter (QLoRA: the base model had 4 bits)"
    if record.method == "full":
        how = f"This is {where}, all of whose weights were trained"
    elif is_adapter(folder):
        how = f"This is a {adapter} for {where}, trained"
    else:
        how = f"This is {where}, with a {adapter} merged into it, trained"
    came_from, before = "", record.base.training  # as far as its folders tell
    while before:
        stage = "supervised fine-tuning" if before.stage == "sft" else "reinforcement learning"
        came_from += f" The base itself came of {code(before.base.name)} by {stage} as "
        came_from += f"{_ROLES[before.role]}."
        before = before.base.training
    return (
        f"{_WHAT_THEY_DO[record.role]}\n\n{how} by heavydistill {text(record.heavydistill)} with "
        f"{_HOW[record.rl.mode if record.rl else record.stage]} "
        f"(TRL {text(record.versions.get('trl', '-'))}).{came_from}"
    )


def _evaluation(comparison: Comparison) -> dict[str, Any]:
    """The figures before, if there are any, and after training."""
    is_change = comparison.before is not None
    grid = metrics(comparison)
    rows = [[text(line.label), text(line.note), *map(_estimate, line.cells)] for line in grid.lines]
    head = ["Metric", "What it says", "Before", "After", "Difference, points"]
    counts = [
        [text(f"{line.label} {line.note}"), *map(cell, line.cells)]
        for line in samples(comparison).lines
    ]
    return {
        "how": " ".join(_how(comparison)),
        "metrics": table(head if is_change else [*head[:2], head[3]], rows),
        "is_change": is_change,
        "few_warning": f" {FEW_WARNING}" if comparison.problems < FEW_PROBLEMS else "",
        "samples": table(["Answers", "All", *(name.capitalize() for name in COLUMNS)], counts),
        "unanswered": unanswered_lines(comparison),
    }


def _estimate(value: Value) -> str:
    if isinstance(value, str) or not value.value:
        return cell(value)
    return interval(dataclasses.asdict(value.value), signed=value.signed)


def _how(comparison: Comparison) -> Iterator[str]:
    asked, summary = comparison.config, comparison.after.summary
    yield (
        f"{count(comparison.problems)} problems of {code(_source(comparison))}, "
        f"{summary.k} trajectories of each and {summary.d} deliberations of each cache, in "
        f"{summary.rounds} {'round' if summary.rounds == 1 else 'rounds'}, with prompts "
        f"{code(asked.get('domain') or UNKNOWN)} and seed {asked.get('seed', UNKNOWN)}."
    )
    if left_out := comparison.after.left_out:
        rows = "row" if left_out == 1 else "rows"
        yield f"{count(left_out)} {rows} of it cannot be judged, and are left out."
    for when, run in (("Before", comparison.before), ("After", comparison.after)):
        if not run:
            continue
        thinker = code(run.thinker.name) if run.thinker else "another run"
        by = code(run.deliberator.name) if run.deliberator else "nobody"
        yield f"{when}: trajectories by {thinker}, deliberations by {by}."
    yield f"Judged by {', '.join(map(code, summary.verifiers)) or UNKNOWN}."


def _source(comparison: Comparison) -> str:
    return str(at(comparison.config, "problems.source") or "another run")


def _learnt_rows(record: TrainingRecord) -> str:
    """The rows of supervised fine-tuning."""
    rows = [
        (
            _place(used),
            used.role,
            percent(used.fraction) if used.fraction is not None else "all of it",
            count(used.rows.get("train", 0)),
            count(used.rows.get("validation", 0)),
            count(sum(used.left_out.values())),
        )
        for used in record.sets
    ]
    head = ("Sets", "Role", "Share of the mixture", "Rows learnt", "Rows validated", "Left out")
    return table(head, rows)


def _prompts(record: TrainingRecord, rl: RlUsed) -> str:
    """The prompts of reinforcement learning."""
    asked = "caches" if rl.mode == "deliberator" else "problems"
    if record.sets:
        where = ", ".join(map(_place, record.sets))
    else:
        where = code(at(rl.run or {}, "problems.source") or UNKNOWN)
    left = ", ".join(f"{count(number)} {code(reason)}" for reason, number in rl.left_out.items())
    left_out = f"; left out: {left}" if left else ""
    return (
        f"{count(record.sequences)} {asked} of {where} were asked, of up to "
        f"{count(rl.longest_prompt)} tokens{left_out}. What was learnt are the model's own "
        "responses to them, by what a verifier said."
    )


def _place(used: SetsUsed) -> str:
    if not used.revision:
        return code(used.name)
    address = f"https://huggingface.co/datasets/{used.name}"
    return f"[{text(used.name)}]({address}) {code(used.revision[:12])}"


def _run_line(run: RunUsed) -> str:
    """A run, as far as it tells."""
    parts = [f"{count(run.traces)} problems"]
    for name, key in (("K", "think.k"), ("D", "deliberate.d")):
        if (number := at(run.config, key)) is not None:
            parts.append(f"{name} = {number}")
    return f"{code(run.name)} ({', '.join(parts)})"


def _filter_lines(manifest: Manifest, roles: Collection[str]) -> Iterator[str]:
    """What the filters took, and what the problems were compared with."""
    views = ["problems", *["trajectories"] * ("thinker" in roles)]
    views += ["deliberations"] * ("deliberator" in roles)
    for view in views:
        labels: dict[str, int] = getattr(manifest, view)
        taken = [f"{count(n)} {code(label)}" for label, n in labels.items() if label != _USED]
        used = part(labels.get(_USED, 0), sum(labels.values()))
        left_out = f"; left out: {', '.join(taken)}" if taken else ""
        yield f"{view}: {used} passed the filters{left_out}"
    compared = [
        f"{code(used.name)} ({count(sum(used.hits.values()))} found)"
        for used in manifest.benchmarks
    ]
    yield (
        f"contamination: compared with {', '.join(compared)}; what was found is in no training set"
        if compared
        else "contamination: the problems were not compared with any benchmark"
    )


def _training_rows(record: TrainingRecord) -> Iterator[tuple[str, str]]:
    """How it was trained."""
    launch = record.launch
    yield "Method", _METHODS[record.method]
    yield "Most tokens of a sequence", count(record.max_length)
    if record.rl:
        yield "Prompts of an epoch", count(record.sequences)
    else:
        yield "Sequences of an epoch", count(record.sequences)
        yield "Tokens of an epoch", f"{count(record.tokens)}, {count(record.learnt_tokens)} learnt"
    yield "Launch", f"{count(launch.processes)} x {text(launch.device)}, {text(launch.engine)}"
    yield "Attention", code(launch.attention)
    if record.result:
        yield from _result_rows(record.result)
    yield "Chat template", f"SHA-256 {code(record.base.template_sha256)}"
    yield "Versions", ", ".join(f"{text(k)} {text(v)}" for k, v in record.versions.items())


def _result_rows(result: Result) -> Iterator[tuple[str, str]]:
    # All guards that were to roll back went to one step.
    steps = [alarm.rolled_back_to for alarm in result.alarms if alarm.action == "roll_back"]
    rolled_back = f"; the model is that of step {count(steps[0])}" if steps else ""
    if steps and steps[0] is None:
        rolled_back = (
            "; the model is that of the last one, for there was no checkpoint to roll back to"
        )
    yield "Steps", f"{count(result.steps)} ({result.epochs:g} epochs){rolled_back}"
    if result.is_unlearnt:
        yield "Learnt", "nothing: no response earned a reward"
    for alarm in result.alarms:
        yield (
            f"Guard {code(alarm.guard)}, step {count(alarm.step)}",
            f"{alarm.value:.4g}, bound {alarm.bound:.4g}: {code(alarm.action)}",
        )
    if result.train_loss is not None and not result.rollouts:  # that of GRPO is always about 0
        yield "Training loss", f"{result.train_loss:.4f}"
    for role, loss in result.eval_loss.items():
        yield f"Validation loss, {text(role)}", f"{loss:.4f}"
    for name, ends in result.rollouts.items():
        yield f"{text(name)}, first and last tenth", f"{ends.first:.4g}, {ends.last:.4g}"
    yield "Tokens since the last start", count(result.tokens)
    yield "Time since the last start", f"{count(round(result.seconds))} s"
    if result.peak_memory_gib is not None:
        yield "Most memory of a GPU", f"{result.peak_memory_gib:.1f} GiB"


def _usage(
    record: TrainingRecord, folder: Path, base: Base, options: PublishOptions
) -> dict[str, Any]:
    """Values of the section of the template that says how the model is used.

    Raises:
        ConfigError: The configuration of the adapter cannot be read.
    """
    adapter = adapter_config(folder)
    rank = None  # the bound for vLLM, if its `PEFTHelper` accepts the adapter
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
