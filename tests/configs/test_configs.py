"""Every configuration that is shipped is valid and has its line in the README."""

import json
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from heavydistill.cli.verbs import app
from heavydistill.config.run import RunConfig, Think, load_config
from heavydistill.config.sets import load_build_config
from heavydistill.config.shipped import shipped
from heavydistill.models.resolve import resolve
from heavydistill.problems.procedural import micro_problems

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = [
    path for verb in ("generate", "evaluate") for path in sorted((CONFIGS / verb).glob("*.yaml"))
]
BUILDS = sorted((CONFIGS / "build").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_configuration_is_valid_and_listed(path):
    assert resolve(load_config(path)).thinker
    assert f"({path.relative_to(CONFIGS)})" in (CONFIGS / "README.md").read_text(encoding="utf-8")


def test_the_micro_models_are_evaluated_on_seeds_of_their_own():
    config = load_config(CONFIGS / "evaluate" / "micro.yaml")
    given = load_config(CONFIGS / "evaluate" / "micro.yaml", {"teacher": "micro-student"})
    asked = resolve(given).config
    problems = micro_problems(config.problems)
    seeds = {json.loads(problem.verifier_args)["seed"] for problem in problems}
    assert len(problems) == 1000 and max(seeds) + len(problems) < 10**9
    # What is said there for checkpoints is what the profile says, but for K and how fast.
    of_profile = resolve(RunConfig(teacher="micro-student", think=Think(k=asked.think.k))).config
    assert (asked.domain, asked.think, asked.deliberate, asked.cache) == (
        of_profile.domain,
        of_profile.think,
        of_profile.deliberate,
        of_profile.cache,
    )


@pytest.mark.parametrize("path", BUILDS, ids=lambda path: path.name)
def test_configuration_of_a_build_is_valid_and_listed(path):
    assert load_build_config(path, {"runs": ["runs/glm"], "out": "sets/glm"}).preset == path.stem
    assert f"({path.relative_to(CONFIGS)})" in (CONFIGS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", shipped("configs/teachers").values(), ids=lambda path: path.stem)
def test_profile_of_a_teacher_is_listed(path):
    assert path.parent == CONFIGS / "teachers"
    assert f"({path.relative_to(CONFIGS)})" in (CONFIGS / "README.md").read_text(encoding="utf-8")


def test_the_command_of_the_kubernetes_job_has_flags_that_exist():
    job = yaml.safe_load((CONFIGS / "ray" / "rayjob.yaml").read_text(encoding="utf-8"))
    command = shlex.split(shlex.split(job["spec"]["entrypoint"])[-1])
    assert command[3:5] == ["heavydistill", "generate"]
    known = typer.main.get_command(app).get_command(None, "generate").params  # type: ignore[attr-defined]
    flags = {word for word in command if word.startswith("--")}
    assert flags <= {name for parameter in known for name in parameter.opts}
