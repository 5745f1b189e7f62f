"""Which prompts the trained models of a run have learnt, beside those that the run asks with.

A small model that is asked with another wording than that of its training answers far worse, or
never ends. Not covered: models behind an endpoint, whose training this machine does not know, and
controls, whose prompts are others on purpose.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import ConfigError
from heavydistill.heavy.prompts import for_thinker
from heavydistill.models.resolve import ResolvedRun
from heavydistill.schema import Problem
from heavydistill.skill.prompt import for_reader
from heavydistill.store.training_record import RECORD, TrainingRecord, read_record


@dataclass(frozen=True, slots=True)
class UnlearntPrompts:
    """Prompts of a role that its model was not trained on."""

    model: str
    asked: list[str]  # versions that the run asks with and the model has not learnt
    learnt: list[str]  # versions that its last training had for the role, see ``_learnt``

    @property
    def fix(self) -> str:
        """The flag that asks with what was learnt."""
        role, domain, language = self.learnt[0].split("@")[0].split(".")
        if domain == "own":
            return f"--prompt {role}=FILE with the file of that training"
        return f"--set domain={domain}" + f" --set language={language}" * (language != "en")


def unlearnt_prompts(run: ResolvedRun, problems: Sequence[Problem]) -> Iterator[UnlearntPrompts]:
    """Compare the prompts of a run with the records of the trainings that made its models."""
    config = run.config
    asked = {}
    one_of_each = list({problem.domain: problem for problem in problems}.values())
    if run.thinkers:
        asked["thinker"] = {for_thinker(problem, config).version for problem in one_of_each}
    if config.rounds and config.deliberate.task == "deliberate":
        asked["deliberator"] = {for_reader(problem, config).version for problem in one_of_each}
    models = [("thinker", model.name) for model in run.thinkers]
    for role, model in (*models, ("deliberator", config.roles[1])):
        record = _record(model)
        learnt = _learnt(record, role) if record else []
        if learnt and (others := asked.get(role, set()) - {*learnt}):
            yield UnlearntPrompts(model, sorted(others), learnt)


def _record(model: str) -> TrainingRecord | None:
    if not (Path(model) / RECORD).is_file():
        return None
    try:
        return read_record(Path(model))
    except ConfigError:
        return None  # of another version of heavydistill; the model itself can be asked


def _learnt(record: TrainingRecord, role: str) -> list[str]:
    """The versions of a role in the last training that had it; empty if none had.

    Those that the model is meant to be asked with come first, then its withdrawn instructions.

    Also empty if that training asked the problems of a run, whose prompts its record does not name.
    """
    asked = record.rl.run if record.rl else None
    if role in record.roles and asked and (own := asked.get("prompts", {}).get(role)):
        return sorted(own)
    manifests = [sets.manifest for sets in record.sets if role in record.roles]
    versions = [sorted(version for each in manifests for version in each.prompts)]
    versions += [used.prompts for each in manifests for used in each.wordings.values()]
    of_role = [each for each in itertools.chain(*versions) if each.startswith(f"{role}.")]
    is_unknown = role in record.roles and not record.sets
    before = None if is_unknown else record.base.training
    return list(dict.fromkeys(of_role)) or (_learnt(before, role) if before else [])
