"""The card of a trained model: its ``README.md``, with the metadata that the Hub reads.

All of it comes from ``train.json``, the configuration of an adapter, the figures of an
evaluation and the profiles of the models, so the same training has the same card.

What a user writes below the last heading is kept when the card of a folder is written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from heavydistill.hub import learning, measured, provenance, using
from heavydistill.hub.notes import CARD, joined
from heavydistill.hub.origin import Origin, origin_of
from heavydistill.hub.terms import Licence
from heavydistill.hub.weights import is_adapter
from heavydistill.metrics.comparison import Comparison
from heavydistill.report.markdown import code, text
from heavydistill.store.training_record import BaseModelUsed, TrainingRecord, read_record

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
_LIMITS = (
    "Its answers are written by a model: they can be wrong, also where they sound sure.",
    "It learnt from problems whose answers verifiers can judge; whether it is better elsewhere was "
    "not measured.",
    "What it learnt was chosen by whether the final answer is right; the way to it may be wrong.",
)


def model_card(
    record: TrainingRecord,
    folder: Path,
    repo_id: str | None = None,
    *,
    revision: str | None = None,
    licence: str | None = None,
    profiles: Sequence[Path] = (),
) -> str:
    """The card.

    Args:
        record: Of a training that has ended.
        folder: Of the trained model.
        repo_id: Where it will be on the Hub; None for a card that stays in the folder.
        revision: Branch there; None for the main one.
        licence: Of the weights, as the Hub writes it; None derives it.
        profiles: As of ``known_models``.

    Raises:
        ConfigError: One of ``profiles`` is no profile, the card in the folder is no text, or the
            figures of the evaluation are none.
    """
    origin = origin_of(record, profiles)
    chosen = origin.licence(licence)
    comparison = measured.comparison_in(folder)
    manifests = [used.manifest for used in record.sets]
    sections = [
        f"---\n{_metadata(record, folder, origin, chosen, comparison)}\n---",
        f"# {text(_title(record))}",
        _what_it_is(record, folder, origin),
        *using.sections(record, folder, origin.base, repo_id, revision),
        *(measured.sections(comparison) if comparison else ()),
        *learning.data(record),
        *_authorship(origin, chosen),
        "## Prompts and verifiers",
        *provenance.wordings(*manifests),
        *learning.training(record),
        "## Limits",
        "\n".join(f"- {limit}" for limit in _LIMITS),
    ]
    return joined(sections, folder)


def write_model_card(folder: Path) -> None:
    """Write the card of a trained model into its folder.

    Raises:
        ConfigError: The folder holds no training, or as of ``model_card``.
    """
    (folder / CARD).write_text(model_card(read_record(folder), folder), encoding="utf-8")


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
    more: dict[str, Any] = {}
    if licence.name == "other":
        more["license_name"] = "see-card"
    if origin.base.hub:
        more["base_model_relation"] = "adapter" if adapts else "finetune"
    if comparison and (results := measured.results(comparison, record.role)):
        more |= {"model_name": _title(record), "eval_results": results}
    data = ModelCardData(
        base_model=origin.base.hub,
        datasets=sorted({used.name for used in record.sets if used.revision}) or None,
        language=provenance.languages(*(used.manifest for used in record.sets)) or None,
        library_name="peft" if adapts else "transformers",
        license=licence.name,
        pipeline_tag="text-generation",
        tags=[
            "heavydistill",
            *roles,
            "deliberation",
            "reasoning",
            record.stage,
            "trl",
            *[record.method] * (record.method != "full"),
        ],
        **more,
    )
    return data.to_yaml()


def _title(record: TrainingRecord) -> str:
    return f"{record.base.name} as {_ROLES[record.role]}"


def _what_it_is(record: TrainingRecord, folder: Path, origin: Origin) -> str:
    base = origin.base
    where = (
        f"[{text(base.hub)}](https://huggingface.co/{base.hub})" if base.hub else code(base.name)
    )
    at = f" ({code(base.revision)})" if base.revision else ", which is not on the Hub"
    if record.method == "full":
        how = f"This is {where}{at}, all of whose weights were trained"
    elif is_adapter(folder):
        how = f"This is a {_ADAPTERS[record.method]} for {where}{at}, trained"
    else:
        how = f"This is {where}{at}, with a {_ADAPTERS[record.method]} merged into it, trained"
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


def _authorship(origin: Origin, licence: Licence) -> Iterator[str]:
    yield from provenance.authorship(origin.authors, licence, "this model")
    known = origin.base.licence
    yield f"The licence of the base model is {text(known) if known else 'not known here'}."
