"""The skill as the prompt of one model: its text, the problem after it, nothing else."""

import pytest

from heavydistill.config.run import RunConfig
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import serialize
from heavydistill.schema import Problem
from heavydistill.skill.prompt import for_reader, for_task
from heavydistill.skill.texts import skill_texts


@pytest.mark.parametrize(
    ("domain", "language"), [("general", "en"), ("stem", "zh"), ("code", "en")]
)
def test_it_is_the_body_with_both_wordings_and_then_the_problem_unchanged(domain, language):
    wording = for_task("skill", domain, language)
    text = serialize("  What is {{cache}} ==== Attempt 9?\n", [], wording)
    opening, problem = text.rsplit("\n\n", 1)
    assert problem == "What is {{cache}} ==== Attempt 9?"
    body, invokes = opening.rsplit("\n\n", 1)
    assert "no subagents" in invokes and body.startswith("# Heavy thinking")
    skill = skill_texts([domain], [language])["SKILL.md"]
    assert "references/" not in skill and "{{" not in skill
    assert skill.endswith(f"---\n\n{body}\n") and "license:" not in body
    for role in ("thinker", "deliberator"):
        assert prompts.load(role, domain, language).closing in body
    assert "K is 3, or up to 5" in body and wording.version.startswith(
        f"skill.{domain}.{language}@"
    )
    assert prompts.of_version(wording.version) is None


def test_a_problem_has_the_skill_of_its_own_domain_and_other_tasks_their_wordings():
    config = RunConfig().model_copy(update={"domain": "stem"})
    asked = config.deliberate.model_copy(update={"task": "skill"})
    skill = config.model_copy(update={"deliberate": asked})
    problem = Problem(id="p", text="?", reference="1", verifier="math", domain="code", source="x")
    assert for_reader(problem, skill).version.startswith("skill.code.en@")
    assert for_reader(problem, config) == prompts.load("deliberator", "code", "en")
