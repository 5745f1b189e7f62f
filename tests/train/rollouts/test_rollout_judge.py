"""A judge in GRPO: asked about undecided responses alone, over real HTTP, bounded and journaled."""

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_server import FakeServer, completion, serving
from import_files import lines
from messages import message
from trainings import grpo_arguments, in_two_processes, last_checkpoint, refusal

from heavydistill.config.models import Judge
from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.run import Verifying, load_config
from heavydistill.config.yaml import parse as parse_section
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models.ledger import account_of, balance_of
from heavydistill.schema import Problem
from heavydistill.store.training_record import read_record
from heavydistill.train.grpo.train import prepare, summary, train
from heavydistill.train.rollouts.judge import RolloutJudge, judge_of, opened
from heavydistill.train.rollouts.options import JUDGE_TIMEOUT_S
from heavydistill.train.rollouts.reward import Reward, rewards
from heavydistill.verifiers.pool import VerdictPool

LAW = Problem(id="l", text="Why is it void?", reference="No consideration.", verifier="judged")
SUM = Problem(id="s", text="What is 17 + 25?", reference="42", verifier="math")
BESIDE = "It is $-\\boxed{42}$."  # undecided: outside_box
VOTES, TOKENS = 3, 18
OWN = OwnPrompts(judge="Same?\n{{answer}}")


def by_word(body: dict[str, Any]) -> Any:
    """Right is what says "because"."""
    answer = body["messages"][0]["content"].partition("= Answer\n")[2].partition("\n=")[0]
    return completion("CORRECT" if "because" in answer else "INCORRECT")


@pytest.fixture(scope="module")
def pool() -> Iterator[VerdictPool]:
    with VerdictPool(Verifying(workers=1)) as pool:
        yield pool


def config(folder: Path, url: str, **keys: Any) -> Any:
    """What ``judge_of`` reads of a training's configuration."""
    own = {name: keys.pop(name) for name in ("budget", "journal") if name in keys}
    endpoint = {"base_url": url, "retries": 0, **keys.pop("endpoint", {})}
    tree = {"model": "critic", "endpoint": endpoint, "sampling": {"max_tokens": 200}, **keys}
    usual = {"budget": None, "journal": None, "output_dir": str(folder / "out"), "dry_run": False}
    usual |= {"own_prompts": OwnPrompts(), "judge_timeout_s": JUDGE_TIMEOUT_S}
    return SimpleNamespace(judging=parse_section(Judge, tree), **{**usual, **own})


def ready(folder: Path, server: FakeServer) -> Any:
    """The run of a judge at a server."""
    return judge_of(config(folder, server.base_url), None)


def judged(judge: RolloutJudge | None, pool: VerdictPool, *texts: str) -> list[Reward]:
    return rewards(pool, [(LAW, text) for text in texts], judge=judge)


def values(found: list[Reward]) -> list[float | None]:
    return [reward.value for reward in found]


def test_only_undecided_responses_are_put_to_the_judge_and_each_question_once(tmp_path, pool):
    texts = [
        "\\boxed{No consideration.}",
        "\\boxed{It is void because nothing was given.}",
        "\\boxed{It is void because nothing was given.}",
        "\\boxed{It is valid.}",
    ]
    with serving(by_word) as server:
        run = ready(tmp_path, server)
        with opened(run, 60) as judge:
            found = judged(judge, pool, *texts)
            assert values(found) == [1.0, 1.0, 1.0, 0.0]
            assert [reward.kind for reward in found] == ["correct", "correct", "correct", ""]
            assert [reward.reason for reward in found] == ["equal", *["judged"] * 3]
            assert len(server.requests) == 2 * VOTES
            counts = judge.judging
            assert (counts.asked, counts.correct, counts.incorrect) == (3, 2, 1)
            assert (counts.votes, counts.failed) == (2 * VOTES, 0)
            assert list(counts.judges) == [judge.rules.name]
        with opened(run, 60) as judge:  # as a training that is resumed
            assert values(judged(judge, pool, *texts)) == [1.0, 1.0, 1.0, 0.0]
    assert len(server.requests) == 2 * VOTES
    assert values(judged(None, pool, *texts)) == [1.0, None, None, None]


def test_all_questions_of_a_step_are_asked_at_once_within_the_slots(tmp_path, pool):
    lock, inside, most = threading.Lock(), 0, 0
    full = threading.Barrier(4)

    def slow(body: dict[str, Any]) -> Any:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        full.wait(timeout=30)  # passes only if four requests are in flight together
        with lock:
            inside -= 1
        return completion("CORRECT")

    with serving(slow) as server:
        asked = config(tmp_path, server.base_url, endpoint={"concurrency": 4}, votes=1)
        with opened(judge_of(asked, None), 60) as judge:
            found = judged(judge, pool, *(f"\\boxed{{answer {n}}}" for n in range(12)))
    assert values(found) == [1.0] * 12
    assert len(server.requests) == 12 and most == 4


