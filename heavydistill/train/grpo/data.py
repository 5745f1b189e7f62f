"""The prompts of a GRPO training, caches or problems, and which of them are asked.

A deliberator is asked the prompts of the set ``rl``, with ``unmeasured: ask`` also caches whose
success is unmeasured; thinkers, alone or in episodes, are asked the problems of a folder of sets or
of a run, in the wording of the run. Prompts that are left out are counted by reason:

    never_right    no response was right, so that a group would teach nothing
    always_right   all responses were right
    over_accuracy  more than ``max_accuracy`` of its attempts are right
    too_long       no room for a response in the model's context; prompts are never cut
    unfit          its problem cannot be judged, and the run has ``problems.unfit: leave_out``

The responses are two or more judged ones: deliberations on the cache; for a thinker attempts of the
set ``trajectories``; for an episode, rewarded for its deliberation, both. Problems with fewer are
asked unfiltered, as all of a run are. A refilter drops the attempts: from its sets, episodes go by
deliberations alone, and a thinker is asked all problems.

Rows have ``prompt`` (one user turn), ``problem`` (its id), ``text``, ``reference``, ``verifier``,
``verifier_args``; of a cache also ``cache`` (its id), ``stratum``, ``right``, ``width`` and
``success`` (null: unmeasured), of a problem ``domain`` and, from sets, ``success``.

How problems are asked is the configuration of the given run or of those behind the sets: its
``domain``, ``language``, ``think``, ``cache`` and ``deliberate``, of a given one also ``problems``
and ``verify``. Not covered: what is measured while it trains (``held_out``).
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.config.models import SamplingChoice
from heavydistill.config.run import RunConfig, Verifying, load_config, refuse_code_of_saved
from heavydistill.config.yaml import parse
from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts as wordings
from heavydistill.models.registry import file_of
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.problems.loading import load_fit
from heavydistill.schema import Problem
from heavydistill.store.sets.folder import Manifest, read_rows
from heavydistill.store.sets.rows import USED
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.base_model import BaseCheckpoint
from heavydistill.train.datasets import SetsFolder, locate
from heavydistill.train.grpo.batches import check_episodes, check_prompts
from heavydistill.train.grpo.config import ASK, DELIBERATOR, JOINT, LEAVE_OUT, GrpoConfig
from heavydistill.train.grpo.episodes import Episodes, problem_row
from heavydistill.verifiers import registry

if TYPE_CHECKING:
    from datasets import Dataset

NEVER, ALWAYS, OVER = "never_right", "always_right", "over_accuracy"
UNMEASURED, UNFIT, TOO_LONG = "unmeasured", "unfit", "too_long"
_OF_PROBLEM = ("problem", "text", "reference", "verifier", "verifier_args")
_OF_CACHE = ("prompt", *_OF_PROBLEM, "cache", "stratum", "right", "width", "success")
_OF_SETS = ("domain", "language", "think", "cache", "deliberate")
_ROUNDING = 1e-9
_FEWEST_JUDGED = 2  # as of a cache
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompts:
    """All prompts of a training."""

    train: Dataset
    """A row for each prompt; see the module."""
    lengths: list[int]
    """Tokens of the prompts of ``train``, with the template and what opens an answer."""
    left_out: dict[str, int]
    """How many are not asked, by reason."""
    unmeasured: int
    """Prompts of ``train`` from sets whose success nobody has measured."""
    measured_on: list[str]
    """On whose responses success was measured, sorted."""
    run: RunConfig | None
    """How problems are asked; None where the prompts are caches."""
    verify: Verifying
    """How answers are judged."""

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max(self.lengths)

    @property
    def problems_sha256(self) -> str:
        """Hash of what is asked and what is right, in order."""
        digest = hashlib.sha256()
        columns = [self.train[name] for name in ("prompt", *_OF_PROBLEM)]
        for row in zip(*columns, strict=True):
            digest.update(json.dumps(row).encode())
        return digest.hexdigest()


def find_sets(config: GrpoConfig) -> SetsFolder | None:
    """The folder of sets; None where a run is given.

    Raises:
        ConfigError: There is none.
    """
    if not config.dataset_name:
        return None
    names = {"rl"} if config.mode == DELIBERATOR else {"problems", "trajectories"}
    if config.mode == JOINT:
        names |= {"caches"}
    if config.unmeasured == ASK:
        names |= {"caches", "problems"}
    if config.looks_at_held_out and config.held_out_from is None:
        names |= {"caches", "problems", "trajectories"}
    return locate(config.dataset_name, sorted(names))


def read_prompts(
    arguments: TrainArguments[GrpoConfig], base: BaseCheckpoint, sets: SetsFolder | None
) -> Prompts:
    """Read and choose the prompts.

    Raises:
        ConfigError: There are none to learn from, too few for a generation, or one that does not
            fit the model; or nobody here can judge an answer. The message says what to do.
    """
    config = arguments.config
    left_out: Counter[str] = Counter()
    run, verify, measured_on = None, config.verifying, list[str]()
    if config.mode == DELIBERATOR and sets:
        train = list(read_rows(sets.folder, "rl", "train"))
        measured_on = sorted({row["measured_on"] for row in train})
        if config.unmeasured == ASK:
            train += _unmeasured(sets)
    else:
        run = run_of(arguments, sets.manifest if sets else None)
        verify = run.verify if config.run else verify
        problems = _problems_of_sets(sets) if sets else _problems_of_run(run, left_out)
        train = list(_thinker_rows(problems, run))
        if sets:
            success, measured_on = _successes(sets, str(config.mode))
            train = [{**row, "success": success.get(row["problem"])} for row in train]
    check_verifiers(train, verify)
    if sets:
        found = train
        train = _teaching(found, config.max_accuracy, left_out)
        if not train and config.mode == DELIBERATOR:
            raise _no_cache_left(arguments, sets, found, left_out)
        if not train:
            raise _no_problem_left(sets, left_out)
    train, lengths = with_room(config, base, run, train, left_out)
    check_prompts(config.batch, len(train))
    return Prompts(
        train=_dataset(train),
        lengths=lengths,
        left_out=dict(sorted(left_out.items())),
        unmeasured=sum("success" in row and row["success"] is None for row in train),
        measured_on=measured_on,
        run=run,
        verify=verify,
    )


def _unmeasured(sets: SetsFolder) -> Iterator[_Row]:
    """The caches that were deliberated too seldom to tell, each once."""
    problems = {
        row["id"]: row for row in read_rows(sets.folder, "problems") if row["split"] == "train"
    }
    caches = {
        row["id"]: row
        for row in read_rows(sets.folder, "caches")
        if row["rl_label"] == UNMEASURED and row["problem"] in problems
    }
    for cache in caches.values():
        problem = problems[cache["problem"]]
        yield {
            "prompt": [{"role": "user", "content": cache["prompt"]}],
            "problem": problem["id"],
            **{name: problem[name] for name in _OF_PROBLEM[1:]},
            "cache": cache["id"],
            **{name: cache[name] for name in ("stratum", "right")},
            "width": len(cache["items"]),
            "success": None,
        }


def _problems_of_run(run: RunConfig, left_out: Counter[str]) -> list[Problem]:
    loaded = load_fit(run.problems, run.verify)
    if loaded.unfit:
        left_out[UNFIT] += len(loaded.unfit)
    return loaded.problems


def _problems_of_sets(sets: SetsFolder) -> list[Problem]:
    names = Problem.__dataclass_fields__
    found = [
        Problem(**{name: row[name] for name in names})
        for row in read_rows(sets.folder, "problems")
        if row["label"] == USED and row["split"] == "train"
    ]
    if not found:
        raise ConfigError(
            f"{sets.name} has no problem to learn from",
            "Build it from more problems; `heavydistill build` says in its table which it left out "
            "and why.",
        )
    return found


def _successes(sets: SetsFolder, mode: str) -> tuple[dict[str, float], list[str]]:
    """The share of each problem's judged responses that is right, and who wrote the attempts."""
    right: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    models = set()
    wanted = ["problem", "model", "verdict.label"]
    for row in read_rows(sets.folder, "trajectories", columns=wanted):
        models.add(row["model"])
        label = row["verdict"] and row["verdict"]["label"]
        right[row["problem"]] += label == "correct"
        judged[row["problem"]] += label in ("correct", "incorrect")
    if mode == JOINT:
        for row in read_rows(sets.folder, "caches", columns=["problem", "success", "judged"]):
            if row["judged"]:
                right[row["problem"]] += round(row["success"] * row["judged"])
                judged[row["problem"]] += row["judged"]
    known = {problem: n for problem, n in judged.items() if n >= _FEWEST_JUDGED}
    return {problem: right[problem] / n for problem, n in known.items()}, sorted(models)


