"""The heavy pipeline as a distilabel recipe: copy it and change what you like.

    python pipelines/heavy.py                                     # the micro teacher, 12 problems
    python pipelines/heavy.py --config configs/generate/vllm.yaml

Takes every key of ``heavydistill generate --config`` but ``pools`` and ``processes``, wires the
same steps as ``build_heavy_pipeline``, spelled out, and leaves the same folder, for `heavydistill
build`, `report` and the rest. Every step is an ordinary distilabel step, so your own go between
them with ``>>``; give them the ``input_batch_size`` of their neighbours, or rows wait for each
other. ``build(plan.run).run()`` gives distilabel's ``Distiset`` instead of a folder.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from heavydistill.config.run import load_config
from heavydistill.models.request import THINK, deliberate_stage
from heavydistill.models.resolve import ResolvedRun
from heavydistill.report.summary import headline
from heavydistill.run.generate import check, run
from heavydistill.run.recipe import pipeline as wiring
from heavydistill.run.recipe.steps import BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.run.recipe.tasks import Deliberate, SampleTrajectories
from heavydistill.run.runner import HeavyPipeline
from heavydistill.schema import Trace, arrow_schema


def build(run: ResolvedRun) -> HeavyPipeline:
    """The steps of a checked run."""
    config = run.config
    think, deliberate = wiring.pace_of(run, THINK), wiring.pace_of(run, deliberate_stage(1))
    wording = {name: getattr(config, name) for name in ("domain", "language", "prompts")}
    with HeavyPipeline("heavy", arrow_schema(Trace), window=wiring.window_of(run)) as pipeline:
        last = LoadProblems(
            name="load_problems",
            source=config.problems,
            verify=config.verify,
            plugins=config.plugins,
            batch_size=wiring.LOCAL_BATCH,
        )
        last = last >> SampleTrajectories(
            name="sample_trajectories",
            llm=wiring.llm_of(run, THINK),
            num_generations=config.think.k,
            input_batch_size=think.batch,
            batches_in_flight=think.in_flight,
            **wording,
        )
        last = last >> Verify(
            name="verify_pool",
            column="pool",
            verify=config.verify,
            input_batch_size=think.batch,
        )
        if config.judge:
            last = last >> wiring.judge_of(run, "pool")
        for round in range(1, config.rounds + 1):
            last = last >> BuildCaches(
                name=f"build_caches_{round}",
                choice=config.cache,
                plugins=config.plugins,
                **wiring.counting_of(run),
                min_k=config.think.min_k,
                seed=config.seed,
                task=config.deliberate.task,
                input_batch_size=think.batch,
                **wording,
            )
            last = last >> Deliberate(
                name=f"deliberate_{round}",
                llm=wiring.llm_of(run, deliberate_stage(round)),
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
                last = last >> wiring.judge_of(run, "deliberations", round)
        last >> LabelTraces(name="label_traces", input_batch_size=deliberate.batch)
    return pipeline


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, help="YAML file as for heavydistill generate")
    path = parser.parse_args().config
    plan = check(load_config(path, None if path else {"problems.size": 12}))
    finished = run(plan, pipeline_of=build)
    print(*headline(finished.summary), finished.folder, sep="\n")
