"""The typed configurations of training sets: of a build, a refilter and an import.

A build is read from one YAML file, and the command line wins over it; the others have dotted keys
alone. Every key is a field below and its text is the key's help; unknown keys are errors that name
the nearest valid one.

Secrets are never configuration: ``redeliberate.endpoint.api_key_env`` names the environment
variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from heavydistill.config.models import Endpoint, SamplingChoice
from heavydistill.config.run import Budget, Pruning, Verifying, read_tree
from heavydistill.config.yaml import Section, parse

PresetName = Literal["balanced", "agglm", "pacore", "genselect", "heavyskill", "natural"]
FormatName = Literal["heavyskill", "pacore", "nemo", "answers"]


class Sets(Section):
    """Candidate sets that are drawn from a pool, beside those that the run made."""

    per_problem: int = Field(8, ge=1, le=8)
    """Maximum number of sets of one problem, those of the run included."""
    widths: list[int] | None = Field(None, min_length=1)
    """Numbers of attempts in a set; null takes those of the preset."""
    written_by: Literal["any", "student", "teacher"] = "any"
    """Author of the attempts in a set: any, student or teacher. The student's own make the caches
    of training like those that it will read; ``teacher`` is anybody else."""


class CacheCut(Section):
    """How a drawn set becomes a prompt; a set of the run keeps its own cache."""

    pruning: Pruning = "answer_only"
    """How each attempt is cut to the budget."""
    budget_tokens: int | None = Field(None, ge=64)
    """Maximum number of tokens of a prompt, in the student's tokenizer; null takes what the
    student's context leaves beside a response, at most 80,000."""


class Filters(Section):
    """What a response must be to be learnt from; ``store.sets.set_rows.LABELS`` has the order."""

    uses_attempts: bool = True
    """Whether a deliberation must work with the attempts, rather than solve the problem alone."""
    most_copied: float = Field(0.8, gt=0.0, le=1.0)
    """Share of runs of eight words from which on an answer counts as a copy of one attempt."""
    length_quantile: float = Field(0.95, gt=0.0, le=1.0)
    """Quantile of the lengths, per role, beyond which a response is left out; 1 keeps all."""
    per_set: int = Field(4, ge=1)
    """Maximum number of deliberations on one candidate set."""


class ThinkerRows(Section):
    """Which attempts become rows of the thinker."""

    per_problem: int = Field(2, ge=1)
    """Maximum number of rows of one problem, the most different ones first."""
    handoff_tokens: int | None = Field(None, ge=16)
    """Maximum number of tokens of an attempt's answer text, which is what a deliberator is shown;
    null sets no limit."""


class Redeliberate(Section):
    """Deliberations that the build asks for, on sets without one to learn from."""

    teacher: str | None = None
    """Model that deliberates: profile, checkpoint folder, Hub id or served name (default: the run's
    deliberator)."""
    endpoint: Endpoint | None = None
    """Endpoint of that model (default: the run's)."""
    sampling: SamplingChoice | None = None
    """Sampling; null takes the run's where its deliberator is asked, else the profile's."""
    d: int = Field(4, ge=1)
    """Deliberations per set."""
    seed: int = Field(0, ge=0)
    """Seed of sampling."""
    journal: str | None = None
    """Folder that keeps every response; null takes ``journal`` beside ``out``."""
    budget: Budget | None = None
    """Maximum cost of a served teacher, resumptions included, e.g. 25usd or 40Mtok."""


