"""Runs with a judge against two real servers: a teacher and a judge."""

import json
import random
import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import run_command, served
from fake_server import FakeServer, completion, serving
from import_files import lines

from heavydistill.config.run import load_config
from heavydistill.heavy.judge_votes import ballot_of
from heavydistill.models.ledger import account_of, balance_of
from heavydistill.schema import Generation, Trace
from heavydistill.store.traces import read_traces

K, D, VOTES, TOKENS = 4, 2, 3, 18
# What rules say of each: right, open, open, wrong, no answer.
ANSWERS = ["5 \\text{ m}", "500 \\text{ cm}", "5 \\text{ km}", None, ""]


def teach(body: dict[str, Any]) -> Any:
    """Answers that depend on the request alone; every length has a problem's number in it."""
    text = body["messages"][0]["content"]
    number = re.search(r"rod (\d+)", text)
    assert number
    draw = random.Random(json.dumps([text, body["seed"]]))
    answer = draw.choice(ANSWERS)
    said = "I do not know." if answer is None else f"It is \\boxed{{{answer}}}."
    return completion(said if answer != "" else f"It is \\boxed{{{number[1]} apples}}")


def asked_about(body: dict[str, Any]) -> str:
    """The answer that a judge was asked about."""
    (text,) = [turn["content"] for turn in body["messages"]]
    answer = re.search(r"^=+ Answer\n(.*)\n=+ End of answer$", text, re.MULTILINE | re.DOTALL)
    assert answer
    return answer[1]


def by_rule(body: dict[str, Any]) -> Any:
    return completion("CORRECT" if "cm" in asked_about(body) else "**INCORRECT**")


@pytest.fixture
def teacher():
    with serving(teach) as server:
        yield server


def arguments(
    teacher: FakeServer, judge: FakeServer | None, folder: Path, **flags: object
) -> list[str]:
    row = {"reference": "$5 \\text{ m}$", "verifier": "exact"}
    rows = ({"id": f"p{n}", "text": f"How long is rod {n}?", **row} for n in range(12))
    problems = lines(folder / "problems.jsonl", *rows)
    chosen = {"problems": problems, "journal": folder / "journal", "k": K, "d": D}
    chosen |= {"out": folder / "run", **flags}
    keys = ["endpoint.retries=0", "think.sampling.max_tokens=300"]
    keys += ["deliberate.sampling.max_tokens=300"]
    if judge:
        keys += [f"judge.endpoint={{base_url: '{judge.base_url}', retries: 0}}"]
        keys += ["judge.sampling.max_tokens=200"]
        chosen["judge"] = "critic"
    return [
        *served(teacher.base_url, *(f"--{name}={value}" for name, value in chosen.items())),
        *(f"--set={key}" for key in keys),
    ]


def ended(verb: str, *flags: str, code: int = 0) -> str:
    done = run_command(verb, *flags)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def generations(run: Path) -> list[tuple[Trace, Generation]]:
    return [(t, g) for t in read_traces(run) for g in (*t.pool, *t.deliberations)]


def summary_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "summary.json").read_text(encoding="utf-8"))


