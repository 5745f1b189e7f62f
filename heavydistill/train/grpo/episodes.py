"""Episodes: K thinkers on one problem, the cache of their attempts, one deliberation on it.

The policy writes both, as it is at that step. Attempts are judged and become a cache by
``heavy.build_cache``, as in a run, with the student's tokenizer as the reader; selection,
pruning, width and wording are those of a run's configuration. An episode is K + 1 rows: the
thinkers in their order, then the deliberation.

As in a run, an episode with fewer than ``think.min_k`` usable attempts (``too_few_usable``), or
whose cache does not even hold the final answers (``too_long``), has failed: a run would have given
no answer. Nothing of it is learnt: the attempts that were cut off are masked, so a reward would
fall on those alone that were whole. The deliberation is sampled all the same, because all processes
must ask a server as often as each other.

Nothing is cut but by the cache's pruning: ``data`` looks at prompts before a training, and
``figures`` counts what each cache leaves out, and why, and what it shortens.

Not covered: several rounds or deliberations; temperature, top_p and the like, which are those of
the trainer, because the ratios are of its distribution; which row gets which reward (``joint``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal, get_args

from heavydistill.chat.template import TAGS, Chat
from heavydistill.config.run import RunConfig
from heavydistill.errors import BudgetError, ConfigError
from heavydistill.heavy import prompts as wordings
from heavydistill.heavy.cache import build_cache, frame_tokens
from heavydistill.heavy.pruning import Reader
from heavydistill.models.http.completion import decoded, split_reasoning
from heavydistill.models.resolve import PAPER_BUDGET_TOKENS
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.schema import Cache, LeftOutReason, Problem, Trajectory, content_id
from heavydistill.verifiers.pool import VerdictPool

Failed = Literal["too_few_usable", "too_long"]


@dataclass(frozen=True, slots=True)
class PolicyCompletion:
    """What the policy wrote."""

    ids: list[int]
    """Its tokens, at least one, with the one that ends it."""
    is_whole: bool
    """Whether it ended by itself."""
    logprobs: list[float] | None = None
    """As of who sampled it; None if those are not told."""


Sample = Callable[[list[list[int]], int], list[PolicyCompletion]]
"""One completion for each prompt, of so many tokens at most."""


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """One row of an episode."""

    prompt: list[dict[str, str]]
    """The conversation."""
    prompt_ids: list[int]
    """As the policy read it."""
    completion: PolicyCompletion
    """What it wrote."""
    is_learnt: bool = True
    """Whether it counts."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode."""

    rows: list[EpisodeRow]
    """Those of the thinkers, then the deliberation."""
    pool: list[Trajectory]
    """The thinkers' attempts, judged."""
    cache: Cache
    """What the deliberator read."""
    failed: Failed | None
    """Why it has failed; None if it has not."""


