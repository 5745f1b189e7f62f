"""The prompts of GRPO and of a distillation, caches or problems, and how they are selected.

A deliberator is trained on the prompts of the set ``rl``; with ``unmeasured: ask`` also on caches
whose success is unmeasured, and in a distillation on those that are never or always right.
Thinkers, alone or in episodes, are trained on the problems of a folder of sets or of a run, with
the run's prompt wording. Prompts are left out, and counted, for these reasons:

    never_right    no response was correct, so that all rewards of a group would be equal
    always_right   all responses were correct
    over_accuracy  more than ``max_accuracy`` of the attempts are correct
    too_long       the model's context has no room for a response; prompts are never cut
    unfit          the problem cannot be judged, and the run has ``problems.unfit: leave_out``

The first two are no reasons in a distillation, which has no rewards. They need at least two judged
responses: deliberations on the cache for a deliberator, attempts of the set ``trajectories`` for a
thinker, and both for an episode. Problems with fewer judged responses are kept (a refilter drops
attempts), and so are all problems of a run.

How they are asked is resolved before (``resolve``). For held-out prompts see ``held_out``.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heavydistill.config.run import RunConfig, Verifying
from heavydistill.errors import ConfigError, ProblemsError
from heavydistill.heavy.cache import without_instructions
from heavydistill.heavy.prompts import asked_of_thinker
from heavydistill.problems.loading import load_fit
from heavydistill.schema import Problem, from_row
from heavydistill.store.sets.folder import read_rows
from heavydistill.store.sets.set_rows import USED, ProblemRow
from heavydistill.train.base_model import BaseCheckpoint
from heavydistill.train.datasets import SetsFolder, locate
from heavydistill.train.grpo.options import GrpoOptions
from heavydistill.train.rollouts.options import (
    ASK,
    DELIBERATOR,
    JOINT,
    LEAVE_OUT,
    OF_SETS,
    RolloutOptions,
)
from heavydistill.train.rollouts.problem_rows import PROBLEM_COLUMNS, problem_of, problem_row
from heavydistill.train.rollouts.resolve import RolloutSettings, context_of
from heavydistill.verifiers import registry

if TYPE_CHECKING:
    from datasets import Dataset

NEVER, ALWAYS, OVER = "never_right", "always_right", "over_accuracy"
UNMEASURED, UNFIT, TOO_LONG, NO_REFERENCE = "unmeasured", "unfit", "too_long", "no_reference"
REWRITTEN = "left_out_by_rewrite"
OF_TEACHER = "teacher_prompt"
_OF_CACHE = (
    *("prompt", *PROBLEM_COLUMNS, "cache", "stratum", "right", "width", "success"),
    OF_TEACHER,  # in a distillation with the wording ``none``
)
_ROUNDING = 1e-9
_FEWEST_JUDGED = 2  # the same minimum as for a cache
_Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a training."""

    train: Dataset
    """Rows with ``prompt`` (a conversation) and the fields of a problem. Caches also have
    ``cache`` (the id), ``stratum``, ``right``, ``width``, ``success`` (null if unmeasured) and,
    with a ``claims_share``, ``attempts``; in a distillation with the wording ``none``,
    ``teacher_prompt``. Problems have ``domain`` and, if they come from sets,
    ``success``."""
    lengths: list[int]
    """Number of tokens of each prompt in ``train``, including template and generation prompt."""
    left_out: dict[str, int]  # Number of prompts left out, by reason

    @property
    def longest(self) -> int:
        """Return the number of tokens of the longest prompt."""
        return max(self.lengths)

    def longest_of_teacher(self, base: BaseCheckpoint) -> int:
        """Return the number of tokens of the longest prompt that a teacher reads."""
        if OF_TEACHER not in self.train.column_names:
            return self.longest
        return max(map(base.chat.prompt_tokens, self.train[OF_TEACHER]))

    @property
    def problems_sha256(self) -> str:
        """Return a hash of the prompts and references, in order."""
        digest = hashlib.sha256()
        columns = [self.train[name] for name in ("prompt", *PROBLEM_COLUMNS)]
        for row in zip(*columns, strict=True):
            digest.update(json.dumps(row).encode())
        return digest.hexdigest()


