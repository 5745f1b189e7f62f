"""Which prompts a GRPO training asks, and what it says of those that it leaves out."""

import functools
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import messages
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from set_folders import rewrite, write_sets
from trainings import grpo_arguments, refusal

from heavydistill.errors import BudgetError, ConfigError
from heavydistill.heavy.prompts import load
from heavydistill.schema import Turn
from heavydistill.store.sets.folder import RunUsed
from heavydistill.train.base_model import load_base
from heavydistill.train.rollouts.data import Prompts, find_sets, read_prompts, with_room
from heavydistill.train.rollouts.problem_rows import problem_of
from heavydistill.train.rollouts.resolve import RolloutSettings, resolve


def with_rows(folder: Path, *rows: dict[str, Any]) -> Path:
    """Sets whose ``rl`` has these rows; what is not said is as usual."""
    write_sets(folder)
    rewrite(folder, "rl", lambda row: [{**row, **keys} for keys in rows])
    return folder


def found(sets: Path | None, out: Path, **keys: Any) -> Prompts:
    """The prompts of the arguments, for the micro student, whoever the sets are for."""
    return resolved(sets, out, **keys)[1]


def resolved(sets: Path | None, out: Path, **keys: Any) -> tuple[RolloutSettings, Prompts]:
    arguments = grpo_arguments(sets, out, **{"steps_per_generation": 1, **keys})
    config, base = arguments.config, load_base(arguments, [])
    settings = resolve(arguments, base, folder := find_sets(config))
    return settings, read_prompts(config, base, folder, settings)


refused = functools.partial(refusal, found)


def test_caches_that_can_teach_something_are_asked_and_the_others_counted(tmp_path):
    sets = with_rows(
        tmp_path / "sets",
        *({"success": share, "cache": f"c{n}"} for n, share in enumerate((0.0, 0.25, 1.0, 0.75))),
        {"right": 2, "width": 4, "cache": "c4"},
        {"right": 3, "width": 8, "cache": "c5"},
        {"right": 4, "width": 8, "cache": "c6"},
    )
    everything = found(sets, tmp_path)
    assert everything.train["cache"] == ["c1", "c3", "c4", "c5", "c6"]
    assert everything.left_out == {"always_right": 1, "never_right": 1}
    bound = found(sets, tmp_path, max_accuracy=0.375)
    assert bound.train["cache"] == ["c5"]
    assert bound.left_out == {"always_right": 1, "never_right": 1, "over_accuracy": 4}
    assert everything.problems_sha256 != bound.problems_sha256
    assert found(sets, tmp_path).problems_sha256 == everything.problems_sha256


def test_a_set_without_successes_is_refused_with_what_to_do(tmp_path):
    never = with_rows(tmp_path / "never", *[{"success": 0.0, "cache": f"c{n}"} for n in range(3)])
    message = refused(never, tmp_path)
    assert "never has no prompt that is answered correctly in some samples" in message
    assert "(3 never_right)" in message and "train the model on sft_deliberator first" in message
    again = f"refilter {never} --checkpoint micro-student --out {never}-refiltered"
    assert f"on this model with `heavydistill {again}`" in message


def unmeasured(folder: Path, *rights: int) -> Path:
    """Sets without prompts of RL, and with caches of two attempts that nobody was asked about."""
    write_sets(folder, without=("rl", "train"))
    rewrite(
        folder,
        "caches",
        lambda row: [
            {**row, "id": f"{row['id']}_{n}", "right": right, "rl_label": "unmeasured"}
            for n, right in enumerate((*rights, rights[0]))
        ],
    )
    return folder


def test_instructions_are_left_out_of_prompts_or_the_layout_is_refused(tmp_path):
    shown = "==== Problem\n2*3?\n==== Attempt 1\n6\n==== Attempt 2\n5\n==== End of attempts"
    prompts = [f"Compare.\n{shown}\nWhich?", "2*3? Attempts: 6, 5"]
    turns = [[{"role": "user", "content": each}] for each in prompts]
    sets = with_rows(tmp_path / "sets", *({"cache": f"c{n}", "prompt": turns[0]} for n in range(4)))
    withdrawn = found(sets, tmp_path, wording="none").train["prompt"]
    assert [turn["content"] for (turn,) in withdrawn] == [shown] * 4
    assert found(sets, tmp_path).train["prompt"] == [turns[0]] * 4
    rewrite(sets, "rl", lambda row: [{**row, "prompt": turns[1]}])
    assert "right behind the problem" in refused(sets, tmp_path, wording="none")


