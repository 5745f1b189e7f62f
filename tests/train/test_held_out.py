"""Which caches and problems are held out, and what is measured on them in a training."""

import shutil

import messages
import pytest
from runs import rows
from set_folders import rewrite, write_sets
from students import MICRO
from tiny_grpo import RIGHT, SHOWN, WRONG, Scripted, rewarding, trainer
from tiny_grpo import held_out as held_out_sets
from tiny_grpo import rows as problem_rows

from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.steps import step_counts
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.schema import Problem, Turn, from_row, turns_as_json
from heavydistill.store.sets.set_rows import TrajectoryRow
from heavydistill.text.steps import read_steps
from heavydistill.train.held_out import FIT, HeldOutResponse, figures, held_out
from heavydistill.train.rollouts.reward import CUT_OFF, Reward

STEPS = [1.0, 1.0, 1.0, 1.0, *[0.0] * 4, 1.0, 1.0, 1.0, 2.0]


def responses(*judged: tuple[int, Reward]) -> list[HeldOutResponse]:
    return [HeldOutResponse(row, reward) for row, reward in judged]


def asked(problem: Problem) -> str:
    return f"Think: {problem.text}"


def test_the_caches_are_those_of_the_runs_one_a_problem_whatever_their_success(sets):
    found = held_out(sets, 100, asked)
    problems = {row["id"]: row for row in rows(sets, "problems") if row["split"] == "validation"}
    caches = {row["id"]: row for row in rows(sets, "caches")}
    attempts = {row["id"]: from_row(TrajectoryRow, row) for row in rows(sets, "trajectories")}
    assert {row["problem"] for row in found.roles["deliberator"]} == problems.keys()
    assert len(found.roles["deliberator"]) == len(problems) and found.drawn == 0
    for row in found.roles["deliberator"]:
        cache = caches[row["cache"]]
        assert cache["problem"] == row["problem"] and not cache["drawn"]
        assert row["prompt"] == [{"role": "user", "content": cache["prompt"]}]
        assert row["vote"] == vote_value([attempts[item["generation"]] for item in cache["items"]])
        assert row["reference"] == problems[row["problem"]]["reference"]
        whole = [each for each in cache["items"] if each["tokens_after"] == each["tokens_before"]]
        assert row["shown"] == [attempts[each["generation"]].answer_text for each in whole]
    labels = {caches[row["cache"]]["rl_label"] for row in found.roles["deliberator"]}
    assert labels - {""}  # more than the prompts of RL
    assert {row["prompt"][0]["content"] for row in found.roles["thinker"]} == {
        f"Think: {row['text']}" for row in problems.values()
    }
    learnt = {row["problem"] for row in rows(sets, "rl", "train")}
    assert not learnt & problems.keys()


def test_fewer_are_always_the_same(sets):
    few, many = held_out(sets, 2, asked), held_out(sets, 5, asked)
    assert few.roles == {role: rows[:2] for role, rows in many.roles.items()}
    assert len(few.roles["deliberator"]) == 2
    assert held_out(sets, 2, None).roles["thinker"] == []


def test_held_out_prompts_of_conversations_have_their_turns_garbled_or_not(sets, tmp_path):
    before = [Turn(role="user", text="?"), Turn(role="assistant", text="carry the digit " * 60)]
    shutil.copytree(sets, tmp_path / "told")
    history = turns_as_json(before)
    rewrite(tmp_path / "told", "problems", lambda row: [{**row, "history_json": history}])
    # Another tokenizer may have cut the caches to their budget.
    rewrite(tmp_path / "told", "caches", lambda row: [{**row, "budget_tokens": 1}])
    reader = ReaderTokenizer(str(MICRO))
    plain = held_out(sets, 100, asked, reader=reader)
    told = held_out(tmp_path / "told", 100, asked, reader=reader)
    shown = [{"role": turn.role, "content": turn.text} for turn in before]
    for role, expected in plain.roles.items():
        prompts = [row["prompt"] for row in expected]
        assert prompts and [row["prompt"] for row in told.roles[role]] == [
            [*shown, *prompt] for prompt in prompts
        ]


