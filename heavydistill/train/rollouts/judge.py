"""A judge for the responses of a training that the verifiers leave undecided.

The judge is that of a run (``verifiers.judge``): the same questions, votes, journal and account.
All undecided responses of a generation, of all processes, are put to it at once by the main
process, with at most ``endpoint.slots`` requests in flight. Every reply is in the journal before it
is used, so that a resumed training does not ask again.

A generation waits for its judge for ``timeout_s`` at most. A response without an answer by then, or
because the judge is down or its budget is spent, keeps no reward: its verdict is ``judge_failed``.
After a generation without any reply the next ones are not put to the judge, first one, then twice
as many up to ``_LONGEST_PAUSE``, so that a judge that is down costs little time.

Not covered: a judge in this process; attempts of an episode, which have no reward of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from heavydistill.config.models import Judge
from heavydistill.config.run import RunConfig
from heavydistill.config.yaml import parse as parse_section
from heavydistill.errors import ConfigError, HeavydistillError, StoppedError, TeacherError
from heavydistill.heavy.judge_votes import Vote
from heavydistill.heavy.prompts import judge_prompt
from heavydistill.metrics.counts import Judging
from heavydistill.models.contact import ServerProbe
from heavydistill.models.identity import identified
from heavydistill.models.journaled import JournaledEngine, journaled
from heavydistill.models.ledger import Ledger, account_held, account_of
from heavydistill.models.registry import open_engine
from heavydistill.models.request import (
    INTERRUPTED,
    JUDGE,
    Response,
    sample_seed,
    samples,
    user_turn,
)
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.models.tokenizer import reader_of
from heavydistill.schema import Problem, Verdict
from heavydistill.store import segment
from heavydistill.train.launch import is_main
from heavydistill.train.rollouts.options import JUDGE_TIMEOUT_S, RolloutOptions
from heavydistill.verifiers.judge import FirstReplies, JudgeRules

_LONGEST_PAUSE = 32  # generations
_LATE = Response(finish_reason="error", failure="timeout", error="No answer in time.")
_Votes = dict[str, list[Vote]]
"""Votes on each question."""


def judge_of(config: RolloutOptions, run: RunConfig | None) -> ResolvedRun | None:
    """Return a run whose judge is that of the training; None without a judge.

    The judge is the given one, or else that of ``run``. Its server is asked for its models, except
    in a dry run.

    Raises:
        ConfigError: The judge, its budget or its journal cannot be used.
        TeacherError: The server does not answer, or does not serve the model.
    """
    judge = _chosen(config, run)
    own = config.own_prompts.judge
    if run and not config.judging:
        own = own or run.prompts.judge
    if judge is None:
        given = {
            **{"budget": config.budget, "journal": config.journal, "prompts.judge": own},
            "judge_timeout_s": config.judge_timeout_s != JUDGE_TIMEOUT_S,
        }
        if key := next((key for key, value in given.items() if value), None):
            raise ConfigError(
                f"{key} is for the requests to a judge, and there is none",
                "Give --judge, or leave it out.",
            )
        return None
    if not (judge.endpoint and judge.endpoint.is_served):
        raise ConfigError(
            f"judge: the server of {judge.model} is not known",
            f"Give its address: --judge '{{model: {judge.model}, endpoint: {{base_url: "
            "http://localhost:8000/v1}}'.",
        )
    folder = Path(str(config.output_dir))
    tree = {
        "judge": judge.model_dump(),
        "budget": config.budget,
        "journal": str(config.journal or folder.parent / "journal"),
        "out": str(folder),
        "language": run.language if run else "en",
        "prompts": {"judge": own},
    }
    # The run's own models are the bundled ones, which no server answers for.
    section = parse_section(RunConfig, tree, "judge: ", "Correct the value.")
    asks = is_main() and not config.dry_run
    segment.require(Path(str(section.journal)), writes=asks)
    contact = ServerProbe() if asks else None
    resolved = resolve(section, contact)
    if contact and (model := resolved.judge):
        contact.require(model.profile.model, model.endpoint, model.sampling.max_tokens)
        resolved = identified(resolved, contact, saves=True)
    return resolved


def _chosen(config: RolloutOptions, run: RunConfig | None) -> Judge | None:
    if config.judging is not None or run is None or run.judge is None:
        return config.judging
    if run.judge.endpoint or not run.endpoint.base_url:
        return run.judge
    return run.judge.model_copy(update={"endpoint": run.endpoint})


@contextlib.contextmanager
def opened(run: ResolvedRun | None, timeout_s: float) -> Iterator[RolloutJudge | None]:
    """Open the judge of a training, with its account; None without a judge.

    Raises:
        ConfigError: The account is in use, or cannot be used.
    """
    if run is None:
        yield None
        return
    with contextlib.ExitStack() as held:
        if is_main():
            held.enter_context(account_held(run.config))
        judge = RolloutJudge(run, timeout_s)
        held.callback(judge.close)
        yield judge


def rules_of(run: ResolvedRun) -> JudgeRules:
    """Return the rules of the judge of a run, which must have one."""
    judge, profile = run.config.judge, run.in_stage(JUDGE).profile
    assert judge, "the run has no judge"
    prompt = judge_prompt(run.config.language, run.config.prompts.judge, judge.replies)
    tokens = reader_of(profile.tokenizer).control_tokens
    return JudgeRules(profile.name, prompt, judge.replies, judge.reasons, tokens)


class RolloutJudge:
    """Decides undecided verdicts. Every process of the training has one; the main one asks."""

    def __init__(self, run: ResolvedRun, timeout_s: float) -> None:
        self._run, self._model, self._timeout_s = run, run.in_stage(JUDGE), timeout_s
        self.rules = rules_of(run)
        self.judging = Judging()
        """Counts of all processes since the start; only in the main process."""
        self._first = FirstReplies(self.rules)
        self._engine: JournaledEngine | None = None
        self._has_answered = False
        # Generations that are not put to the judge: those left, and their number at the last pause.
        self._left = self._pause = 0

    def decide(self, undecided: Sequence[tuple[Problem, Verdict, str]]) -> list[Verdict]:
        """Return the verdicts of the judge on responses, or the given ones where it is not asked.

        All processes must call this together. Each response is a problem, the rule's verdict and
        the answer text.

        Raises:
            TeacherError: The key is refused, or the first replies hold no verdict.
        """
        from accelerate import PartialState
        from accelerate.utils import broadcast_object_list, gather_object

        asked = [self.rules.question(*each) for each in undecided]
        own = [
            (text, verdict)
            for text, (_, verdict, _) in zip(asked, undecided, strict=True)
            if text is not None
        ]
        everyone: list[tuple[str, Verdict]] = gather_object(own)
        # An error of the main process must end all of them, or the others would wait for it.
        shared: list[_Votes | HeavydistillError] = [{}]
        if everyone and PartialState().is_main_process:
            try:
                shared = [self._votes(everyone)]
            except TeacherError as error:
                shared = [error]
        broadcast_object_list(shared)
        (votes,) = shared
        if isinstance(votes, HeavydistillError):
            raise votes
        return [
            verdict if text is None else self.rules.verdict(verdict, text, votes[text])
            for text, (_, verdict, _) in zip(asked, undecided, strict=True)
        ]

    def close(self) -> None:
        """Close the connections; requests in flight are abandoned."""
        if self._engine:
            self._engine.close()
        self._engine = None

    def _votes(self, everyone: Sequence[tuple[str, Verdict]]) -> _Votes:
        """Return the votes on the questions of all processes, and count them."""
        questions = list(dict.fromkeys(text for text, _ in everyone))
        responses = self._responses(questions)
        self._first.note(each for of_question in responses for each in of_question)
        votes = {
            text: [self.rules.vote(each) for each in of_question]
            for text, of_question in zip(questions, responses, strict=True)
        }
        seen: set[str] = set()
        for text, verdict in everyone:
            same_as = "" if text not in seen else "another response"
            seen.add(text)
            self.judging.add(self.rules.verdict(verdict, text, votes[text], same_as))
        return votes

    def _responses(self, questions: Sequence[str]) -> list[list[Response]]:
        """Return the replies to each question, failures included."""
        count = self._model.samples
        if self._left:
            self._left -= 1
            return [[INTERRUPTED] * count for _ in questions]
        try:
            engine = self._engine = self._engine or self._opened()
        except StoppedError as error:
            return self._silent(questions, error)
        pool = ThreadPoolExecutor(min(len(questions), self._model.endpoint.slots))
        futures = [pool.submit(self._asked, engine, text) for text in questions]
        _, late = wait(futures, timeout=self._timeout_s)
        pool.shutdown(wait=False, cancel_futures=True)
        stopped: HeavydistillError | None = None
        answered: list[list[Response]] = []
        for future in futures:
            replies = [_LATE] * count
            if future not in late:
                try:
                    replies = future.result()
                except (StoppedError, TeacherError) as error:
                    stopped, replies = stopped or error, [INTERRUPTED] * count
            answered.append(replies)
        if late or stopped:
            self.close()  # cancels what is still in flight
        if isinstance(stopped, TeacherError) and not self._has_answered:
            raise stopped
        if all(response.failure for of_question in answered for response in of_question):
            return self._silent(questions, stopped, answered)
        if self._pause:
            print(f"The judge {self.rules.model} answers again.", flush=True)
        self._has_answered, self._pause = True, 0
        return answered

    def _silent(
        self,
        questions: Sequence[str],
        error: HeavydistillError | None,
        found: list[list[Response]] | None = None,
    ) -> list[list[Response]]:
        """Return failures for all questions, and pause; says why at the first time."""
        if not self._pause:
            first = found[0][0].error if found else ""
            why = error.what if error else first
            print(
                f"Warning: the judge {self.rules.model} does not answer: {why} The responses that "
                "rules cannot decide earn no reward; it is asked again later.",
                flush=True,
            )
        self._left = self._pause = min(2 * self._pause or 1, _LONGEST_PAUSE)
        return found or [[INTERRUPTED] * self._model.samples for _ in questions]

    def _asked(self, engine: JournaledEngine, text: str) -> list[Response]:
        # Seeds as in a run's pool, so that both share a journal's votes.
        seed, model = sample_seed(self._run.config.seed, JUDGE, 0), self._model
        name, turns = model.profile.name, user_turn(text)
        asked = samples(
            turns, model.samples, model.sampling, run_seed=seed, model=name, stage=JUDGE
        )
        return engine.generate(asked)

    def _opened(self) -> JournaledEngine:
        config, model = self._run.config, self._model
        ledger = Ledger(account_of(config), config.most_tokens, config.most_usd)
        engine = open_engine(model.profile, model.endpoint, ledger, model.evidence)
        return journaled(engine, Path(str(config.journal)), model.profile.model)
