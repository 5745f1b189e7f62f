"""The typed configuration of a run: one YAML file; flags override it.

Every key is a field here or in ``models``. The field's docstring documents the key, and its first
sentence is the help of the flag. Unknown keys and contradictions are errors. ``models.resolve``
replaces null by the value of the model's profile, so a saved configuration is complete.

A configuration contains no secrets: ``endpoint.api_key_env`` names the environment variable.
"""

from __future__ import annotations

import hashlib
import json
import re
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BeforeValidator, Field, model_validator

from heavydistill import plugins
from heavydistill.config.models import ADDRESS_OF_A_SANDBOX, Endpoint, Judge, SamplingChoice
from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.thinkers import ModelNames, ThinkerSettings, shares_of, split
from heavydistill.config.yaml import Section, form, load, parse_yaml
from heavydistill.errors import ConfigError, MissingModelError
from heavydistill.schema import Problem

Selection = Literal[
    "random",
    "max_answer_num",
    "max_diversity",
    "max_length",
    "group_one",
    "stratified",
    "each_model",
]
Pruning = Literal["answer_only", "answer_clipped", "head_tail", "think_clipped"]
EACH_MODEL: Selection = "each_model"
plugins.ship("selection", get_args(Selection))
plugins.ship("pruning", get_args(Pruning))
Shape = Literal["gpqa", "livecodebench"]
Language = Literal["en", "zh"]
Task = Literal["deliberate", "choose", "think", "skill"]
_ATTEMPTS = (
    *("own", "none", "garbled", "foreign", "transplant"),
    *("empty", "answers", "steps", "outputs", r"planted-[1-9]\d{0,3}"),
)
_NAMED = ", ".join(_ATTEMPTS[:-1])
Attempts = Annotated[
    str, form("|".join(_ATTEMPTS), f"must be one of {_NAMED}, or planted-N (e.g. planted-2)")
]
SamplingName = Literal["paper", "maker"]

_ANEW: Task = "deliberate"
_MOST_K = 1024
_TOKENS = {"tok": 1, "ktok": 10**3, "mtok": 10**6, "gtok": 10**9}
_BUDGET = r"(\d+(?:\.\d+)?)(usd|[kKmMgG]?tok)"
Budget = Annotated[
    str, form(_BUDGET, "must be US dollars or tokens, e.g. 25usd, 500ktok or 40Mtok")
]
"""A cost in US dollars or tokens: ``25usd``, ``40Mtok``."""
PythonFiles = Annotated[list[str], BeforeValidator(plugins.files_of)]
"""Paths of Python files; a function or class given from Python stands for its file."""