def test_a_garbled_cache_has_the_attempts_of_its_cache_with_other_values(sets):
    reader = ReaderTokenizer(str(MICRO))
    found = held_out(sets, 100, None, reader=reader)
    plain = {row["cache"]: row for row in found.roles["deliberator"]}
    assert found.roles["garbled"] and f"{len(found.roles['garbled'])} also garbled" in str(found)
    caches = {row["id"]: row for row in rows(sets, "caches")}
    for row in found.roles["garbled"]:
        old, new = (each["prompt"][0]["content"] for each in (plain[row["cache"]], row))
        assert new != old and row["text"] in new and len(new) == len(old)
        assert [line for line in new.splitlines() if line.startswith("====")] == [
            line for line in old.splitlines() if line.startswith("====")
        ]
        # No attempt shows the right answer any more.
        shown = caches[row["cache"]]["attempts"]
        assert any(each["answer"] for each in shown)
        assert f"boxed{{{row['reference']}}}" not in new
    again = held_out(sets, 100, None, reader=reader)
    assert again == found and "garbled" not in held_out(sets, 100, None).roles
    only = next(iter(plain))
    fits = {"fits": lambda role, row: row.get("cache") == only}
    kept = held_out(sets, 100, None, reader=reader, **fits).roles
    assert {row["cache"] for role in kept.values() for row in role} == {only}


def test_what_the_values_are_worth_is_measured_on_the_caches_that_can_be_garbled():
    caches = [*problem_rows(2, cache="c1", vote=1.0), *problem_rows(1, cache="c2", vote=0.0)]
    garbled = problem_rows(1, cache="c2")
    judged = {"deliberator": responses((0, RIGHT), (1, RIGHT), (2, RIGHT), (2, WRONG))}
    judged["garbled"] = responses((0, WRONG), (0, CUT_OFF))
    found = figures({"deliberator": caches, "garbled": garbled}, judged)
    assert (found["hm"], found["hm_garbled"], found["hm_minus_garbled"]) == (0.75, 0.0, 0.5)
    assert found["cut_off"] == 0  # of the caches as they are


def test_what_instructions_are_worth_is_bounded_over_caches(sets):
    roles = held_out(sets, 100, None, has_none=True).roles
    bare = {row["cache"]: row["prompt"][-1]["content"] for row in roles["none"]}
    for row in roles["deliberator"]:
        whole = row["prompt"][-1]["content"]
        assert bare[row["cache"]] in whole and whole.startswith("Below are")
        assert bare[row["cache"]].startswith("==== Problem\n")
    number = len(bare)
    judged = {
        role: responses(*((n, RIGHT) for n in range(number))) for role in roles if roles[role]
    }
    judged["none"][0] = responses((0, WRONG))[0]
    found = figures(roles, judged)
    assert found["hm_none"] == found["hm"] - found["none_loses"] == pytest.approx(1 - 1 / number)
    assert found["none_loses"] < found["none_loses_at_most"] < 1


def test_every_label_of_a_build_is_known_to_be_fit_or_not(sets):
    unfit = {"too_long_for_student", "few_attempts", "other_writer", "contaminated"}
    assert {row["rl_label"] for row in rows(sets, "caches")} <= FIT | unfit


def test_a_cache_that_the_build_drew_stands_in_where_no_run_made_one(tmp_path):
    folder = write_sets(tmp_path / "sets")
    rewrite(folder, "caches", lambda row: [{**row, "drawn": True}])
    found = held_out(folder, 10, asked)
    assert found.drawn == len(found.roles["deliberator"]) == 1


def test_a_folder_without_attempts_or_validation_is_refused(tmp_path, sets):
    folder = shutil.copytree(sets, tmp_path / "refiltered")
    shutil.rmtree(folder / "trajectories")
    with messages.raises("held_out_without_attempts", folder=folder):
        held_out(folder, 10, asked)
    folder = write_sets(tmp_path / "sets")
    shutil.rmtree(folder / "problems")
    with messages.raises("nothing_held_out", folder=folder):
        held_out(folder, 10, asked)
    with messages.raises("holds_no_sets", folder=tmp_path):
        held_out(tmp_path, 10, asked)


def test_problems_that_are_learnt_from_are_refused(sets):
    text = next(row["text"] for row in rows(sets, "problems") if row["split"] == "validation")
    held_out(sets, 100, asked, learnt=["Another one."])
    with messages.raises("held_out_learnt", count=1, folder=sets):
        held_out(sets, 100, asked, learnt=[text])


def test_rows_that_do_not_fit_are_left_out_and_counted(sets):
    whole = held_out(sets, 5, asked).roles
    missed = {role: rows[0] for role, rows in whole.items()}
    kept = held_out(sets, 5, asked, fits=lambda role, row: row != missed[role])
    assert kept.roles == {role: rows[1:] for role, rows in whole.items()} and kept.too_long == 2


