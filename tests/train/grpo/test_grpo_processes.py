"""GRPO in two processes: they agree, and the joint objective has the gradients of plain loops."""

import json

import brute_force
import joint_steps
import pytest
import torch
from students import PAD
from tiny_rollouts import STUDENT
from trainings import in_two_processes, run_module

from heavydistill.train.grpo.passk import advantages

pytestmark = pytest.mark.slow

# Of 5 caches and 5 problems, 3 answers each: 15 are an odd number for two processes. A judge calls
# an answer right by its tokens, so that the accuracy can be counted again from what was judged.
PROGRAM = """
import json, os, sys
from pathlib import Path
import tiny_grpo
from heavydistill.train.callbacks import CheckpointMarkerCallback
from heavydistill.train.guards import GuardOptions
from heavydistill.train.rollouts.reward import Reward
from heavydistill.train.callbacks import WatchGuards

out, rank = Path(sys.argv[1]), int(os.environ["RANK"])
judged = []

def judge(rows, completion_ids):
    right = [[True, False, None][sum(ids) % 3] for ids in completion_ids]
    judged.append([(row["problem"], one) for row, one in zip(rows, right)])
    kinds = {True: "correct", False: "", None: "undecided"}
    return [Reward(one if one is None else float(one), kinds[one], "") for one in right]

# Process 0 alone sees solved groups, so the shares differ where they are logged one by one.
reward = tiny_grpo.rewarding(groups__all_right=lambda step: 0.9 if step >= 2 and rank == 0 else 0.5)
guards = GuardOptions(guard_window=1, guard_all_right="roll_back", guard_entropy="off")
watch = WatchGuards(guards)
made = tiny_grpo.trainer(
    out, reward, [watch, CheckpointMarkerCallback(None)],
    pass_at_k=2,
    judge=judge, eval_dataset=tiny_grpo.held_out(5), eval_strategy="steps", save_strategy="steps",
    eval_steps=1, save_steps=1, metric_for_best_model="eval_hm", num_generations=4,
    num_generations_eval=3, per_device_train_batch_size=2, per_device_eval_batch_size=3,
    scale_rewards="none", max_completion_length=12, ddp_find_unused_parameters=False,
)
batches = []
scored = made._generate_and_score_completions

def noted(inputs):
    output = scored(inputs)
    if made.model.training:
        batches.append((made._rewards.flatten().tolist(), output["advantages"].tolist()))
    return output

made._generate_and_score_completions = noted
made.train()
weights = float(sum(p.double().abs().sum() for p in made.model.parameters()))
(out / f"{rank}.json").write_text(json.dumps({
    "alarms": [one.model_dump() for one in watch.alarms], "judged": judged, "batches": batches,
    "history": made.state.log_history, "step": made.state.global_step, "weights": weights,
}))
"""


def test_processes_agree_and_count_every_answer_once(tmp_path):
    said = in_two_processes(PROGRAM, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))

    # The mean over processes is 0.7 from step 2 on, where the training ends and rolls back.
    assert first["step"] == second["step"] == 2
    assert first["alarms"] == second["alarms"] and len(first["alarms"]) == 1
    assert first["alarms"][0]["value"] == pytest.approx(0.7)
    assert first["weights"] == second["weights"]
    assert said.count("The training ends here.") == 1
    assert (tmp_path / "curves.png").is_file()

    seen = [[e for e in of["history"] if "eval_hm" in e] for of in (first, second)]
    assert len(seen[0]) == 2
    for number in range(2):
        for role, name in enumerate(("eval_hm", "eval_pass_at_1")):
            both = [of["judged"][2 * number + role] for of in (first, second)]
            assert [len(one) for one in both] == [8, 8]  # one of the 16 to fill up
            counted = [*both[0], *both[1][:-1]]
            assert sorted(problem for problem, _ in counted) == sorted(
                f"p{n}" for n in range(5) for _ in range(3)
            )
            right = sum(one is True for _, one in counted) / 15
            assert seen[0][number][name] == seen[1][number][name] == pytest.approx(right)

    for (rewards, mine), (same, others) in zip(first["batches"], second["batches"], strict=True):
        assert rewards == pytest.approx(same) and len(rewards) == 4
        assert [*mine, *others] == pytest.approx(advantages(rewards, 2), abs=1e-6)
    assert any(any(mine) for _, mine in first["batches"])


PROCESSES = 2  # what one makes, test_joint.py sees in this process


def test_gradients_are_those_of_plain_loops_over_the_episodes_of_all_processes(tmp_path):
    from transformers import AutoModelForCausalLM

    launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(PROCESSES)]
    run_module(*launch, joint_steps.__file__, str(tmp_path))
    of_processes = [torch.load(tmp_path / f"{number}.pt") for number in range(PROCESSES)]
    of_each = brute_force.advantages(joint_steps.REWARDS, joint_steps.GROUP)
    old = AutoModelForCausalLM.from_pretrained(STUDENT, dtype=torch.float32)
    met: list[int] = []
    for step, seen in enumerate(zip(*of_processes, strict=True)):
        assert len(seen) == PROCESSES
        numbers = [number for one in seen for number in _episodes(one["rows"])]
        met += numbers
        model = AutoModelForCausalLM.from_pretrained(STUDENT, dtype=torch.float32)
        model.load_state_dict(seen[0]["weights"])
        expected = brute_force.joint_loss(
            model,
            old,
            [joint_steps.PLAYED[number] for number in numbers],
            [of_each[number] for number in numbers],
            *joint_steps.BOUNDS,
        )
        expected.backward()
        loss = sum(one["loss"] for one in seen) / PROCESSES
        assert loss == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
        for one in seen:
            off = (one["gradient"] - brute_force.gradient(model)).norm()
            assert off <= 1e-5 * brute_force.gradient(model).norm()
        if step:
            ratios = [
                brute_force.ratio(model, old, joint_steps.PLAYED[number], True).item()
                for number in numbers
            ]
            low, high = joint_steps.BOUNDS
            assert min(ratios) < 1 - low and max(ratios) > 1 + high
    assert sorted(met) == list(range(len(joint_steps.PLAYED)))


def _episodes(rows: list[list[int]]) -> list[int]:
    """Numbers of the episodes that these rows are, which lie there whole and in order."""
    texts = [[id for id in row if id != PAD] for row in rows]
    size = joint_steps.K + 1
    of_episodes = [
        [row.prompt_ids + row.completion.ids for row in episode.rows]
        for episode in joint_steps.PLAYED
    ]
    return [of_episodes.index(texts[start : start + size]) for start in range(0, len(texts), size)]