class BuildConfig(Section):
    """One build of training sets."""

    runs: list[str] = Field(min_length=1)
    """Folders of runs."""
    preset: PresetName = "balanced"
    """Mixture: balanced, agglm, pacore, genselect, heavyskill or natural."""
    student: str | None = None
    """Model to be trained: profile, checkpoint folder or Hub id (default for runs of the bundled
    micro models alone: micro-student). Its tokenizer counts and its chat template renders."""
    chat_template: str | None = None
    """Jinja file in place of the student's own chat template; the sets keep it."""
    max_tokens: int | None = Field(None, ge=64)
    """Maximum number of tokens of a row, prompt and completion; null takes the student's
    context."""
    seed: int = Field(0, ge=0)
    """Seed of all draws."""
    sets: Sets = Sets()
    cache: CacheCut = CacheCut()
    filters: Filters = Filters()
    thinker: ThinkerRows = ThinkerRows()
    retention: float = Field(0.2, ge=0.0, lt=1.0)
    """Share of plain problems in the deliberator's rows, so that thinking is not unlearned."""
    validation: float = Field(0.05, ge=0.0, le=0.5)
    """Share of the problems that are kept for validation."""
    against: list[str] | None = None
    """Benchmarks whose problems are left out: files of hashes, or .jsonl or .parquet with texts
    (default: the bundled ones; an empty list: none)."""
    redeliberate: Redeliberate | None = None
    """Deliberations on the sets of the mixture that have none; null asks for none."""
    verify: Verifying = Verifying()
    """How those are judged, and verifiers of one's own."""
    out: str
    """Folder of the sets, which must be new or empty."""

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
    """Checkpoint or adapter folder, Hub id, profile or served name."""
    student: str | None = None
    """Student of the sets, if it is not found under the name that they give it."""
    endpoint: Endpoint = Endpoint()
    """Where the checkpoint is served, if it is."""
    sampling: SamplingChoice = SamplingChoice()
    """Sampling; null takes the profile's. A response has at most the tokens of the student's."""
    d: int = Field(8, ge=2)
    """Number of deliberations per cache."""
    seed: int = Field(0, ge=0)
    """Seed of sampling."""
    journal: str | None = None
    """Folder that keeps every response (default: journal beside the new sets)."""
    budget: Budget | None = None
    """Maximum cost of a served checkpoint, resumptions included, e.g. 25usd or 40Mtok."""
    verify: Verifying = Verifying()
    """How deliberations are judged, and verifiers of one's own."""
    out: str
    """Folder of the new sets."""


class ImportedProblems(Section):
    """What is a problem in the files, and how it is judged; keys as of a run's ``problems``.

    Options of a question are always shown in the order of the file, which is what its answers were
    given to.
    """

    columns: dict[str, str] = Field(default_factory=dict)
    """Field to column: those of a run's ``problems.columns``, and ``answers`` (a column, or a
    pattern such as ``model_*`` for several)."""
    verifier: str | None = None
    """Verifier of rows that name none and have no options (default: math)."""
    verifier_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the verifier for rows that bring none, e.g. ``{marker: "####"}``."""
    limit: int | None = Field(None, ge=1)
    """Maximum number of problems, taken from the beginning."""
    unfit: Literal["refuse", "leave_out"] = "refuse"
    """What becomes of files with rows that cannot be used: an error that lists them, or an import
    without them, which are counted and shown."""


class ImportConfig(Section):
    """One import; ``import.json`` keeps it."""

    files: list[str] = Field(min_length=1)
    """Files, all of one format."""
    format: FormatName
    """Format of the files: heavyskill (results and targets of the authors' code), pacore, nemo
    (output-rs*.jsonl) or answers (any columns)."""
    problems: ImportedProblems = ImportedProblems()
    model: str | None = Field(None, min_length=1)
    """Author of the answers where the file names none; null is ``unknown``."""
    verify: Verifying = Verifying()
    """How answers are judged, and verifiers of one's own."""
    out: str = Field(min_length=1)
    """Folder of the run, which must not be there or be empty."""


def load_build_config(
    path: Path | None, overrides: Mapping[str, Any], asks: bool = False
) -> BuildConfig:
    """The configuration of a build; dotted ``overrides`` win over the file.

    ``asks`` says that deliberations are asked for, also where nothing else does.

    Raises:
        ConfigError: No such file, not YAML, an unknown key or a bad value.
    """
    tree = read_tree(path, overrides)
    if asks:
        tree["redeliberate"] = tree.get("redeliberate") or {}
    return parse(BuildConfig, tree, f"{path}: " if path else "")


def load_refilter_config(keys: Mapping[str, Any]) -> RefilterConfig:
    """The configuration of dotted keys to values; raises ConfigError as ``load_build_config``."""
    return parse(RefilterConfig, read_tree(None, keys), "")


def load_import_config(keys: Mapping[str, Any]) -> ImportConfig:
    """The configuration of dotted keys to values; raises ConfigError as ``load_build_config``."""
    return parse(ImportConfig, read_tree(None, keys), "")