def find_sets(config: RolloutOptions) -> SetsFolder | None:
    """Return the folder of sets; None if a run is given instead."""
    if not config.dataset_name:
        return None
    names = {"rl"} if config.mode == DELIBERATOR else {"problems", "trajectories", "caches"}
    if config.max_completion_length is None:
        names.add(f"sft_{config.mode}")
    if config.unmeasured == ASK or config.looks_at_held_out:
        names |= {"problems", "trajectories", "caches"}
    return locate(config.dataset_name, sorted(names))


def longest_response(config: RolloutOptions, sets: SetsFolder | None) -> int:
    """Return the tokens of the longest response of the role that the sets have for SFT.

    Raises:
        ConfigError: There are no sets, or no such row in them.
    """
    columns = ["role", "completion_tokens"]
    rows = read_rows(sets.folder, f"sft_{config.mode}", "train", columns) if sets else ()
    tokens: list[int] = [row["completion_tokens"] for row in rows if row["role"] == config.mode]
    if not tokens:
        where = f"{config.dataset_name} has" if sets else "there are"
        raise ConfigError(
            f"max_completion_length is not given, and {where} no rows of a {config.mode} to take "
            "it from",
            "Give --max_completion_length N, the tokens of the longest response to learn from.",
        )
    return max(tokens)


def read_prompts(
    config: RolloutOptions, base: BaseCheckpoint, sets: SetsFolder | None, settings: RolloutSettings
) -> Prompts:
    """Read the prompts and select those to train on.

    Raises:
        ConfigError: No prompt is left, too few for one generation batch, or one that does not fit
            the model; or a verifier is not available.
        BudgetError: The problem alone exceeds the token budget of a cache.
    """
    left_out: Counter[str] = Counter()
    rows = _rows(config, sets, settings, left_out)
    if config.is_rewarded:
        check_verifiers(rows, settings.verify, config.dataset_name or config.run)
    if sets:
        if settings.run:
            success = _successes(sets, str(config.mode))
            rows = [{**row, "success": success.get(row["problem"])} for row in rows]
        rows = _teaching(rows, config, left_out)
        if not rows:
            raise _nothing_left(config, base.name, left_out)
    rows, lengths = with_room(config, base, rows, settings.response_tokens, left_out)
    if settings.episodes:
        for row in rows:  # raises if the problem alone exceeds the budget
            settings.episodes.empty_cache(problem_of(row))
    names = _OF_CACHE if "cache" in rows[0] else tuple(rows[0])
    if isinstance(config, GrpoOptions) and config.claims_share and sets:
        _check_attempts(rows, sets, config)
        names += ("attempts",)
    if len(rows) < config.prompts_of_generation:
        key = "steps_per_generation" if config.is_rewarded else "gradient_accumulation_steps"
        raise ConfigError(
            f"A generation has {config.prompts_of_generation:,} prompts, but there are only "
            f"{len(rows):,}",
            f"Give a smaller --{key}, or more prompts.",
        )
    from datasets import Dataset

    train = Dataset.from_list([{name: row[name] for name in names if name in row} for row in rows])
    return Prompts(train, lengths, dict(sorted(left_out.items())))


def _rows(
    config: RolloutOptions,
    sets: SetsFolder | None,
    settings: RolloutSettings,
    left_out: Counter[str],
) -> list[_Row]:
    """Return the prompts of the sets or of the run, none left out yet but for unfit problems."""
    if settings.run:
        return _problems(settings.run, sets, left_out, config.is_rewarded)
    assert sets, "a deliberator learns from sets"
    # Without rewards, caches whose deliberations are all right or all wrong teach too.
    labels = (UNMEASURED,) if config.is_rewarded else (UNMEASURED, NEVER, ALWAYS)
    others = _with_label(sets, labels) if config.unmeasured == ASK else ()
    rows = [*read_rows(sets.folder, "rl", "train"), *others]
    return rows if config.wording == OF_SETS else [_withdrawn(row, config) for row in rows]