class Problems(Section):
    """Source of the problems; see ``problems.load``."""

    source: str = "micro"
    """Source of problems: micro, a .jsonl or .parquet file, hub:ORG/NAME, gym:FAMILY,...,
    benchmark:NAME,... or NAME:ARGS of a plug-in."""
    subset: str | None = None
    """Subset (configuration) of a Hub dataset that has several."""
    split: str = "train"
    """Split of a Hub dataset."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Column of the source for each field of a problem, e.g. ``{text: task}``. Fields: id,
    text, messages, reference, options, verifier, verifier_args, domain. Without a mapping, text is
    also read from question, problem or prompt, or else from the last turn of messages; reference
    from answer, final_answer, ground_truth or answerKey; options from choices."""
    shape: Shape | None = None
    """Benchmark whose row layout the source has: gpqa, or livecodebench, whose tests are judged as
    by its own grader."""
    within: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """Range of values for a column, compared as text; rows outside are left out, e.g.
    ``{contest_date: ["2024-08-01", "2025-05-31"]}``. A value that begins with the upper bound is in
    the range."""
    verifier: str | None = None
    """Verifier for rows that name none and have no options (default: math)."""
    verifier_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the verifier for rows that have none, e.g. ``{marker: "####"}``."""
    limit: int | None = Field(default=None, ge=1)
    """Maximum number of problems; the first ones are used."""
    size: int = Field(default=100, ge=1)
    """Number of problems per procedural family that have one of ``templates`` and pass
    ``rewrite``; for ``micro``, the number of all problems."""
    seed: int = Field(default=0, ge=0, lt=10**9)
    """Seed of procedural problems and of the order of options. Seeds that differ by less than
    ``size`` share problems."""
    keep_option_order: bool = False
    """Keep the options in the dataset's order, which may reveal the right one."""
    gym: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of procedural families by name, e.g. ``{chain_sum: {max_terms: 4}}``."""
    templates: list[str | int] | None = Field(default=None, min_length=1)
    """Templates of a procedural family to use, e.g. ``[43, 10]`` of gsm_symbolic (default: all).
    The ``source`` of a problem ends with its template."""
    rewrite: str | None = None
    """Plug-in that changes problems or leaves them out, see ``problems.rewriting``."""
    unfit: Literal["refuse", "leave_out"] = "refuse"
    """Treatment of rows that cannot be judged: ``refuse`` the run with a list of them, or
    ``leave_out`` and count them."""


class Sandboxing(Section):
    """Sandbox for programs that a model wrote; see ``sandbox``."""

    backend: Literal["bubblewrap", "sandbox_fusion"] = "bubblewrap"
    """Sandbox: bubblewrap on this machine, or a SandboxFusion server at ``url``."""
    url: Annotated[str, ADDRESS_OF_A_SANDBOX] | None = None
    """Address of the SandboxFusion server, e.g. ``http://localhost:8080``."""
    test_s: float = Field(default=6.0, gt=0)
    """Maximum processor time of one test, in seconds."""
    total_s: float = Field(default=60.0, gt=0)
    """Maximum processor time of all tests of one response, in seconds."""
    memory_mb: int = Field(default=512, ge=64)
    """Maximum memory of a program, in MiB."""

    @model_validator(mode="after")
    def _address_of_the_server(self) -> Sandboxing:
        if (self.backend == "sandbox_fusion") != (self.url is not None):
            raise ValueError(
                "backend sandbox_fusion needs a url, and bubblewrap has none. Set backend "
                "sandbox_fusion and url together, or neither of them."
            )
        return self


class Verifying(Section):
    """Judging of responses; each problem names its verifier."""

    workers: int | None = Field(default=None, ge=1)
    """Number of processes that judge (default: one per core, divided among the ranks of a
    trainer)."""
    timeout_s: float = Field(default=3.0, gt=0)
    """Maximum time of one verdict, in seconds; a longer one ends as undecided (timeout)."""
    memory_mb: int = Field(default=2048, ge=512)
    """Maximum address space of a process that judges, in MiB."""
    sandbox: Sandboxing = Sandboxing()
    own: PythonFiles = Field(default_factory=list)
    """Python files with your own verifiers, which problems name by their ``name``."""


class PythonTool(Section):
    """Python interpreter in the sandbox, one for each trajectory, whose state lasts; see
    ``heavy.tools``."""

    calls: Literal["server", "fence"] | None = None
    """Form of a call: the server's own tool calls (``server``), or a block of code in the text
    (``fence``) (default: what `heavydistill doctor` found; ``fence`` for a model in this
    process)."""
    rounds: int = Field(default=50, ge=1, le=1000)
    """Maximum number of turns with calls in a trajectory."""
    seconds: float = Field(default=10.0, gt=0)
    """Maximum processor time of a cell, in seconds."""
    total_seconds: float = Field(default=120.0, gt=0)
    """Maximum time of all cells of a trajectory, in seconds."""
    output: int = Field(default=4000, ge=100)
    """Maximum number of bytes of a cell's output that the model reads; the middle of a longer one
    is left out."""

    @model_validator(mode="after")
    def _time_for_a_cell(self) -> PythonTool:
        if self.total_seconds < self.seconds:
            raise ValueError(
                f"total_seconds {self.total_seconds:g} is less than seconds {self.seconds:g}. "
                "Raise it, or lower seconds."
            )
        return self