class Episodes:
    """Plays episodes.

    Args:
        run: Its ``think.k`` and ``think.min_k``, ``cache``, ``domain``, ``language`` and both
            roles' ``sampling.max_tokens`` count.
        chat: Renders prompts for the student.
        reader: The student's tokenizer.
        context: Maximum number of tokens that the student reads and writes.
        max_tokens: Maximum tokens of a response where ``run`` has no ``max_tokens``.

    Raises:
        ConfigError: Another task, other than one round, or tokens that do not fit the context.
    """

    def __init__(
        self,
        run: RunConfig,
        chat: Chat,
        reader: Reader,
        context: int,
        max_tokens: int,
    ) -> None:
        if run.rounds != 1 or run.deliberate.task != "deliberate":
            raise ConfigError(
                f"deliberate has {run.rounds} rounds to {run.deliberate.task}, and an episode has "
                "one to deliberate",
                "Set deliberate.rounds to 1, deliberate.d to 1 or more, and deliberate.task to "
                "deliberate.",
            )
        self.k = run.think.k
        self.thinker_tokens = run.think.sampling.max_tokens or max_tokens
        self.deliberator_tokens = run.deliberate.sampling.max_tokens or max_tokens
        around = chat.prompt_tokens([{"role": "user", "content": "?"}])
        room = context - self.deliberator_tokens - max(around, TEMPLATE_TOKENS)
        self.budget_tokens = run.cache.budget_tokens or min(PAPER_BUDGET_TOKENS, room)
        self._keys = {
            stage: f"{stage}.sampling.max_tokens" if of_run else "max_completion_length"
            for stage, of_run in (
                ("think", run.think.sampling.max_tokens),
                ("deliberate", run.deliberate.sampling.max_tokens),
            )
        }
        if room < 1:
            raise ConfigError(
                f"{self.deliberator_tokens} tokens of a deliberation leave no room for a cache in "
                f"the student's {context}",
                f"Set {self._keys['deliberate']} to {context // 2} or less.",
            )
        if self.budget_tokens > room:
            raise ConfigError(
                f"cache.budget_tokens {run.cache.budget_tokens} and {self.deliberator_tokens} "
                f"tokens of a deliberation do not fit the student's {context}",
                f"Set cache.budget_tokens to {room} or less.",
            )
        self._run, self._chat, self._reader, self._context = run, chat, reader, context

    @property
    def most_tokens(self) -> dict[str, int]:
        """Of a response of each role."""
        return {"thinker": self.thinker_tokens, "deliberator": self.deliberator_tokens}

    def lack_of_room(self, row: Mapping[str, Any]) -> tuple[str, str] | None:
        """What of a problem does not fit the context, and what would do; None if all can.

        Args:
            row: Of the set that is trained on.
        """
        problem = problem_of(row)
        prompt = len(self._ids(row["prompt"]))
        left = self._context - prompt
        if self.thinker_tokens > left:
            return (
                f"Problem {problem.id}: its prompt of {prompt} tokens and {self.thinker_tokens} of "
                f"an attempt do not fit the student's {self._context}",
                f"set {self._keys['think']} to {left} or less"
                if left > 0
                else "take shorter problems, or a model that reads more",
            )
        width = min(self._run.think.min_k, self.k)
        needed = frame_tokens(problem, width, self._wording(problem), self._reader)
        if needed > self.budget_tokens:
            return (
                f"Problem {problem.id}: a cache of {width} attempts has {needed} tokens without a "
                f"word of them, and there is room for {self.budget_tokens}",
                "give more room with a larger cache.budget_tokens or a smaller "
                f"{self._keys['deliberate']}",
            )
        return None

    def play(
        self,
        rows: Sequence[Mapping[str, Any]],
        seeds: Sequence[int],
        sample: Sample,
        verdicts: VerdictPool,
    ) -> list[Episode]:
        """An episode for each row, which has a thinker's ``prompt`` and the fields of a problem.

        ``seeds`` choose and order the attempts of each cache; ``sample`` is called twice.
        """
        problems = [problem_of(row) for row in rows]
        prompts = [list(row["prompt"]) for row in rows for _ in range(self.k)]
        thinkers = self._answered(prompts, self.thinker_tokens, sample)
        pools = self._pools(problems, thinkers, verdicts)
        built = [
            self._cache(problem, pool, seed)
            for problem, pool, seed in zip(problems, pools, seeds, strict=True)
        ]
        prompts = [[{"role": "user", "content": cache.prompt}] for cache, _ in built]
        finals = self._answered(prompts, self.deliberator_tokens, sample)
        return [
            Episode(
                rows=[
                    replace(row, is_learnt=failed is None)
                    for row in (*thinkers[number * self.k : (number + 1) * self.k], finals[number])
                ],
                pool=pools[number],
                cache=cache,
                failed=failed,
            )
            for number, (cache, failed) in enumerate(built)
        ]

    def _answered(
        self, prompts: list[list[dict[str, str]]], most: int, sample: Sample
    ) -> list[EpisodeRow]:
        ids = [self._ids(prompt) for prompt in prompts]
        longest = max(map(len, ids))
        if longest + most > self._context:
            raise ConfigError(
                f"A prompt of {longest} tokens and {most} of a response do not fit the student's "
                f"{self._context}",
                "Leave out long problems, or set a smaller sampling.max_tokens.",
            )
        return [EpisodeRow(*row) for row in zip(prompts, ids, sample(ids, most), strict=True)]

    def _ids(self, prompt: Sequence[Mapping[str, Any]]) -> list[int]:
        return self._chat.ids(self._chat.render(prompt, opens=True))

    def _pools(
        self, problems: Sequence[Problem], thinkers: Sequence[EpisodeRow], verdicts: VerdictPool
    ) -> list[list[Trajectory]]:
        pools = [
            [
                self._attempt(problem, index, thinkers[number * self.k + index])
                for index in range(self.k)
            ]
            for number, problem in enumerate(problems)
        ]
        judged = [
            [verdicts.submit_generation(problem, attempt) for attempt in pool]
            for problem, pool in zip(problems, pools, strict=True)
        ]
        return [
            [
                replace(attempt, verdict=to_come.result().verdict)
                for attempt, to_come in zip(pool, of_pool, strict=True)
            ]
            for pool, of_pool in zip(pools, judged, strict=True)
        ]

    def _attempt(self, problem: Problem, index: int, row: EpisodeRow) -> Trajectory:
        written = row.completion
        text = decoded(self._chat.tokenizer, written.ids, TAGS)
        reasoning, answer_text = split_reasoning(text, TAGS)
        return Trajectory(
            id=content_id("t", problem.id, index, text),
            index=index,
            model="policy",
            seed=-1,
            reasoning=reasoning,
            answer_text=answer_text,
            finish_reason="stop" if written.is_whole else "length",
            error=None,
            verdict=None,
            prompt_tokens=len(row.prompt_ids),
            completion_tokens=len(written.ids),
            latency_s=0.0,
            request_id="",
        )

    def _cache(
        self, problem: Problem, pool: list[Trajectory], seed: int
    ) -> tuple[Cache, Failed | None]:
        usable = sum(attempt.unusable_because is None for attempt in pool)
        if usable < min(self._run.think.min_k, self.k):
            return self.cache_of(problem, [], seed), "too_few_usable"
        try:
            return self.cache_of(problem, pool, seed), None
        except BudgetError:
            return self.cache_of(problem, [], seed), "too_long"

    def cache_of(self, problem: Problem, pool: Sequence[Trajectory], seed: int = 0) -> Cache:
        """The cache of a pool, as a deliberator reads it in an episode.

        Raises:
            BudgetError: It does not fit.
        """
        return build_cache(
            problem,
            pool,
            round=1,
            seed=seed,
            selection=self._run.cache.selection,
            width=self._run.cache.width,
            pruning=self._run.cache.pruning,
            budget_tokens=self.budget_tokens,
            prompt=self._wording(problem),
            reader=self._reader,
            order=self._run.cache.order,
        )

    def _wording(self, problem: Problem) -> wordings.Prompt:
        domain = problem.domain or self._run.domain or "general"
        return wordings.load("deliberator", domain, self._run.language)


