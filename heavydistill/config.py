"""The typed configuration of a run: one YAML file, and the command line wins over it.

Every key is a field below and its text is the key's help. Unknown keys are errors that name the
nearest valid key; so are contradictions (``deliberate.rounds`` without deliberations, a cache
wider than the pool). A field that is null takes its value from the teacher's profile;
``teachers.registry.complete`` fills those in, so the saved configuration has no null left that
matters.

Secrets are never configuration: ``endpoint.api_key_env`` names the environment variable.

``Section``, ``read_yaml`` and ``parse`` read the profiles of teachers too, so that every file a
user writes is checked alike.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from heavydistill.errors import ConfigError

Selection = Literal[
    "random", "max_answer_num", "max_diversity", "max_length", "group_one", "stratified"
]
Pruning = Literal["answer_only", "answer_clipped", "head_tail", "think_clipped"]
Domain = Literal["general", "stem", "code", "brief"]
Language = Literal["en", "zh"]
SamplingName = Literal["paper", "maker"]
_S = TypeVar("_S", bound=BaseModel)


class Section(BaseModel):
    """A mapping of a file: frozen, and a key that no field has is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Sampling(Section):
    """How to sample, complete. The defaults are the paper's (arXiv 2605.02396, section 3.1)."""

    temperature: float = Field(1.0, ge=0.0, le=2.0)
    """0 is greedy."""
    top_p: float = Field(0.95, gt=0.0, le=1.0)
    """Keep the smallest set of tokens with this much probability; 1 keeps all."""
    top_k: int = Field(10, ge=0)
    """Keep this many tokens; 0 keeps all."""
    min_p: float = Field(0.0, ge=0.0, lt=1.0)
    """Drop tokens less probable than this times the most probable one; 0 drops none."""
    repetition_penalty: float = Field(1.0, gt=0.0)
    """Divides the logits of tokens that were written already; 1 is off."""
    max_tokens: int = Field(32_768, ge=1)
    """Most tokens of one response, thinking included."""


class SamplingChoice(Section):
    """What the user sets of the sampling; null takes the value of the teacher's profile."""

    temperature: float | None = Field(None, ge=0.0, le=2.0)
    top_p: float | None = Field(None, gt=0.0, le=1.0)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0.0, lt=1.0)
    repetition_penalty: float | None = Field(None, gt=0.0)
    max_tokens: int | None = Field(None, ge=1)

    def over(self, base: Sampling) -> Sampling:
        """``base`` with what was chosen here."""
        return base.model_copy(update=self.model_dump(exclude_none=True))


class Endpoint(Section):
    """An OpenAI-compatible server. Set ``base_url`` to ask it; else models run in this process."""

    base_url: str | None = Field(None, pattern=r"^https?://\S+$")
    """E.g. ``http://localhost:8000/v1``."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds the key; a server without keys needs none."""
    tokenizer: str | None = None
    """Folder or Hub id of the model's tokenizer: the cache's budget is counted with it. Null takes
    the profile's; a model without a profile needs it."""
    context: int | None = Field(None, ge=256)
    """Most tokens of prompt and response together; null takes the profile's, or 131,072."""
    concurrency: int = Field(32, ge=1)
    """Most requests in flight for each role."""
    timeout_s: float = Field(1800.0, gt=0)
    """Longest wait for one response."""
    retries: int = Field(2, ge=0)
    """Repeats of a request that met a time-out, an overload or a broken connection."""


class Problems(Section):
    """Where problems come from; see ``problems.load``."""

    source: str = "micro"
    """``micro`` (bundled), a .jsonl or .parquet file, ``hub:ORG/NAME``, or ``gym:FAMILY,...``."""
    subset: str | None = None
    """Subset (configuration) of a Hub dataset that has several."""
    split: str = "train"
    """Split of a Hub dataset."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Our field to your column, for id, text, reference, verifier, verifier_args and domain."""
    verifier: str | None = None
    """Verifier of rows that name none; ``exact`` if null."""
    verifier_args: dict[str, Any] = Field(default_factory=dict)
    """Its arguments for rows that bring none, e.g. ``{marker: "####"}``."""
    limit: int | None = Field(None, ge=1)
    """Take the first so many."""
    size: int = Field(100, ge=1)
    """Problems of each procedural family; for ``micro``, problems in all."""
    seed: int = Field(0, ge=0, lt=10**9)
    """Seed of procedural problems."""
    gym: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of procedural families, e.g. ``{chain_sum: {max_terms: 4}}``."""


class Think(Section):
    """The first stage: K independent trajectories a problem."""

    k: int = Field(8, ge=2)
    """Trajectories a problem."""
    min_k: int = Field(2, ge=1)
    """Fewest usable trajectories with which a problem goes on to deliberation."""
    sampling: SamplingChoice = SamplingChoice()


class CacheChoice(Section):
    """How the pool becomes one prompt."""

    width: int | None = Field(None, ge=2)
    """Trajectories in the cache; null takes all usable ones."""
    selection: Selection = "random"
    """Which trajectories, where there are more usable ones than ``width``."""
    pruning: Pruning = "answer_only"
    """How each is cut to the budget."""
    budget_tokens: int | None = Field(None, ge=1)
    """Most tokens of the prompt; null takes what the reader's context allows, at most 80,000."""


class Deliberate(Section):
    """The second stage: D deliberations on each cache, in N rounds."""

    d: int = Field(4, ge=1)
    """Deliberations a cache."""
    rounds: int = Field(1, ge=1)
    """Rounds; from the second on the cache also holds the deliberations of the one before."""
    sampling: SamplingChoice = SamplingChoice()


