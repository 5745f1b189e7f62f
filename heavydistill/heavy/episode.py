"""The heavy protocol for one problem: what to ask next, and what came of it.

An episode knows no network, thread, file or clock. Whoever executes it moves asks and answers:

    episode = Episode(problem, rules, thinker=..., deliberator=..., reader=...)
    while asks := episode.asks():
        for ask in asks:
            episode.tell(ask, answer(ask))
    episode.trace

``asks`` gives each ask once, as soon as it may be answered: K trajectories; a verdict on each of
them; D deliberations on a cache of them; a verdict on each of these; and so on for N rounds. The
answers may come in any order and one at a time, and the trace does not depend on it.

With ``Rules.stop_at``, the first trajectories are asked for alone. If all of them have the same
answer, the episode ends with them; otherwise the others of the K follow. A trajectory that is not
usable or has no answer agrees with none.

With ``Rules.tooling``, a trajectory has several asks: a sample, the cells that it calls, the next
sample, until it answers or a limit ends it (``tools``). Those of one trajectory come one after the
other, and no trajectory waits for another.

A sample that failed is data (``schema.Generation.failure``), and the episode goes on with the
others, if at least ``min_k`` trajectories are usable. An episode may also begin with what exists
already: a pool, caches, deliberations. So an executor may keep the episode, or make it anew from
the row for each step, with only the rules and wordings that this step needs.

Not covered: sampling parameters and seeds, which belong to the model that is asked; a judge for
undecided verdicts, whose verdict the executor may tell in place of the verifier's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from heavydistill.config.run import CacheChoice, Task
from heavydistill.heavy import voting
from heavydistill.heavy.cache import build_cache
from heavydistill.heavy.prompts import Prompt, thinker_prompt
from heavydistill.heavy.pruning import Reader
from heavydistill.heavy.tools import CellAsk, Fields, Tooling, ToolRounds
from heavydistill.schema import (
    OK,
    STOPPED,
    TOO_FEW_USABLE,
    Cache,
    Deliberation,
    Generation,
    Problem,
    Trace,
    Trajectory,
    Turn,
    Verdict,
    content_id,
)
from heavydistill.text.checked_claims import with_claims

# The fields that identify a generation; all others may differ when the request is repeated.
_CONTENT = ("model", "index", "seed", "reasoning", "answer_text", "finish_reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a problem is worked on, as values; an executor gives those that its steps need."""

    k: int = 0  # number of trajectories, unless the pool is given
    stop_at: int = 0  # number of first trajectories that are enough if they agree; 0 for none
    min_k: int = 0  # minimum number of usable trajectories
    d: int = 0  # number of deliberations on each cache
    rounds: int = 1  # number of rounds, if ``d`` is positive
    task: Task = "deliberate"  # what a deliberator must do
    cache: CacheChoice = field(default_factory=CacheChoice)
    """How caches are built; ``budget_tokens`` must be set to build one."""
    seed: int = 0  # seed of selection and shuffling
    tooling: Tooling | None = None  # tools of the thinker; None for none


@dataclass(frozen=True, slots=True)
class SampleAsk:
    """Ask for one sample of a model; the answer is its fields without id, verdict, cache and
    round (``Fields``)."""

    prompt: str  # text of the user's turn
    index: int  # index among the samples of the same prompt, from 0
    round: int  # 0 for the thinker, or the deliberator's round, from 1
    turns: tuple[Turn, ...] = ()  # turns of the trajectory so far, after the prompt
    max_tokens: int = 0  # maximum tokens of the response; 0 for the sampling's


@dataclass(frozen=True, slots=True)
class VerdictAsk:
    """Ask for the verdict on a generation."""

    generation: Generation
    index: int  # position among the generations of its stage, from 0
    round: int  # as in ``SampleAsk``


Ask = SampleAsk | CellAsk | VerdictAsk