class Tools(Section):
    """Tools that a thinker may call."""

    python: PythonTool | None = None


class Think(Section):
    """The first stage: K independent trajectories for each problem."""

    k: int = Field(default=8, ge=2)
    """Number of trajectories per problem, at most 1,024. Pools of another run may have more
    trajectories."""
    min_k: int = Field(default=2, ge=1)
    """Minimum number of usable trajectories that a problem needs for deliberation."""
    sampling: SamplingChoice = SamplingChoice()
    tools: Tools = Tools()
    """Tools that the thinker may call while it answers: python."""


class CacheChoice(Section):
    """Construction of the cache, the prompt that holds a pool."""

    width: int | None = Field(default=None, ge=2)
    """Number of trajectories in a cache (default: all usable ones)."""
    selection: Selection | str = "random"
    """Selection of trajectories if more than ``width`` are usable, or a plug-in's."""
    pruning: Pruning | str = "answer_only"
    """Method that cuts each trajectory to the token budget, or a plug-in's."""
    order: int = Field(default=0, ge=0)
    """Number of places by which the shuffled trajectories are rotated."""
    attempts: Attempts = "own"
    """Attempts that the cache shows: the pool's ``own``, or those of a control: ``none``,
    ``garbled`` (with other values), ``foreign`` (at another problem), ``transplant`` (right ones
    exchanged for wrong ones, or the reverse), ``empty`` (without text), ``answers`` (the final
    boxes alone), ``steps`` (without them), ``outputs`` (what their code printed replaced by other
    values) or ``planted-N`` (right ones, N of them with one wrong
    step in common). Controls need ``pools``."""
    budget_tokens: int | None = Field(default=None, ge=1)
    """Maximum number of prompt tokens (default: what the deliberator's context allows, up to
    80,000)."""


class Deliberating(Section):
    """The second stage: D deliberations on each cache, in N rounds."""

    d: int = Field(default=4, ge=0, le=1024)
    """Number of deliberations per cache, at most 1,024; 0 makes trajectories only."""
    task: Task = "deliberate"
    """Task of the deliberator: ``deliberate``; ``choose`` the best attempt, whose answer then
    counts as the deliberator's (Best-of-N with a judge); ``think``, with the thinker's prompt; or
    ``skill``, with the skill ``heavy-thinking`` before the problem, so that one response holds the
    whole protocol. The last two need ``cache.attempts: none``."""
    rounds: int = Field(default=1, ge=1, le=16)
    """Number of rounds of deliberation, at most 16. From the second round on, a cache also holds
    the deliberations of the previous round."""
    sampling: SamplingChoice = SamplingChoice()