def test_caches_that_nobody_measured_are_asked_if_that_is_wanted(tmp_path):
    sets = unmeasured(tmp_path / "sets", 0, 1, 2)
    message = refused(sets, tmp_path)
    assert "or use unmeasured ones with --unmeasured ask" in message
    prompts = found(sets, tmp_path, unmeasured="ask", max_accuracy=0.5)
    assert prompts.train["cache"] == ["c_0_0", "c_0_1", "c_0_3"], "none of the validation split"
    assert prompts.left_out == {"over_accuracy": 1}
    row = prompts.train[0]
    assert (row["problem"], row["width"], row["success"], row["reference"]) == ("p_0", 2, None, "6")
    assert "Attempt 1" in row["prompt"][0]["content"]
    sets = unmeasured(tmp_path / "right", 2)
    message = refused(sets, tmp_path, unmeasured="ask", max_accuracy=0.5)
    assert "over_accuracy)" in message and "give a larger max_accuracy" in message


def test_unmeasured_caches_are_asked_beside_those_that_teach(tmp_path):
    sets = write_sets(tmp_path / "sets")
    rewrite(
        sets, "caches", lambda row: [row, *[{**row, "id": "again", "rl_label": "unmeasured"}] * 2]
    )
    assert found(sets, tmp_path).train["cache"] == ["c_0"]
    prompts = found(sets, tmp_path, unmeasured="ask")
    assert prompts.train["cache"] == ["c_0", "again"]
    assert prompts.train["success"] == [0.5, None]


def test_true_claims_are_rewarded_only_if_the_attempts_have_verdicts(tmp_path):
    sets, keys = write_sets(tmp_path / "sets"), {"claims_share": 0.1, "scale_rewards": "none"}
    assert "attempts" not in found(sets, tmp_path).train.column_names
    shown = [{"answer": "6", "right": True}, {"answer": "5", "right": False}]
    assert found(sets, tmp_path, **keys).train["attempts"] == [shown]
    rewrite(sets, "rl", lambda row: [{**row, "attempts": [{"answer": "6", "right": None}] * 2}])
    message = refused(sets, tmp_path, **keys)
    assert "claims_share is 0.1, but" in message and "has no verdict of an attempt" in message
    again = f"build run --preset balanced --student micro-student --out {sets}-with-verdicts"
    assert f"`heavydistill {again}`; or leave claims_share out." in message
    asked = found(unmeasured(tmp_path / "asked", 0, 1), tmp_path, unmeasured="ask", **keys)
    assert asked.train["attempts"] == [shown] * 3


def test_prompts_that_do_not_fit_are_refused_or_left_out_and_counted(tmp_path):
    long = [{"role": "user", "content": "one plus one " * 400}]
    sets = with_rows(tmp_path / "sets", {"cache": "c0"}, {"cache": "c1", "prompt": long})
    message = refused(sets, tmp_path, max_completion_length=1000)
    assert "1 of 2 prompts do not fit" in message and "--too_long leave_out" in message
    assert "1,000 for a response leave 1,048" in message
    kept = found(sets, tmp_path, max_completion_length=1000, too_long="leave_out")
    assert kept.train["cache"] == ["c0"] and kept.left_out == {"too_long": 1}
    message = refused(sets, tmp_path, max_completion_length=2040, too_long="leave_out")
    assert "2 of 2 prompts do not fit" in message


def test_fewer_prompts_than_a_generation_asks_are_refused(tmp_path):
    sets = write_sets(tmp_path / "sets")
    message = refused(sets, tmp_path, steps_per_generation=4)
    assert "A generation has 4 prompts, but there are only 1" in message


def test_who_cannot_judge_is_told_before_anything_is_loaded(tmp_path, monkeypatch):
    sets = with_rows(tmp_path / "sets", {"verifier": "mine"})
    assert messages.is_in(refused(sets, tmp_path), "no_verifier_known", verifier="mine")
    sets = write_sets(tmp_path / "others")
    monkeypatch.setattr(
        "heavydistill.verifiers.registry.unavailable", lambda *_: ["no sandbox; install it"]
    )
    assert "no sandbox; install it" in refused(sets, tmp_path)


