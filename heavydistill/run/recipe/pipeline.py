"""Connects the steps of a run: load, sample, verify, then N rounds of cache, deliberate, verify.

With pools there is no sampling, several thinkers sample one after the other, without deliberations
there are no rounds, and with a judge each ``verify`` is followed by a judging step. A custom recipe
needs the steps and ``pace_of``, ``window_of``, ``llm_of``, ``counting_of`` and ``judge_of``; these
functions take the result of ``models.resolve.resolve`` (see ``pipelines/heavy.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from heavydistill.models.ledger import account_held, account_of, alone
from heavydistill.models.profiles import LOCAL_BATCH as LOCAL_BATCH
from heavydistill.models.profiles import Pace as Pace
from heavydistill.models.request import JUDGE, THINK, deliberate_stage, sample_seed
from heavydistill.models.resolve import ResolvedModel, ResolvedRun
from heavydistill.run.batches import refuse_open
from heavydistill.run.recipe.llm import HeavyLLM
from heavydistill.run.recipe.steps import BuildCaches, LabelTraces, LoadPools, LoadProblems, Verify
from heavydistill.run.recipe.tasks import Deliberate, JudgeUndecided, SampleTrajectories
from heavydistill.run.recipe.tool_rounds import SampleWithTools
from heavydistill.run.runner import HeavyPipeline, OnBatch
from heavydistill.run.status import thinking_steps
from heavydistill.schema import Trace, arrow_schema


def pace_of(run: ResolvedRun, stage: str) -> Pace:
    """Return the batch sizes of a stage; ``stage`` as in ``models.request``."""
    return _pace(run.in_stage(stage))


def _pace(model: ResolvedModel) -> Pace:
    return Pace.of(model.profile, model.samples, model.endpoint)


def window_of(run: ResolvedRun) -> int:
    """Return the maximum number of rows in the pipeline: twice what the stages process at once."""
    rounds = run.config.rounds
    rows = rounds * pace_of(run, deliberate_stage(1)).rows
    rows += sum(_pace(thinker).rows for thinker in run.thinkers)
    if run.judge:
        rows += (1 + rounds) * pace_of(run, JUDGE).rows
    return 2 * rows


def llm_of(run: ResolvedRun, stage: str, replay: bool = False, holder: str = "") -> HeavyLLM:
    """Return the LLM of a stage, with the journal and the budget account of the run.

    Args:
        run: Resolved run; its journal must be set if it has a budget.
        stage: Name as in ``models.request``.
        replay: Whether to read every response from the journal, without a request.
        holder: Name of the shard in the account; see ``models.ledger.Ledger``.
    """
    return _llm(run, run.in_stage(stage), stage, replay, holder)


def _llm(run: ResolvedRun, model: ResolvedModel, stage: str, replay: bool, holder: str) -> HeavyLLM:
    config = run.config
    pays = model.endpoint.is_served and config.journal and not replay
    return HeavyLLM.resolved(
        model.profile,
        model.evidence,
        teacher=model.name,
        sampling=model.sampling,
        system=None if stage == JUDGE else config.system,
        seed=config.seed,
        stage=stage,
        endpoint=model.endpoint,
        journal=config.journal,
        ledger=str(account_of(config)) if pays else None,
        most_tokens=config.most_tokens,
        most_usd=config.most_usd,
        holder=holder,
        replay=replay,
    )


def counting_of(run: ResolvedRun, replay: bool = False) -> dict[str, object]:
    """Return the arguments of ``BuildCaches`` for counting the tokens of a cache."""
    deliberator = run.deliberator
    return {
        "reader": deliberator.profile.tokenizer,
        "model": deliberator.profile.model,
        "endpoint": deliberator.endpoint,
        "journal": run.config.journal,
        "replay": replay,
    }


def judge_of(
    run: ResolvedRun, column: str, round: int = 0, replay: bool = False, holder: str = ""
) -> JudgeUndecided:
    """Return the step that requests a judge's verdicts for undecided generations in ``column``.

    ``column`` is ``pool`` or ``deliberations``; ``round`` is the round of the deliberations, 0 for
    a pool. The other arguments are as in ``llm_of``.
    """
    config, judge, pace = run.config, run.in_stage(JUDGE), pace_of(run, JUDGE)
    llm = llm_of(run, JUDGE, replay, holder)
    keys = ("reasons", "replies")
    chosen = {key: getattr(config.judge, key) for key in keys} if config.judge else {}
    # Votes of later rounds are new samples, even for the same question.
    llm.seed = sample_seed(config.seed, JUDGE, round)
    return JudgeUndecided(
        name=f"judge_{column}_{round}" if round else f"judge_{column}",
        column=column,
        llm=llm,
        num_generations=judge.samples,
        **chosen,
        prompt=config.prompts.judge,
        language=config.language,
        tokenizer=judge.profile.tokenizer,
        own=config.verify.own,
        input_batch_size=pace.batch,
        batches_in_flight=pace.in_flight,
    )


@contextlib.contextmanager
def paying(run: ResolvedRun) -> Iterator[None]:
    """Lock the budget account of the run's folder, if any of its models is served.

    Raises:
        ConfigError: The same run, or another one into its folder, is in progress; the account
            cannot be used; or batches of the run are open that this one does not ask for.
    """
    if not run.asks_servers:
        yield
        return
    config = run.config
    with contextlib.ExitStack() as held:
        # The same run into a different folder is refused too.
        same = Path(config.journal or "") / f"run-{config.identity}.lock"
        taken = "The same run is in progress, and both would pay for the same"
        held.enter_context(alone(same, taken))
        held.enter_context(account_held(config))
        refuse_open(run)
        yield


def _sampling_of(
    run: ResolvedRun, name: str, thinker: ResolvedModel, llm: HeavyLLM
) -> SampleTrajectories:
    """Return the step that samples a thinker's trajectories, with tools if it has any."""
    config, pace, tool = run.config, _pace(thinker), run.config.think.tools.python
    kind = SampleWithTools if tool else SampleTrajectories
    context = thinker.profile.context
    tools = {"tool": tool, "sandboxing": config.verify.sandbox, "context": context} if tool else {}
    return kind(
        name=name,
        llm=llm,
        num_generations=thinker.samples,
        domain=config.domain,
        language=config.language,
        prompts=config.prompts,
        input_batch_size=pace.batch,
        batches_in_flight=pace.in_flight,
        **tools,
    )