def test_a_judge_decides_what_rules_left_open_and_nothing_else(tmp_path, teacher):
    with serving(by_rule) as judge:
        printed = ended("generate", *arguments(teacher, judge, tmp_path))
        alone = ended("generate", *arguments(teacher, None, tmp_path, out=tmp_path / "alone"))
    assert "judging" not in alone and "A judge" not in alone
    assert not summary_of(tmp_path / "alone")["judging"]["asked"]
    rules = {g.id: g.verdict for _, g in generations(tmp_path / "alone")}
    ballots = []
    for trace, generation in generations(tmp_path / "run"):
        verdict, rule = generation.verdict, rules[generation.id]
        if rule.label != "undecided":
            assert verdict == rule
            continue
        assert verdict.label == ("correct" if "cm" in generation.answer_text else "incorrect")
        assert (verdict.reason, verdict.extracted) == ("judged", rule.extracted)
        assert re.fullmatch(r"judge:critic@[0-9a-f]{12} after exact@\d+", verdict.verifier)
        ballot = ballot_of(verdict)
        assert (ballot.by, ballot.rule_reason) == (rule.verifier, rule.reason)
        assert len(ballot.votes) == VOTES
        ballots.append((trace.problem.id, ballot))
    left_open = len(ballots)
    assert left_open > 20
    # Each answer to a problem was asked about once, whoever gave it, in whatever round.
    assert set(map(asked_about, judge.requests)) <= {"500 \\text{ cm}", "5 \\text{ km}"} | {
        f"{n} apples" for n in range(12)
    }
    different = {ballot.asked for _, ballot in ballots}
    votes = len(judge.requests)
    assert votes == VOTES * len(different) < VOTES * left_open
    assert {body["model"] for body in judge.requests} == {"critic"}
    assert {body["temperature"] for body in judge.requests} == {0.7}
    summary = summary_of(tmp_path / "run")
    told, used = summary["judging"], summary["usage"]["judging"]
    assert told["asked"] == left_open == told["correct"] + told["incorrect"]
    assert (told["votes"], used["requests"]) == (votes, votes)
    assert (told["undecided"], told["failed"], told["invalid_votes"]) == (0, 0, 0)
    assert used["prompt"] + used["completion"] == TOKENS * votes
    assert messages.is_in(printed, "judge_decided", decided=left_open, open=left_open)
    assert "Judge: critic@" in printed
    shown = ended("show", str(tmp_path / "run"), f"--problem={ballots[0][0]}")
    assert "rules left it undecided (needs_" in shown and "votes: " in shown


