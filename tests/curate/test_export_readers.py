"""TRL's own code on what is written for it: the completion is learnt, and nothing else."""

import importlib
import sys
from pathlib import Path

import pytest
from datasets import load_dataset
from set_folders import write_sets
from students import real_template
from transformers import AutoTokenizer

from heavydistill.curate.exports.export import export

MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "student")
ON_CPU = ["--use_cpu", "True", "--bf16", "False", "--report_to", "none"]
LEARNT = (
    "<think>\nAttempt 1 is right, attempt 2 is wrong: 2*3=6.\n</think>\n\n"
    "The product is \\boxed{6}.<|im_end|>\n"
)


@pytest.fixture
def out(tmp_path, monkeypatch):
    """An export for TRL, in the current folder, as its README asks."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    export(write_sets(tmp_path / "sets"), "trl", tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    monkeypatch.syspath_prepend(".")
    yield
    sys.modules.pop("heavydistill_reward", None)


@pytest.mark.slow
def test_trl_learns_the_completion_alone(out):
    from trl import SFTTrainer
    from trl.scripts.sft import make_parser

    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    tokenizer.chat_template = real_template("qwen3")
    script, args, _, _ = make_parser().parse_args_and_config(
        ["--config", "sft_deliberator.yaml", *ON_CPU]
    )
    rows = load_dataset(script.dataset_name)
    trainer = SFTTrainer(
        model=MICRO,
        args=args,
        train_dataset=rows[script.dataset_train_split],
        eval_dataset=rows[script.dataset_test_split],
        processing_class=tokenizer,
    )
    row = trainer.train_dataset[0]
    assert tokenizer.decode([one for one in row["labels"] if one != -100]) == LEARNT
    assert args.max_length == 2048


@pytest.mark.slow
def test_trl_rewards_what_a_student_answers(out):
    from trl import GRPOTrainer
    from trl.scripts.grpo import make_parser

    short = ["--max_steps", "1", "--max_completion_length", "16", "--eval_strategy", "no"]
    script, args, _, _ = make_parser().parse_args_and_config(
        ["--config", "rl.yaml", *ON_CPU, *short]
    )
    module, name = script.reward_funcs[0].rsplit(".", 1)
    written = importlib.import_module(module)
    rewards = []

    def reward(**columns):
        rewards.extend(found := getattr(written, name)(**columns))
        return found

    with written.POOL:
        GRPOTrainer(
            model=MICRO,
            reward_funcs=[reward],
            args=args,
            train_dataset=load_dataset(script.dataset_name)["train"],
        ).train()
    assert len(rewards) == 8
    assert set(rewards) <= {1.0, 0.0, None}