def _thinker_rows(problems: Iterable[Problem], run: RunConfig) -> Iterator[_Row]:
    for problem in problems:
        domain = problem.domain or run.domain or "general"
        yield {**problem_row(problem, thinker_prompt(problem, run)), "domain": domain}


def thinker_prompt(problem: Problem, run: RunConfig) -> str:
    """What a thinker is asked about a problem."""
    domain = problem.domain or run.domain or "general"
    wording = wordings.load("thinker", domain, run.language)
    return wordings.thinker_prompt(problem.text, wording)


def check_verifiers(rows: Iterable[_Row], verify: Verifying) -> None:
    """See to it that rows with these problems can be judged here.

    Raises:
        ConfigError: A verifier is not known, or lacks what it needs.
    """
    registry.load_own(verify.own)
    kinds = {row["verifier"] for row in rows}
    if unknown := sorted(kinds - set(registry.names())):
        raise ConfigError(
            f"There are problems for the verifier {unknown[0]!r}, which is not known here",
            "Give its file with verify: {own: [FILE.py]} in the file.",
        )
    if lacking := registry.unavailable(kinds, verify):
        raise ConfigError(lacking[0], "Correct that, or take sets without such problems.")


def _teaching(rows: Iterable[_Row], most: float | None, left_out: Counter[str]) -> list[_Row]:
    """The prompts that can teach something, of caches those of this accuracy at most."""
    kept = []
    for row in rows:
        if not _may_teach(row):
            left_out[ALWAYS if row["success"] else NEVER] += 1
        elif most is not None and row["right"] > most * row["width"] + _ROUNDING:
            left_out[OVER] += 1
        else:
            kept.append(row)
    return kept