RUN = {
    "problems": {"source": "micro", "size": 12, "seed": 3},
    "domain": "brief",
    "think": {"k": 3},
    "cache": {"width": 2},
}

EPISODES = {"mode": "joint", "num_generations": 6, "per_device_train_batch_size": 6}


def run_file(folder: Path, **keys: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({**RUN, **keys}), encoding="utf-8")
    return path


def test_a_thinker_is_asked_the_problems_of_a_run_in_its_wording(tmp_path):
    prompts = found(None, tmp_path, mode="thinker", run=run_file(tmp_path))
    assert len(prompts.train) == 12
    wording = load("thinker", "brief", "en").parts[-1]
    for row in prompts.train:
        assert row["prompt"][0]["content"] == f"{row['text']}{wording}"
        assert row["verifier"] == "procedural" and row["domain"] == "brief"


def test_the_wording_is_that_of_the_students_profile_if_the_run_names_none(tmp_path):
    run = run_file(tmp_path, domain=None)
    settings, _ = resolved(None, tmp_path, mode="thinker", run=run)
    assert settings.run is not None and settings.run.domain == "brief"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"think": {"sampling": {"top_p": 0.9}}}, "uses only max_tokens of think.sampling"),
        ({"think": {"sampling": {"max_tokens": 999}}}, "is 999, but max_completion_length is 128"),
        ({"think": {"sampling": {"max_tokens": 9}}}, "is 9, but max_completion_length is 128"),
        ({"system": "Be brief."}, "system has no effect"),
        ({"think": {"tools": {"python": {}}}}, "think.tools has no effect"),
        ({"thinkk": {}}, "unknown key thinkk"),
        ({"problems": {"source": "nowhere.jsonl"}}, "nowhere.jsonl"),
    ],
)
def test_a_run_that_says_what_has_no_effect_is_refused(tmp_path, keys, message):
    assert message in refused(None, tmp_path, mode="thinker", run=run_file(tmp_path, **keys))