def test_a_judge_that_is_down_gives_no_reward_and_is_asked_again_later(tmp_path, pool, capsys):
    is_up = False

    def sometimes(body: dict[str, Any]) -> Any:
        return by_word(body) if is_up else (500, {"error": {"message": "out of memory"}})

    texts = [f"\\boxed{{because of {n}}}" for n in range(2)]
    with serving(sometimes) as server, opened(ready(tmp_path, server), 60) as judge:
        # Rules alone would give 0 to the second one: a zero that looks like a wrong answer.
        found = rewards(pool, [(LAW, texts[0]), (SUM, BESIDE)], judge=judge)
        assert values(found) == [None, None]
        assert {reward.reason for reward in found} == {"judge_failed"}
        assert {reward.kind for reward in found} == {"undecided"}
        assert judge.judging.failed == judge.judging.undecided == 2
        sent = len(server.requests)
        assert values(judged(judge, pool, *texts)) == [None, None]
        assert len(server.requests) == sent  # the next generation is not put to it
        is_up = True
        assert values(judged(judge, pool, *texts)) == [1.0, 1.0]
        assert judge.judging.failed == 4
    said = capsys.readouterr().out
    assert said.count("does not answer: ") == 1 and "out of memory" in said
    assert "earn no reward" in said and said.count("answers again") == 1


def test_pauses_double_while_nobody_answers(tmp_path, pool):
    with serving(by_word) as server:
        run = judge_of(config(tmp_path, server.base_url, votes=1), None)
    with opened(run, 2) as judge:  # nothing listens any more
        tried = []
        for generation in range(16):
            before = judge._left
            assert values(judged(judge, pool, "\\boxed{because}")) == [None]
            tried += [generation] if not before else []
        assert tried == [0, 2, 5, 10]
        assert judge.judging.failed == judge.judging.asked == 16


def test_a_judge_that_hangs_delays_a_step_for_a_while_and_other_answers_count(tmp_path, pool):
    released = threading.Event()

    def hanging(body: dict[str, Any]) -> Any:
        if "it hangs" in body["messages"][0]["content"]:
            released.wait(60)
        return by_word(body)

    with serving(hanging) as server:
        run = ready(tmp_path, server)
        try:
            with opened(run, 8) as judge:
                found = judged(judge, pool, "\\boxed{it hangs}", "\\boxed{because}")
                assert values(found) == [None, 1.0]
                assert not released.is_set() and judge.judging.failed == 1
                # What was abandoned is no longer in flight, and the judge can be asked on.
                assert balance_of(account_of(run.config)).in_flight == 0
                assert values(judged(judge, pool, "\\boxed{because so}")) == [1.0]
        finally:
            released.set()


def test_a_budget_that_ends_leaves_the_rest_without_reward(tmp_path, pool, capsys):
    texts = [f"\\boxed{{because {n}}}" for n in range(30)]
    with serving(by_word) as server:
        # A vote may take some 2,300 tokens and takes 18.
        asked = config(tmp_path, server.base_url, budget="3ktok", endpoint={"concurrency": 1})
        run = judge_of(asked, None)
        with opened(run, 60) as judge:
            found = [judged(judge, pool, text)[0] for text in texts]
            assert {reward.value for reward in found} == {1.0, None}
            assert judge.judging.failed == values(found).count(None)
        spent = balance_of(account_of(run.config))
        assert spent.most.tokens <= 3000
        assert spent.spent_tokens == TOKENS * len(server.requests)
        assert "The budget is used up" in capsys.readouterr().out
        more = judge_of(SimpleNamespace(**{**vars(asked), "budget": "1Mtok"}), None)
        before = len(server.requests)
        with opened(more, 60) as judge:
            assert values(judged(judge, pool, *texts)) == [1.0] * len(texts)
        assert len(server.requests) == VOTES * len(texts) > before


def test_first_replies_without_a_verdict_end_the_training_and_are_shown(tmp_path, pool):
    with serving(lambda body: completion("They agree.")) as server:
        run = ready(tmp_path, server)
        with opened(run, 60) as judge, pytest.raises(TeacherError, match="They agree"):
            judged(judge, pool, *(f"\\boxed{{because {n}}}" for n in range(4)))


def test_a_refused_key_ends_the_training_before_it_learns(tmp_path, pool):
    refused = 401, {"error": {"message": "wrong key"}}
    with serving(lambda body: refused) as server:
        run = ready(tmp_path, server)
        with opened(run, 60) as judge, pytest.raises(TeacherError, match="401"):
            judged(judge, pool, "\\boxed{because}")