def _withdrawn(row: _Row, config: RolloutOptions) -> _Row:
    """Return a prompt without instructions; in a distillation with the teacher's beside it."""
    *before, turn = row["prompt"]
    content = without_instructions(turn["content"])
    if content is None:
        raise ConfigError(
            f"wording: the prompt of cache {row['cache']} in {config.dataset_name} does not show "
            "the attempts right behind the problem, so its instructions cannot be left out",
            "Build the sets with a prompt that holds {{cache}}, or leave wording out.",
        )
    prompt = [*before, {**turn, "content": content}]
    of_teacher = {} if config.is_rewarded else {OF_TEACHER: row["prompt"]}
    return {**row, "prompt": prompt, **of_teacher}


def _problems(
    run: RunConfig, sets: SetsFolder | None, left_out: Counter[str], is_rewarded: bool
) -> list[_Row]:
    """Return the problems of the sets, or else of the run, with a thinker's prompts."""
    problems: Iterable[Problem | ProblemRow]
    if sets:
        problems = (
            from_row(ProblemRow, row)
            for row in read_rows(sets.folder, "problems")
            if row["label"] == USED and row["split"] == "train"
        )
        if is_rewarded:
            problems = [*problems]
            left_out += Counter({NO_REFERENCE: sum(each.is_served for each in problems)})
            problems = [each for each in problems if not each.is_served]
    else:
        loaded = load_fit(run.problems, run.verify)
        left_out += Counter({UNFIT: len(loaded.unfit), REWRITTEN: loaded.rejected})
        problems = loaded.problems
        if refused := next((each for each in problems if not each.is_text_alone), None):
            raise ConfigError(
                f"{run.problems.source}: a turn before the text of problem {refused.id} has tool "
                "calls, a tool's result or thinking, and a training shows text alone",
                "Give problems whose messages have only roles and contents.",
            )
    return [
        {
            **problem_row(problem, asked_of_thinker(problem, run)),
            "domain": run.domain_of(problem),
        }
        for problem in problems
    ]


def _check_attempts(rows: Iterable[_Row], sets: SetsFolder, config: GrpoOptions) -> None:
    """Raise a ``ConfigError`` if no row has a decided attempt to check claims against."""
    if any(each["right"] is not None for row in rows for each in row.get("attempts") or []):
        return
    manifest, path = sets.manifest, str(config.dataset_name)
    build = ["heavydistill", "build", *(run.name for run in manifest.runs)]
    build += ["--preset", str(manifest.build.get("preset", "balanced"))]
    build += ["--student", manifest.student.name, "--out", f"{path}-with-verdicts"]
    raise ConfigError(
        f"claims_share is {config.claims_share:g}, but {path} has no verdict of an attempt in a "
        "cache: its runs are not judged",
        f"Build the sets again, from the folders of judged runs, with `{shlex.join(build)}`"
        f"{', and refilter them' if manifest.refiltered else ''}; or leave claims_share out.",
    )


def _with_label(sets: SetsFolder, labels: Collection[str]) -> Iterator[_Row]:
    """Yield the caches that are not in ``rl`` for one of the reasons ``labels``."""
    problems = {
        row["id"]: from_row(ProblemRow, row)
        for row in read_rows(sets.folder, "problems")
        if row["split"] == "train"
    }
    caches = {
        row["id"]: row
        for row in read_rows(sets.folder, "caches")
        if row["rl_label"] in labels and row["problem"] in problems
    }
    for cache in caches.values():
        row = problem_row(problems[cache["problem"]], cache["prompt"])
        row |= {"cache": cache["id"], "stratum": cache["stratum"], "right": cache["right"]}
        row["attempts"] = cache.get("attempts")
        success = None if cache["rl_label"] == UNMEASURED else cache["success"]
        yield {**row, "width": len(cache["items"]), "success": success}


def _successes(sets: SetsFolder, mode: str) -> dict[str, float]:
    """Return the share of correct responses among the judged ones, by problem."""
    right: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    for row in read_rows(sets.folder, "trajectories", columns=["problem", "verdict.label"]):
        label = row["verdict"] and row["verdict"]["label"]
        right[row["problem"]] += label == "correct"
        judged[row["problem"]] += label in ("correct", "incorrect")
    if mode == JOINT:
        for row in read_rows(sets.folder, "caches", columns=["problem", "success", "judged"]):
            if row["judged"]:
                right[row["problem"]] += round(row["success"] * row["judged"])
                judged[row["problem"]] += row["judged"]
    return {problem: right[problem] / n for problem, n in judged.items() if n >= _FEWEST_JUDGED}