def conversation_of(path: Path, *roles: str, **more: str) -> str:
    turns = [{"role": role, "content": "1+1?", **more} for role in roles]
    path.write_text(f"{json.dumps({'messages': turns, 'answer': '2'})}\n" * 12, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("keys", [{"mode": "thinker"}, EPISODES])
def test_prompts_of_conversations_have_their_turns(tmp_path, keys):
    file = conversation_of(tmp_path / "turns.jsonl", "system", "user", "assistant", "user")
    run = run_file(tmp_path, think={"k": 2}, problems={"source": file})
    train = found(None, tmp_path, run=run, **keys).train
    *before, last = train[0]["prompt"]
    assert [turn["role"] for turn in before] == ["system", "user", "assistant"]
    assert problem_of(train[0]).history == [Turn(role=turn["role"], text="1+1?") for turn in before]
    assert last["role"] == "user" and "1+1?" in last["content"]


def test_turns_that_a_training_cannot_show_are_refused(tmp_path):
    roles = ("user", "assistant", "user")
    file = conversation_of(tmp_path / "turns.jsonl", *roles, reasoning_content="1 and 1")
    run = run_file(tmp_path, think={"k": 2}, problems={"source": file})
    message = refused(None, tmp_path, mode="thinker", run=run)
    assert "a turn before the text of problem turns:1 has tool calls" in message


def test_a_k_that_does_not_divide_the_batch_is_told_what_would(tmp_path):
    run = run_file(tmp_path, think={"k": 4})
    message = refused(None, tmp_path, mode="joint", run=run)
    assert "K + D = 5" in message
    assert "multiples of 5, such as --num_generations 10" in message
    keys = {"num_generations": 10, "per_device_train_batch_size": 5, "steps_per_generation": 2}
    assert resolved(None, tmp_path, mode="joint", run=run, **keys)[0].episodes
    message = refused(None, tmp_path, mode="joint", run=run, deliberations=3, **keys)
    assert "K + D = 7" in message


def test_a_prompt_of_an_episode_leaves_room_for_an_attempt_which_may_be_shorter(tmp_path):
    keys = {**EPISODES, "max_completion_length": 2040, "too_long": "leave_out"}
    shorter = {"deliberate": {"sampling": {"max_tokens": 90}}}
    message = refused(None, tmp_path, run=run_file(tmp_path, think={"k": 2}, **shorter), **keys)
    assert "12 of 12 prompts do not fit" in message and "2,040 for a response" in message
    run = run_file(tmp_path, think={"k": 2, "sampling": {"max_tokens": 1900}}, **shorter)
    for more in (keys, {**keys, "too_long": "refuse"}):
        prompts = found(None, tmp_path, run=run, **more)
        assert len(prompts.train) == 12 and prompts.left_out == {}


def test_a_problem_that_no_cache_has_room_for_is_told_before(tmp_path):
    run = run_file(tmp_path, think={"k": 2}, cache={"budget_tokens": 60})
    with pytest.raises(BudgetError, match="budget of 60 tokens does not hold the problem"):
        found(None, tmp_path, run=run, **EPISODES)


def of_runs(*configs: dict[str, Any]) -> list[RunUsed]:
    return [
        RunUsed(name=f"run{n}", traces=2, config=config, summary={})
        for n, config in enumerate(configs)
    ]


def test_problems_of_sets_are_asked_as_in_the_runs_behind_them(tmp_path):
    way = {"domain": "brief", "language": "en", "think": {"k": 6, "sampling": {"top_p": 0.95}}}
    sets = write_sets(tmp_path / "sets", runs=of_runs({**way, "teacher": "a"}, way))
    settings, prompts = resolved(sets, tmp_path, mode="thinker")
    assert prompts.train["problem"] == ["p_0"]
    assert settings.run is not None and settings.run.think.k == 6
    assert settings.run.think.sampling.top_p is None


def test_prompts_of_the_users_are_those_of_the_sets_or_the_run_or_given(tmp_path):
    def asked(sets: Path, **keys: Any) -> str:
        row = found(sets, tmp_path, mode="thinker", **keys).train[0]
        return str(row["prompt"][0]["content"].partition(row["text"])[0])

    way = {"domain": "brief", "think": {"k": 2}, "prompts": {"thinker": "Sets: {{problem}}"}}
    sets = write_sets(tmp_path / "sets", runs=of_runs(way))
    assert asked(sets) == "Sets: "
    assert asked(sets, prompts={"thinker": {"brief": "Given: {{problem}}"}}) == "Given: "
    way["prompts"] = {"thinker": str(tmp_path / "sets" / "manifest.json")}
    named = write_sets(tmp_path / "named", runs=of_runs(way))
    said = refused(named, tmp_path, mode="thinker")
    assert messages.is_in(said, "recorded_prompt_no_text")
    run = run_file(tmp_path, think={"k": 2}, prompts={"deliberator": "Run:\n{{cache}}"})
    settings, prompts = resolved(None, tmp_path, run=run, **EPISODES)
    assert settings.episodes is not None
    cache = settings.episodes.empty_cache(problem_of(prompts.train[0]))
    assert cache.prompt.startswith("Run:\n==== Problem\n")
    given = {"prompts": {"thinker": "{{problem}}"}}
    assert "prompts is given beside run" in refused(None, tmp_path, run=run, **given, **EPISODES)


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ([{}], "do not record how their problems were asked"),
        ([{"think": {"k": 3}}, {"think": {"k": 4}}], "run0, run1, have different prompts"),
    ],
)
def test_runs_that_do_not_tell_or_agree_are_refused(tmp_path, configs, message):
    sets = write_sets(tmp_path / "sets", runs=of_runs(*configs))
    found_message = refused(sets, tmp_path, mode="thinker")
    assert message in found_message and "in place of --dataset_name" in found_message


WAY = {"domain": "brief", "think": {"k": 2}}
RIGHT, WRONG, UNSAID = "correct", "incorrect", "undecided"


