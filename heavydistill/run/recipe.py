"""Wires the steps of a run: load, sample, verify, then N rounds of cache, deliberate, verify.

With pools, loading is all of the first two; without deliberations there are no rounds.

Where a judge is declared, it follows each verifying. ``pace_of``, ``window_of``, ``llm_of``,
``counting_of``, ``judge_of`` and ``paying`` are what a recipe of one's own needs beside the steps
(see ``pipelines/heavy.py``).
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distilabel.steps import StepResources

from heavydistill.config.models import Endpoint, Judge, Sampling
from heavydistill.config.run import RunConfig
from heavydistill.errors import ConfigError
from heavydistill.models.complete import complete, sampling_of
from heavydistill.models.ledger import Ledger, account_of, adopt, alone
from heavydistill.models.pace import LOCAL_BATCH as LOCAL_BATCH
from heavydistill.models.pace import Pace as Pace
from heavydistill.models.registry import find
from heavydistill.models.request import JUDGE, THINK, deliberate_stage, sample_seed
from heavydistill.run.compat import HeavyPipeline
from heavydistill.run.flow import HeavyBase, OnBatch
from heavydistill.run.judging import JudgeUndecided
from heavydistill.run.llm import HeavyLLM
from heavydistill.run.steps import BuildCaches, LabelTraces, LoadPools, LoadProblems, Verify
from heavydistill.run.tasks import Deliberate, SampleTrajectories
from heavydistill.schema import Trace, arrow_schema


def pace_of(config: RunConfig, stage: str) -> Pace:
    """That of a stage of a completed configuration; ``stage`` as in ``models.request``."""
    name, _, samples, endpoint = _asked(config, stage)
    return Pace.of(find(name, endpoint), samples, endpoint)


def window_of(config: RunConfig) -> int:
    """Rows in the pipeline: each stage has those it works on, and as many that wait for it."""
    rounds = config.rounds
    rows = rounds * pace_of(config, deliberate_stage(1)).rows * config.deliberate.processes
    if not config.pools:
        rows += pace_of(config, THINK).rows * config.think.processes
    if config.judge:
        rows += (1 + rounds) * pace_of(config, JUDGE).rows
    return 2 * rows


def llm_of(config: RunConfig, stage: str, replay: bool = False) -> HeavyLLM:
    """Who is asked in a stage of a completed configuration, with its journal and account.

    Limits of requests and tokens a minute are shared out to the stages by how often they ask,
    because each asks from a process of its own; a judge counts as if one answer of each stage were
    left to it. One with the same limits at the same address as the run shares in them.

    Args:
        config: Its journal must be set if it has a budget.
        stage: As in ``models.request``.
        replay: Ask nobody; take every response from the journal.
    """
    name, sampling, samples, endpoint = _asked(config, stage)
    asked = _asked_of(config, endpoint)
    limits = {
        key: max(1, limit * samples // asked)
        for key in ("requests_per_minute", "tokens_per_minute")
        if (limit := getattr(endpoint, key))
    }
    pays = endpoint.is_served and config.journal and not replay
    return HeavyLLM(
        teacher=name,
        sampling=sampling,
        seed=config.seed,
        stage=stage,
        endpoint=endpoint.model_copy(update=limits),
        journal=config.journal,
        ledger=str(account_of(config)) if pays else None,
        most_tokens=config.most_tokens,
        most_usd=config.most_usd,
        replay=replay,
    )


def counting_of(config: RunConfig, replay: bool = False) -> dict[str, Any]:
    """The arguments of ``BuildCaches`` that say what counts the tokens of a cache.

    Args:
        config: Completed.
        replay: Take every count from the journal, and send no request.
    """
    deliberator = find(config.roles[1], config.endpoint)
    return {
        "reader": deliberator.tokenizer,
        "model": deliberator.model,
        "endpoint": config.endpoint,
        "journal": config.journal,
        "replay": replay,
    }


def judge_of(
    config: RunConfig, column: str, round: int = 0, replay: bool = False
) -> JudgeUndecided:
    """The step that puts what is undecided in a column to the judge of a completed configuration.

    Args:
        config: It must have a judge.
        column: ``pool`` or ``deliberations``.
        round: Of the deliberations; 0 for a pool.
        replay: As of ``llm_of``.
    """
    judge, pace = _judge(config), pace_of(config, JUDGE)
    llm = llm_of(config, JUDGE, replay)
    # Its processes do not see what the others ask, and would ask for the same.
    llm.seed = sample_seed(config.seed, JUDGE, round)
    return JudgeUndecided(
        name=f"judge_{column}_{round}" if round else f"judge_{column}",
        column=column,
        llm=llm,
        num_generations=judge.votes,
        reasons=judge.reasons,
        language=config.language,
        tokenizer=find(judge.model, config.judge_endpoint).tokenizer,
        own=config.verify.own,
        input_batch_size=pace.batch,
        batches_in_flight=pace.in_flight,
    )


@contextlib.contextmanager
def paying(config: RunConfig) -> Iterator[None]:
    """While this lasts the account of a run's folder is its own; it has one if any model is served.

    Raises:
        ConfigError: The same run is in progress, or another one into its folder; or the account
            cannot be used.
    """
    if not config.asks_servers:
        yield
        return
    with contextlib.ExitStack() as held:
        # Also into another folder.
        same = Path(config.journal or "") / f"run-{config.identity}.lock"
        held.enter_context(
            alone(same, "The same run is in progress, and both would pay for the same")
        )
        adopt(config)
        account = held.enter_context(contextlib.closing(Ledger(account_of(config))))
        held.enter_context(account.running())
        yield


def build_heavy_pipeline(
    config: RunConfig,
    on_batch: OnBatch | None = None,
    replay: bool = False,
    ray: str | None = None,
    known_unfit: list[int] | None = None,
) -> HeavyBase:
    """The pipeline of a run, ready for ``run()``.

    Args:
        config: Completed from the profiles here, if it was not.
        on_batch: Called in this process with (step name, rows) for each batch that leaves a step.
        replay: Ask nobody; take every response from ``config.journal``.
        ray: Address of a Ray cluster that the steps are spread over, or ``local``; see ``ray``.
            None runs them on this machine.
        known_unfit: As of ``LoadProblems``.

    Raises:
        UserError: A model is not known, its context is too small, or Ray is not installed.
    """
    config = complete(config)
    deliberate = pace_of(config, deliberate_stage(1))
    think = deliberate if config.pools else pace_of(config, THINK)
    pipeline = _empty_pipeline(on_batch, window_of(config), ray)
    with pipeline:
        if config.pools:
            last = LoadPools(
                name="load_pools",
                source=config.pools,
                limit=config.problems.limit,
                own=config.verify.own,
                batch_size=LOCAL_BATCH,
            )
        else:
            last = LoadProblems(
                name="load_problems",
                source=config.problems,
                verify=config.verify,
                known_unfit=known_unfit,
                batch_size=LOCAL_BATCH,
            ) >> SampleTrajectories(
                name="sample_trajectories",
                llm=llm_of(config, THINK, replay),
                num_generations=config.think.k,
                domain=config.domain,
                language=config.language,
                input_batch_size=think.batch,
                batches_in_flight=think.in_flight,
                **_replicas(config.think.processes),
            )
        last = last >> Verify(
            name="verify_pool",
            column="pool",
            verify=config.verify,
            input_batch_size=think.batch,
        )
        if config.judge:
            last = last >> judge_of(config, "pool", replay=replay)
        for round in range(1, config.rounds + 1):
            last = last >> BuildCaches(
                name=f"build_caches_{round}",
                choice=config.cache,
                **counting_of(config, replay),
                min_k=config.think.min_k,
                round=round,
                seed=config.seed,
                domain=config.domain,
                language=config.language,
                task=config.deliberate.task,
                input_batch_size=think.batch,
            )
            last = last >> Deliberate(
                name=f"deliberate_{round}",
                llm=llm_of(config, deliberate_stage(round), replay),
                num_generations=config.deliberate.d,
                round=round,
                task=config.deliberate.task,
                input_batch_size=deliberate.batch,
                batches_in_flight=deliberate.in_flight,
                **_replicas(config.deliberate.processes),
            )
            last = last >> Verify(
                name=f"verify_deliberations_{round}",
                column="deliberations",
                verify=config.verify,
                input_batch_size=deliberate.batch,
            )
            if config.judge:
                last = last >> judge_of(config, "deliberations", round, replay)
        last >> LabelTraces(name="label_traces", input_batch_size=deliberate.batch)
    return pipeline


def _replicas(wished: int) -> dict[str, Any]:
    """Of steps that ask; only where they are wished, for on Ray the nodes decide."""
    return {"resources": StepResources(replicas=wished)} if wished > 1 else {}


def _asked(config: RunConfig, stage: str) -> tuple[str, Sampling, int, Endpoint]:
    """(who is asked in a stage, how, for how many samples of a prompt, where)."""
    if stage == JUDGE:
        judge = _judge(config)
        return judge.model, sampling_of(judge), judge.votes, config.judge_endpoint
    thinker, deliberator = config.roles
    if stage != THINK:
        return deliberator, sampling_of(config.deliberate), config.deliberate.d, config.endpoint
    if config.pools:
        raise ConfigError(
            "pools: nobody thinks in a run whose trajectories are those of another",
            "Begin a recipe of your own with LoadPools, or use `heavydistill generate`.",
        )
    return thinker, sampling_of(config.think), config.think.k, config.endpoint


def _judge(config: RunConfig) -> Judge:
    if not config.judge:
        raise ValueError("the configuration has no judge")
    return config.judge


def _asked_of(config: RunConfig, endpoint: Endpoint) -> int:
    """Samples a problem that are asked for within the limits of an endpoint."""
    rounds = config.rounds
    asked = 0
    if _limits(config.endpoint) == _limits(endpoint):
        asked += (0 if config.pools else config.think.k) + rounds * config.deliberate.d
    if config.judge and _limits(config.judge_endpoint) == _limits(endpoint):
        asked += config.judge.votes * (1 + rounds)
    return asked


def _limits(endpoint: Endpoint) -> tuple[object, ...]:
    """Whose they are, and how many."""
    limits = endpoint.requests_per_minute, endpoint.tokens_per_minute
    return endpoint.base_url, endpoint.serve, endpoint.key_env, *limits


def _empty_pipeline(on_batch: OnBatch | None, window: int, ray: str | None) -> HeavyBase:
    schema = arrow_schema(Trace)
    if ray is None:
        return HeavyPipeline("heavy", schema, on_batch, window)
    if not importlib.util.find_spec("ray"):
        raise ConfigError(
            "--ray is given, but Ray is not installed",
            "Install it on all nodes: pip install 'distilabel[ray]==1.5.3'.",
        )
    from heavydistill.run.ray import HeavyRayPipeline

    return HeavyRayPipeline("heavy", schema, on_batch, window, ray)
