"""A trained model that is asked with prompts that it has not learnt."""

import pytest
from command_line import run_command
from trainings import RECORD, trained_deliberator

from heavydistill.config.run import RunConfig
from heavydistill.heavy.prompts import load
from heavydistill.run.generate import check
from heavydistill.run.learnt_prompts import UnlearntPrompts, unlearnt_prompts
from heavydistill.store.training_record import RlUsed, read_record, write_record

BRIEF, GENERAL = (
    {role: load(role, domain, "en").version for role in ("thinker", "deliberator")}
    for domain in ("brief", "general")
)


@pytest.fixture
def trained(tmp_path):
    """The micro student with the record of a training of the deliberator on the domain `brief`."""
    return trained_deliberator(tmp_path / "trained", sorted(BRIEF.values()))


def unlearnt(**keys):
    sizes = {"problems": {"source": "micro", "size": 3}, "think": {"k": 2}, "deliberate": {"d": 1}}
    config = RunConfig.model_validate(sizes | keys)
    plan = check(config, asks=False)
    return list(unlearnt_prompts(plan.run, plan.problems))


def test_the_prompts_of_the_training_are_known(trained):
    assert unlearnt(deliberator=str(trained), teacher="micro", domain="brief") == []


def test_another_domain_is_found_with_the_flag_that_asks_as_in_the_training(trained):
    (found,) = unlearnt(deliberator=str(trained), teacher="micro", domain="general")
    model, asked, learnt = str(trained), [GENERAL["deliberator"]], [BRIEF["deliberator"]]
    assert found == UnlearntPrompts(model, asked, learnt)
    assert found.fix == "--set domain=brief"


def test_a_role_that_was_not_trained_has_no_prompts_to_compare_with(trained):
    assert unlearnt(thinker=str(trained), deliberator="micro", domain="general") == []


def test_a_control_asks_with_other_prompts_on_purpose(trained):
    keys = {"deliberator": str(trained), "teacher": "micro", "domain": "general"}
    assert unlearnt(**keys, deliberate={"d": 1, "task": "choose"}) == []


def test_the_training_before_the_last_one_counts_for_a_role_that_the_last_one_left(trained):
    record = RECORD.model_copy(update={"role": "thinker"})
    before = (trained / "training.json").read_text()
    base = record.base.model_copy(update={"training": type(record).model_validate_json(before)})
    write_record(record.model_copy(update={"base": base}), trained)
    (found,) = unlearnt(deliberator=str(trained), teacher="micro", domain="general")
    assert found.learnt == [BRIEF["deliberator"]]


def rl_of(**run):
    """What a GRPO of both roles records of the run behind its prompts."""
    return RlUsed(mode="joint", longest_prompt=9, problems_sha256="0" * 64, run=run)


def test_own_prompts_of_a_training_on_sets_are_those_that_it_has_learnt(trained):
    own = {"deliberator": ["deliberator.own.en@0123456789ab"]}
    record = read_record(trained).model_copy(update={"rl": rl_of(prompts=own)})
    write_record(record, trained)
    (found,) = unlearnt(deliberator=str(trained), teacher="micro", domain="brief")
    assert found.learnt == own["deliberator"]


def test_a_training_on_the_problems_of_a_run_does_not_say_what_it_has_learnt(trained):
    base = RECORD.base.model_copy(update={"training": read_record(trained)})
    last = {"role": "both", "sets": [], "rl": rl_of(domain="general"), "base": base}
    write_record(RECORD.model_copy(update=last), trained)
    assert unlearnt(deliberator=str(trained), teacher="micro", domain="general") == []


def test_own_prompts_of_the_training_need_their_file():
    found = UnlearntPrompts("m", [GENERAL["thinker"]], ["thinker.own.en@0123456789ab"])
    assert found.fix == "--prompt thinker=FILE with the file of that training"


def test_a_plan_says_it(trained):
    done = run_command(
        "generate", "--teacher=micro", f"--deliberator={trained}", "--limit=3", "--k=2", "--d=1",
        "--set=domain=general", "--dry-run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    text = " ".join((done.stdout + done.stderr).split())
    assert f"was trained on {BRIEF['deliberator']}, and this run asks it with" in text
    assert "--set domain=brief" in text