def check_verifiers(rows: Iterable[_Row], verify: Verifying, source: object) -> None:
    """Raise a ``UserError`` that names ``source`` if its problems cannot be judged here."""
    registry.load_own(verify.own)
    try:
        lacking = registry.unavailable({row["verifier"] for row in rows}, verify)
    except ProblemsError as error:
        raise ProblemsError(f"{source}: {error.what}", error.fix) from error
    if lacking:
        raise ConfigError(f"{source}: {lacking[0]}", "Correct that, or give other problems.")


def _teaching(rows: Iterable[_Row], config: RolloutOptions, left_out: Counter[str]) -> list[_Row]:
    """Return prompts with a learning signal; caches only up to ``max_accuracy``."""
    kept, most = [], config.max_accuracy
    for row in rows:
        if config.is_rewarded and row["success"] in (0, 1):
            left_out[ALWAYS if row["success"] else NEVER] += 1
        elif most is not None and row["right"] > most * row["width"] + _ROUNDING:
            left_out[OVER] += 1
        else:
            kept.append(row)
    return kept


def _nothing_left(config: RolloutOptions, model: str, left_out: Counter[str]) -> ConfigError:
    """Return the error for the case that no prompt has a learning signal."""
    listed = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
    path = str(config.dataset_name)
    if not config.is_rewarded:
        what = "cache" if config.mode == DELIBERATOR else "problem"
        return ConfigError(
            f"{path} has no {what} to train a {config.mode} on{f' ({listed})' if listed else ''}",
            "Build the sets from runs with deliberations, or give a larger max_accuracy or "
            "--unmeasured ask."
            if config.mode == DELIBERATOR
            else "Build the sets with problems in the training split, or give --run.",
        )
    again = ["heavydistill", "refilter", path, "--checkpoint", model, "--out", f"{path}-refiltered"]
    return ConfigError(
        f"{path} has no prompt that is answered correctly in some samples but not in all"
        f"{f' ({listed})' if listed else ''}",
        f"Measure the caches on this model with `{shlex.join(again)}`, or use unmeasured ones with "
        "--unmeasured ask, or give a larger max_accuracy. If they are never right, train the model "
        "on sft_deliberator first; if always, build sets from harder problems."
        if config.mode == DELIBERATOR
        else "Build sets from harder or easier problems or from the model's own run; or use all "
        "problems of a run: give --run, its configuration file, in place of --dataset_name.",
    )


def with_room(
    config: RolloutOptions,
    base: BaseCheckpoint,
    rows: list[_Row],
    response: int,
    left_out: Counter[str],
) -> tuple[list[_Row], list[int]]:
    """Return the prompts that leave room for ``response`` tokens, and their lengths in tokens.

    The others are counted in ``left_out``, or a ``ConfigError`` is raised.
    """
    room = context_of(config, base) - response
    lengths = [_tokens(base, row) for row in rows]
    kept = [at for at, tokens in enumerate(lengths) if tokens <= room]
    lacking = len(rows) - len(kept)
    if lacking and (config.too_long != LEAVE_OUT or not kept):
        raise ConfigError(
            f"{lacking:,} of {len(rows):,} prompts do not fit: the longest has "
            f"{max(lengths):,} tokens, but {response:,} for a response leave {room:,} of the "
            f"model's context of {base.context:,}",
            "Give a smaller max_completion_length or a larger vllm_max_model_length, "
            f"--too_long {LEAVE_OUT}, or sets with a smaller max_tokens.",
        )
    left_out += Counter({TOO_LONG: lacking})
    return [rows[at] for at in kept], [lengths[at] for at in kept]


def _tokens(base: BaseCheckpoint, row: _Row) -> int:
    try:
        return base.chat.prompt_tokens(row["prompt"])
    except ValueError as error:
        raise ConfigError(
            f"The prompt of problem {row['problem']} cannot be rendered: {error}",
            "Give a chat template that accepts it, with --chat_template_path FILE.",
        ) from error