@pytest.mark.parametrize(
    ("reply", "expected"), [("CORRECT", 1.0), ("INCORRECT", 0.0), ("CANNOT TELL", 0.0)]
)
def test_what_the_judge_leaves_open_counts_as_the_rule_says(tmp_path, pool, reply, expected):
    assert values(rewards(pool, [(SUM, BESIDE)])) == [0.0]  # text beside the box
    answering = serving(lambda body: completion(reply))
    with answering as server, opened(ready(tmp_path, server), 60) as judge:
        assert values(rewards(pool, [(SUM, BESIDE)], judge=judge)) == [expected]
        unequal = judged(judge, pool, "\\boxed{valid}")
    assert values(unequal) == [None if reply == "CANNOT TELL" else expected]


def test_a_run_and_a_training_share_the_votes_in_a_journal(tmp_path, pool):
    from heavydistill.models.request import JUDGE
    from heavydistill.models.resolve import resolve
    from heavydistill.run.recipe.pipeline import judge_of as step_of

    with serving(by_word) as server:
        run = ready(tmp_path, server)
        assert step_of(resolve(run.config), "pool").llm.seed == step_of(run, "pool").llm.seed
        text = "\\boxed{because}"
        with opened(run, 60) as judge:
            judged(judge, pool, text)
            asked = judge.rules.question(LAW, pool.judge(LAW, text).verdict, text)
        step = step_of(run, "pool")
        step.llm.load()
        again = step.llm.sample([[{"role": "user", "content": asked}]], VOTES)
        step.llm.unload()
        assert all(response.from_journal for _, response in again[0])
        assert run.in_stage(JUDGE).samples == VOTES


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"judging": Judge(model="critic")}, "the server of critic is not known"),
        ({"judging": None, "budget": "5usd"}, "budget is for the requests to a judge"),
        ({"judging": None, "journal": "kept"}, "journal is for the requests to a judge"),
        ({"judging": None, "judge_timeout_s": 9.0}, "judge_timeout_s is for the requests to a"),
        ({"budget": "5usd"}, "the price of the judge critic is unknown"),
        ({"budget": "much"}, "must be US dollars or tokens"),
        ({"url": "http://127.0.0.1:9/v1"}, message("nothing_answers", url="http://127.0.0.1:9/v1")),
        ({"judging": None, "own_prompts": OWN}, "prompts.judge is for the requests to a judge"),
        ({"replies": "general_verifier"}, "Set prompts.judge to a file"),
    ],
)
def test_bad_input_is_said_before_the_training(tmp_path, changes, told):
    with serving(by_word) as server:
        keys = {name: changes[name] for name in ("replies",) if name in changes}
        asked = config(tmp_path, changes.get("url", server.base_url), **keys)
        others = {name: v for name, v in changes.items() if name not in ("url", "replies")}
        with pytest.raises((ConfigError, TeacherError)) as refused:
            judge_of(SimpleNamespace(**{**vars(asked), **others}), None)
        assert told in str(refused.value) and refused.value.fix
        assert not server.requests


def test_a_dry_run_sends_nothing_and_the_judge_of_a_run_is_taken(tmp_path):
    asked = SimpleNamespace(**{**vars(config(tmp_path, "http://127.0.0.1:9/v1")), "dry_run": True})
    assert judge_of(asked, None).in_stage("judge").name == "critic"
    served = {"teacher": "m", "endpoint.base_url": "http://127.0.0.1:9/v1", "judge.model": "other"}
    run = load_config(None, served)
    of_run = SimpleNamespace(**{**vars(asked), "judging": None})
    assert judge_of(of_run, run).in_stage("judge").endpoint.base_url == "http://127.0.0.1:9/v1"
    assert judge_of(asked, run).in_stage("judge").name == "critic"


KEYS: dict[str, Any] = {
    "mode": "thinker",
    "num_generations": 4,
    "max_completion_length": 160,
    "steps_per_generation": 1,
    "max_steps": 4,
    "save_strategy": "steps",
    "save_steps": 2,
    "learning_rate": 1e-3,
}


def free_form_run(folder: Path) -> Path:
    """A run on sums whose reference is a sentence, so that no rule decides an answer."""
    rows = [{"question": f"{n} + 4", "answer": f"The sum is {n + 4}."} for n in range(8)]
    problems = lines(folder / "sums.jsonl", *rows)
    file = folder / "run.yaml"
    file.write_text(f"problems: {{source: {problems}, verifier: judged}}\n", encoding="utf-8")
    return file


def with_judge(server: FakeServer) -> str:
    return f"{{model: critic, endpoint: {{base_url: '{server.base_url}', retries: 0}}}}"


