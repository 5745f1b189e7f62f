"""The typed configuration of a build: one YAML file, and the command line wins over it.

Every key is a field below and its text is the key's help; unknown keys are errors that name the
nearest valid one.

Secrets are never configuration: ``redeliberate.endpoint.api_key_env`` names the environment
variable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from heavydistill.config.models import Endpoint, SamplingChoice
from heavydistill.config.run import Budget, Pruning, Verifying, assign
from heavydistill.config.yaml import Section, parse, read_yaml

PresetName = Literal["balanced", "agglm", "pacore", "genselect", "heavyskill", "natural"]


class Sets(Section):
    """Which candidate sets are drawn from a pool beside those that the run made."""

    per_problem: int = Field(8, ge=1, le=8)
    """Most sets of one problem, those of the run counted."""
    widths: list[int] | None = Field(None, min_length=1)
    """Attempts in a set, in place of the widths that the preset takes and draws."""
    written_by: Literal["any", "student", "teacher"] = "any"
    """Whose attempts may stand in a set (``--cache-from``): the student's own make the caches of
    training like those that it will read; ``teacher`` is anybody else's."""


class CacheCut(Section):
    """How a drawn set becomes a prompt; one of a run keeps its own."""

    pruning: Pruning = "answer_only"
    """How each attempt is cut to the budget."""
    budget_tokens: int | None = Field(None, ge=64)
    """Most tokens of a prompt, in the student's tokenizer; null takes what the student's context
    leaves beside a response, at most 80,000."""


class Filters(Section):
    """What a response must be to be learnt from; see ``filters`` for the order."""

    uses_attempts: bool = True
    """Whether a deliberation must work with the attempts, and not solve the problem alone."""
    most_copied: float = Field(0.8, gt=0.0, le=1.0)
    """From this share of its runs of eight words on, an answer is a copy of one attempt."""
    length_quantile: float = Field(0.95, gt=0.0, le=1.0)
    """Longer responses than this quantile of those that pass everything else are left out, of
    each role; 1 leaves none out."""
    per_set: int = Field(4, ge=1)
    """Most deliberations on one candidate set."""


class ThinkerRows(Section):
    """Which attempts become rows of the thinker."""

    per_problem: int = Field(2, ge=1)
    """Most rows of one problem, the most different ones first."""
    handoff_tokens: int | None = Field(None, ge=16)
    """Only attempts whose answer text, which is what a deliberator is shown, has at most so many
    tokens; null takes any."""


class Redeliberate(Section):
    """Who is asked for deliberations on sets that have none that can be used."""

    teacher: str | None = None
    """Profile, checkpoint folder or Hub id; null asks the run's own deliberator."""
    endpoint: Endpoint | None = None
    """Where it is served; null takes the run's."""
    sampling: SamplingChoice | None = None
    """Null takes the run's where its deliberator is asked, and the profile's else."""
    d: int = Field(4, ge=1)
    """Deliberations a set."""
    seed: int = Field(0, ge=0)
    """Seed of sampling."""
    journal: str | None = None
    """Folder that keeps every response; null takes ``journal`` beside ``out``."""
    budget: Budget | None = None
    """Most that a served teacher may cost, e.g. ``25usd`` or ``40Mtok``."""


class BuildConfig(Section):
    """One build of training sets."""

    runs: list[str] = Field(min_length=1)
    """Folders of runs."""
    preset: PresetName = "balanced"
    """The mixture; see ``presets``."""
    student: str | None = None
    """Model that is to be trained: profile, checkpoint folder or Hub id. Its tokenizer counts and
    the rows are made for its chat template. Null takes micro-student, of runs of the bundled micro
    models alone; any other run needs it."""
    chat_template: str | None = None
    """A Jinja file that takes the place of the student's own template; it is kept with the sets."""
    max_tokens: int | None = Field(None, ge=64)
    """Most tokens of a row, prompt and completion; null takes the student's context."""
    seed: int = Field(0, ge=0)
    """Seed of everything that is drawn."""
    sets: Sets = Sets()
    cache: CacheCut = CacheCut()
    filters: Filters = Filters()
    thinker: ThinkerRows = ThinkerRows()
    retention: float = Field(0.2, ge=0.0, lt=1.0)
    """Share of plain problems in the deliberator's rows, so that thinking is not unlearned."""
    validation: float = Field(0.05, ge=0.0, le=0.5)
    """Share of the problems that are kept for validation."""
    against: list[str] | None = None
    """Benchmarks that no problem may stand in: files of hashes, or .jsonl or .parquet with texts;
    null takes those that come with heavydistill, an empty list none."""
    redeliberate: Redeliberate | None = None
    """Ask for deliberations on the sets of the mixture that have none; null asks nobody."""
    verify: Verifying = Verifying()
    """How those are judged, and verifiers of one's own."""
    out: str
    """Folder of the sets."""

    @model_validator(mode="after")
    def _no_contradictions(self) -> BuildConfig:
        if self.sets.widths and min(self.sets.widths) < 2:
            raise ValueError(f"sets.widths {min(self.sets.widths)} is no choice between attempts")
        return self


class RefilterConfig(Section):
    """One refilter."""

    sets: str
    """Folder of the sets."""
    checkpoint: str = Field(min_length=1)
    """Checkpoint folder, Hub id or profile; with ``endpoint.base_url`` also a served name."""
    student: str | None = None
    """Whose chat template counts the tokens of the prompts; null takes the student of the sets."""
    endpoint: Endpoint = Endpoint()
    """Where the checkpoint is served, if it is."""
    sampling: SamplingChoice = SamplingChoice()
    """Null takes the profile's; a response has at most the tokens of one of the student's."""
    d: int = Field(8, ge=2)
    """Deliberations a cache."""
    seed: int = Field(0, ge=0)
    """Seed of sampling."""
    journal: str | None = None
    """Folder that keeps every response; null takes ``journal`` beside ``out``."""
    budget: Budget | None = None
    """Most that a served checkpoint may cost, e.g. ``25usd`` or ``40Mtok``."""
    verify: Verifying = Verifying()
    """How deliberations are judged, and verifiers of one's own."""
    out: str
    """Folder of the new sets."""


def load_build_config(
    path: Path | None, overrides: dict[str, Any], asks: bool = False
) -> BuildConfig:
    """The configuration of a build.

    Args:
        path: YAML file, or None for the defaults.
        overrides: Dotted keys to values; they win over the file.
        asks: Whether deliberations are asked for, also where nothing else says so.

    Raises:
        ConfigError: No such file, not YAML, an unknown key or a bad value.
    """
    tree = read_yaml(path) if path else {}
    for dotted, value in overrides.items():
        assign(tree, dotted, value)
    if asks:
        tree["redeliberate"] = tree.get("redeliberate") or {}
    fix = "Correct the value in the file or on the command line; the command line wins."
    return parse(BuildConfig, tree, f"{path}: " if path else "", fix)


def load_refilter_config(overrides: dict[str, Any]) -> RefilterConfig:
    """The configuration of dotted keys to values.

    Raises:
        ConfigError: An unknown key or a bad value.
    """
    tree: dict[str, Any] = {}
    for dotted, value in overrides.items():
        assign(tree, dotted, value)
    return parse(RefilterConfig, tree, "", "Correct the value on the command line.")


def dump_build_config(config: BuildConfig) -> str:
    """The configuration as YAML that ``load_build_config`` reads back to an equal one."""
    return str(yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True))