def test_a_replay_with_a_judge_of_many_minds_is_the_run_byte_for_byte(tmp_path, teacher):
    draw, lock = random.Random(7), threading.Lock()

    def moody(body: dict[str, Any]) -> Any:
        with lock:
            mood = draw.random()
        if mood < 0.2:
            return 400, {"error": {"message": "no"}}
        if mood < 0.3:
            return completion("CORRECT", finish_reason="length")
        reply = draw.choice(["CORRECT", "INCORRECT", "CANNOT TELL", "I think it is CORRECT"])
        return completion(reply)

    with serving(moody) as judge:
        ended("generate", *arguments(teacher, judge, tmp_path))
    asked = len(teacher.requests), len(judge.requests)
    ended("replay", str(tmp_path / "run"), f"--out={tmp_path / 'again'}")
    assert asked == (len(teacher.requests), len(judge.requests))
    for name in ("summary.json", "traces/train-00000-of-00001.parquet"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    told = summary_of(tmp_path / "run")["judging"]
    assert told["invalid_votes"] and told["failed_votes"] and told["undecided"]
    reasons = {g.verdict.reason for _, g in generations(tmp_path / "run")}
    assert {"judge_split", "judge_failed", "judged"} <= reasons


def test_a_failing_judge_leaves_verdicts_undecided_and_the_same_command_asks_again(
    tmp_path, teacher
):
    up = False

    def sometimes(body: dict[str, Any]) -> Any:
        if not up and "km" in asked_about(body):
            return 400, {"error": {"message": "no"}}
        return by_rule(body)

    with serving(sometimes) as judge:
        command = arguments(teacher, judge, tmp_path)
        printed = ended("generate", *command)
        told = summary_of(tmp_path / "run")["judging"]
        failed = [g for _, g in generations(tmp_path / "run") if g.verdict.reason == "judge_failed"]
        assert told["failed"] == told["undecided"] == len(failed) > 0
        assert all("km" in g.answer_text and g.verdict.label == "undecided" for g in failed)
        assert messages.is_in(printed, "asks_verdicts_again", count=len(failed))
        up = True
        taught = len(teacher.requests)
        judge.requests.clear()
        ended("generate", *command)
        assert len(teacher.requests) == taught
        assert set(map(asked_about, judge.requests)) == {"5 \\text{ km}"}
        assert summary_of(tmp_path / "run")["judging"]["failed"] == 0
        assert messages.is_in(ended("generate", *command, code=2), "holds_finished_run")


def test_the_budget_holds_the_judge_too(tmp_path, teacher):
    with serving(by_rule) as judge:
        # The teacher takes 12 * (4 + 2) * 18 = 1296 tokens; a vote may take 2000 and takes 18.
        stopped = ended("generate", *arguments(teacher, judge, tmp_path, budget="4ktok"), code=1)
        assert 1 <= stopped.count("The budget is used up") <= 2
        paid = len(teacher.requests) + len(judge.requests)
        assert judge.requests and paid * TOKENS <= 4000
        done = ended("generate", *arguments(teacher, judge, tmp_path, budget="1Mtok"))
        assert messages.is_in(done, "judge_decided")
        config = load_config(tmp_path / "run" / "config.yaml")
        spent = balance_of(account_of(config)).spent_tokens
        assert spent == TOKENS * (len(teacher.requests) + len(judge.requests))


def test_a_judge_that_is_not_there_is_said_before_anything_is_asked(tmp_path, teacher):
    with serving(by_rule) as judge:
        pass
    refused = ended("generate", *arguments(teacher, judge, tmp_path), code=2)
    assert messages.is_in(refused, "nothing_answers", url=judge.base_url)
    listed = {"object": "list", "data": [{"id": "other", "object": "model"}]}
    with serving(by_rule, models=(200, listed)) as judge:
        refused = ended("generate", *arguments(teacher, judge, tmp_path), code=2)
    assert messages.is_in(refused, "model_not_served", model="critic")
    assert not teacher.requests and not judge.requests


def test_a_plan_bounds_what_a_judge_may_be_asked(tmp_path, teacher):
    with serving(by_rule) as judge:
        command = arguments(teacher, judge, tmp_path, limit=5)
        planned = ended("generate", "--dry-run", *command)
        most = 5 * (K + D) * VOTES
        assert f"judging 0 to {most} " in planned
        assert "3 vote(s) of critic on undecided verdicts" in planned
        assert "price_in and price_out of judge.endpoint" in planned
        assert not teacher.requests and not judge.requests
        ended("generate", *command)
        assert 0 < len(judge.requests) <= most
        # Now the journal knows how long a verdict is.
        more = arguments(teacher, judge, tmp_path, out=tmp_path / "more")
        assert "judging: 7 tokens each" in ended("generate", "--dry-run", *more)


def test_a_teacher_in_this_process_may_have_a_judge_elsewhere(tmp_path):
    rows = [
        {"id": f"p{n}", "text": f"{n} + 4", "reference": f"{n + 4} m", "verifier": "exact"}
        for n in range(3)
    ]
    problems = lines(tmp_path / "problems.jsonl", *rows)
    with serving(by_rule) as judge:
        printed = ended(
            *("generate", f"--problems={problems}", f"--out={tmp_path / 'run'}", "--k=3", "--d=2"),
            *("--judge=critic", "--budget=1Mtok"),
            f"--set=judge.endpoint.base_url={judge.base_url}",
        )
        assert messages.is_in(printed, "judge_decided") and judge.requests
        usage = summary_of(tmp_path / "run")["usage"]
        assert usage["thinking"]["cost_usd"] == 0 and usage["judging"]["cost_usd"] is None
        ended("replay", str(tmp_path / "run"), f"--out={tmp_path / 'again'}")
    assert list(read_traces(tmp_path / "again")) == list(read_traces(tmp_path / "run"))


SENTENCES = [
    ("Why is the contract void?", "No consideration was given."),
    ("Who discovered radium?", "Marie Curie"),
    ("What do plants make by photosynthesis?", "Glucose and oxygen from light and water."),
]


def free_form(
    teacher: FakeServer, judge: FakeServer | None, folder: Path, *flags: str
) -> list[str]:
    """A run on JSONL of two columns whose answers no rule can compare."""
    rows = [{"question": question, "answer": answer} for question, answer in SENTENCES]
    given = [f"--problems={lines(folder / 'law.jsonl', *rows)}", f"--out={folder / 'run'}"]
    given += ["--k=3", "--d=2", "--set=endpoint.retries=0", *flags]
    if judge:
        given += ["--judge=critic", f"--set=judge.endpoint.base_url={judge.base_url}"]
    return served(teacher.base_url, *given)


def answers_in_words(body: dict[str, Any]) -> Any:
    """One in three answers equals the reference, one says the same, and one is wrong."""
    text = body["messages"][0]["content"]
    said = next(answer for question, answer in SENTENCES if question in text)
    other = {0: said, 1: f"Indeed: {said}", 2: "Nobody knows."}[body["seed"] % 3]
    return completion(f"\\boxed{{{other}}}")


def in_words(correct: str, incorrect: str) -> Any:
    """A judge that replies so; what it is asked about is in its prompt."""
    return lambda body: completion(
        correct if "Indeed" in body["messages"][0]["content"] else incorrect
    )


OWN = "Q: {{problem}}\nSTANDARD: {{reference}}\nCANDIDATE: {{answer}}\n"
ANALYSIS = "The candidate was compared step by step.\n\n"


@pytest.mark.parametrize(
    ("form", "correct", "incorrect"),
    [
        ("", "The verdict: CORRECT", "\\boxed{INCORRECT}"),
        ("verdict", "[Correct]", "Incorrect"),
        ("compass_verifier", "A", "B"),
        (
            "compass_verifier",
            f"{ANALYSIS}Final Judgment: \\boxed{{A}} - CORRECT",
            f"{ANALYSIS}Final Judgment: \\boxed{{B}} - INCORRECT",
        ),
        ("general_verifier", f"{ANALYSIS}Final Decision: Yes", f"{ANALYSIS}Final Decision: No"),
    ],
)
def test_answers_in_words_are_decided_by_a_judge_that_replies_in_its_own_form(
    tmp_path, form, correct, incorrect
):
    (tmp_path / "prompt.md").write_text(OWN, encoding="utf-8")
    own = [f"--prompt=judge={tmp_path / 'prompt.md'}", f"--set=judge.replies={form}"]
    with serving(answers_in_words) as teacher, serving(in_words(correct, incorrect)) as judge:
        flags = ["--set=problems.verifier=judged", *(own if form else [])]
        ended("generate", *free_form(teacher, judge, tmp_path, *flags))
    reasons = Counter()
    for trace, generation in generations(tmp_path / "run"):
        answer = generation.answer_text.removeprefix("\\boxed{").removesuffix("}")
        expected = {
            trace.problem.reference: ("correct", "equal"),
            "Nobody knows.": ("incorrect", "judged"),
        }.get(answer, ("correct", "judged"))
        assert (generation.verdict.label, generation.verdict.reason) == expected
        reasons[expected] += 1
    assert len(reasons) == 3
    prompts = {body["messages"][0]["content"] for body in judge.requests}
    if form:
        assert all(re.fullmatch(r"Q: .*\nSTANDARD: .*\nCANDIDATE: .*", each) for each in prompts)
        config = load_config(tmp_path / "run" / "config.yaml")
        assert (config.prompts.judge, config.judge.replies) == (OWN.strip(), form)


def test_answers_in_words_need_a_judge_and_mathematics_names_the_verifier_for_them(tmp_path):
    with serving(answers_in_words) as teacher:
        refused = ended("generate", *free_form(teacher, None, tmp_path), code=2)
        assert "the row the verifier judged, and the run a judge (--judge MODEL)" in refused
        flags = ["--set=problems.verifier=judged"]
        refused = ended("generate", *free_form(teacher, None, tmp_path, *flags), code=2)
        assert "judged leaves every answer that does not equal the reference" in refused
        assert "Name one with --judge MODEL" in refused
        assert not teacher.requests


def test_a_judge_that_never_gives_a_verdict_is_said_early_with_its_reply(tmp_path):
    flags = ["--set=problems.verifier=judged"]
    with (
        serving(answers_in_words) as teacher,
        serving(in_words("Both agree, I would say.", "No, I think.")) as judge,
    ):
        command = free_form(teacher, judge, tmp_path, *flags)
        stopped = ended("generate", *command, code=2)
        assert "None of the first" in stopped and "is a verdict of the form verdict" in stopped
        assert "Both agree, I would say." in stopped or "No, I think." in stopped
        assert "judge.replies" in stopped