class RunConfig(Section):
    """One run of ``heavydistill generate``."""

    teacher: str = "micro"
    """Model for both roles: a profile (`heavydistill teachers` lists them), a YAML file with a
    profile, a checkpoint folder, a Hub id, or the name of a served model."""
    thinker: ModelNames | None = None
    """Model for the thinker role (default: the teacher), or several that share the K trajectories,
    e.g. ``a,b``, or ``a=2,b=1`` if twice as many are to be of ``a``."""
    thinkers: dict[str, ThinkerSettings] = Field(default_factory=dict)
    """Endpoint and sampling of a thinker by its name in ``thinker``, e.g. ``{b: {endpoint:
    {base_url: http://localhost:8001/v1, price_out: 2}}}``. Of several thinkers, one without an
    endpoint here is asked at the run's address, with the limits of the run and the price, context
    and tokenizer of its profile."""
    deliberator: str | None = None
    """Model for the deliberator role (default: the teacher)."""
    sampling: SamplingName = "paper"
    """Default sampling parameters: the paper's (``paper``), or those that the maker of each model
    recommends (``maker``). Keys of ``think.sampling`` and ``deliberate.sampling`` take
    precedence."""
    endpoint: Endpoint = Endpoint()
    problems: Problems = Problems()
    pools: str | None = Field(default=None, min_length=1)
    """Folder of a run or import whose problems and trajectories are reused, so that no thinker is
    needed. Only ``problems.limit`` applies then, and ``think.k`` is that of the pools."""
    pools_sha256: str | None = None
    """SHA-256 of the traces that ``pools`` must hold (default: not checked)."""
    verify: Verifying = Verifying()
    domain: str | None = None
    """Domain whose prompts apply to problems without a domain of their own: general, stem, code,
    brief, or one with prompts of yours (default: the profile's)."""
    language: Language = "en"
    """Language of the prompts."""
    system: str | None = Field(default=None, min_length=1)
    """System prompt before every request to the thinker and the deliberator; ``none`` for an empty
    one, in place of that of a model's chat template (default: that of the template, if any)."""
    prompts: OwnPrompts = OwnPrompts()
    """Prompts of yours by role, in place of ours: thinker, deliberator, chooser or judge, e.g.
    ``{deliberator: my.md}``."""
    think: Think = Think()
    cache: CacheChoice = CacheChoice()
    deliberate: Deliberating = Deliberating()
    judge: Judge | None = None
    """Model that decides verdicts which rules leave undecided (default: none)."""
    seed: int = Field(default=0, ge=0)
    """Seed of sampling, selection and shuffling."""
    journal: str | None = None
    """Folder that keeps every response, so that none is billed twice (default: ``journal`` in the
    folder that contains ``out``)."""
    budget: Budget | None = None
    """Maximum cost of served models, e.g. 25usd or 40Mtok, for all runs into the same folder
    together. A run with another K, D, limit, seed or time-out continues with the remaining
    budget."""
    plugins: PythonFiles = Field(default_factory=list)
    """Python files with plug-ins, which other keys name: selections, pruning methods, sources of
    problems, teachers. Verifiers are in ``verify.own``; installed plug-ins need no key."""
    processes: int = Field(default=1, ge=1)
    """Number of processes that share the problems, e.g. one per core or GPU. Each process loads its
    own copy of a local model; an endpoint needs only one process."""
    out: str | None = None
    """Folder of the run (default: runs/TEACHER-TIME)."""

    @property
    def identity_fields(self) -> dict[str, Any]:
        """Return the keys that determine the traces of a run, as JSON.

        Folders, the server of a model and the number of processes are left out; limits for a
        verdict are included. Pools are identified by their hash.
        """
        content = self.model_dump(exclude={"out", "journal", "budget", "pools", "processes"})
        content["verify"]["own"] = [Path(file).name for file in self.verify.own]
        content["plugins"] = [Path(file).name for file in self.plugins]
        del content["verify"]["workers"], content["verify"]["sandbox"]["url"]
        for settings in content["thinkers"].values():
            del settings["endpoint"]
        if not self.thinkers:  # as in versions that had no such keys
            del content["thinkers"]
        if not self.think.tools.python:
            del content["think"]["tools"]
        content["endpoint"] = {"tokenizer": self.endpoint.tokenizer}
        if self.judge:
            del content["judge"]["endpoint"]
        return content

    def load_plugins(self) -> None:
        """Load all plug-ins, and check the names that may be of one.

        Raises:
            ConfigError: As ``plugins.load``, or there is no plug-in of that name.
        """
        plugins.load(self.plugins, self.verify.own)
        plugins.require("selection", self.cache.selection, "cache.selection")
        plugins.require("pruning", self.cache.pruning, "cache.pruning")

    @property
    def identity(self) -> str:
        """Return a hash of ``identity_fields``."""
        canonical = json.dumps(self.identity_fields, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def domain_of(self, problem: Problem) -> str:
        """Return the domain whose prompts apply to a problem."""
        return problem.domain or self.domain or "general"

    @property
    def roles(self) -> tuple[str, str]:
        """Return the names of thinker and deliberator; with pools, the deliberator's name twice."""
        deliberator = self.deliberator or self.teacher
        return deliberator if self.pools else self.thinker or self.teacher, deliberator

    @property
    def attempts_by_thinker(self) -> dict[str, int]:
        """Return how many of the K trajectories each thinker writes; empty with pools.

        Raises ValueError if the shares cannot be read, or a model has several.
        """
        if self.pools:
            return {}
        shares = shares_of(self.thinker) if self.thinker else {self.teacher: 1}
        return split(self.think.k, shares)

    @property
    def thinkers_apart(self) -> set[str]:
        """Return the names of the thinkers with an endpoint of their own."""
        return {name for name, own in self.thinkers.items() if own.endpoint}

    @property
    def model_names(self) -> list[str]:
        """Return the names of all thinkers and of the deliberator."""
        return [*dict.fromkeys([*self.attempts_by_thinker, self.roles[1]])]

    def refuse_unnamed(self, other: str = "") -> None:
        """Raise MissingModelError if a role has no model, and no teacher is named.

        ``other`` is a further flag that names a model, with its value.
        """
        unnamed = {
            "thinker": not self.pools and self.thinker is None,
            "deliberator": self.rounds > 0 and self.deliberator is None,
        }
        roles = [role for role, is_unnamed in unnamed.items() if is_unnamed]
        if roles and "teacher" not in self.model_fields_set:
            flags = " ".join(f"--{role} MODEL" for role in roles)
            raise MissingModelError(
                f"No model is given as {' or '.join(roles)}",
                f"Give {flags}, or --teacher MODEL{other and ' or '}{other} for all roles without "
                "a model (--teacher micro is the bundled one).",
                flags,
            )

    @property
    def system_tokens(self) -> int:
        """Return an upper bound of the tokens of ``system``: its bytes."""
        return len((self.system or "").encode())

    @property
    def rounds(self) -> int:
        """Return the number of rounds; 0 if ``deliberate.d`` is 0."""
        return self.deliberate.rounds if self.deliberate.d else 0

    @property
    def most_usd(self) -> float | None:
        """Return the budget in US dollars; None if it is in tokens, or unset."""
        budget = self.budget or ""
        return float(budget.removesuffix("usd")) if budget.endswith("usd") else None

    @property
    def most_tokens(self) -> int | None:
        """Return the budget in tokens (prompts and responses); None if it is in dollars, or
        unset."""
        match = re.fullmatch(_BUDGET, self.budget or "")
        unit = _TOKENS.get(match[2].lower()) if match else None
        return round(float(match[1]) * unit) if match and unit else None

    @model_validator(mode="after")
    def _no_contradictions(self) -> RunConfig:
        if self.think.k > _MOST_K and not self.pools:
            raise ValueError(f"think.k is {self.think.k:,}. Set at most {_MOST_K:,}.")
        if self.pools_sha256 and not self.pools:
            raise ValueError("pools_sha256 is set without pools. Set both or neither.")
        if self.pools:
            self._refuse_thinking()
        if self.deliberate.rounds > 1 and (not self.deliberate.d or self.deliberate.task != _ANEW):
            raise ValueError(
                f"deliberate.rounds is {self.deliberate.rounds}, but the next round has no "
                "deliberations to read. Set deliberate.d to 1 or more and deliberate.task to "
                f"{_ANEW}."
            )
        if self.cache.attempts != "own" and not self.pools:
            raise ValueError(
                f"cache.attempts is {self.cache.attempts}, a control on the pools of another run. "
                "Set pools (--pools RUN)."
            )
        if self.deliberate.task in ("think", "skill") and self.cache.attempts != "none":
            task = self.deliberate.task
            raise ValueError(f"deliberate.task is {task}. Set cache.attempts to none.")
        if self.pools and not self.pools_sha256:
            return self  # K is read from the pools later
        limited = {"cache.width": self.cache.width or 0, "think.min_k": self.think.min_k}
        for key, value in limited.items():
            if value > self.think.k:
                raise ValueError(
                    f"{key} {value} is larger than think.k {self.think.k}. Lower it, or raise "
                    "think.k."
                )
        return self

    @model_validator(mode="after")
    def _thinkers_have_attempts(self) -> RunConfig:
        counts = self.attempts_by_thinker
        if idle := [name for name, count in counts.items() if not count]:
            raise ValueError(
                f"think.k is {self.think.k}, so {', '.join(idle)} would write no trajectory. Set "
                "think.k to at least the sum of the shares, or name fewer thinkers."
            )
        if unknown := [name for name in self.thinkers if name not in counts]:
            others = f"thinkers are {', '.join(counts)}" if counts else "pools have no thinker"
            raise ValueError(
                f"thinkers has {', '.join(unknown)}, but the {others}. Correct the name, or leave "
                "it out."
            )
        if self.think.tools.python and len(counts) > 1:
            raise ValueError(
                f"think.tools: of the thinkers {', '.join(counts)}, only one could run code. Name "
                "one thinker, or leave out --tools."
            )
        return self

    @model_validator(mode="after")
    def _prompt_of_the_judge(self) -> RunConfig:
        if self.judge and self.judge.replies != "verdict" and not self.prompts.judge:
            raise ValueError(
                f"judge.replies is {self.judge.replies}, but our prompt asks for a word. Set "
                "prompts.judge to a file with the prompt that the model was trained with."
            )
        if self.prompts.judge and not self.judge:
            raise ValueError("prompts.judge is set without a judge. Set judge.model (--judge).")
        return self

    def _refuse_thinking(self) -> None:
        """Raise an error if keys are set that have no effect with pools."""
        of_source = self.problems.model_copy(update={"limit": None})
        is_set = {
            "thinker": self.thinker is not None,
            "think.sampling": self.think.sampling != SamplingChoice(),
            "think.tools": self.think.tools != Tools(),
            "problems (except problems.limit)": of_source != Problems(),
        }
        if not self.deliberate.d:
            raise ValueError(
                "deliberate.d is 0, so with pools nothing is left to do. Set 1 or more."
            )
        if wrong := next((key for key in is_set if is_set[key]), None):
            raise ValueError(
                f"{wrong} has no effect with pools, because problems and trajectories are those "
                f"of {self.pools}. Leave one of them out."
            )


def load_config(
    path: str | Path | None = None,
    overrides: Mapping[str, object] | None = None,
    preset: Mapping[str, object] | None = None,
) -> RunConfig:
    """Load the configuration of a run from a file and dotted keys.

    ``overrides`` (e.g. ``{"think.k": 16}``) take precedence over the file, and the file over
    ``preset``, which has keys as in a file.

    Raises:
        ConfigError: The file does not exist or is not YAML, a key is unknown, a value is invalid,
            or values contradict each other.
    """
    return load(RunConfig, path, overrides, preset)


def refuse_code_of(run: Path, config: RunConfig, fix: str) -> None:
    """Raise ConfigError if the saved configuration of a run names Python files.

    These files would be executed, and may come from another person. ``fix`` says how to allow it.
    """
    if files := [*config.verify.own, *config.plugins]:
        raise ConfigError(
            f"{run} names Python files, which would be executed: {', '.join(files)}",
            f"Read them. If you trust them, {fix}.",
        )


def refuse_code_of_saved(file: Path, config: RunConfig, fix: str) -> None:
    """Call ``refuse_code_of`` if the configuration file is in the folder of a run."""
    if (file.parent / "summary.json").is_file() or (file.parent / "traces").is_dir():
        refuse_code_of(file, config, fix)


def parse_assignment(text: str, flag: str = "--set") -> tuple[str, Any]:
    """Split ``key.path=value``, the value of a flag, into (key, value); the value is YAML."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ConfigError(f"{flag} {text!r} is not KEY=VALUE", f"Write {flag} KEY=VALUE.")
    try:
        return key.strip(), parse_yaml(value)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(
            f"{flag} {reprlib.repr(text)}: the value is not YAML",
            f"Quote it: {flag} '{key}=\"VALUE\"'.",
        ) from error


def dump_config(config: RunConfig) -> str:
    """Return the configuration as YAML; ``load_config`` reads it back unchanged."""
    return str(yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True))