def _may_teach(row: _Row) -> bool:
    return row["success"] is None or 0 < row["success"] < 1


def _no_problem_left(sets: SetsFolder, left_out: Counter[str]) -> ConfigError:
    harder = "harder" if left_out[ALWAYS] >= left_out[NEVER] else "easier"
    return ConfigError(
        f"{sets.name} has no problem that was answered rightly sometimes and not always "
        f"({_listed(left_out)}), so there is nothing to learn",
        f"Build sets from {harder} problems or from the model's own run, or ask them unfiltered: "
        "give --run, the configuration of a run, in place of --dataset_name.",
    )


def _listed(left_out: Counter[str]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common(3))


def _no_cache_left(
    arguments: TrainArguments[GrpoConfig],
    sets: SetsFolder,
    caches: Iterable[_Row],
    left_out: Counter[str],
) -> ConfigError:
    if left_out[OVER]:
        lowest = min(row["right"] / row["width"] for row in caches if _may_teach(row))
        return ConfigError(
            f"max_accuracy: {left_out[OVER]:,} caches of {sets.name} have more than "
            f"{arguments.config.max_accuracy:g} of their attempts right, and none has as few",
            f"Give --max_accuracy {math.ceil(lowest * 1000) / 1000:g} or more.",
        )
    labels = left_out or Counter(
        row["rl_label"] for row in read_rows(sets.folder, "caches") if row["rl_label"]
    )
    if not labels and sets.manifest.unmeasured:  # caches are not always fetched from the Hub
        labels = Counter({UNMEASURED: sets.manifest.unmeasured})
    path, model = str(arguments.config.dataset_name), str(arguments.model.model_name_or_path)
    command = ["heavydistill", "refilter", path, "--checkpoint", model, "--out"]
    again = f"`{shlex.join([*command, f'{path}-refiltered'])}`"
    if labels[UNMEASURED] > labels[ALWAYS] + labels[NEVER]:
        fix = f"Measure them with {again}, or ask them as they are with --unmeasured ask."
    elif labels[ALWAYS] > labels[NEVER]:
        fix = f"Measure them on this model with {again}, or build sets from harder problems."
    else:
        fix = (
            "Train the model on the set sft_deliberator first (scripts/sft.py), and measure again "
            f"with {again}; or build sets from easier problems."
        )
    return ConfigError(
        f"{sets.name} has no cache that is answered rightly sometimes and not always"
        f"{f' ({_listed(labels)})' if labels else ''}, so there is nothing to learn",
        fix,
    )


