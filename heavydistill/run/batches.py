"""Runs a pipeline whose models are asked in batches, pass by pass.

A pass executes the whole pipeline. Stages are answered from the journal, and what the journal lacks
is collected (``models.batch.queue``), sent and awaited; then the next pass begins. So a run has one
pass for the trajectories, one for each round of deliberations, one for each judging, and a last one
that lacks nothing. A request that failed is collected again, up to ``endpoint.retries`` times.

What is sent is recorded in a folder beside the journal, named like the account of the run, so the
same command finds its batches after a kill at any moment. Answers go into the journal in groups;
after a kill in between, the cost of one group may be booked twice, never too little.

Not covered: prompts that a server cuts (``http.cut_prompts``); shards.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from heavydistill.errors import ConfigError, StoppedError, TeacherError
from heavydistill.models.batch import files
from heavydistill.models.batch.files import BatchAnswers, BatchJob, Failures
from heavydistill.models.batch.queue import BatchQueue
from heavydistill.models.batch.service import BatchApi, BatchFolder, BatchService, BatchState
from heavydistill.models.http.circuit_breaker import CircuitBreaker
from heavydistill.models.journaled import journals, record_of
from heavydistill.models.ledger import Cost, Ledger, account_of, cost_of
from heavydistill.models.profiles import run_batch_words
from heavydistill.models.registry import profile_file
from heavydistill.models.request import Request, Response
from heavydistill.models.resolve import ResolvedModel, ResolvedRun
from heavydistill.report.grid import counted
from heavydistill.store.journal import Journal
from heavydistill.store.traces import writing

_FEWEST_REFUSED = 3  # requests, from which on a fault of all of them stops the run
_GROUP = 256  # answers that are written to the journal at once
_FIRST_POLL_S, _LONGEST_POLL_S, _SLOWER = 0.5, 60.0, 1.5
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Progress:
    """What the batches of one pass brought."""

    results: int = 0  # requests that were answered, or failed for their own reasons
    why: list[str] = field(default_factory=list)  # what was wrong with whole batches


def _folder_of(run: ResolvedRun) -> Path:
    return account_of(run.config).with_suffix(".batches")


def is_batched(run: ResolvedRun) -> bool:
    """Whether a model of a run is asked in batches."""
    return any(model.endpoint.is_batched for model in run.models if not model.is_local)


def in_passes(
    run: ResolvedRun,
    one_pass: Callable[[BatchQueue | None], None],
    waits: bool,
    on_wait: Callable[[str], None],
) -> None:
    """Call ``one_pass`` once; if models are asked in batches, with a queue until nothing is
    missing. See ``BatchedRun``. The account of the run is held (``recipe.pipeline.paying``).
    """
    if not is_batched(run):
        return one_pass(None)
    folder = Path(run.config.journal or "").absolute()
    journal = journals.borrow(folder, lambda: Journal(folder))
    ledger = Ledger(account_of(run.config), run.config.most_tokens, run.config.most_usd)
    try:
        with writing(_folder_of(run)):
            BatchedRun(run, journal, ledger, waits, on_wait).execute(one_pass)
    finally:
        ledger.close()
        journals.give_back(journal)


class BatchedRun:
    """Executes passes until nothing is missing.

    Args:
        run: The run.
        journal: Journal of the run.
        ledger: Account of the run.
        waits: Whether to wait for batches; otherwise the run stops once they are sent.
        on_wait: Called with what the run waits for; empty when it goes on.
    """

    def __init__(
        self,
        run: ResolvedRun,
        journal: Journal,
        ledger: Ledger,
        waits: bool,
        on_wait: Callable[[str], None],
    ) -> None:
        self._run, self._journal, self._ledger = run, journal, ledger
        self._waits, self._on_wait = waits, on_wait
        self._folder = _folder_of(run)
        self._name = self._folder.stem.replace(".", "-")  # no file has another dot
        self._failures = Failures(self._folder)
        self._breakers: dict[str, CircuitBreaker] = {}

    def execute(self, one_pass: Callable[[BatchQueue], None]) -> None:
        """Call ``one_pass`` with a queue until it collects nothing.

        Raises:
            StoppedError: Batches are open and ``waits`` is False, the budget or the credit is used
                up, a batch was cancelled, or a pass brought nothing.
            TeacherError: The service refuses a batch or all of its requests, or the thinking is
                missing.
        """
        for batch in (opened := files.open_batches(self._folder)):
            if not batch.is_begun:  # collected again, if still needed
                files.remove(self._folder, batch)
        self._finish([batch for batch in opened if batch.is_begun])
        while True:
            given_up = self._failures.given_up(self._run.config.endpoint.retries)
            queue = BatchQueue(self._folder, self._name, self._journal, given_up, self._left())
            one_pass(queue)
            batches = queue.batches()
            if not queue.missing:
                shutil.rmtree(self._folder, ignore_errors=True)
                return
            covered = self._covered(batches)
            if not covered:  # raises, because the budget does not allow it
                self._ledger.reserve(queue.uncovered or batches[0].most)
            self._finish(covered)

    def _left(self) -> Cost:
        """What the budget still allows."""
        config, spent = self._run.config, self._ledger.balance.most
        most_tokens = math.inf if config.most_tokens is None else config.most_tokens
        most_usd = math.inf if config.most_usd is None else config.most_usd
        return Cost(most_tokens - spent.tokens, most_usd - spent.usd)

    def _covered(self, batches: Sequence[BatchJob]) -> list[BatchJob]:
        """The batches that the budget covers after what the pass itself has spent."""
        left, covered = self._left(), list[BatchJob]()
        for batch in batches:
            if batch.tokens <= left.tokens and batch.usd <= left.usd:
                left = Cost(left.tokens - batch.tokens, left.usd - batch.usd)
                covered.append(batch)
            else:
                files.remove(self._folder, batch)
        return covered

    def _finish(self, batches: list[BatchJob]) -> None:
        """Send batches, wait for them, and put their answers into the journal."""
        progress, waiting = _Progress(), list[BatchJob]()
        for batch in batches:
            if batch.is_taken:  # only its files may be left
                self._remove(batch, self._service(batch).state(batch))
            else:
                path = files.input_file(self._folder, batch)
                service = self._service(batch)
                service.send(batch, path, partial(files.save, self._folder, batch))
                waiting.append(batch)
                if self._waits and (order := service.order(batch)):
                    _log.warning("%s", order)
        if not waiting:
            return
        self._wait(waiting, progress)
        if not progress.results:
            why = "; ".join(dict.fromkeys(progress.why))
            if why:
                raise TeacherError(
                    f"The batches were refused as a whole: {why}",
                    "Correct what it names and repeat the command. If it is too many tokens or "
                    "requests at once: --set endpoint.batch_requests=N.",
                )
            raise StoppedError(
                f"{counted(len(waiting), 'batch job')} ended without an answer",
                "Repeat the command to send them again; requests without an answer are not billed.",
            )

    def _wait(self, batches: Sequence[BatchJob], progress: _Progress) -> None:
        """Take the answers of each batch as soon as it has ended."""
        waiting, pause_s = list(batches), _FIRST_POLL_S
        while True:
            answered = 0
            for batch in list(waiting):
                state = self._service(batch).state(batch)
                answered += state.answered
                if state.status != "open":
                    self._take(batch, state, progress)
                    waiting.remove(batch)
            if not waiting:
                return self._on_wait("")
            requests = sum(batch.requests for batch in waiting)
            where = " and ".join(sorted({self._service(batch).place for batch in waiting}))
            what = f"{counted(len(waiting), 'batch job')} with {requests:,} requests at {where}"
            if not self._waits:
                orders = filter(None, (self._service(batch).order(batch) for batch in waiting))
                fix = " ".join([*orders, "Give the same command later: it goes on from there."])
                raise StoppedError(f"Sent and not answered yet: {what}", fix)
            self._on_wait(f"{what}, {answered:,} answered")
            time.sleep(pause_s)
            pause_s = min(_LONGEST_POLL_S, pause_s * _SLOWER)

    def _take(self, batch: BatchJob, state: BatchState, progress: _Progress) -> None:
        """Put the answers of a batch that has ended into the journal, and remove its files."""
        if state.status == "failed":
            progress.why.append(state.why)
            return self._remove(batch, state)
        paths = self._service(batch).fetch(state, self._folder, batch)
        results, failed = self._kept(batch, paths)
        progress.results += results
        self._failures.add(failed)
        batch.is_taken = True
        files.save(self._folder, batch)
        self._remove(batch, state)
        _refuse_refusals(batch, [*failed.values()])
        if (left := batch.requests - results) and state.status == "cancelled":
            raise StoppedError(
                f"The batch {batch.batch_id} was cancelled; {left:,} of its {batch.requests:,} "
                "requests have no answer",
                "Repeat the command to send them again.",
            )
        if left:
            _log.warning(
                "The batch %s ended (%s) without an answer to %d of %d requests, which are sent "
                "again.",
                *(batch.batch_id, state.status, left, batch.requests),
            )

    def _remove(self, batch: BatchJob, state: BatchState) -> None:
        self._service(batch).delete(state, batch)
        files.remove(self._folder, batch)

    def _kept(self, batch: BatchJob, paths: list[Path]) -> tuple[int, dict[str, Response]]:
        """Write the answers in these files to the journal; returns (their number, failures by key).

        Raises:
            TeacherError: The thinking is missing.
        """
        model = self._model(batch)
        answers = BatchAnswers(self._folder, batch, model.profile, model.endpoint)
        failed: dict[str, Response] = {}
        results, reader = 0, answers.read(paths)
        while group := list(islice(reader, _GROUP)):
            results += len(group)
            new = [
                (request, self._breaker(model).require_thinking([response])[0])
                for request, response in group
                if self._journal.state(request.key) != "answered"  # before a kill
            ]
            self._book(new, model)
            failed |= {request.key: response for request, response in new if response.failure}
        for what in answers.faults:
            _log.warning("The answers of the batch %s have %s", batch.batch_id, what)
        return results, failed

    def _book(self, samples: list[tuple[Request, Response]], model: ResolvedModel) -> None:
        """Book the cost of answers and write them to the journal."""
        if not samples:
            return
        costs = [cost_of([asked], [got], model.profile.price) for asked, got in samples]
        total = Cost(sum(cost.tokens for cost in costs), sum(cost.usd for cost in costs))
        self._ledger.settle(Cost(), total)
        name, at = model.profile.model, round(time.time(), 3)
        self._journal.put([record_of(name, asked, got, at) for asked, got in samples])

    def _breaker(self, model: ResolvedModel) -> CircuitBreaker:
        """What requires that a model thinks, until one of its responses shows it."""
        endpoint, profile = model.endpoint, model.profile
        if profile.model not in self._breakers:
            must_think = profile.thinks and endpoint.reasoning == "required"
            self._breakers[profile.model] = CircuitBreaker(
                profile.model, endpoint.base_url or "", endpoint.timeout_s, must_think
            )
        return self._breakers[profile.model]

    def _service(self, batch: BatchJob) -> BatchService:
        model = self._model(batch)
        if not model.endpoint.batch_files:
            return BatchApi(model.endpoint)
        profile, context = profile_file(model.name), model.endpoint.context
        words = run_batch_words(profile, model.profile.model, context)
        return BatchFolder(Path(model.endpoint.batch_files), words)

    def _model(self, batch: BatchJob) -> ResolvedModel:
        """The model of a batch; raises ConfigError if the run has another one."""
        for model in self._run.models:
            place = model.endpoint.base_url or "", model.profile.model
            if model.endpoint.is_batched and place == (batch.url, batch.model):
                return model
        raise ConfigError(
            f"A batch for {batch.model} at {batch.url or 'vllm run-batch'} is open, and this "
            "command does not ask that model in batches",
            f"Give the same models and addresses as before. Or remove {self._folder}: its "
            "requests are then sent and billed again.",
        )


def _refuse_refusals(batch: BatchJob, failed: Sequence[Response]) -> None:
    """Raise an error if the failures of a batch are not those of its requests.

    Raises:
        StoppedError: The account has no credit.
        TeacherError: Every request was refused.
    """
    broke = next((each for each in failed if each.failure == "no_credit"), None)
    if broke:
        raise StoppedError(
            f"The account at {batch.url} has no credit left: {broke.error}",
            "Add credit and repeat the same command; nothing is billed twice.",
        )
    refused = [each for each in failed if each.failure == "rejected"]
    if len(refused) == batch.requests >= _FEWEST_REFUSED:
        raise TeacherError(
            f"All {batch.requests:,} requests of a batch were refused: {refused[0].error}",
            "Correct what it names, e.g. a parameter (`heavydistill doctor` finds those that a "
            "server refuses). The same command goes on without these requests.",
        )


def refuse_open(run: ResolvedRun) -> None:
    """Raise ConfigError if batches are open of a run that is to be asked without batches."""
    if is_batched(run):
        return
    folder = _folder_of(run)
    if any(folder.glob("*.json")):
        raise ConfigError(
            f"Batches of this run are open ({folder}), and would be billed besides",
            "Add --batch (or --batch-files), as before. Or remove that folder.",
        )
