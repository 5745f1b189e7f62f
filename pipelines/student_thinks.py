"""A student thinks and a teacher deliberates on its attempts: caches as the student writes them.

    python pipelines/student_thinks.py                      # the micro models, 12 problems
    python pipelines/student_thinks.py --student student.yaml --teacher teacher.yaml

``heavydistill generate`` asks thinker and deliberator at one endpoint. Here each has its own, and
the teacher reads the first pools while the student still thinks. ``--student`` gives ``teacher``
(the student), ``endpoint`` and ``think.sampling``; ``--teacher`` gives these for the teacher and
all else. Then: ``heavydistill build FOLDER --cache-from student --student MODEL --out SETS``.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from heavydistill.config.run import load_config
from heavydistill.models.request import THINK, deliberate_stage
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.report.summary import headline
from heavydistill.run.generate import Plan, check, run
from heavydistill.run.recipe import pipeline as wiring
from heavydistill.run.recipe.steps import BuildCaches, LabelTraces, LoadProblems, Verify
from heavydistill.run.recipe.tasks import Deliberate, SampleTrajectories
from heavydistill.run.runner import HeavyPipeline
from heavydistill.schema import Trace, arrow_schema


def plan_of(student_file: Path | None, teacher_file: Path | None) -> Plan:
    """The checked run of the teacher's file, with the student as its thinker."""
    micro = {"teacher": "micro-student"}, {"teacher": "micro", "problems.size": 12}
    student = resolve(load_config(student_file, None if student_file else micro[0]))
    thinker = student.in_stage(THINK)
    keys = {"thinker": thinker.name, "think.sampling": thinker.sampling.model_dump()}
    plan = check(load_config(teacher_file, keys if teacher_file else keys | micro[1]))
    thinker = dataclasses.replace(thinker, samples=plan.config.think.k)
    return dataclasses.replace(plan, run=dataclasses.replace(plan.run, thinkers=(thinker,)))


def build(run: ResolvedRun) -> HeavyPipeline:
    """The steps of a checked run: the student's, then the teacher's."""
    config = run.config
    student, teacher = wiring.pace_of(run, THINK), wiring.pace_of(run, deliberate_stage(1))
    wording = {name: getattr(config, name) for name in ("domain", "language", "prompts")}
    with HeavyPipeline("student-thinks", arrow_schema(Trace), window=wiring.window_of(run)) as made:
        problems = LoadProblems(
            name="load_problems",
            source=config.problems,
            verify=config.verify,
            plugins=config.plugins,
            batch_size=wiring.LOCAL_BATCH,
        )
        attempts = SampleTrajectories(
            name="sample_trajectories",
            llm=wiring.llm_of(run, THINK),
            num_generations=config.think.k,
            input_batch_size=student.batch,
            batches_in_flight=student.in_flight,
            **wording,
        )
        caches = BuildCaches(
            name="build_caches_1",
            choice=config.cache,
            plugins=config.plugins,
            **wiring.counting_of(run),
            min_k=config.think.min_k,
            seed=config.seed,
            input_batch_size=student.batch,
            **wording,
        )
        deliberations = Deliberate(
            name="deliberate_1",
            llm=wiring.llm_of(run, deliberate_stage(1)),
            num_generations=config.deliberate.d,
            input_batch_size=teacher.batch,
            batches_in_flight=teacher.in_flight,
        )
        judged = Verify(name="verify_pool", verify=config.verify, input_batch_size=student.batch)
        judged_too = Verify(
            name="verify_deliberations_1",
            column="deliberations",
            verify=config.verify,
            input_batch_size=teacher.batch,
        )
        label = LabelTraces(name="label_traces", input_batch_size=teacher.batch)
        problems >> attempts >> judged >> caches >> deliberations >> judged_too >> label
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--student", type=Path, help="YAML file of the student")
    parser.add_argument("--teacher", type=Path, help="YAML file of the teacher and the run")
    paths = parser.parse_args()
    finished = run(plan_of(paths.student, paths.teacher), pipeline_of=build)
    print(*headline(finished.summary), finished.folder, sep="\n")
