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
from heavydistill.hub.usage import usage
from heavydistill.hub.weights import is_adapter
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
    BaseModelUsed,
    Result,
    RlUsed,
    SetsUsed,
    TrainingRecord,
    read_record,
)

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

FIGURES = f"{EVALUATION}/{COMPARISON}"
_USED = "used"
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
_ADAPTERS = {
    "lora": "LoRA adapter",
    "rslora": "rank-stabilized LoRA adapter",
    "dora": "DoRA adapter",
    "qlora": "LoRA adapter (QLoRA: the base model had 4 bits)",
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
    origin, chosen = origin_of(record, options.profiles), None
    if options.licence:
        chosen = Licence(options.licence, "whoever published the model chose it")
    licence = chosen or origin.licence
    comparison = comparison_in(folder)
    arguments = [(code(key), _value(value)) for key, value in record.arguments.items()]
    return render(
        "model_card.md",
        folder,
        metadata=_metadata(record, folder, origin, licence, comparison),
        title=_title(record),
        what_it_is=_what_it_is(record, folder, origin),
        use=usage(record, folder, origin.base, options),
        evaluation=_evaluation(comparison) if comparison else None,
        record=record,
        record_name=RECORD,
        prompts=_prompts(record, record.rl) if record.rl else "",
        learnt_rows=_learnt_rows(record),
        folders=list(_folders(record)),
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
    folder: Path,
    origin: Origin,
    licence: Licence,
    comparison: Comparison | None,
) -> str:
    from huggingface_hub import ModelCardData

    roles = [role for role in ("thinker", "deliberator") if record.role in (role, "both")]
    adapts = is_adapter(folder)
    method = [record.method] * (record.method != "full")
    tags = ["heavydistill", *roles, "deliberation", "reasoning", record.stage, "trl", *method]
    more: dict[str, Any] = {}
    if licence.name == "other":
        more["license_name"] = "see-card"
    if origin.base.hub:
        more["base_model_relation"] = "adapter" if adapts else "finetune"
    if comparison and (results := _results(comparison, record.role)):
        more |= {"model_name": _title(record), "eval_results": results}
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


def _title(record: TrainingRecord) -> str:
    return f"{record.base.name} as {_ROLES[record.role]}"


def _what_it_is(record: TrainingRecord, folder: Path, origin: Origin) -> str:
    base = origin.base
    where = (
        f"[{text(base.hub)}](https://huggingface.co/{base.hub})" if base.hub else code(base.name)
    )
    where += f" ({code(base.revision)})" if base.revision else ", which is not on the Hub"
    if record.method == "full":
        how = f"This is {where}, all of whose weights were trained"
    elif is_adapter(folder):
        how = f"This is a {_ADAPTERS[record.method]} for {where}, trained"
    else:
        how = f"This is {where}, with a {_ADAPTERS[record.method]} merged into it, trained"
    return (
        f"{_WHAT_THEY_DO[record.role]}\n\n{how} by heavydistill {text(record.heavydistill)} with "
        f"{_HOW[record.rl.mode if record.rl else record.stage]} "
        f"(TRL {text(record.versions.get('trl', '-'))}).{_came_from(record.base)}"
    )


def _came_from(base: BaseModelUsed) -> str:
    """How the base came about, as far as its folders tell."""
    if not (before := base.training):
        return ""
    stage = "supervised fine-tuning" if before.stage == "sft" else "reinforcement learning"
    return (
        f" The base itself came of {code(before.base.name)} by {stage} as "
        f"{_ROLES[before.role]}.{_came_from(before.base)}"
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


def _folders(record: TrainingRecord) -> Iterator[tuple[str, set[str], Manifest]]:
    """(name, roles that were learnt from it, manifest) of each folder of sets, once."""
    folders: dict[str, tuple[str, set[str], Manifest]] = {}
    for used in record.sets:
        key = json.dumps([used.name, used.revision, used.manifest.files])
        folders.setdefault(key, (used.name, set(), used.manifest))[1].add(used.role)
    yield from folders.values()


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
    yield "Steps", f"{count(result.steps)} ({result.epochs:g} epochs){_rolled_back(result)}"
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


def _rolled_back(result: Result) -> str:
    """Which step the model is of, if a guard was to roll back; all of those went to one step."""
    steps = [alarm.rolled_back_to for alarm in result.alarms if alarm.action == "roll_back"]
    if not steps:
        return ""
    if steps[0] is None:
        return "; the model is that of the last one, for there was no checkpoint to roll back to"
    return f"; the model is that of step {count(steps[0])}"


def _value(value: Any) -> str:
    return code(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
