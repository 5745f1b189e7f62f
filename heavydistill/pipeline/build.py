"""Wires the steps of a run: load, sample, verify, then N rounds of cache, deliberate, verify."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from heavydistill.config import RunConfig, Sampling
from heavydistill.engine.ledger import account_of
from heavydistill.engine.request import THINK, deliberate_stage
from heavydistill.errors import ConfigError
from heavydistill.pipeline.compat import HeavyPipeline
from heavydistill.pipeline.flow import HeavyBase, OnBatch
from heavydistill.pipeline.llm import HeavyLLM
from heavydistill.pipeline.steps import BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.pipeline.tasks import Deliberate, SampleTrajectories
from heavydistill.schema import Trace, arrow_schema
from heavydistill.teachers.complete import complete, sampling_of
from heavydistill.teachers.profile import Profile
from heavydistill.teachers.registry import find

# A model in this process is fast in full batches, one after the other. Requests to an endpoint are
# independent: a batch is one problem, and so many are in flight that a few slow ones idle nothing.
LOCAL_BATCH = 16
_ROWS_PER_SLOT = 8
_MOST_IN_FLIGHT = 512


@dataclass(frozen=True, slots=True)
class Pace:
    """How the rows of a stage that asks a model are batched.

    Attributes:
        batch: Rows a batch.
        in_flight: Batches at once.
    """

    batch: int
    in_flight: int

    @classmethod
    def of(cls, model: Profile, samples: int, concurrency: int) -> Pace:
        """For so many samples a row, and so many requests at once."""
        if model.kind == "local":
            return cls(LOCAL_BATCH, 1)
        slots = -(-concurrency // samples)
        return cls(1, max(slots, min(_MOST_IN_FLIGHT, _ROWS_PER_SLOT * slots)))

    @property
    def rows(self) -> int:
        return self.batch * self.in_flight


def build_heavy_pipeline(
    config: RunConfig,
    on_batch: OnBatch | None = None,
    replay: bool = False,
    ray: str | None = None,
) -> HeavyBase:
    """The pipeline of a run, ready for ``run()``.

    Args:
        config: Completed from the profiles here, if it was not.
        on_batch: Called in this process with (step name, rows) for each batch that leaves a step.
        replay: Ask nobody; take every response from ``config.journal``.
        ray: Address of a Ray cluster that the steps are spread over, or ``local``; see ``ray``.
            None runs them on this machine.

    Limits of requests and tokens a minute are shared out to the stages by how often they ask,
    because each asks from a process of its own.

    Raises:
        UserError: A model is not known, its context is too small, or Ray is not installed.
    """
    config = complete(config)
    thinker = find(config.thinker or config.teacher, config.endpoint)
    deliberator = find(config.deliberator or config.teacher, config.endpoint)
    concurrency = config.endpoint.concurrency
    think = Pace.of(thinker, config.think.k, concurrency)
    deliberate = Pace.of(deliberator, config.deliberate.d, concurrency)
    # Each stage that asks has as many rows at work, and as many again waiting for it.
    window = 2 * (think.rows + config.deliberate.rounds * deliberate.rows)
    pipeline = _empty_pipeline(on_batch, window, ray)
    with pipeline:
        last = LoadProblems(
            name="load_problems",
            source=config.problems,
            batch_size=max(LOCAL_BATCH, think.batch, deliberate.batch),
        )
        last = last >> SampleTrajectories(
            name="sample_trajectories",
            llm=_llm(
                config, THINK, config.thinker, sampling_of(config.think), config.think.k, replay
            ),
            num_generations=config.think.k,
            domain=config.domain,
            language=config.language,
            input_batch_size=think.batch,
            batches_in_flight=think.in_flight,
        )
        last = last >> Verify(name="verify_pool", column="pool", input_batch_size=think.batch)
        for round in range(1, config.deliberate.rounds + 1):
            last = last >> BuildCaches(
                name=f"build_caches_{round}",
                choice=config.cache,
                reader=deliberator.tokenizer,
                min_k=config.think.min_k,
                round=round,
                seed=config.seed,
                domain=config.domain,
                language=config.language,
                input_batch_size=think.batch,
            )
            last = last >> Deliberate(
                name=f"deliberate_{round}",
                llm=_llm(
                    config,
                    deliberate_stage(round),
                    config.deliberator,
                    sampling_of(config.deliberate),
                    config.deliberate.d,
                    replay,
                ),
                num_generations=config.deliberate.d,
                round=round,
                input_batch_size=deliberate.batch,
                batches_in_flight=deliberate.in_flight,
            )
            last = last >> Verify(
                name=f"verify_deliberations_{round}",
                column="deliberations",
                input_batch_size=deliberate.batch,
            )
        last >> LabelTraces(name="label_traces", input_batch_size=deliberate.batch)
    return pipeline


def _empty_pipeline(on_batch: OnBatch | None, window: int, ray: str | None) -> HeavyBase:
    schema = arrow_schema(Trace)
    if ray is None:
        return HeavyPipeline("heavy", schema, on_batch, window)
    if not importlib.util.find_spec("ray"):
        raise ConfigError(
            "--ray is given, but Ray is not installed",
            "Install it on all nodes: pip install 'distilabel[ray]==1.5.3'.",
        )
    from heavydistill.pipeline.ray import HeavyRayPipeline

    return HeavyRayPipeline("heavy", schema, on_batch, window, ray)


def _llm(
    config: RunConfig,
    stage: str,
    model: str | None,
    sampling: Sampling,
    samples: int,
    replay: bool,
) -> HeavyLLM:
    endpoint = config.endpoint
    asked = config.think.k + config.deliberate.rounds * config.deliberate.d
    limits = {
        name: max(1, limit * samples // asked)
        for name in ("requests_per_minute", "tokens_per_minute")
        if (limit := getattr(endpoint, name))
    }
    pays = endpoint.is_served and config.journal and not replay
    return HeavyLLM(
        teacher=model or config.teacher,
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