class Episode:
    """One problem on its way from the first ask to the finished trace.

    Args:
        problem: The problem.
        rules: The rules.
        thinker: Wording of the thinker; None if the pool is given.
        deliberator: Wording around a cache; None if no cache is built.
        reader: Tokenizer of the deliberator; None if no cache is built.
        pool: Trajectories that exist already, in the place of K new ones.
        selected_from: Pool from which a cache is selected, if it shows the trajectories of ``pool``
            in the place of these (see ``build_cache``).
        caches: Caches that exist already, one per round.
        deliberations: Deliberations on these caches, in order of round and index.

    Raises:
        ValueError: A deliberation is on another cache, or out of order.
    """

    def __init__(
        self,
        problem: Problem,
        rules: Rules,
        *,
        thinker: Prompt | None = None,
        deliberator: Prompt | None = None,
        reader: Reader | None = None,
        pool: Sequence[Trajectory] | None = None,
        selected_from: Sequence[Trajectory] | None = None,
        caches: Sequence[Cache] = (),
        deliberations: Sequence[Deliberation] = (),
    ) -> None:
        self.problem, self.rules = problem, rules
        self._thinker, self._deliberator, self._reader = thinker, deliberator, reader
        self._selected_from, self._caches = selected_from, list(caches)
        # The generations of each stage by their index, None if not told: the pool, and then those
        # on each cache whose round has begun.
        self._stages: list[list[Any]] = [[None] * rules.k if pool is None else [*pool]]
        for cache in caches:
            if on_cache := [each for each in deliberations if each.round == cache.round]:
                self._stages.append(on_cache)
        if self.deliberations != [*deliberations]:
            raise ValueError("Deliberations must be on the caches of the episode, and in order")
        self._asked: set[tuple[object, ...]] = set()
        self._begun: dict[int, ToolRounds] = {}  # unfinished trajectories with tools

    @property
    def pool(self) -> list[Trajectory]:
        """The trajectories so far, in order of their index."""
        return [each for each in self._stages[0] if each]

    @property
    def caches(self) -> list[Cache]:
        """The caches so far, one per round."""
        return [*self._caches]

    @property
    def deliberations(self) -> list[Deliberation]:
        """The deliberations so far, in order of round and index."""
        return [each for stage in self._stages[1:] for each in stage if each]

    @property
    def stopped_at(self) -> int | None:
        """Number of trajectories with which the episode ends because they agree, if it does."""
        first: list[Trajectory | None] = self._stages[0][: self.rules.stop_at]
        answers = {
            each.extracted if each and each.unusable_because is None else None for each in first
        }
        return len(first) if len(answers) == 1 and None not in answers else None

    @property
    def status(self) -> str:
        """The status of the trace so far, see ``schema.Trace.status``.

        Trajectories that are not told count as usable.
        """
        if stopped_at := self.stopped_at:
            return f"{STOPPED}{stopped_at}"
        pool = self._stages[0]
        usable = sum(each is None or each.unusable_because is None for each in pool)
        is_free = self.rules.cache.attempts in ("none", "empty", "answers", "steps")
        return OK if is_free or usable >= self.rules.min_k else TOO_FEW_USABLE

    @property
    def trace(self) -> Trace:
        """The row so far; its labels are final when the episode is done."""
        return labelled(
            Trace(
                problem=self.problem,
                pool=self.pool,
                caches=self.caches,
                deliberations=self.deliberations,
                status=self.status,
                thinker_prompt_version=self._thinker.version if self._thinker else "",
            )
        )

    def asks(self) -> list[Ask]:
        """Return what may be asked now and was not asked before.

        Raises BudgetError as ``build_cache``, if a cache is due.
        """
        while self._is_judged and self._has_next:
            self.begin_round()
        asks = [ask for ask in self._open() if _key(ask) not in self._asked]
        self._asked.update(map(_key, asks))
        return asks

    def tell(self, ask: Ask, answer: Fields | Turn | Verdict) -> None:
        """Record the answer to an ask: the fields of a sample, the result of a cell, or a verdict.

        Raises ValueError if it was not asked, or was told before.
        """
        stage = self._stages[ask.round]
        before: Generation | None = stage[ask.index]
        is_due = before and not before.verdict if isinstance(ask, VerdictAsk) else before is None
        if _key(ask) not in self._asked or not is_due:
            raise ValueError(f"Not asked, or told before: {ask}")
        if isinstance(answer, Verdict):
            assert before
            stage[ask.index] = replace(before, verdict=answer)
            return
        if ask.round == 0 and self.rules.tooling:
            begun = self._begun.setdefault(ask.index, ToolRounds(self.rules.tooling))
            if _place(ask) != len(begun.turns):
                raise ValueError(f"Told before: {ask}")
            if isinstance(answer, Turn):
                over = begun.tell_result(answer)
            else:
                over = begun.tell_response(answer)
            if over is None:
                return
            answer = over
        assert not isinstance(answer, Turn)
        if ask.round:
            stage[ask.index] = self._deliberation(self._caches[ask.round - 1], answer)
        else:
            stage[ask.index] = trajectory(self.problem.id, answer)

    def begin_round(self) -> None:
        """Begin the next round, judged or not; ``asks`` does so when all before it is judged.

        Raises BudgetError as ``build_cache``.
        """
        if len(self._caches) < len(self._stages):
            self.new_cache()
        self._stages.append([None] * self.rules.d)

    def new_cache(self) -> Cache:
        """Build the cache of the next round from what is known.

        Raises BudgetError as ``build_cache``.
        """
        rules = self.rules
        if not (self._deliberator and self._reader and rules.cache.budget_tokens):
            raise ValueError("A cache needs a wording, a reader and a budget in tokens")
        shown = [] if rules.cache.attempts == "none" else self.pool
        before = self._caches[-1].round if self._caches else 0
        cache = build_cache(
            self.problem,
            shown if self._selected_from is None else self._selected_from,
            round=before + 1,
            seed=rules.seed,
            selection=rules.cache.selection,
            width=rules.cache.width,
            pruning=rules.cache.pruning,
            budget_tokens=rules.cache.budget_tokens,
            prompt=self._deliberator,
            reader=self._reader,
            carried=[each for each in self.deliberations if each.round == before],
            order=rules.cache.order,
            instead=shown,
        )
        self._caches.append(cache)
        return cache

    @property
    def _due(self) -> list[Any]:
        """The generations of the last stage that may be asked for, as in ``_stages``."""
        stage, first = self._stages[-1], self.rules.stop_at
        if len(self._stages) > 1 or not first:
            return stage
        goes_on = _are_judged(stage[:first]) and not self.stopped_at
        return stage if goes_on else stage[:first]

    @property
    def _is_judged(self) -> bool:
        return _are_judged(self._due)

    @property
    def _has_next(self) -> bool:
        rounds = self.rules.rounds if self.rules.d else 0
        return self.status == OK and len(self._stages) <= rounds

    def _open(self) -> Iterator[Ask]:
        """Yield the asks that are due in the last stage and not told."""
        number = len(self._stages) - 1
        for index, each in enumerate(self._due):
            if each is None and index in self._begun and not number:
                yield self._continued(index)
            elif each is None:
                yield SampleAsk(self._prompt(number), index, number)
            elif each.verdict is None:
                yield VerdictAsk(each, index, number)

    def _continued(self, index: int) -> SampleAsk | CellAsk:
        """The next ask of a trajectory with tools."""
        begun = self._begun[index]
        if cell := begun.cell:
            call, code = cell
            return CellAsk(code, call, len(begun.turns), index)
        turns = tuple(begun.turns)
        return SampleAsk(self._prompt(0), index, 0, turns, begun.max_tokens)

    def _prompt(self, number: int) -> str:
        if number:
            return self._caches[number - 1].prompt
        if not self._thinker:
            raise ValueError("Trajectories need a thinker's wording")
        return thinker_prompt(self.problem.text, self._thinker)

    def _deliberation(self, cache: Cache, fields: Fields) -> Deliberation:
        if self.rules.task == "choose":
            texts = {each.id: each.answer_text for each in self._stages[0]}
            answers = [texts[item.generation] for item in cache.items]
            fields = voting.answered_by_choice({**fields}, answers)
        return deliberation(self.problem.id, cache.id, cache.round, fields)