def answered(folder: Path, *attempts: tuple[str | None, ...], **cache: Any) -> Path:
    """Sets with a problem for each of these rows of verdicts, and for each a cache."""
    write_sets(folder, runs=of_runs(WAY))
    names = [f"p{number}" for number in range(len(attempts))]
    rewrite(
        folder,
        "problems",
        lambda row: [{**row, "id": name} for name in names] * (row["split"] == "train"),
    )
    once = iter([True])

    def judged(row: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            {**row, "problem": name, "verdict": said and {**row["verdict"], "label": said}}
            for name, verdicts in zip(names, attempts, strict=True)
            for said in verdicts
        ] * next(once, False)

    rewrite(folder, "trajectories", judged)
    rewrite(
        folder, "caches", lambda row: [{**row, "problem": "p0", **cache}] * (row["id"] == "c_0")
    )
    return folder


def test_problems_that_are_always_or_never_answered_rightly_are_left_out(tmp_path):
    verdicts = [(WRONG, WRONG), (RIGHT, WRONG), (RIGHT, RIGHT), (RIGHT, None), (UNSAID, WRONG)]
    sets = answered(tmp_path / "sets", *verdicts)
    prompts = found(sets, tmp_path, mode="thinker")
    assert prompts.train["problem"] == ["p1", "p3", "p4"]
    assert prompts.train["success"] == [0.5, None, None]
    assert prompts.left_out == {"always_right": 1, "never_right": 1}


@pytest.mark.parametrize(("success", "asked"), [(0.5, True), (1.0, True), (0.0, False)])
def test_of_an_episode_a_right_deliberation_counts_too(tmp_path, success, asked):
    sets = answered(tmp_path / "sets", (WRONG, WRONG), (RIGHT, WRONG), success=success, judged=4)
    prompts = found(sets, tmp_path, **EPISODES)
    assert prompts.train["problem"] == ["p0"] * asked + ["p1"]
    assert found(sets, tmp_path, mode="thinker").train["problem"] == ["p1"]


def test_problems_without_attempts_are_asked_and_counted(tmp_path):
    sets = write_sets(tmp_path / "sets", runs=of_runs(WAY), without=("trajectories", "train"))
    prompts = found(sets, tmp_path, mode="thinker")
    assert (prompts.train["success"], prompts.left_out) == ([None], {})


def test_requests_to_a_service_earn_no_reward_and_are_counted(tmp_path):
    sets = answered(tmp_path / "sets", (RIGHT, WRONG), (RIGHT, WRONG))
    served = {"source": "serve:heavy:p", "verifier": "", "reference": ""}
    rewrite(sets, "problems", lambda row: [row | served if row["id"] == "p0" else row])
    prompts = found(sets, tmp_path, mode="thinker")
    assert (prompts.train["problem"], prompts.left_out) == (["p1"], {"no_reference": 1})


def test_problems_of_which_none_can_teach_are_refused_with_what_to_do(tmp_path):
    sets = answered(tmp_path / "sets", (RIGHT, RIGHT), (RIGHT, RIGHT), (WRONG, WRONG))
    message = refused(sets, tmp_path, mode="thinker")
    assert "(2 always_right, 1 never_right)" in message
    assert "Build sets from harder or easier problems" in message and "give --run" in message


def room(
    lengths: list[int], response: int, context: int, server: int | None, too_long: str = "refuse"
) -> list[int]:
    """The lengths of the prompts that ``with_room`` keeps."""
    config: Any = SimpleNamespace(
        mode="deliberator",
        too_long=too_long,
        use_vllm=server is not None,
        vllm_max_model_length=server,
    )
    base: Any = SimpleNamespace(
        context=context, chat=SimpleNamespace(prompt_tokens=lambda prompt: prompt)
    )
    rows = [{"problem": f"p{n}", "prompt": length} for n, length in enumerate(lengths)]
    return with_room(config, base, rows, response, Counter())[1]


@given(
    st.lists(st.integers(1, 400), min_size=1),
    st.integers(1, 400),
    st.integers(50, 500),
    st.none() | st.integers(50, 500),
)
def test_prompts_that_do_not_fit_with_a_response_are_counted(lengths, response, context, server):
    most = min(context, server or context) - response
    kept = [length for length in lengths if length <= most]
    if kept:
        assert room(lengths, response, context, server, "leave_out") == kept
    if kept == lengths:
        assert room(lengths, response, context, server) == kept
        return
    with pytest.raises(ConfigError) as raised:
        room(lengths, response, context, server)
    lost = len(lengths) - len(kept)
    assert str(raised.value).startswith(f"{lost:,} of {len(lengths):,} prompts do not fit")
