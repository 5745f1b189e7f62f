"""Deliberators that do not read are told apart from one that does, by ``evaluate --controls``."""

import random
import re
from typing import Any

import pytest
from command_line import MICRO, run_command
from fake_server import Answer, completion, serving
from problem_files import doubles

from heavydistill.metrics.controls import CONTROLS, ControlReport, read_controlled
from heavydistill.metrics.intervals import Interval
from heavydistill.report.page.sections import of_folder

PROBLEMS, SKILL = 48, 0.8


def answer(body: dict[str, Any]) -> Answer:
    """A thinker that is right by chance, and four deliberators.

    ``reads`` recognizes the right value where it stands, and is mostly wrong by itself; ``ignores``
    works by itself; ``copies`` takes the vote; ``breaks`` works by itself as well, but is lost
    where all values are implausible.
    """
    prompt, model = body["messages"][0]["content"], body["model"]
    draw = random.Random(f"1/{model}/{prompt}/{body['seed']}")
    number = int(prompt.partition("What is ")[2].partition(" ")[0])
    right, luck = 2 * number, random.Random(number).choice([0.15, 0.3, 0.6, 0.9])
    shown = list(map(int, re.findall(r"boxed\{(\d+)\}", prompt.partition("Attempt 1")[2])))
    wrong = right + 2

    def alone(skill: float) -> int:
        return right if draw.random() < skill else wrong

    if model == "thinker":
        value = alone(luck)
    elif model == "reads":
        value = right if right in shown else alone(0.3)
    elif model == "copies":
        value = max(shown, key=shown.count) if shown else wrong
    elif model == "breaks" and shown and all(abs(each - right) > 10 for each in shown):
        value = wrong
    else:
        value = alone(SKILL)
    return completion(f"{number} and {number} make \\boxed{{{value}}}")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ControlReport, str]]:
    """The controls of each deliberator on the same attempts, and what is printed of them."""
    folder = tmp_path_factory.mktemp("controls")
    problems, found = doubles(folder, PROBLEMS, start=1000), {}
    with serving(answer) as server:
        flags = [f"--endpoint={server.base_url}", f"--tokenizer={MICRO}", f"--problems={problems}"]
        flags += ["--k=8", "--d=1", "--set=cache.width=4", "--set=cache.budget_tokens=900"]
        flags += ["--set=endpoint.context=2048", "--set=think.sampling.max_tokens=64"]
        flags += ["--set=deliberate.sampling.max_tokens=64", "--thinker=thinker"]
        for name in ("reads", "ignores", "copies", "breaks"):
            out = folder / name
            asked = [*flags, f"--deliberator={name}", f"--out={out}"]
            done = run_command("evaluate", *asked, "--controls=alone,garbled,transplant")
            assert done.returncode == 0, done.stdout + done.stderr
            found[name] = read_controlled(out / CONTROLS), " ".join(done.stdout.split())
    return found


def follows(body: dict[str, Any]) -> Answer:
    """A thinker that is mostly wrong, and models that follow the skill, ignore it or fail at it."""
    prompt, model = body["messages"][0]["content"], body["model"]
    number = int(prompt.rpartition("What is ")[2].partition(" ")[0])
    if "# Heavy thinking" in prompt:
        assert body["max_tokens"] == 8 * 64 + 64 and "Use this skill" in prompt
        final = f"So \\boxed{{{2 * number}}}"
        attempts = f"\\boxed{{{number}}}\n\nAgain: \\boxed{{7}}\n\n{final}"
        return completion({"follows": attempts, "ignores": final, "prose": "I did it."}[model])
    return completion(f"\\boxed{{{2 * number + (number + body['seed']) % 3}}}")


