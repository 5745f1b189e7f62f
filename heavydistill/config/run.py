"""The typed configuration of a run: one YAML file, and the command line wins over it.

Every key is a field here or in ``models``; its docstring is the key's documentation, and the first
sentence the help of its flag. Unknown keys and contradictions are errors. A field that is null
takes its value from the teacher's profile; ``models.resolve`` fills those in, so that a saved
configuration has no null left that matters.

Secrets are never configuration: ``endpoint.api_key_env`` names the environment variable.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from heavydistill.config.models import (
    ADDRESS_OF_A_SANDBOX,
    Endpoint,
    Judge,
    SamplingChoice,
)
from heavydistill.config.yaml import Section, carried_over, form, parse, read_yaml
from heavydistill.errors import ConfigError, MissingModelError

Selection = Literal[
    "random", "max_answer_num", "max_diversity", "max_length", "group_one", "stratified"
]
Pruning = Literal["answer_only", "answer_clipped", "head_tail", "think_clipped"]
Domain = Literal["general", "stem", "code", "brief"]
Shape = Literal["gpqa", "livecodebench"]
Language = Literal["en", "zh"]
Task = Literal["deliberate", "choose"]
SamplingName = Literal["paper", "maker"]

_ANEW: Task = "deliberate"
_MOST_K = 1024
_TOKENS = {"tok": 1, "ktok": 10**3, "mtok": 10**6, "gtok": 10**9}
_BUDGET = r"(\d+(?:\.\d+)?)(usd|[kKmMgG]?tok)"
Budget = Annotated[
    str,
    form(_BUDGET, "must be US dollars or tokens, e.g. 25usd, 500ktok or 40Mtok"),
]
"""``25usd``, ``40Mtok``."""


class Problems(Section):
    """Where problems come from; see ``problems.load``."""

    source: str = "micro"
    """Source of problems: micro, a .jsonl or .parquet file, hub:ORG/NAME or gym:FAMILY,..."""
    subset: str | None = None
    """Subset (configuration) of a Hub dataset that has several."""
    split: str = "train"
    """Split of a Hub dataset."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Field to column of the source. Fields: id, text, reference, options, verifier, verifier_args,
    domain."""
    shape: Shape | None = None
    """Benchmark whose row layout the source has; see ``problems.columns``."""
    within: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """Range of a column, as text, outside of which rows are left out, e.g.
    ``{contest_date: ["2024-08-01", "2025-05-31"]}``; a value that begins with the upper bound is
    inside."""
    verifier: str | None = None
    """Verifier of rows that name none and have no options (default: math)."""
    verifier_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the verifier for rows that bring none, e.g. ``{marker: "####"}``."""
    limit: int | None = Field(None, ge=1)
    """Maximum number of problems, taken from the beginning."""
    size: int = Field(100, ge=1)
    """Number of problems of each procedural family; for ``micro``, of all."""
    seed: int = Field(0, ge=0, lt=10**9)
    """Seed of procedural problems, and of the order in which options are shown."""
    keep_option_order: bool = False
    """Whether options keep the order of the dataset, which may give the right one away."""
    gym: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of procedural families, e.g. ``{chain_sum: {max_terms: 4}}``."""
    unfit: Literal["refuse", "leave_out"] = "refuse"
    """Treatment of rows that cannot be judged: an error that lists them, or a run without them,
    which counts and shows them."""


class Sandboxing(Section):
    """Where model-written programs run; see ``verifiers.sandbox``."""

    backend: Literal["bubblewrap", "sandbox_fusion"] = "bubblewrap"
    """Sandbox: bubblewrap on this machine, or a server of SandboxFusion at ``url``."""
    url: Annotated[str, ADDRESS_OF_A_SANDBOX] | None = None
    """Address of the server, e.g. ``http://localhost:8080``."""
    test_s: float = Field(6.0, gt=0)
    """Maximum processor seconds of one test."""
    total_s: float = Field(60.0, gt=0)
    """Maximum processor seconds of all tests of a response together."""
    memory_mb: int = Field(512, ge=64)
    """Maximum memory of a program, in MiB."""

    @model_validator(mode="after")
    def _address_of_the_server(self) -> Sandboxing:
        if (self.backend == "sandbox_fusion") != (self.url is not None):
            raise ValueError("url belongs to the backend sandbox_fusion, which needs it")
        return self


