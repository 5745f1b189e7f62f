"""Evaluation during a training on sampled responses to prompts that are never trained on.

Each problem of the validation split has exactly one cache, whatever its success rate, so that HM -
V is an average over problems. The cache comes from a run if there is one; otherwise the build made
it, and these are counted.

    eval_hm            share of deliberations on held-out caches that are correct
    eval_v             value of the vote of their attempts; the same at every evaluation
    eval_hm_minus_v    HM - V
    eval_hm_garbled    HM on the same caches with other values in the attempts, as in the control
                       ``garbled`` (``experiments.controls``), for those that can be garbled
    eval_hm_minus_garbled
                       the difference on the latter: what the values in the attempts are worth
    eval_hm_none        HM on the same caches without instructions, if asked for
    eval_none_loses     HM minus this
    eval_none_loses_at_most
                       its one-sided 95 % upper bound over problems (``metrics.intervals``)
    eval_steps_agree, eval_steps_part
                       share of true values that deliberations write at steps where the attempts
                       agree on a true value, and where they part (``metrics.steps``), if there are
                       such steps
    eval_pass_at_1     share of a thinker's attempts at held-out problems that are correct
    eval_pass_at_d     share of these problems with at least one correct attempt
    eval_undecided     share of all responses that are undecided; they count as not correct
    eval_unanswered    share of all responses without a final answer; they count as not correct
    eval_cut_off       share of all responses that were cut off

The last three are of the caches as they are. GRPO and distillation sample as they train, with
``num_generations_eval`` responses per row; SFT samples a deliberator alone, with temperature 1 and
one response per row. A training samples from the whole distribution (top_p 1, top_k 0);
`heavydistill evaluate` takes the settings of its run, so that its HM is another number.
Without a server, every evaluation uses the same random numbers, and those of the training are not
affected.

Not covered: several rounds; near-duplicates of training problems that differ in a word.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import GenerationConfig

from heavydistill.config.prompts import OwnPrompts
from heavydistill.errors import BudgetError, ConfigError
from heavydistill.experiments.controls import other_pools
from heavydistill.heavy.cache import recut, without_instructions
from heavydistill.heavy.prompts import of_version
from heavydistill.heavy.pruning import Reader
from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.intervals import upper_bound
from heavydistill.metrics.steps import StepFigures, step_counts
from heavydistill.schema import Cache, Problem, Trace, Trajectory, content_id, from_row
from heavydistill.store.sets.folder import read_manifest, read_rows
from heavydistill.store.sets.set_rows import USED, CacheRow, ProblemRow, TrajectoryRow
from heavydistill.store.training_record import NONE_LOSES_AT_MOST
from heavydistill.text.steps import read_steps
from heavydistill.train.rollouts.problem_rows import problem_row
from heavydistill.train.rollouts.reward import Reward
from heavydistill.train.trainer import RolesMixin

if TYPE_CHECKING:
    from trl import GRPOTrainer as _TrlTrainer
else:
    _TrlTrainer = object  # at run time, the subclasses are built with TRL's class

DELIBERATOR, THINKER, GARBLED, NONE = "deliberator", "thinker", "garbled", "none"
HELD_OUT_METRICS = (
    *("eval_hm", "eval_hm_garbled", "eval_v", "eval_steps_agree", "eval_steps_part"),
    *("eval_hm_none", NONE_LOSES_AT_MOST),
)
"""Metrics of deliberations on held-out caches that the record of a training has."""
_MOST_GARBLED = 128
_OF_CHANGED = {GARBLED: ("hm_garbled", "hm_minus_garbled"), NONE: ("hm_none", "none_loses")}
"""Names of HM on changed caches, and of HM minus it on the same caches, by role."""
_STEPS = {"unanimous_true": "steps_agree", "parting": "steps_part"}
# Values of ``rl_label`` with which a cache is used for evaluation; other caches are skipped.
FIT = {
    *(USED, "always_right", "never_right", "unmeasured"),
    *("duplicate", "over_bound", "not_admitted", "over_cap"),
}
Row = dict[str, Any]
ThinkerPrompt = Callable[[Problem], str]
"""Function that returns the thinker's prompt for a problem."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The prompts of a held-out evaluation."""

    roles: dict[str, list[Row]]
    """Rows of each role, as made by ``problem_row``; rows of the deliberator also have ``cache``
    (the id), ``vote`` (value of the vote of the attempts) and ``shown`` (the answer texts of the
    attempts that the cache shows whole). Rows of ``garbled`` and ``none`` are for the
    deliberator too, with the id of the cache that was changed."""
    drawn: int  # Number of caches that were made by the build instead of a run
    too_long: int  # Number of rows left out because they are too long

    def __str__(self) -> str:
        drawn = f" ({self.drawn:,} drawn by the build)" if self.drawn else ""
        too_long = f", {self.too_long:,} too long" if self.too_long else ""
        caches, problems = (len(self.roles[role]) for role in (DELIBERATOR, THINKER))
        garbled = f", {len(self.roles[GARBLED]):,} also garbled" if GARBLED in self.roles else ""
        if NONE in self.roles:
            garbled += f", {len(self.roles[NONE]):,} also without instructions"
        of_thinker = f"{problems or 'no'} problems for a thinker"
        return f"{caches:,} caches{drawn}{too_long}{garbled}, {of_thinker}"