def _dataset(rows: list[_Row]) -> Dataset:
    from datasets import Dataset

    names = _OF_CACHE if "cache" in rows[0] else tuple(rows[0])
    return Dataset.from_list([{name: row[name] for name in names} for row in rows])


def run_of(arguments: TrainArguments[GrpoConfig], manifest: Manifest | None) -> RunConfig:
    """How problems are asked: the run that is given, or that behind the sets of the manifest.

    Raises:
        ConfigError: It is none, sets something that would have no effect, or has a K that does not
            fit the batch; or the runs behind the sets were asked in different ways.
    """
    config = arguments.config
    if config.run:
        run = load_config(Path(config.run))
        fix = "copy the file out of the folder of the run, and give the copy"
        refuse_code_of_saved(Path(config.run), run, fix)
    else:
        run = _run_behind(manifest)
    _refuse_unused(run, config)
    if config.mode == JOINT:
        check_episodes(config.batch, run.think.k)
    if run.domain is None:
        profile = file_of(str(arguments.model.model_name_or_path))
        run = run.model_copy(update={"domain": profile.domain if profile else "general"})
    return run


def _run_behind(manifest: Manifest | None) -> RunConfig:
    """How the runs behind the sets asked, without what was right for their teachers alone."""
    runs = manifest.runs if manifest else []
    ways = [_way(run.config) for run in runs if run.config]
    fix = "Say how it is to be asked: give --run in place of --dataset_name."
    if not ways:
        raise ConfigError("The sets do not tell how their problems were asked", fix)
    if any(way != ways[0] for way in ways):
        names = ", ".join(run.name for run in runs)
        raise ConfigError(f"The runs behind the sets, {names}, were asked in different ways", fix)
    return parse(RunConfig, ways[0], "The run behind the sets: ", fix)


def wording_of(manifest: Manifest | None) -> RunConfig | None:
    """How the runs behind sets worded their prompts; None if they did not do it alike."""
    found = {
        (run.config.get("domain"), run.config.get("language"))
        for run in (manifest.runs if manifest else [])
        if run.config
    }
    if len(found) != 1:
        return None
    domain, language = found.pop()
    return RunConfig(domain=domain, **({"language": language} if language else {}))


def _way(config: dict[str, Any]) -> dict[str, Any]:
    way = {name: config[name] for name in _OF_SETS if config.get(name) is not None}
    for stage in ("think", "deliberate"):
        way[stage] = {key: v for key, v in way.get(stage, {}).items() if key != "sampling"}
    way["cache"] = {key: v for key, v in way.get("cache", {}).items() if key != "budget_tokens"}
    return way


