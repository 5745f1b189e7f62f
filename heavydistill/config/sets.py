"""The typed configurations of a build of training sets, a refilter and an import.

A build has a YAML file, which flags override; the others have only flags. Every key is a field
below, documented by its docstring. Unknown keys are errors that name the nearest valid key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from heavydistill import plugins
from heavydistill.config.models import Endpoint, SamplingChoice
from heavydistill.config.prompts import OwnPrompts, Wording
from heavydistill.config.run import Budget, Pruning, PythonFiles, Verifying
from heavydistill.config.yaml import Section, load

PresetName = Literal["balanced", "agglm", "pacore", "genselect", "heavyskill", "natural"]
FurtherSet = Literal["preferences", "unpaired", "critiques"]
FormatName = Literal[
    "answers",
    "solutions",
    "batch",
    "inspect",
    "nemo",
    "heavyskill",
    "pacore",
    "matharena",
    "parallel-think",
    "genselect",
    "nemotron-math",
]


_ROUNDING = 1e-6  # of shares such as three thirds


class Sets(Section):
    """Candidate sets drawn from a pool, in addition to those of the run."""

    per_problem: int = Field(default=8, ge=1, le=8)
    """Maximum number of sets per problem, those of the run included."""
    widths: list[int] | None = Field(default=None, min_length=1)
    """Sizes of the drawn sets, as numbers of attempts, e.g. ``[4, 8]`` (default: the preset's)."""
    written_by: Literal["any", "student", "teacher"] = "any"
    """Author of the attempts in a set: any, student or teacher (all models but the student).
    Attempts of the student make training caches like those that it will read."""


class CacheCut(Section):
    """Construction of the prompt of a drawn set; a set of the run keeps its own cache."""

    pruning: Pruning | str = "answer_only"
    """Method that cuts each attempt to the token budget, or a plug-in's."""
    budget_tokens: int | None = Field(default=None, ge=64)
    """Maximum number of tokens of a prompt, by the student's tokenizer (default: what the student's
    context leaves beside a response, at most 80,000)."""


class Filters(Section):
    """Conditions that a response must meet to be used for training; ``store.sets.set_rows.LABELS``
    lists all, in the order in which they apply."""

    uses_attempts: bool = True
    """Require that a deliberation works with the attempts instead of solving the problem alone."""
    false_claims: Literal["leave_out", "keep"] = "leave_out"
    """Treatment of a deliberation with a false claim, i.e. one that calls an attempt right or wrong
    against the attempt's verdict or against its own final answer."""
    leaks_attempts: Literal["leave_out", "keep"] = "leave_out"
    """Treatment of a deliberation whose answer speaks of the attempts, which a user never sees; its
    thinking may. Give ``keep`` for a deliberator without thinking, which compares in its answer."""
    most_copied: float = Field(default=0.8, gt=0.0, le=1.0)
    """An answer counts as a copy if at least this share of its eight-word sequences is in one
    attempt. Answers of fewer than sixteen words other than numbers never count."""
    length_quantile: float = Field(default=0.95, gt=0.0, le=1.0)
    """Quantile of the response lengths of a role; longer responses are left out, except worked
    solutions; 1 keeps all."""
    per_set: int = Field(default=4, ge=1)
    """Maximum number of deliberations per candidate set."""
    more: list[str] = Field(default_factory=list)
    """Names of filters of plug-ins that a response must pass too. The name is the label of what the
    filter leaves out."""


class ThinkerRows(Section):
    """Selection of the attempts that become rows of the thinker."""

    per_problem: int = Field(default=2, ge=1)
    """Maximum number of rows per problem; the most different attempts come first."""
    handoff_tokens: int | None = Field(default=None, ge=16)
    """Maximum number of tokens of an attempt's answer text, the part that a deliberator reads
    (default: no limit)."""


class Redeliberate(Section):
    """New deliberations on the sets that have no deliberation usable for training."""

    teacher: str | None = None
    """Model for new deliberations: a profile, checkpoint folder, Hub id or served name (default:
    the run's deliberator)."""
    endpoint: Endpoint | None = None
    """Endpoint of that model (default: the run's)."""
    sampling: SamplingChoice | None = None
    """Sampling of that model (default: the run's if the model is the run's deliberator, else the
    profile's)."""
    d: int = Field(default=4, ge=1)
    """Number of new deliberations per set."""
    seed: int = Field(default=0, ge=0)
    """Seed of sampling."""
    journal: str | None = None
    """Folder that keeps every response (default: ``journal`` in the folder that contains
    ``out``)."""
    budget: Budget | None = None
    """Maximum cost of a served teacher, resumed builds included, e.g. 25usd or 40Mtok."""


class BuildConfig(Section):
    """One build of training sets from runs."""

    runs: list[str] = Field(min_length=1)
    """Folders of runs."""
    preset: PresetName = "balanced"
    """Mixture of strata: balanced, agglm, pacore, genselect, heavyskill or natural."""
    student: str | None = None
    """Model to train: a profile, checkpoint folder or Hub id (default for runs of the bundled micro
    models: micro-student). Tokens are counted with its tokenizer, rows rendered with its chat
    template."""
    chat_template: str | None = None
    """Jinja file that replaces the student's chat template; the sets keep a copy."""
    system: Literal["none"] | None = None
    """``none`` leaves out the system prompt that the student's chat template writes by itself; the
    sets keep the changed template, and a model trained on them has it too."""
    max_tokens: int | None = Field(default=None, ge=64)
    """Maximum number of tokens of a row, prompt and completion together (default: the student's
    context)."""
    seed: int = Field(default=0, ge=0)
    """Seed of all random choices."""
    also: list[FurtherSet] = Field(default_factory=list)
    """Further training sets, of right and wrong responses: preferences (pairs, for DPO and reward
    models), unpaired (labelled responses, for KTO) or critiques (an attempt and what is true of
    it). Several may be given."""
    sets: Sets = Sets()
    cache: CacheCut = CacheCut()
    filters: Filters = Filters()
    thinker: ThinkerRows = ThinkerRows()
    retention: float = Field(default=0.2, ge=0.0, lt=1.0)
    """Share of the deliberator's rows whose prompt is a problem without attempts, so that the
    student keeps its thinking."""
    validation: float = Field(default=0.05, ge=0.0, le=0.5)
    """Share of the problems that is held out for validation."""
    against: list[str] | None = None
    """Benchmarks whose problems are left out: files of hashes, or .jsonl or .parquet files with
    texts (default: the bundled benchmarks; an empty list: none)."""
    prompts: OwnPrompts = OwnPrompts()
    """Prompts of yours by role, thinker or deliberator, for the rows of the thinker and for drawn
    sets (default: those of the runs); a set of a run keeps its own."""
    wordings: dict[Wording, float] | None = None
    """Shares of the candidate sets by the instructions around their attempts, e.g.
    ``{full: 0.4, short: 0.3, none: 0.3}``: full (the prompt otherwise used, which the student is
    asked with), short (that of the domain brief) and none (default: full alone)."""
    redeliberate: Redeliberate | None = None
    verify: Verifying = Verifying()
    plugins: PythonFiles = Field(default_factory=list)
    """Python files with plug-ins, which other keys name: filters, pruning methods."""
    out: str = ""
    """Folder of the sets, which must be new or empty (default: sets/NAME, where NAME is the name of
    the first run's folder)."""

    def load_plugins(self) -> None:
        """Load all plug-ins, and check the names that may be of one; as for ``RunConfig``."""
        plugins.load(self.plugins, self.verify.own)
        plugins.require("pruning", self.cache.pruning, "cache.pruning")
        for name in self.filters.more:
            plugins.require("filter", name, "filters.more")

    @model_validator(mode="after")
    def _no_contradictions(self) -> BuildConfig:
        if not self.out:
            object.__setattr__(self, "out", f"sets/{Path(self.runs[0]).absolute().name}")
        if self.prompts.chooser or self.prompts.judge:
            raise ValueError("prompts has roles that no row is for. Leave out chooser and judge.")
        shares = self.wordings or {"full": 1.0}
        if min(shares.values()) < 0 or abs(sum(shares.values()) - 1) > _ROUNDING:
            raise ValueError("wordings are not shares of 1. Write e.g. {full: 0.5, none: 0.5}.")
        if not shares.get("full"):
            raise ValueError(
                "wordings has no share for full, the wording that the student will be asked with. "
                "Add full; for a student that is asked with another one, give it in prompts."
            )
        if self.sets.widths and min(self.sets.widths) < 2:
            raise ValueError(f"sets.widths has {min(self.sets.widths)}. Give widths of 2 or more.")
        return self


class RefilterConfig(Section):
    """One refilter: a checkpoint deliberates again on the caches of sets.

    A response has at most as many tokens as the student's.
    """

    sets: str
    """Folder of the sets."""
    checkpoint: str = Field(min_length=1)
    """Model that deliberates: a checkpoint or adapter folder, Hub id, profile or served name."""
    student: str | None = None
    """Folder or Hub id of the student, if it moved since the sets were built."""
    endpoint: Endpoint = Endpoint()
    sampling: SamplingChoice = SamplingChoice()
    d: int = Field(default=8, ge=2)
    """Number of deliberations per cache."""
    seed: int = Field(default=0, ge=0)
    """Seed of sampling."""
    journal: str | None = None
    """Folder that keeps every response (default: ``journal`` in the folder that contains
    ``out``)."""
    budget: Budget | None = None
    """Maximum cost of a served checkpoint, resumed runs included, e.g. 25usd or 40Mtok."""
    verify: Verifying = Verifying()
    out: str
    """Folder of the new sets, which must be new or empty."""


class ImportedProblems(Section):
    """How problems are read from the files; these keys mean the same as in a run's ``problems``.

    Options of a question keep the order of the file, because the answers refer to it.
    """

    columns: dict[str, str] = Field(default_factory=dict)
    """Column of the files for each field, e.g. ``{text: question, answers: model_*}``. Fields:
    those of a run's ``problems.columns``; answers (a column, or a pattern for several); and what
    the files say of an answer: model, prompt_tokens, completion_tokens, finish_reason, cost and
    label."""
    verifier: str | None = None
    """Verifier for rows that name none and have no options (default: math)."""
    verifier_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the verifier for rows that have none, e.g. ``{marker: "####"}``."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of problems; the first ones are used."""
    unfit: Literal["refuse", "leave_out"] = "refuse"
    """Treatment of rows that cannot be used: ``refuse`` the import with a list of them, or
    ``leave_out`` and count them."""


class ImportConfig(Section):
    """One import; ``import.json`` records it."""

    files: list[str] = Field(min_length=1)
    """Files with answers, all in the same format."""
    format: FormatName
    """Format of the files: answers (columns that --columns names), solutions (one worked solution
    per problem, for the thinker to learn), batch (results of vLLM or OpenAI, and their problems),
    inspect (logs), nemo (output-rs*.jsonl), heavyskill (results and targets), or that of a dataset:
    pacore, matharena, parallel-think, genselect, nemotron-math."""
    problems: ImportedProblems = ImportedProblems()
    model: str | None = Field(default=None, min_length=1)
    """Model that wrote the answers, for rows that name none (default: unknown)."""
    licence: str | None = Field(default=None, min_length=1)
    """Licence of the files, e.g. cc-by-nc-sa-4.0, for rows that name none in a column license. The
    card of what is published from them has it."""
    verify: Verifying = Verifying()
    out: str = Field(min_length=1)
    """Folder of the new run, which must be new or empty."""


def load_build_config(
    path: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    redeliberates: bool = False,
) -> BuildConfig:
    """Load the configuration of a build; dotted ``overrides`` take precedence over the file.

    ``redeliberates`` turns redeliberation on, even if no key of its section is set.

    Raises:
        ConfigError: The file does not exist or is not YAML, a key is unknown, or a value is
            invalid.
    """
    preset: dict[str, Any] = {"redeliberate": {}} if redeliberates else {}
    return load(BuildConfig, path, overrides, preset)