def test_the_figures_count_what_is_undecided_as_wrong():
    caches = problem_rows(2, cache="c", vote=0.5)
    caches[0]["vote"] = 1.0
    unanswered = Reward(0.0, "unanswered", "missing")
    deliberations = responses((0, RIGHT), (0, CUT_OFF), (1, WRONG))
    attempts = responses((0, RIGHT), (0, unanswered), (1, CUT_OFF))
    found = figures(
        {"deliberator": caches, "thinker": problem_rows(2)},
        {"deliberator": deliberations, "thinker": attempts},
    )
    assert found == pytest.approx(
        {
            "hm": 1 / 3,
            "v": 0.75,
            "hm_minus_v": 1 / 3 - 0.75,
            "pass_at_1": 1 / 3,
            "pass_at_d": 0.5,
            "undecided": 2 / 6,
            "unanswered": 1 / 6,
            "cut_off": 2 / 6,
        }
    )


def test_the_steps_that_deliberations_write_are_compared_with_those_of_the_attempts():
    read = [read_steps(text) for text in SHOWN]
    said = ["1 + 1 = 2, 2 + 3 = 5", "1 + 1 = 2, 2 + 3 = 6", "1 + 1 = 3", "nothing"]
    judged = [HeldOutResponse(0, WRONG, step_counts(read, read_steps(each))) for each in said]
    caches = {"deliberator": problem_rows(1, cache="c", vote=0.0)}
    found = figures(caches, {"deliberator": judged})
    assert (found["steps_agree"], found["steps_part"]) == (pytest.approx(2 / 3), 0.5)
    only = figures(caches, {"deliberator": judged[2:]})
    assert only["steps_agree"] == 0 and "steps_part" not in only


def test_a_trainer_reads_the_steps_of_what_it_sampled(tmp_path):
    made = trainer(tmp_path, rewarding(), judge=Scripted(0.5))
    ids = made.processing_class.encode("So 1 + 1 = 2 and 2 + 3 = 6.")
    counts = made._steps({"shown": SHOWN}, ids)
    assert counts == step_counts([*map(read_steps, SHOWN)], read_steps("1 + 1 = 2, 2 + 3 = 6"))
    assert sum(counts) > 0


def test_an_evaluation_counts_the_steps_of_deliberations_alone(tmp_path, monkeypatch):
    made = trainer(
        tmp_path,
        rewarding(),
        judge=Scripted(0.5),
        eval_dataset=held_out_sets(2),
        num_generations_eval=2,
        per_device_eval_batch_size=8,
    )
    counted = []
    monkeypatch.setattr(made, "_steps", lambda row, ids: counted.append(row) or STEPS)
    logged = made.evaluate()
    assert (logged["eval_steps_agree"], logged["eval_steps_part"]) == (1.0, 0.5)
    assert len(counted) == 4 and all(row["shown"] == SHOWN for row in counted)


def test_what_is_not_held_out_has_no_figure():
    found = figures({"thinker": problem_rows(1)}, {"thinker": responses((0, RIGHT))})
    assert found.keys() == {"pass_at_1", "pass_at_d", "undecided", "unanswered", "cut_off"}


def test_a_training_logs_them_once_an_evaluation_and_draws_the_same(tmp_path):
    judge = Scripted(0.5, 0.25)
    made = trainer(
        tmp_path,
        rewarding(),
        judge=judge,
        eval_dataset=held_out_sets(3, vote=0.25),
        most_tokens={"thinker": 2},
        eval_strategy="steps",
        eval_steps=2,
        eval_on_start=True,
        max_steps=2,
        learning_rate=0.0,
        num_generations_eval=4,
        per_device_eval_batch_size=8,
    )
    made.train()
    seen = [entry for entry in made.state.log_history if "eval_hm" in entry]
    assert [entry["step"] for entry in seen] == [0, 2]
    assert [entry["eval_hm"] for entry in seen] == [0.5, 0.25]
    for entry in seen:
        assert entry["eval_v"] == 0.25 and entry["eval_pass_at_1"] == 0
        assert entry["eval_hm_minus_v"] == entry["eval_hm"] - 0.25
        # Nothing of TRL's, which would be of one of the two sets, or of the training.
        assert all("/" not in name and "reward" not in name for name in entry)
    # The model did not change, so neither do its answers.
    first, second = judge.seen[:2], judge.seen[2:]
    assert first == second
    (caches, deliberations), (problems, attempts) = first
    assert len(deliberations) == 3 * 4 and len({str(ids) for ids in deliberations}) > 3
    assert [row["problem"] for row in caches] == [row["problem"] for row in problems]
    assert max(map(len, deliberations)) == 4 and max(map(len, attempts)) == 2
    # And the training goes on as it would have without.
    rewards = [entry["reward"] for entry in made.state.log_history if "reward" in entry]
    again = trainer(tmp_path / "again", rewarding(), max_steps=2, learning_rate=0.0)
    again.train()
    assert rewards == [entry["reward"] for entry in again.state.log_history if "reward" in entry]
    assert made.model.training
