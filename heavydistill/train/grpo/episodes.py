"""Episodes: K attempts at one problem, a cache built from them, and D deliberations on it.

The current policy answers what an episode (``heavy.episode``) asks, as in a run, with the student's
tokenizer; the run's configuration sets selection, pruning, width and wording. A rollout has K + D
rows: the attempts in order, then the deliberations.

As in a run, an episode fails if it has fewer than ``think.min_k`` usable attempts
(``too_few_usable``), or if the final answers alone exceed the cache's token budget (``too_long``).
A failed episode is left out of the loss: truncated attempts are masked, so that a reward would
reach only the complete ones. Deliberations are sampled even then, because all processes must send
equally many requests to a server.

Only cache pruning shortens text: ``data`` checks prompts before a training, and ``figures`` counts
what each cache leaves out and shortens.

Not covered: several rounds. Temperature, top_p and the like come from the trainer,
because ratios refer to its distribution; ``joint`` assigns the rewards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, get_args

from heavydistill.chat.template import Chat
from heavydistill.config.run import RunConfig
from heavydistill.errors import BudgetError, ConfigError
from heavydistill.heavy import prompts as wordings
from heavydistill.heavy.episode import Episode, Rules, SampleAsk, VerdictAsk
from heavydistill.heavy.pruning import Reader
from heavydistill.heavy.tools import Fields
from heavydistill.models.request import Message, conversation
from heavydistill.models.resolve import PAPER_BUDGET_TOKENS
from heavydistill.models.thinking import COMMON_TAGS, decoded, split_reasoning
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.schema import OK, Cache, LeftOutReason, Problem, Trajectory
from heavydistill.train.rollouts.problem_rows import problem_of
from heavydistill.verifiers.pool import VerdictPool

Failed = Literal["too_few_usable", "too_long"]


@dataclass(frozen=True, slots=True)
class PolicyCompletion:
    """A completion sampled from the policy."""

    ids: list[int]  # Token ids including the end token; at least one
    is_whole: bool  # Whether the completion ended by itself, not at the token limit
    logprobs: list[float] | None = None
    """Log-probability of each token as reported by the sampler; None if unknown."""


Sample = Callable[[list[list[int]], int], list[PolicyCompletion]]
"""Function of (token ids of each prompt, maximum tokens) that samples one completion per prompt."""


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """One row of an episode: a prompt with its completion, by the thinker or the deliberator."""

    prompt: list[Message]
    prompt_ids: list[int]
    completion: PolicyCompletion
    is_learnt: bool = True


@dataclass(frozen=True, slots=True)
class Rollout:
    """An episode as the policy wrote it: K attempts at a problem, and D deliberations on them."""

    rows: list[EpisodeRow]  # The thinkers' rows, then the deliberations
    pool: list[Trajectory]  # The thinkers' attempts, judged
    cache: Cache
    failed: Failed | None


class Episodes:
    """Generates episodes of a run whose prompts and responses fit ``context`` tokens.

    ``reader`` is the student's tokenizer. ``d`` is the number of deliberations of an episode.
    ``max_tokens`` limits the responses of a role for which the run sets no ``sampling.max_tokens``.

    Raises:
        ConfigError: The run has another task or several rounds, or its tokens exceed the context.
    """

    def __init__(
        self, run: RunConfig, chat: Chat, reader: Reader, context: int, d: int, max_tokens: int
    ) -> None:
        if run.rounds != 1 or run.deliberate.task != "deliberate":
            raise ConfigError(
                f"Mode joint needs one round of task deliberate, but the run has {run.rounds} of "
                f"task {run.deliberate.task}",
                "Set deliberate.rounds to 1, deliberate.d to 1 or more, and deliberate.task to "
                "deliberate.",
            )
        self.k, self.d = run.think.k, d
        self.most_tokens = {
            "thinker": run.think.sampling.max_tokens or max_tokens,
            "deliberator": run.deliberate.sampling.max_tokens or max_tokens,
        }
        """Maximum number of tokens of a response, by role."""
        response = self.most_tokens["deliberator"]
        around = chat.prompt_tokens([{"role": "user", "content": "?"}])
        room = context - response - max(around, TEMPLATE_TOKENS)
        self.budget_tokens = run.cache.budget_tokens or min(PAPER_BUDGET_TOKENS, room)
        least = run.cache.budget_tokens or 1
        if room < least:
            raise ConfigError(
                f"A cache of {least} tokens and a deliberation of {response} do not fit the "
                f"student's context of {context}, which leaves {room} for the cache",
                "Set a smaller cache.budget_tokens, or a smaller deliberate.sampling.max_tokens.",
            )
        self._run, self._chat, self._reader = run, chat, reader

    @property
    def size(self) -> int:
        """Return the number of rows of an episode."""
        return self.k + self.d

    def rollout(
        self,
        rows: Sequence[Mapping[str, object]],
        seeds: Sequence[int],
        sample: Sample,
        verdicts: VerdictPool,
    ) -> list[Rollout]:
        """Roll out an episode for each row, which has the fields of a problem.

        ``seeds`` select and order the attempts of each cache; ``sample`` is called twice.
        """
        playing = [
            self._episode(problem_of(row), seed) for row, seed in zip(rows, seeds, strict=True)
        ]
        asks = [
            (episode, ask)
            for episode in playing
            for ask in episode.asks()
            if isinstance(ask, SampleAsk)
        ]
        turns = [conversation(ask.prompt, episode.problem.history) for episode, ask in asks]
        thinkers = self._answered(turns, "thinker", sample)
        for (episode, ask), row in zip(asks, thinkers, strict=True):
            episode.tell(ask, self._fields(ask, row))
        _judge(playing, verdicts)
        caches = [self._cache(episode) for episode in playing]
        turns = [
            conversation(cache.prompt, episode.problem.history)
            for episode, (cache, _) in zip(playing, caches, strict=True)
            for _ in range(self.d)
        ]
        finals = self._answered(turns, "deliberator", sample)
        return [
            Rollout(
                rows=[
                    replace(row, is_learnt=failed is None)
                    for row in (
                        *thinkers[number * self.k : (number + 1) * self.k],
                        *finals[number * self.d : (number + 1) * self.d],
                    )
                ],
                pool=episode.pool,
                cache=cache,
                failed=failed,
            )
            for number, (episode, (cache, failed)) in enumerate(zip(playing, caches, strict=True))
        ]

    def empty_cache(self, problem: Problem) -> Cache:
        """Build a cache without attempts; raises ``BudgetError`` if it exceeds the token budget."""
        return self._episode(problem, 0, pool=[]).new_cache()

    def _episode(
        self, problem: Problem, seed: int, pool: list[Trajectory] | None = None
    ) -> Episode:
        run, domain = self._run, self._run.domain_of(problem)
        cache = run.cache.model_copy(update={"budget_tokens": self.budget_tokens})
        return Episode(
            problem,
            Rules(k=self.k, min_k=min(run.think.min_k, self.k), cache=cache, seed=seed),
            thinker=wordings.load("thinker", domain, run.language, run.prompts),
            deliberator=wordings.load("deliberator", domain, run.language, run.prompts),
            reader=self._reader,
            pool=pool,
        )

    def _answered(self, turns: list[list[Message]], role: str, sample: Sample) -> list[EpisodeRow]:
        ids = [self._chat.ids(self._chat.render(turn, opens=True)) for turn in turns]
        written = sample(ids, self.most_tokens[role])
        return [EpisodeRow(*row) for row in zip(turns, ids, written, strict=True)]

    def _fields(self, ask: SampleAsk, row: EpisodeRow) -> Fields:
        written = row.completion
        text = decoded(self._chat.tokenizer, written.ids, COMMON_TAGS)
        reasoning, answer_text = split_reasoning(text, COMMON_TAGS)
        return {
            "index": ask.index,
            "model": "policy",
            "seed": -1,
            "reasoning": reasoning,
            "answer_text": answer_text,
            "finish_reason": "stop" if written.is_whole else "length",
            "error": None,
            "prompt_tokens": len(row.prompt_ids),
            "completion_tokens": len(written.ids),
            "latency_s": 0.0,
            "request_id": "",
        }

    def _cache(self, episode: Episode) -> tuple[Cache, Failed | None]:
        """Return the cache of a judged episode; one without attempts if the episode failed."""
        if episode.status != OK:
            return self.empty_cache(episode.problem), "too_few_usable"
        try:
            return episode.new_cache(), None
        except BudgetError:
            return self.empty_cache(episode.problem), "too_long"


def _judge(playing: Sequence[Episode], verdicts: VerdictPool) -> None:
    """Tell the episodes the verdicts on all that is unjudged, judged concurrently."""
    pending = [
        (episode, ask, verdicts.submit_generation(episode.problem, ask.generation))
        for episode in playing
        for ask in episode.asks()
        if isinstance(ask, VerdictAsk)
    ]
    for episode, ask, to_come in pending:
        episode.tell(ask, to_come.result().verdict)


def figures(episodes: Sequence[Rollout]) -> dict[str, float]:
    """Return the metrics of a step's attempts and episodes, for the log.

    Returns:
        ``attempts/...``: share of attempts that are right, in the cache (``shown``), ``shortened``
        there, left out of it (``truncated``, ``empty``, ``not_selected``), or usable in an episode
        that failed (``unused``); ``episodes/...``: share of episodes that failed, by reason;
        ``thinker/...`` and ``deliberator/...``: mean tokens and the share that was cut off.
    """
    attempts = [attempt for episode in episodes for attempt in episode.pool]
    shown = [item for episode in episodes for item in episode.cache.items]
    fates = Counter[str]()
    for episode in episodes:
        if episode.failed:
            fates.update(attempt.unusable_because or "unused" for attempt in episode.pool)
        else:
            fates.update(cut.reason for cut in episode.cache.left_out)
    shares = {name: fates[name] for name in (*get_args(LeftOutReason), "unused") if name != "error"}
    shares["right"] = sum(attempt.is_correct for attempt in attempts)
    shares["shown"] = len(shown)
    shares["shortened"] = sum(item.tokens_after < item.tokens_before for item in shown)
    metrics = {f"attempts/{name}": count / len(attempts) for name, count in shares.items()}
    for reason in get_args(Failed):
        metrics[f"episodes/{reason}"] = fmean(episode.failed == reason for episode in episodes)
    for role in ("thinker", "deliberator"):
        written = [
            row.completion
            for episode in episodes
            for number, row in enumerate(episode.rows)
            if (number < len(episode.pool)) == (role == "thinker")
        ]
        metrics[f"{role}/mean_length"] = fmean(len(completion.ids) for completion in written)
        metrics[f"{role}/truncated"] = fmean(not completion.is_whole for completion in written)
    return metrics