def problem_row(problem: Problem, prompt: str) -> dict[str, Any]:
    """A problem and how it is asked, as a row of a set that is trained or measured on."""
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "problem": problem.id,
        "text": problem.text,
        "reference": problem.reference,
        "verifier": problem.verifier,
        "verifier_args": problem.verifier_args,
    }


def problem_of(row: Mapping[str, Any]) -> Problem:
    """The problem of such a row."""
    names = ("text", "reference", "verifier", "verifier_args")
    fields = {name: row[name] for name in names}
    return Problem(id=row["problem"], domain=row.get("domain") or "", **fields)


def figures(episodes: Sequence[Episode]) -> dict[str, float]:
    """What became of the attempts and the episodes of a step, for the log.

    Returns:
        ``attempts/...``: of all attempts the share that is right, shown, shown in part
        (``shortened``), and left out as ``truncated``, ``empty`` or ``not_selected``, or in an
        episode that failed though there was nothing against them (``unused``);
        ``episodes/...``: of all episodes the share that failed, and why; ``thinker/...`` and
        ``deliberator/...``: mean tokens and the share that was cut off.
    """
    attempts = [attempt for episode in episodes for attempt in episode.pool]
    shown = [item for episode in episodes for item in episode.cache.items]
    fates = Counter(fate for episode in episodes for fate in _fates(episode))
    shares = {name: fates[name] for name in (*get_args(LeftOutReason), "unused") if name != "error"}
    shares["right"] = sum(attempt.is_correct for attempt in attempts)
    shares["shown"] = len(shown)
    shares["shortened"] = sum(item.tokens_after < item.tokens_before for item in shown)
    found = {f"attempts/{name}": count / len(attempts) for name, count in shares.items()}
    for reason in get_args(Failed):
        failed = [episode.failed == reason for episode in episodes]
        found[f"episodes/{reason}"] = fmean(failed)
    for role, of_role in (("thinker", slice(-1)), ("deliberator", slice(-1, None))):
        written = [row.completion for episode in episodes for row in episode.rows[of_role]]
        found[f"{role}/mean_length"] = fmean(len(one.ids) for one in written)
        found[f"{role}/truncated"] = fmean(not one.is_whole for one in written)
    return found


def _fates(episode: Episode) -> list[str]:
    """Why each attempt is not shown, where it is not."""
    if episode.failed:
        return [attempt.unusable_because or "unused" for attempt in episode.pool]
    return [one.reason for one in episode.cache.left_out]