class Verifying(Section):
    """How responses are judged; each problem names its verifier."""

    workers: int | None = Field(None, ge=1)
    """Number of processes that judge (default: the cores, shared by the ranks of a trainer)."""
    timeout_s: float = Field(3.0, gt=0)
    """Maximum seconds of one verdict; after that it is undecided (timeout)."""
    memory_mb: int = Field(2048, ge=512)
    """Maximum address space of a worker, in MiB."""
    sandbox: Sandboxing = Sandboxing()
    """Where model-written programs run."""
    own: list[str] = Field(default_factory=list)
    """Python files with your own verifiers, which are known by their ``name``."""

    @field_validator("own")
    @classmethod
    def _wherever_a_step_runs(cls, own: list[str]) -> list[str]:
        return [str(Path(file).expanduser().absolute()) for file in own]


class Think(Section):
    """The first stage: K independent trajectories a problem."""

    k: int = Field(8, ge=2)
    """Number of trajectories per problem, at most 1,024. Pools of another run may have more."""
    min_k: int = Field(2, ge=1)
    """Minimum number of usable trajectories for a problem to be deliberated on."""
    sampling: SamplingChoice = SamplingChoice()


class CacheChoice(Section):
    """How the pool becomes one prompt."""

    width: int | None = Field(None, ge=2)
    """Number of trajectories in a cache (default: all usable ones)."""
    selection: Selection = "random"
    """Choice of trajectories where more than ``width`` are usable."""
    pruning: Pruning = "answer_only"
    """Method by which each trajectory is cut to the budget."""
    order: int = Field(0, ge=0)
    """Number of places by which the shuffled attempts are rotated."""
    budget_tokens: int | None = Field(None, ge=1)
    """Maximum number of prompt tokens (default: what the reader's context allows, up to
    80,000)."""


class Deliberating(Section):
    """The second stage: D deliberations on each cache, in N rounds."""

    d: int = Field(4, ge=0, le=1024)
    """Number of deliberations per cache, at most 1,024. 0 makes trajectories only."""
    task: Task = "deliberate"
    """Task of the reader. ``choose`` makes it name the best attempt, whose answer counts as its
    own: Best-of-N with a judge."""
    rounds: int = Field(1, ge=1, le=16)
    """Number of rounds of deliberation, at most 16. From the second on, caches also hold the
    deliberations of the round before."""
    sampling: SamplingChoice = SamplingChoice()


