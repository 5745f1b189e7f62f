"""The text tower of a vision-language model, from sets to a model that answers; and no other part.

Tiny checkpoints of three families with the templates of their real models.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from adapters import PROBLEMS, answers
from command_line import run_command
from runs import build, write_run
from trainings import flags, grpo_arguments, main, weights
from vision_language import FAMILIES, Family, write_checkpoint

from heavydistill.models.local.architecture import load_model, text_tower
from heavydistill.store.traces import read_traces
from heavydistill.store.training_record import read_record
from heavydistill.train.grpo.train import new_trainer, prepare
from heavydistill.train.loop import freeze_others
from heavydistill.train.merge import MergeResult, merge
from heavydistill.verifiers.pool import VerdictPool

TOWER = "model.language_model"
LORA = {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 8}
_SHORT = ["--k", "2", "--d", "1", "--set", "think.sampling.max_tokens=12"]
_SHORT += ["--set", "deliberate.sampling.max_tokens=12", "--set", "problems.size=2"]


class Made(NamedTuple):
    """What is made of a checkpoint, in this order."""

    family: Family
    base: Path
    sets: Path
    adapter: Path
    merged: Path
    proof: MergeResult
    full: Path


@pytest.fixture(
    scope="module",
    params=[
        "qwen3_5",
        *(pytest.param(f, marks=pytest.mark.slow) for f in ("qwen3_5_moe", "gemma4")),
    ],
)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp(request.param)
    base = write_checkpoint(folder / "base", request.param)
    build(folder / "sets", write_run(folder / "run", 12, k=3, words=4), student=str(base))
    usual = {"model_name_or_path": base, "role": "deliberator", "max_steps": 2}
    for name, keys in {"adapter": LORA, "full": {}}.items():
        assert main(flags(folder / "sets", folder / name, **usual, **keys)) == 0
    proof = merge(str(folder / "adapter"), folder / "merged", dtype="float32")
    parts = [folder / name for name in ("base", "sets", "adapter", "merged")]
    return Made(FAMILIES[request.param], *parts, proof, folder / "full")


def test_an_adapter_changes_the_text_tower_alone(made):
    names = [name.removeprefix("base_model.model.") for name in weights(made.adapter)]
    assert names and all(name.startswith(f"{TOWER}.") for name in names)
    adapted = sorted(made.family.linear)
    assert sorted({name.split(".lora_")[0].rpartition(".")[2] for name in names}) == adapted
    record = read_record(made.adapter)
    assert record.base.architecture == made.family.architecture
    assert record.arguments["lora_target_modules"] == adapted
    config = json.loads((made.adapter / "adapter_config.json").read_text())
    assert sorted(config["target_modules"]) == adapted


def test_the_card_names_the_class_that_peft_and_this_process_load(made):
    import torch
    import transformers
    from peft import PeftModel

    card = (made.adapter / "README.md").read_text(encoding="utf-8")
    assert "AutoModelForCausalLM" not in card
    (loads,) = re.findall(r"^base = (\w+)\.from_pretrained", card, re.M)
    base = getattr(transformers, loads).from_pretrained(made.base, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, made.adapter).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(made.adapter)
    said = []
    for problem in PROBLEMS:
        asked = tokenizer.apply_chat_template(
            [{"role": "user", "content": problem}],
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        stops = [*base.generation_config.eos_token_id]
        row = model.generate(
            **asked, do_sample=False, max_new_tokens=24, eos_token_id=stops, pad_token_id=0
        )[0, asked["input_ids"].shape[1] :].tolist()
        end = next((place for place, token in enumerate(row) if token in stops), len(row))
        said.append(tokenizer.decode(row[:end], skip_special_tokens=True).strip())
    assert len(set(said)) == len(said)
    assert answers(made.adapter) == said != answers(made.base)


def test_a_merged_adapter_is_the_same_model_with_its_vision_tower(made):
    assert made.proof.is_right and made.proof.difference < 1e-3 < made.proof.effect
    assert answers(made.merged) == answers(made.adapter)
    before, after = weights(made.base), weights(made.merged)
    assert before.keys() == after.keys()
    changed = {name for name in before if not after[name].equal(before[name].float())}
    assert changed and all(name.startswith(f"{TOWER}.") for name in changed)
    assert read_record(made.merged) == read_record(made.adapter)


@pytest.mark.parametrize("kind", ["merged", "full"])
def test_a_whole_model_has_all_that_a_server_of_its_class_needs(made, kind):
    folder = getattr(made, kind)
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == [made.family.architecture]
    processor = json.loads((folder / "preprocessor_config.json").read_text())
    assert processor == {"image_processor_type": "Qwen2VLImageProcessor"}
    settings, of_base = (
        json.loads((one / "generation_config.json").read_text()) for one in (folder, made.base)
    )
    for key in ("pad_token_id", "eos_token_id"):
        assert settings[key] == of_base[key]


def test_only_what_text_trains_asks_for_gradients(made):
    model = load_model(str(made.base), "auto")
    tower = text_tower(model.config)
    assert tower is not None
    freeze_others(model, tower)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {name for name, _ in model.named_parameters() if name.startswith(TOWER)}


def test_training_all_weights_leaves_the_vision_tower_as_it_was(made):
    before, after = weights(made.base), weights(made.full)
    assert before.keys() == after.keys()
    changed = {name for name in before if not after[name].equal(before[name].float())}
    assert changed and all(name.startswith(f"{TOWER}.") for name in changed)
    assert answers(made.full) != answers(made.base)
    assert read_record(made.full).base.architecture == made.family.architecture


def test_it_is_evaluated_in_this_process(made, tmp_path):
    out = tmp_path / "evaluation"
    models = ["--thinker", made.adapter, "--deliberator", made.adapter, "--before", made.base]
    done = run_command("evaluate", *models, *_SHORT, "--problems", "micro", "--out", out)
    # Random weights end no answer, so that there may be none to deliberate on.
    assert done.returncode in (0, 1), done.stderr
    attempts = [
        attempt
        for run in ("before", "after")
        for trace in read_traces(out / run)
        for attempt in trace.pool
    ]
    assert {attempt.model for attempt in attempts} == {"adapter", "base"}
    assert len(attempts) == 8 and all(attempt.completion_tokens for attempt in attempts)


def test_grpo_trains_the_text_tower_of_the_merged_model(made, tmp_path):
    keys = {"max_steps": 1, "steps_per_generation": 1, "max_completion_length": 8}
    keys |= {"unmeasured": "ask", "mask_truncated_completions": False, "learning_rate": 1e-2}
    plan = prepare(
        grpo_arguments(made.sets, tmp_path / "out", model_name_or_path=made.merged, **keys, **LORA)
    )
    assert plan.record.base.architecture == made.family.architecture
    with VerdictPool(plan.settings.verify) as pool:
        trainer = new_trainer(plan, pool)
        # Some reward; the responses of random weights have none.
        trainer.reward_funcs = [
            lambda completion_ids, **_: [sum(ids) % 97 for ids in completion_ids]
        ]
        trainer.train()
    learnt = dict(trainer.model.named_parameters())
    trained = {name for name, weight in learnt.items() if weight.requires_grad}
    assert trained and all(f".{TOWER}." in name for name in trained)
    assert any(learnt[name].any() for name in trained if "lora_B" in name)  # 0 at first
