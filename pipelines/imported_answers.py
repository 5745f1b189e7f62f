"""Imported answers are deliberated on: files with several answers a problem become a run.

    python pipelines/imported_answers.py                            # 12 problems, the micro teacher
    python pipelines/imported_answers.py answers.jsonl --config teacher.yaml

A file has a problem a row: ``text``, ``reference`` and ``answers``, a list of texts, as in
``data/answers.sample.jsonl``; other columns, other formats and other verifiers are keys of
``ImportConfig``. Every answer is judged here. ``--config`` is a configuration of
``heavydistill generate``: the deliberator, its endpoint, ``cache``, ``deliberate`` and ``out``.
The first run leaves the judged answers in OUT-answers, and the next ones begin there.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from heavydistill.config.run import RunConfig, load_config
from heavydistill.config.sets import ImportConfig
from heavydistill.config.yaml import load
from heavydistill.curate.imports.import_pools import import_pools
from heavydistill.models.request import deliberate_stage
from heavydistill.models.resolve import ResolvedRun
from heavydistill.report.summary import headline
from heavydistill.run.generate import check, run
from heavydistill.run.recipe import pipeline as wiring
from heavydistill.run.recipe.steps import BuildCaches, LabelTraces, LoadPools, Verify
from heavydistill.run.recipe.tasks import Deliberate
from heavydistill.run.runner import HeavyPipeline
from heavydistill.schema import Trace, arrow_schema

SAMPLE = Path(__file__).parents[1] / "data" / "answers.sample.jsonl"


def with_answers(config: RunConfig, files: list[Path], author: str) -> RunConfig:
    """The configuration with judged answers in the place of a thinker; imports them once."""
    pools = Path(f"{config.out}-answers")
    if not pools.exists():
        keys = {"files": list(map(str, files)), "format": "answers", "model": author}
        done = import_pools(load(ImportConfig, overrides=keys | {"out": str(pools)}))
        print(f"{done.summary.problems} problems with {done.record['answers']} answers: {pools}")
    return config.model_copy(update={"pools": str(pools)})


def build(run: ResolvedRun) -> HeavyPipeline:
    """The steps of a checked run that begins with pools."""
    config, pace = run.config, wiring.pace_of(run, deliberate_stage(1))
    with HeavyPipeline("imported", arrow_schema(Trace), window=wiring.window_of(run)) as pipeline:
        pools = LoadPools(
            name="load_pools",
            source=config.pools,
            limit=config.problems.limit,
            own=config.verify.own,
            batch_size=wiring.LOCAL_BATCH,
        )
        caches = BuildCaches(
            name="build_caches_1",
            choice=config.cache,
            plugins=config.plugins,
            **wiring.counting_of(run),
            min_k=config.think.min_k,
            seed=config.seed,
            domain=config.domain,
            language=config.language,
            prompts=config.prompts,
            input_batch_size=pace.batch,
        )
        deliberations = Deliberate(
            name="deliberate_1",
            llm=wiring.llm_of(run, deliberate_stage(1)),
            num_generations=config.deliberate.d,
            input_batch_size=pace.batch,
            batches_in_flight=pace.in_flight,
        )
        judged = Verify(
            name="verify_deliberations_1",
            column="deliberations",
            verify=config.verify,
            input_batch_size=pace.batch,
        )
        label = LabelTraces(name="label_traces", input_batch_size=pace.batch)
        pools >> caches >> deliberations >> judged >> label
    return pipeline


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="*", default=[SAMPLE], help="files with answers")
    parser.add_argument("--author", default="micro-student", help="model that wrote the answers")
    parser.add_argument("--config", type=Path, help="YAML file of the deliberator and the run")
    given = parser.parse_args()
    micro = {"deliberator": "micro", "out": "runs/imported"}
    config = load_config(given.config, None if given.config else micro)
    finished = run(check(with_answers(config, given.files, given.author)), pipeline_of=build)
    print(*headline(finished.summary), finished.folder, sep="\n")