def held_out(
    folder: Path,
    most: int,
    thinker_prompt: ThinkerPrompt | None,
    learnt: Collection[str] = (),
    fits: Callable[[str, Row], bool] = lambda role, row: True,
    reader: Reader | None = None,
    has_none: bool = False,
) -> HeldOut:
    """Return the held-out prompts of a folder of sets.

    Args:
        folder: Folder of sets.
        most: Maximum number of rows of each role, selected by a hash of the problem's id, so that
            they are the same with every seed.
        thinker_prompt: Makes a thinker's prompt; None if no thinker is evaluated.
        learnt: Problem texts of the training; an error is raised if one is held out.
        fits: Whether a row of a role fits the model; the others are left out and counted.
        reader: Tokenizer of the model, which fits garbled caches; None for none of them.
        has_none: Whether the caches are also shown without instructions.

    Raises:
        ConfigError: There are no sets or no validation problems, or some cannot be used.
    """
    problems = _validation_problems(folder)
    chosen = sorted(problems, key=lambda id: content_id("held", id))
    caches = _caches(folder, problems)
    kept = [caches[id] for id in chosen if id in caches][:most]
    attempts = _shown_attempts(folder, kept)
    of_roles: dict[str, list[Row]] = {
        DELIBERATOR: [_cache_row(problems[cache.problem], cache, attempts) for cache in kept],
        THINKER: [problem_row(problems[id], thinker_prompt(problems[id])) for id in chosen[:most]]
        if thinker_prompt
        else [],
    }
    if reader:
        of_roles[GARBLED] = _garbled_rows(folder, kept, problems, attempts, reader)
    if has_none:
        of_roles[NONE] = [
            {**problem_row(problems[cache.problem], prompt), "cache": cache.id}
            for cache in kept
            if (prompt := without_instructions(cache.prompt))
        ]
    _refuse_learnt(folder, of_roles, learnt)
    fitting = {role: [row for row in rows if fits(role, row)] for role, rows in of_roles.items()}
    too_long = sum(len(of_roles[role]) - len(fitting[role]) for role in (DELIBERATOR, THINKER))
    fit = {row["cache"] for row in fitting[DELIBERATOR]}
    for role in _OF_CHANGED.keys() & fitting.keys():
        fitting[role] = [row for row in fitting[role] if row["cache"] in fit]
    return HeldOut(fitting, sum(cache.drawn for cache in kept), too_long)