class RunConfig(Section):
    """One run of ``heavydistill generate``."""

    teacher: str = "micro"
    """Name of a profile (``heavydistill teachers`` lists them), YAML file with one of your own,
    checkpoint folder or Hub id; with ``endpoint.base_url`` any other name is the served one."""
    thinker: str | None = None
    """Who thinks, if not the teacher."""
    deliberator: str | None = None
    """Who deliberates, if not the teacher."""
    sampling: SamplingName = "paper"
    """Whose sampling the profile gives where ``think.sampling`` and ``deliberate.sampling`` say
    nothing: the paper's, the same for every model, or the one that the model's maker recommends."""
    endpoint: Endpoint = Endpoint()
    problems: Problems = Problems()
    domain: Domain | None = None
    """Wording of the prompts for problems that name none; null takes the profile's."""
    language: Language = "en"
    """Language of the prompts."""
    think: Think = Think()
    cache: CacheChoice = CacheChoice()
    deliberate: Deliberate = Deliberate()
    seed: int = Field(0, ge=0)
    """Seed of sampling, selection and shuffle."""
    journal: str | None = None
    """Folder that keeps every response, so that none is paid for twice; null takes ``journal``
    beside ``out``, which runs in the same folder share."""
    out: str | None = None
    """Folder of the run; null makes a new one under ``runs/``."""

    @model_validator(mode="after")
    def _no_contradictions(self) -> RunConfig:
        width = self.cache.width
        if width is not None and width > self.think.k:
            raise ValueError(f"cache.width {width} is larger than think.k {self.think.k}")
        if self.think.min_k > self.think.k:
            raise ValueError(
                f"think.min_k {self.think.min_k} is larger than think.k {self.think.k}"
            )
        return self


def load_config(path: Path | None = None, overrides: dict[str, Any] | None = None) -> RunConfig:
    """The configuration of a run.

    Args:
        path: YAML file, or None for the defaults.
        overrides: Dotted keys to values, e.g. ``{"think.k": 16}``; they win over the file.

    Raises:
        ConfigError: No such file, not YAML, an unknown key, a bad value or a contradiction.
    """
    tree = read_yaml(path) if path else {}
    for dotted, value in (overrides or {}).items():
        _set(tree, dotted, value)
    fix = "Correct the value in the file or on the command line; the command line wins."
    return parse(RunConfig, tree, f"{path}: " if path else "", fix)


def parse(section: type[_S], tree: dict[str, Any], where: str, fix: str) -> _S:
    """A mapping as a section.

    Args:
        section: Its type.
        tree: The mapping, changed in place: sections that are null go.
        where: Put before every fault, e.g. the file and a colon.
        fix: What mends a bad value.

    Raises:
        ConfigError: An unknown key, which the nearest valid key follows, or a bad value.
    """
    _refuse_unknown(section, section, tree, where)
    try:
        return section.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        given = f" (got {first['input']!r})" if key and first["type"] != "missing" else ""
        raise ConfigError(f"{where}{f'{key}: ' if key else ''}{message}{given}", fix) from error


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


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping at the top level of a YAML file; an empty file is an empty one.

    Raises:
        ConfigError: No such file, not YAML, or no mapping.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", "Give the path of a YAML file.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}", "Mend the file.") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} holds no mapping", "Write keys and values at the top level.")
    return tree


def _set(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise ConfigError(
                f"{dotted}: {parent} holds a value and no keys", "Correct the configuration file."
            )
    tree[last] = value


def _refuse_unknown(
    root: type[BaseModel], section: type[BaseModel], tree: dict[str, Any], where: str, at: str = ""
) -> None:
    """Raise for the first key that no field has, with the nearest key there is."""
    for key, value in list(tree.items()):
        if key not in section.model_fields:
            keys = [f"{at}{sibling}" for sibling in section.model_fields]
            keys += [dotted for dotted in _all_keys(root) if dotted not in keys]
            near = difflib.get_close_matches(f"{at}{key}", keys, n=1, cutoff=0.5)
            near = near or [dotted for dotted in keys if dotted.endswith(f".{key}")][:1]
            siblings = ", ".join(section.model_fields)
            raise ConfigError(
                f"{where}unknown key {at}{key}",
                f"Did you mean {near[0]}?" if near else f"Keys here: {siblings}.",
            )
        info = section.model_fields[key]
        child, is_named = _child(info.annotation)
        if child is None:
            continue
        if value is None:  # a section whose keys are all commented out
            if not info.is_required():
                del tree[key]
            continue
        if not isinstance(value, dict):
            names = "one for each name" if is_named else ", ".join(child.model_fields)
            raise ConfigError(f"{where}{at}{key} takes keys, not {value!r}", f"Keys here: {names}.")
        for name, entry in value.items() if is_named else [("", value)]:
            if isinstance(entry, dict):
                inside = f"{at}{key}.{name}." if is_named else f"{at}{key}."
                _refuse_unknown(root, child, entry, where, inside)


def _child(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """(the section that a field holds, whether it holds one under each of several names)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    if get_origin(annotation) is dict:
        return _child(get_args(annotation)[1])[0], True
    if get_origin(annotation) in (Union, UnionType):
        children = (_child(choice) for choice in get_args(annotation))
        return next((child for child in children if child[0]), (None, False))
    return None, False


def _all_keys(section: type[BaseModel], at: str = "") -> list[str]:
    keys = []
    for name, info in section.model_fields.items():
        child, is_named = _child(info.annotation)
        keys.append(f"{at}{name}")
        if child and not is_named:
            keys += _all_keys(child, f"{at}{name}.")
    return keys