def build_heavy_pipeline(
    run: ResolvedRun,
    on_batch: OnBatch | None = None,
    replay: bool = False,
    known_unfit: list[int] | None = None,
    part: tuple[int, int] = (0, 1),
    holder: str = "",
) -> HeavyPipeline:
    """Return the pipeline of a run, ready for ``run()``.

    Args:
        run: The run.
        on_batch: Called with (step name, rows) for each batch that leaves a step.
        replay: Whether to read every response from ``config.journal``, without a request.
        known_unfit: See ``LoadProblems``.
        part: (number of a shard, number of all shards).
        holder: Name of the shard in the account; see ``llm_of``.
    """
    config = run.config
    deliberate = pace_of(run, deliberate_stage(1))
    think = _pace(run.thinkers[-1]) if run.thinkers else deliberate
    pipeline = HeavyPipeline("heavy", arrow_schema(Trace), on_batch, window_of(run))
    shard = {"first": part[0], "every": part[1], "batch_size": LOCAL_BATCH}
    with pipeline:
        if config.pools:
            last = LoadPools(
                name="load_pools",
                source=config.pools,
                attempts=config.cache.attempts,
                limit=config.problems.limit,
                own=config.verify.own,
                **shard,
            )
        else:
            last = LoadProblems(
                name="load_problems",
                source=config.problems,
                verify=config.verify,
                plugins=config.plugins,
                known_unfit=known_unfit,
                **shard,
            )
            for name, thinker in thinking_steps(run).items():
                llm = _llm(run, thinker, THINK, replay, holder)
                last = last >> _sampling_of(run, name, thinker, llm)
        last = last >> Verify(
            name="verify_pool", column="pool", verify=config.verify, input_batch_size=think.batch
        )
        if config.judge:
            last = last >> judge_of(run, "pool", replay=replay, holder=holder)
        for round in range(1, config.rounds + 1):
            last = last >> BuildCaches(
                name=f"build_caches_{round}",
                choice=config.cache,
                plugins=config.plugins,
                **counting_of(run, replay),
                min_k=config.think.min_k,
                seed=config.seed,
                domain=config.domain,
                language=config.language,
                prompts=config.prompts,
                task=config.deliberate.task,
                input_batch_size=think.batch,
            )
            last = last >> Deliberate(
                name=f"deliberate_{round}",
                llm=llm_of(run, deliberate_stage(round), replay, holder),
                num_generations=config.deliberate.d,
                task=config.deliberate.task,
                input_batch_size=deliberate.batch,
                batches_in_flight=deliberate.in_flight,
            )
            last = last >> Verify(
                name=f"verify_deliberations_{round}",
                column="deliberations",
                verify=config.verify,
                input_batch_size=deliberate.batch,
            )
            if config.judge:
                last = last >> judge_of(run, "deliberations", round, replay, holder)
        last >> LabelTraces(name="label_traces", input_batch_size=deliberate.batch)
    return pipeline