def _validation_problems(folder: Path) -> dict[str, ProblemRow]:
    """Problems of the validation split by id; ConfigError if there are none."""
    rows = (from_row(ProblemRow, row) for row in read_rows(folder, "problems"))
    problems = {row.id: row for row in rows if row.split == "validation"}
    if not problems:
        raise ConfigError(
            f"held_out: {folder} has no problem in its validation split",
            "Build with --set validation=0.05 or more, or give --held_out_from another folder.",
        )
    return problems


def _caches(folder: Path, problems: Collection[str]) -> dict[str, CacheRow]:
    """A first-round cache of each problem that has one; one of a run before one that was drawn."""
    caches: dict[str, CacheRow] = {}
    for row in read_rows(folder, "caches"):
        if row["problem"] not in problems or row["rl_label"] not in FIT or row["round"] > 1:
            continue
        before = caches.get(row["problem"])
        if before is None or (before.drawn and not row["drawn"]):
            caches[row["problem"]] = from_row(CacheRow, row)
    return caches


def _shown_attempts(folder: Path, caches: Iterable[CacheRow]) -> dict[str, TrajectoryRow]:
    """The attempts of caches by id; ConfigError if the folder lacks some."""
    wanted = {item.generation for cache in caches for item in cache.items}
    attempts = {
        row["id"]: from_row(TrajectoryRow, row)
        for row in read_rows(folder, "trajectories")
        if row["id"] in wanted
    }
    if attempts.keys() != wanted:
        raise ConfigError(
            f"held_out: {folder} has caches without their attempts, which the vote needs",
            "A refilter drops attempts: give the folder of the build with --held_out_from.",
        )
    return attempts


def _cache_row(problem: ProblemRow, cache: CacheRow, attempts: Mapping[str, TrajectoryRow]) -> Row:
    """The row of a deliberator: the cache, its vote, and the attempts that it shows whole."""
    return {
        **problem_row(problem, cache.prompt),
        "cache": cache.id,
        "vote": vote_value([attempts[item.generation] for item in cache.items]),
        "shown": [
            attempts[item.generation].answer_text
            for item in cache.items
            if item.tokens_after == item.tokens_before
        ],
    }


def _refuse_learnt(
    folder: Path, of_roles: Mapping[str, list[Row]], learnt: Collection[str]
) -> None:
    both = {row["text"] for rows in of_roles.values() for row in rows} & set(learnt)
    if both:
        raise ConfigError(
            f"held_out_from: {len(both)} of the held-out problems of {folder} are also trained on, "
            f"such as {min(both)[:80]!r}",
            "Give a folder with other problems, or leave held_out_from out if dataset_name is "
            "given.",
        )


def _garbled_rows(
    folder: Path,
    caches: Sequence[CacheRow],
    problems: Mapping[str, ProblemRow],
    attempts: Mapping[str, TrajectoryRow],
    reader: Reader,
) -> list[Row]:
    manifest = read_manifest(folder)
    settings = [manifest.build, *(run.config for run in manifest.runs)]
    own = [OwnPrompts.saved(each.get("prompts", {})) for each in settings]
    return [
        {**problem_row(problems[cache.problem], prompt), "cache": cache.id}
        for cache in caches[:_MOST_GARBLED]
        if (prompt := _garbled(problems[cache.problem], cache, attempts, reader, own))
    ]


def _garbled(
    problem: Problem,
    cache: Cache,
    attempts: Mapping[str, Trajectory],
    reader: Reader,
    own: Sequence[OwnPrompts],
) -> str | None:
    """Return the prompt of a cache with garbled attempts; None if it cannot be made."""
    prompt = of_version(cache.prompt_version, *own)
    shown = [attempts[item.generation] for item in cache.items]
    trace = Trace(problem=problem, pool=shown, caches=[cache])
    garbled = next(other_pools("garbled", [trace]), None)
    if prompt is None or garbled is None:
        return None
    new = [replace(new, id=old.id) for old, new in zip(shown, garbled[1], strict=True)]
    # As many tokens as the model's tokenizer counts in the cache, which another one may have cut.
    own_tokens = reader.count(problem.history_json) + reader.count(cache.prompt)
    budget = max(cache.budget_tokens, own_tokens)
    with contextlib.suppress(BudgetError):
        return recut(problem, cache, new, budget_tokens=budget, prompt=prompt, reader=reader).prompt
    return None