def by_digits(body: dict[str, Any]) -> Any:
    """Right are answers with an even number of characters."""
    answer = body["messages"][0]["content"].partition("= Answer\n")[2].partition("\n=")[0]
    return completion("CORRECT" if len(answer) % 2 else "INCORRECT")


def test_problems_in_words_need_a_judge(tmp_path):
    run = free_form_run(tmp_path)
    told = refusal(prepare, grpo_arguments(None, tmp_path / "out", run=run, **KEYS))
    assert "leaves every answer that does not equal the reference to a judge" in told
    assert "--judge" in told


@pytest.mark.slow
def test_a_thinker_learns_from_a_judge_and_a_resumed_training_asks_nothing_twice(tmp_path):
    run, out = free_form_run(tmp_path), tmp_path / "out"
    with serving(by_digits) as server:
        keys = {**KEYS, "run": run, "judge": with_judge(server), "budget": "10Mtok"}
        plan = prepare(grpo_arguments(None, out, **keys))
        assert "critic at http://127.0.0.1" in dict(summary(plan))["judge"]
        record = train(plan)
        result = record.result
        assert record.rl.judge and record.rl.judge.startswith("critic@")
        assert result.judging.asked > 0 and result.judging.failed == 0
        assert result.judging.votes == len(server.requests)
        assert result.rollouts["judge/asked"].first > 0
        assert result.rollouts["judge/failed"].last == 0
        assert "verdict/undecided" in result.rollouts and "reward" in result.rollouts
        assert read_record(out).result.judging == result.judging
        assert server.base_url not in (out / "training.json").read_text(encoding="utf-8")
        assert str(tmp_path) not in (out / "training.json").read_text(encoding="utf-8")
        questions = [str(body["messages"]) + str(body["seed"]) for body in server.requests]
        assert len(set(questions)) == len(questions)
        # The last checkpoint is lost: its steps are taken again, with the same responses.
        asked = len(server.requests)
        shutil.rmtree(last_checkpoint(out))
        again = train(prepare(grpo_arguments(None, out, **keys, resume_from_checkpoint="true")))
        assert len(server.requests) == asked
        assert again.result.judging.asked > 0
        assert again.result.steps == result.steps


@pytest.mark.slow
def test_a_training_goes_on_while_its_judge_is_down(tmp_path, capfd):
    with serving(by_digits) as server:
        keys = {**KEYS, "max_steps": 2, "save_strategy": "no", "save_steps": None}
        keys |= {"run": free_form_run(tmp_path), "judge": with_judge(server)}
        plan = prepare(grpo_arguments(None, tmp_path / "out", **keys))
    result = train(plan).result
    assert result.steps == 2
    assert result.judging.failed == result.judging.asked > 0
    assert result.rollouts["judge/failed"].first == result.rollouts["judge/asked"].first > 0
    # No response earned a reward that the judge should have decided.
    correct = result.rollouts.get("verdict/correct")
    assert correct is None or not correct.last
    assert "does not answer" in capfd.readouterr().out


# The first process has no undecided response at first, and the second one has a question of both.
IN_TWO_PROCESSES = """
import json, os, sys
from pathlib import Path
from accelerate import PartialState

PartialState(cpu=True)
from test_rollout_judge import LAW, config, judged, values
from heavydistill.config.run import Verifying
from heavydistill.train.rollouts.judge import judge_of, opened
from heavydistill.verifiers.pool import VerdictPool

folder, url, rank = Path(sys.argv[1]), sys.argv[2], int(os.environ["RANK"])
same = "\\\\boxed{because}"
steps = [
    ["\\\\boxed{No consideration.}"] if rank == 0 else [same, "\\\\boxed{valid}"],
    [same, f"\\\\boxed{{because of {rank}}}"],
    ["\\\\boxed{No consideration.}"],
]
run = judge_of(config(folder, url), None)
with VerdictPool(Verifying(workers=1)) as pool, opened(run, 60) as judge:
    found = [values(judged(judge, pool, *texts)) for texts in steps]
    counts = [judge.judging.asked, judge.judging.correct, judge.judging.votes]
(folder / f"{rank}.json").write_text(json.dumps([found, counts]))
"""


@pytest.mark.slow
def test_the_main_process_asks_for_all_and_each_has_the_verdicts_on_its_own(tmp_path):
    with serving(by_word) as server:
        in_two_processes(IN_TWO_PROCESSES, tmp_path, server.base_url)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first[0] == [[1.0], [1.0, 1.0], [1.0]]
    assert second[0] == [[1.0, 0.0], [1.0, 1.0], [1.0]]
    # Four different questions; the one of both processes was answered from the journal later.
    assert len(server.requests) == 4 * VOTES
    assert first[1][:2] == [6, 5] and second[1] == [0, 0, 0]
