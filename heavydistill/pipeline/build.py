"""Wires the steps of a run: load, sample, verify, then N rounds of cache, deliberate, verify."""

from __future__ import annotations

from heavydistill.config import RunConfig, Sampling
from heavydistill.pipeline.compat import HeavyPipeline, OnBatch
from heavydistill.pipeline.llm import HeavyLLM
from heavydistill.pipeline.steps import BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.pipeline.tasks import Deliberate, SampleTrajectories
from heavydistill.schema import Trace, arrow_schema
from heavydistill.teachers.registry import complete, find, sampling_of

# Large enough for full batches of a local model, small enough that the stages overlap. A step
# with a larger batch than the one before it would hold finished rows back.
PROBLEMS_PER_BATCH = 16
# distilabel's generator runs one batch ahead only, so its batch feeds the stages several times.
PROBLEMS_PER_LOAD = 4 * PROBLEMS_PER_BATCH


def build_heavy_pipeline(config: RunConfig, on_batch: OnBatch | None = None) -> HeavyPipeline:
    """The pipeline of a run, ready for ``run()``.

    Args:
        config: Completed from the profiles here, if it was not.
        on_batch: Called in this process with (step name, rows) for each batch that leaves a step.

    Raises:
        UserError: A model is not known, or its context is too small.
    """
    config = complete(config)
    pipeline = HeavyPipeline("heavy", arrow_schema(Trace), on_batch)
    with pipeline:
        last = LoadProblems(
            name="load_problems", source=config.problems, batch_size=PROBLEMS_PER_LOAD
        )
        last = last >> SampleTrajectories(
            name="sample_trajectories",
            llm=_llm(config, config.thinker, sampling_of(config.think)),
            num_generations=config.think.k,
            domain=config.domain,
            language=config.language,
            input_batch_size=PROBLEMS_PER_BATCH,
        )
        last = last >> Verify(
            name="verify_pool", column="pool", input_batch_size=PROBLEMS_PER_BATCH
        )
        for round in range(1, config.deliberate.rounds + 1):
            last = last >> BuildCaches(
                name=f"build_caches_{round}",
                choice=config.cache,
                reader=find(config.deliberator or config.teacher, config.endpoint).tokenizer,
                min_k=config.think.min_k,
                round=round,
                seed=config.seed,
                domain=config.domain,
                language=config.language,
                input_batch_size=PROBLEMS_PER_BATCH,
            )
            last = last >> Deliberate(
                name=f"deliberate_{round}",
                llm=_llm(config, config.deliberator, sampling_of(config.deliberate)),
                num_generations=config.deliberate.d,
                round=round,
                input_batch_size=PROBLEMS_PER_BATCH,
            )
            last = last >> Verify(
                name=f"verify_deliberations_{round}",
                column="deliberations",
                input_batch_size=PROBLEMS_PER_BATCH,
            )
        last >> LabelTraces(name="label_traces", input_batch_size=PROBLEMS_PER_BATCH)
    return pipeline


def _llm(config: RunConfig, model: str | None, sampling: Sampling) -> HeavyLLM:
    return HeavyLLM(
        teacher=model or config.teacher,
        sampling=sampling,
        seed=config.seed,
        endpoint=config.endpoint,
    )