def labelled(trace: Trace) -> Trace:
    """Return the trace with its claims, stratum and outcome."""
    deliberations = with_claims(trace)
    return replace(
        trace,
        deliberations=deliberations,
        stratum=voting.stratum(trace.pool),
        outcome=voting.outcome(trace.pool, deliberations),
    )


def trajectory(problem: str, fields: Fields) -> Trajectory:
    """Create a trajectory with these fields and no verdict; ``problem`` is a problem's id."""
    return Trajectory(id=content_id("t", problem, *_content(fields)), verdict=None, **fields)


def deliberation(problem: str, cache: str, round: int, fields: Fields) -> Deliberation:
    """Create a deliberation with these fields and no verdict; ``problem`` and ``cache`` are ids."""
    return Deliberation(
        id=content_id("d", problem, cache, *_content(fields)),
        cache=cache,
        round=round,
        verdict=None,
        **fields,
    )


def _content(fields: Fields) -> list[object]:
    return [fields[name] for name in _CONTENT]


def _are_judged(generations: Sequence[Generation | None]) -> bool:
    return all(each and each.verdict for each in generations)


def _place(ask: Ask) -> int:
    """Number of turns of the trajectory before an ask; 0 without tools."""
    if isinstance(ask, SampleAsk):
        return len(ask.turns)
    return ask.number if isinstance(ask, CellAsk) else 0


def _key(ask: Ask) -> tuple[object, ...]:
    return isinstance(ask, VerdictAsk), ask.round, ask.index, _place(ask)