class RunConfig(Section):
    """One run of ``heavydistill generate``."""

    teacher: str = "micro"
    """Model for both roles: profile (`heavydistill teachers` lists them), YAML file with a profile,
    checkpoint folder, Hub id, or a served name."""
    thinker: str | None = None
    """Model for the thinker role (default: the teacher)."""
    deliberator: str | None = None
    """Model for the deliberator role (default: the teacher)."""
    sampling: SamplingName = "paper"
    """Sampling that a profile gives where ``think.sampling`` and ``deliberate.sampling`` are null:
    the paper's, the same for every model, or the one that the model's maker recommends."""
    endpoint: Endpoint = Endpoint()
    problems: Problems = Problems()
    pools: str | None = Field(None, min_length=1)
    """Run or import whose problems and trajectories are read in place of a thinker. Of ``problems``
    only ``limit`` counts then, and ``think.k`` is that of the pools."""
    pools_sha256: str | None = None
    """Hash of the traces in that folder (default: whatever is there)."""
    verify: Verifying = Verifying()
    domain: Domain | None = None
    """Wording of the prompts for problems that name none and whose verifier needs none (default:
    the profile's)."""
    language: Language = "en"
    """Language of the prompts."""
    think: Think = Think()
    cache: CacheChoice = CacheChoice()
    deliberate: Deliberating = Deliberating()
    judge: Judge | None = None
    """Model that settles verdicts which rules leave undecided (default: none)."""
    seed: int = Field(0, ge=0)
    """Seed of sampling, selection and shuffle."""
    journal: str | None = None
    """Folder that keeps every response, so that none is billed twice (default: journal beside the
    run)."""
    budget: Budget | None = None
    """Maximum cost of served models, e.g. 25usd or 40Mtok, over all runs into the same folder. A
    run with more K, another D, limit, seed or time-out goes on with what is left."""
    processes: int = Field(1, ge=1)
    """Number of processes that share the problems of the run, e.g. one for each core or GPU. Each
    has a copy of the models that run in this process; an endpoint needs one process."""
    out: str | None = None
    """Folder of the run (default: runs/TEACHER-TIME)."""

    @property
    def asked(self) -> dict[str, Any]:
        """What a run is, as JSON: the same wherever it is kept and whoever serves its models.

        The number of processes that work or judge changes nothing; limits of a verdict do.
        Pools are told apart by what is in them.
        """
        transport = set(Endpoint.model_fields) - {"tokenizer"}
        place = {"out", "journal", "budget", "pools", "processes"}
        content = self.model_dump(exclude=place if self.pools else place | {"pools_sha256"})
        content["verify"]["own"] = [Path(file).name for file in self.verify.own]
        del content["verify"]["workers"], content["verify"]["sandbox"]["url"]
        content["endpoint"] = {k: v for k, v in content["endpoint"].items() if k not in transport}
        if content["judge"]:
            del content["judge"]["endpoint"]
        return content

    @property
    def identity(self) -> str:
        """A hash of ``asked``."""
        canonical = json.dumps(self.asked, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def roles(self) -> tuple[str, str]:
        """Who thinks and who deliberates; where nobody thinks, the latter stands for both."""
        deliberator = self.deliberator or self.teacher
        return deliberator if self.pools else self.thinker or self.teacher, deliberator

    def refuse_unnamed(self, other: str = "") -> None:
        """Refuse a configuration that leaves a role to the default teacher, which is a toy.

        ``other`` is a flag that names a model too, with its value. Raises MissingModelError.
        """
        unnamed = {
            "thinker": not self.pools and self.thinker is None,
            "deliberator": self.rounds > 0 and self.deliberator is None,
        }
        roles = [role for role, is_unnamed in unnamed.items() if is_unnamed]
        if roles and "teacher" not in self.model_fields_set:
            flags = " ".join(f"--{role} MODEL" for role in roles)
            raise MissingModelError(
                f"No model is named as {' or '.join(roles)}, and the bundled micro teacher would "
                "take its place",
                f"Give {flags}, or --teacher MODEL{other and ' or '}{other} for all roles that are "
                "not named.",
                flags,
            )

    @property
    def rounds(self) -> int:
        """Rounds that are asked for: none without deliberations."""
        return self.deliberate.rounds if self.deliberate.d else 0

    @property
    def most_usd(self) -> float | None:
        """The budget in US dollars, if it is in money."""
        budget = self.budget or ""
        return float(budget.removesuffix("usd")) if budget.endswith("usd") else None

    @property
    def most_tokens(self) -> int | None:
        """The budget in tokens, prompts and responses together, if it is in tokens."""
        found = re.fullmatch(_BUDGET, self.budget or "")
        unit = _TOKENS.get(found[2].lower()) if found else None
        return round(float(found[1]) * unit) if found and unit else None

    @model_validator(mode="after")
    def _no_contradictions(self) -> RunConfig:
        if self.think.k > _MOST_K and not self.pools:
            raise ValueError(f"think.k is {self.think.k:,}, but a run asks for at most {_MOST_K:,}")
        if self.pools_sha256 and not self.pools:
            raise ValueError("pools_sha256 belongs to pools")
        if self.pools:
            self._refuse_thinking()
        if self.deliberate.rounds > 1 and (not self.deliberate.d or self.deliberate.task != _ANEW):
            raise ValueError(
                f"deliberate.rounds {self.deliberate.rounds} needs deliberations that the next "
                f"round can read, so deliberate.d of 1 or more and deliberate.task {_ANEW}"
            )
        if self.pools and not self.pools_sha256:
            return self  # K is not known yet
        limited = {"cache.width": self.cache.width or 0, "think.min_k": self.think.min_k}
        for key, value in limited.items():
            if value > self.think.k:
                raise ValueError(f"{key} {value} is larger than think.k {self.think.k}")
        return self

    def _refuse_thinking(self) -> None:
        """With pools, nobody is asked for them and no other problems are read."""
        of_source = self.problems.model_copy(update={"limit": None})
        is_set = {
            "thinker": self.thinker is not None,
            "think.sampling": self.think.sampling != SamplingChoice(),
            "problems (but for its limit)": of_source != Problems(),
        }
        if not self.deliberate.d:
            raise ValueError("deliberate.d is 0, so that with pools nobody would be asked")
        if wrong := next((key for key in is_set if is_set[key]), None):
            raise ValueError(
                f"{wrong} has no effect with pools: problems and trajectories are those of "
                f"{self.pools}"
            )


def load_config(
    path: Path | None = None,
    overrides: dict[str, Any] | None = None,
    preset: dict[str, Any] | None = None,
) -> RunConfig:
    """The configuration of a run: ``overrides`` win over the file, which wins over ``preset``.

    ``overrides`` are dotted keys to values, e.g. ``{"think.k": 16}``, ``preset`` keys as in a file.

    Raises:
        ConfigError: No such file, not YAML, an unknown key, a bad value or a contradiction.
    """
    tree = read_tree(path, overrides or {}, preset)
    return parse(RunConfig, tree, f"{path}: " if path else "")


def read_tree(
    path: Path | None,
    overrides: Mapping[str, Any],
    preset: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The keys of a file, those of ``overrides`` (dotted) that win over it, and of ``preset``.

    Raises:
        ConfigError: No such file, not YAML, or a value stands where a section is wanted.
    """
    tree = _over(dict(preset or {}), carried_over(read_yaml(path), f"{path}: ") if path else {})
    for dotted, value in overrides.items():
        section, (*parents, last) = tree, dotted.split(".")
        for parent in parents:
            if section.get(parent) is None:
                section[parent] = {}
            section = section[parent]
            if not isinstance(section, dict):
                raise ConfigError(
                    f"{dotted}: {parent} holds a value and no keys",
                    "Correct the configuration file.",
                )
        section[last] = value
    return tree  # type: ignore[no-any-return]


def refuse_code_of(run: Path, config: RunConfig, fix: str) -> None:
    """Refuse a run whose saved configuration names Python files, which may be somebody else's.

    ``fix`` says how the user agrees that they are run. Raises ConfigError.
    """
    if config.verify.own:
        raise ConfigError(
            f"{run} names verifiers of its own, which are run as code: "
            f"{', '.join(config.verify.own)}",
            f"Read them; if you trust them, {fix}.",
        )


def refuse_code_of_saved(file: Path, config: RunConfig, fix: str) -> None:
    """As ``refuse_code_of``, where the file of a configuration is in the folder of a run."""
    if (file.parent / "summary.json").is_file():
        refuse_code_of(file, config, fix)


def _over(preset: Any, tree: Any) -> Any:
    """``tree``, and of ``preset`` what it leaves open."""
    if not isinstance(preset, dict) or not isinstance(tree, dict):
        return preset if tree is None else tree
    both = preset | tree
    return both | {key: _over(preset[key], tree[key]) for key in preset.keys() & tree.keys()}


def parse_assignment(text: str) -> tuple[str, Any]:
    """``key.path=value`` of the command line as (key, value); the value is read as YAML."""
    key, found, value = text.partition("=")
    if not found or not key:
        raise ConfigError(
            f"--set {text!r} is not of the form key=value", "Write e.g. --set think.k=16."
        )
    try:
        return key.strip(), yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {text!r}: the value is not YAML", "Quote it.") from error


def dump_config(config: RunConfig) -> str:
    """The configuration as YAML that ``load_config`` reads back to an equal one."""
    return str(yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True))