def _refuse_unused(run: RunConfig, config: GrpoConfig) -> None:
    """Refuse sampling that another key of the training says, and what no training does."""
    if run.pools:
        raise ConfigError(
            f"{config.run}: pools has no effect: the model that is trained thinks",
            "Leave it out, and say with problems what is asked.",
        )
    most = config.max_completion_length
    stages = {"think": run.think.sampling}
    if config.mode == JOINT:
        stages["deliberate"] = run.deliberate.sampling
    for stage, sampling in stages.items():
        if sampling.model_copy(update={"max_tokens": None}) != SamplingChoice():
            raise ConfigError(
                f"{config.run}: of {stage}.sampling max_tokens alone counts in a training",
                "Leave the others out; temperature is a key of the training.",
            )
        # In an episode either role may have a smaller number of its own.
        tokens = sampling.max_tokens or most
        if tokens > most or (tokens < most and config.mode != JOINT):
            raise ConfigError(
                f"{config.run}: {stage}.sampling.max_tokens is {tokens}, and "
                f"max_completion_length {most}",
                f"Give --max_completion_length {tokens}, or the same max_tokens.",
            )


def context_of(config: GrpoConfig, base: BaseCheckpoint) -> int:
    """Maximum number of tokens of a prompt and a response together."""
    server = config.vllm_max_model_length if config.use_vllm else None
    return min(base.context, server or base.context)


def episodes_of(config: GrpoConfig, base: BaseCheckpoint, run: RunConfig) -> Episodes:
    """What plays the episodes of a training."""
    most = config.max_completion_length
    return Episodes(run, base.chat, ReaderTokenizer(base.path), context_of(config, base), most)


def with_room(
    config: GrpoConfig,
    base: BaseCheckpoint,
    run: RunConfig | None,
    rows: list[_Row],
    left_out: Counter[str],
) -> tuple[list[_Row], list[int]]:
    """The prompts that fit, and their tokens.

    ``run`` is None where the prompts are caches; ``left_out`` counts what does not fit.

    Raises:
        ConfigError: One does not fit and is not to be left out, or none does; the message says
            what would do for the longest.
    """
    lengths = [_tokens(base, row) for row in rows]
    if config.mode == JOINT:
        assert run, "episodes are of a run"
        episodes = episodes_of(config, base, run)
        lacks = [episodes.lack_of_room(row) for row in rows]
    else:
        lacks = [
            _lack_of_room(config, base, row, tokens)
            for row, tokens in zip(rows, lengths, strict=True)
        ]
    lacking = {at: lack for at, lack in enumerate(lacks) if lack}
    if lacking and (config.too_long != LEAVE_OUT or len(lacking) == len(rows)):
        what, fix = lacking[max(lacking, key=lambda at: lengths[at])]
        if len(lacking) < len(rows):
            fix = f"leave out what is longer with --too_long {LEAVE_OUT}, or {fix}"
        many = f"{len(lacking):,} of {len(rows):,} prompts"
        raise ConfigError(f"{what} ({many})", f"{fix[0].upper()}{fix[1:]}.")
    if lacking:
        left_out[TOO_LONG] += len(lacking)
    kept = [at for at, lack in enumerate(lacks) if lack is None]
    return [rows[at] for at in kept], [lengths[at] for at in kept]


def _lack_of_room(
    config: GrpoConfig, base: BaseCheckpoint, row: _Row, tokens: int
) -> tuple[str, str] | None:
    """(what does not fit, what would) of a prompt of so many tokens and a response to it."""
    response, room = config.max_completion_length, context_of(config, base)
    if tokens + response <= room:
        return None
    if tokens + response <= base.context:
        fix = f"give --vllm_max_model_length {tokens + response}"
    elif tokens < base.context:
        fix = f"give --max_completion_length {base.context - tokens}"
    else:
        fix = (
            "take a model that reads more, or cut caches to fit with "
            f"`heavydistill build --set max_tokens={base.context}`"
        )
    limit = "the model" if room == base.context else "vllm_max_model_length"
    what = f"its prompt of {tokens:,} tokens and {response:,} of a response do not fit the {room:,}"
    return f"Problem {row['problem']}: {what} of {limit}", fix


def _tokens(base: BaseCheckpoint, row: _Row) -> int:
    try:
        return base.chat.prompt_tokens(row["prompt"])
    except ValueError as error:
        raise ConfigError(
            f"The prompt of problem {row['problem']} cannot be rendered: {error}",
            "Give a chat template that takes it, with --chat_template_path FILE.",
        ) from error