Judge = Callable[[Sequence[Mapping[str, object]], Sequence[Sequence[int]]], Sequence[Reward]]
"""Function that judges one response per row (``VerdictReward.judge``)."""


class HeldOutResponse(NamedTuple):
    """A judged response to a held-out row."""

    row: int  # index of the row
    reward: Reward
    steps: Sequence[float] = ()  # of a deliberation, its ``metrics.steps.step_counts``


def figures(
    rows: Mapping[str, Sequence[Row]], responses: Mapping[str, list[HeldOutResponse]]
) -> dict[str, float]:
    """Return the metrics of an evaluation, without the prefix ``eval_``, for the roles that have
    rows.

    ``responses`` has the same number of responses for each row of a role.
    """
    metrics: dict[str, float] = {}
    for role, of_role in responses.items():
        right = _share_right(of_role)
        if role == DELIBERATOR:
            v = fmean(row["vote"] for row in rows[role])
            metrics |= {"hm": right, "v": v, "hm_minus_v": right - v, **_step_shares(of_role)}
        elif role in (GARBLED, NONE):
            shares = [_by_cache(rows[each], responses[each]) for each in (DELIBERATOR, role)]
            losses = [shares[0][cache] - share for cache, share in shares[1].items()]
            names = _OF_CHANGED[role]
            metrics |= {names[0]: right, names[1]: fmean(losses)}
            if role == NONE:
                at_most = upper_bound(losses, worst=1.0)
                metrics[NONE_LOSES_AT_MOST.removeprefix("eval_")] = at_most
        else:
            solved = {each.row for each in of_role if each.reward.is_right}
            metrics |= {"pass_at_1": right, "pass_at_d": len(solved) / len(rows[role])}
    plain = responses.keys() - {GARBLED, NONE}
    everything = [each.reward for role in plain for each in responses[role]]
    metrics["undecided"] = fmean(reward.is_right is None for reward in everything)
    for kind in ("unanswered", "cut_off"):
        metrics[kind] = fmean(reward.kind == kind for reward in everything)
    return metrics


def _by_cache(rows: Sequence[Row], responses: Sequence[HeldOutResponse]) -> dict[str, float]:
    """Return the share of right responses to the row of each cache."""
    of_cache: dict[str, list[HeldOutResponse]] = {}
    for each in responses:
        of_cache.setdefault(rows[each.row]["cache"], []).append(each)
    return {cache: _share_right(found) for cache, found in of_cache.items()}


def _share_right(responses: Sequence[HeldOutResponse]) -> float:
    return fmean(bool(each.reward.is_right) for each in responses)


def _step_shares(responses: Sequence[HeldOutResponse]) -> dict[str, float]:
    """The shares of true values that deliberations write, where attempts agree and where they
    part."""
    sums = [sum(column) for column in zip(*(each.steps for each in responses), strict=True)]
    table = StepFigures(tuple(sums), None).written if sums else {}
    return {name: table[row] for row, name in _STEPS.items() if row in table}


