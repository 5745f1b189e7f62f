"""The part of a model's card that tells what it learnt, and how."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from heavydistill.hub import figures
from heavydistill.hub.terms import problem_sources
from heavydistill.report.grid import UNKNOWN, count, percent
from heavydistill.report.grid import part as share
from heavydistill.report.markdown import at, code, table, text
from heavydistill.store.sets.folder import Manifest, RunUsed
from heavydistill.store.training_record import RECORD, Result, RlUsed, SetsUsed, TrainingRecord

_USED = "used"
_METHODS = {
    "full": "all weights",
    "lora": "LoRA",
    "rslora": "rank-stabilized LoRA",
    "dora": "DoRA",
    "qlora": "QLoRA",
}


def data(record: TrainingRecord) -> Iterator[str]:
    """What was learnt, with whatever is known of how it was made."""
    yield "## Training data"
    if record.rl:
        yield from _asked(record, record.rl)
    else:
        yield from _learnt(record)
    for name, roles, manifest in _folders(record):
        yield f"### {text(name)}"
        yield _made(manifest)
        # Of reinforcement learning no response of theirs was learnt, so no filter of them matters.
        learnt = roles if record.rl is None else set()
        yield "\n".join(f"- {line}" for line in _chosen(manifest, learnt))
        if "deliberator" in roles:
            yield figures.strata(manifest)
    if record.sets:
        yield (
            f"`{RECORD}` has the whole manifest of each: the configurations of build and runs, "
            "every count, and the SHA-256 of each file."
        )


def _learnt(record: TrainingRecord) -> Iterator[str]:
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
    yield table(head, rows)
    yield (
        f"Rows that are longer than {count(record.max_length)} tokens were left out, and none was "
        "cut. A row is a prompt, of which nothing is learnt, and a completion: thinking, answer "
        "and end of sequence."
    )


def _asked(record: TrainingRecord, rl: RlUsed) -> Iterator[str]:
    """The prompts of reinforcement learning."""
    asked = "caches" if rl.mode == "deliberator" else "problems"
    if record.sets:
        where = ", ".join(map(_place, record.sets))
    else:
        where = code(at(rl.run or {}, "problems.source") or UNKNOWN)
    left = [f"{count(number)} {code(reason)}" for reason, number in rl.left_out.items()]
    yield (
        f"{count(record.sequences)} {asked} of {where} were asked, of up to "
        f"{count(rl.longest_prompt)} tokens"
        + (f"; left out: {', '.join(left)}" if left else "")
        + ". What was learnt are the model's own responses to them, by what a verifier said."
    )
    if rl.mode == "joint":
        attempts = rl.rows_of_episode - 1
        yield f"An episode is {count(attempts)} attempts and one deliberation on their cache."


def training(record: TrainingRecord) -> Iterator[str]:
    """How it was trained."""
    launch = record.launch
    yield "## Training"
    rows = [
        ("Method", _METHODS[record.method]),
        ("Most tokens of a sequence", count(record.max_length)),
        *_epoch(record),
        ("Launch", f"{count(launch.processes)} x {text(launch.device)}, {text(launch.engine)}"),
        ("Attention", code(launch.attention)),
        *(_ended(record.result) if record.result else ()),
        ("Chat template", f"SHA-256 {code(record.base.template_sha256)}"),
        ("Versions", ", ".join(f"{text(k)} {text(v)}" for k, v in record.versions.items())),
    ]
    yield table(("What", "How much"), rows)
    yield "What was set other than TRL's defaults:"
    arguments = [(code(key), _value(value)) for key, value in record.arguments.items()]
    yield table(("Argument", "Value"), arguments)


def _epoch(record: TrainingRecord) -> Iterator[tuple[str, str]]:
    if record.rl:
        yield "Prompts of an epoch", count(record.sequences)
        return
    yield "Sequences of an epoch", count(record.sequences)
    yield "Tokens of an epoch", f"{count(record.tokens)}, {count(record.learnt_tokens)} learnt"


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


def _made(manifest: Manifest) -> str:
    runs = "; ".join(map(_run, manifest.runs))
    return (
        f"Built by heavydistill {text(manifest.heavydistill)} for {code(manifest.student.name)}, "
        f"with the mixture {code(manifest.build.get('preset', UNKNOWN))}, from problems of "
        f"{', '.join(map(code, problem_sources(manifest)))}. Runs: {runs}."
    )


def _run(run: RunUsed) -> str:
    """A run, as far as it tells."""
    told = [f"{count(run.traces)} problems"]
    told += [f"K = {k}" for k in [at(run.config, "think.k")] if k is not None]
    told += [f"D = {d}" for d in [at(run.config, "deliberate.d")] if d is not None]
    return f"{code(run.name)} ({', '.join(told)})"


def _chosen(manifest: Manifest, roles: set[str]) -> Iterator[str]:
    """What the filters took, and what the problems were compared with."""
    views = ["problems", *["trajectories"] * ("thinker" in roles)]
    views += ["deliberations"] * ("deliberator" in roles)
    for view in views:
        labels: dict[str, int] = getattr(manifest, view)
        taken = [f"{count(n)} {code(label)}" for label, n in labels.items() if label != _USED]
        used = share(labels.get(_USED, 0), sum(labels.values()))
        yield f"{view}: {used} passed the filters" + (
            f"; left out: {', '.join(taken)}" if taken else ""
        )
    compared = [
        f"{code(one.name)} ({count(sum(one.hits.values()))} found)" for one in manifest.benchmarks
    ]
    yield (
        f"contamination: compared with {', '.join(compared)}; what was found is in no training set"
        if compared
        else "contamination: the problems were not compared with any benchmark"
    )


def _ended(result: Result) -> Iterator[tuple[str, str]]:
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