@pytest.mark.parametrize("model", ["follows", "ignores", "prose"])
def test_what_the_skill_is_worth_in_one_context_is_told(model, tmp_path):
    problems, out = doubles(tmp_path, 6), tmp_path / "x"
    with serving(follows) as server:
        flags = [f"--endpoint={server.base_url}", f"--tokenizer={MICRO}", f"--problems={problems}"]
        flags += ["--k=8", "--d=2", "--set=endpoint.context=8192", f"--teacher={model}"]
        flags += ["--set=cache.budget_tokens=900", "--set=think.sampling.max_tokens=64"]
        flags += ["--set=deliberate.sampling.max_tokens=64", "--controls=skill", f"--out={out}"]
        done = run_command("evaluate", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    told, printed = read_controlled(out / CONTROLS), " ".join(done.stdout.split())
    page = " ".join(re.sub(r"<[^>]*>", " ", "".join(of_folder(out))).split())
    (skill,), gain = told.controls, told.skill_minus_attempt
    assert told.attempt and gain and skill.name == "skill" and not told.not_asked
    assert any(version.startswith("skill.") for version in told.prompts)
    right = 0.0 if model == "prose" else 1.0
    followed = 12 if model == "follows" else 0
    assert told.skill_followed == followed and f"shown in {followed} of 12 answers" in page
    assert skill.answering.accuracy.mean == right and skill.answering.samples == 12
    assert gain.mean == pytest.approx(right - told.attempt.answering.accuracy.mean)
    assert "The skill in one context adds" in printed and "follows the skill in one" in printed
    no_answer = "Of 12 answers (skill): 12 with text but no final answer; they count as wrong"
    assert (no_answer in printed) == (model == "prose")
    assert skill.answering.tokens == 7 and told.attempt.answering.tokens == 7
    assert "one attempt of the thinker" in page


def sign(value: Interval) -> str:
    return "+" if value.low > 0 else "-" if value.high < 0 else "0"


@pytest.mark.parametrize(
    ("name", "signs"),
    [
        # HM - V, HM - garbled, garbled - alone, HM - alone, falls, rises
        ("reads", "++0+-+"),
        ("ignores", "+00000"),
        ("copies", "0+0+00"),
        ("breaks", "++-000"),
    ],
)
def test_the_controls_tell_a_reader_from_what_only_looks_like_one(evaluated, name, signs):
    told, printed = evaluated[name]
    worth, falls, rises = told.worth, told.falls, told.rises
    assert worth and worth.garbled_minus_alone and falls and rises
    alone = told.controls[0]
    values = [worth.heavy_minus_vote, worth.heavy_minus_garbled, worth.garbled_minus_alone]
    values += [alone.heavy_minus, falls.change, rises.change]
    assert "".join(map(sign, values)) == signs, values
    assert worth.is_shown == (name != "ignores")
    assert ("no use of the attempts shown" in printed) == (name == "ignores")
    assert re.search(r"Deliberation [-+]?\d+\.\d points over the vote; ", printed)
    assert worth.problems == PROBLEMS and "Transplant Problems" in printed
    assert [each.name for each in told.controls] == ["alone", "garbled"]
    assert f"Alone with the {told.unreported[0].wording}'s prompt: " in printed


def under_wordings(body: dict[str, Any]) -> Answer:
    """A deliberator that needs instructions, but not their words, and claims what is false else."""
    prompt = body["messages"][0]["content"]
    right = 2 * int(prompt.rpartition("What is ")[2].partition(" ")[0])
    if "Attempt 1" not in prompt:
        return completion(f"\\boxed{{{right + body['seed'] % 2}}}")
    is_asked = not prompt.startswith("====")
    shown = [int(each) == right for each in re.findall(r"boxed\{(\d+)\}", prompt)][:4]
    said = (
        f"Attempt {n} is {'right' if r == is_asked else 'wrong'}." for n, r in enumerate(shown, 1)
    )
    return completion(
        f"\\boxed{{{right if is_asked else right + 1}}}", reasoning_content=" ".join(said)
    )


def test_what_instructions_are_worth_is_told(tmp_path):
    problems, out = doubles(tmp_path, 40), tmp_path / "x"
    with serving(under_wordings) as server:
        flags = [f"--endpoint={server.base_url}", f"--tokenizer={MICRO}", f"--problems={problems}"]
        flags += ["--k=4", "--d=1", "--set=endpoint.context=8192", "--teacher=m"]
        flags += ["--set=think.sampling.max_tokens=64", "--set=deliberate.sampling.max_tokens=64"]
        done = run_command("evaluate", *flags, "--controls=wording", f"--out={out}")
        assert done.returncode == 0, done.stdout + done.stderr
        sent = [body["messages"][0]["content"] for body in server.requests]
        chosen = run_command(
            "evaluate", *flags, "--controls=wording", "--set=deliberate.task=choose"
        )
        assert chosen.returncode == 2 and "deliberate.task is choose" in chosen.stderr
        brief = ["--set=domain=brief", "--controls=wording", "--dry-run"]
        assert "wording of the domain 'brief' is the short one" in "".join(
            run_command("evaluate", *flags, *brief).stdout.replace("\n", " ")
        )
    asked = [text for text in sent if "Attempt 1" in text]
    blocks = {
        re.sub("^=+", "", text[text.index("= Problem") :].partition(" End of")[0]) for text in asked
    }
    assert len(asked) == 4 * 40 and len(blocks) == 40  # the same attempts
    told = read_controlled(out / CONTROLS)
    found = {each.wording: each for each in told.wordings}
    assert [*found] == ["full", "short", "none", "foreign"]
    for name in ("full", "short", "foreign"):
        assert found[name].answering.accuracy.mean == 1 and found[name].compared.claims
        assert 0 < found[name].compared.loss_at_most < 0.1
    none = found["none"].compared
    assert none.loss.mean == 1 == none.loss_at_most and none.claims and none.claims.mean == 0
    assert none.claims_loss and none.claims_loss.mean == 1 and none.minus_vote.high < 0
    printed = " ".join(done.stdout.split())
    page = " ".join(re.sub(r"<[^>]*>", " ", "".join(of_folder(out))).split())
    assert "its one-sided 95% bound" in printed and "no instructions" in page