class HeldOutEvaluation(RolesMixin, _TrlTrainer):
    """Mixin for TRL's trainers that evaluates on held-out rows.

    ``judge`` must be set before an evaluation; ``most_tokens`` has the maximum tokens of a response
    by role.
    """

    num_generations_eval = 1  # Number of responses to a row

    def __init__(
        self,
        *,
        judge: Judge | None = None,
        most_tokens: Mapping[str, int] | None = None,
        **options: object,
    ) -> None:
        self._judge, self._most_tokens = judge, most_tokens or {}
        super().__init__(**options)

    def _sampled(self, role: str, prompts: list[list[int]]) -> list[list[int]]:
        """Sample a response to each prompt; ids up to the end token, without padding."""
        raise NotImplementedError

    def _prompt_ids(self, rows: Sequence[Row]) -> list[list[int]]:
        raise NotImplementedError

    def _rows_at_once(self, prompts: Sequence[list[int]]) -> int:
        return int(self.args.per_device_eval_batch_size)

    def _measured(self, given: Mapping[str, Iterable[Row]], prefix: str) -> dict[str, float]:
        """Evaluate on the rows of roles as in ``HeldOut``, and log the metrics."""
        rows = {role: listed for role, of in sorted(given.items()) if (listed := list(of))}
        started = time.perf_counter()
        was_training = self.model.training
        self.model.eval()
        try:
            with self._same_draw():
                responses = {role: self._responses(role, rows[role]) for role in rows}
            measured = figures(rows, responses)
            measured["runtime"] = time.perf_counter() - started
            metrics = {f"{prefix}_{name}": value for name, value in measured.items()}
            self.log(metrics)  # outside training mode TRL adds no training metrics
        finally:
            self.model.train(was_training)
        return metrics

    def _responses(self, role: str, rows: list[Row]) -> list[HeldOutResponse]:
        """Return the judged responses of all processes."""
        assert self._judge, "there is nobody to judge"
        ids = self._prompt_ids(rows)
        # Prompts of similar length share a batch, which is padded to its longest prompt.
        order = sorted(range(len(rows)), key=lambda row: (-len(ids[row]), row))
        prompted = [row for row in order for _ in range(self.num_generations_eval)]
        state = self.accelerator
        # All processes need the same number of batches, or one would hang; the surplus is dropped.
        missing = -len(prompted) % state.num_processes
        padded = [*prompted, *prompted[:1] * missing]
        mine = padded[state.process_index :: state.num_processes]
        size = self._rows_at_once(ids)
        written: list[list[int]] = []
        for start in range(0, len(mine), size):
            prompts = [ids[row] for row in mine[start : start + size]]
            sampled_as = DELIBERATOR if role in _OF_CHANGED else role
            written += self._sampled(sampled_as, prompts)
        judged = self._judge([rows[row] for row in mine], written)
        own = [
            HeldOutResponse(row, reward, self._steps(rows[row], ids) if role == DELIBERATOR else ())
            for row, reward, ids in zip(mine, judged, written, strict=True)
        ]
        if missing and state.process_index >= state.num_processes - missing:
            own = own[:-1]
        gathered: list[HeldOutResponse] = gather_object(own)
        return gathered

    def _steps(self, row: Row, ids: list[int]) -> list[float]:
        text = self.processing_class.decode(ids, skip_special_tokens=True)
        return step_counts([read_steps(each) for each in row["shown"]], read_steps(text))

    @contextlib.contextmanager
    def _same_draw(self) -> Iterator[None]:
        """Use the same random numbers at every evaluation, in this process."""
        device, of_numpy = self.accelerator.device, np.random.get_state()  # vLLM may use both
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(self._sampling_seed)
            np.random.seed(self._sampling_seed % 2**32)
            try:
                yield
            finally:
                np.random.set_state(of_numpy)

    @property
    def _sampling_seed(self) -> int:
        return int(self.args.seed + self.accelerator.process_index)

    @contextlib.contextmanager
    def _plain_generation(self) -> Iterator[None]:
        """Ignore the model's ``generation_config.json``: penalties and suppressed tokens would
        change the distribution that is sampled from."""
        own = self.model.generation_config
        self.model.generation_config = GenerationConfig()
        try:
            yield
        finally:
            self.model.generation_config = own
