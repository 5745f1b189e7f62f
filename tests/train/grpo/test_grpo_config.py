"""What a GRPO training takes: presets under files under flags, and what is refused."""

import functools
from types import SimpleNamespace
from typing import Any

import pytest
import trainings
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import message
from trl.trainer.utils import RepeatSampler

from heavydistill.train.arguments import REFUSED, recorded
from heavydistill.train.grpo.options import PRESETS
from heavydistill.train.grpo.train import GrpoConfig, parse

LEAST = {
    "model_name_or_path": "micro-student",
    "dataset_name": "sets",
    "mode": "deliberator",
    "use_cpu": True,
    "bf16": False,
}


written = functools.partial(trainings.written, least=LEAST)
refused = functools.partial(trainings.refusal, parse)


def test_gspo_is_the_preset_and_every_value_of_it_can_be_changed(tmp_path):
    trl = parse(["--config", written(tmp_path)]).config
    assert (trl.importance_sampling_level, trl.loss_type, trl.beta) == ("sequence", "grpo", 0.0)
    assert (trl.epsilon, trl.epsilon_high) == (3e-4, 4e-4)
    assert (trl.steps_per_generation, trl.gradient_accumulation_steps) == (4, 1)
    assert trl.mask_truncated_completions
    assert trl.vllm_importance_sampling_mode == "token_truncate"
    path = written(tmp_path, epsilon=0.01, gradient_accumulation_steps=2)
    changed = parse(["--config", path, "--epsilon_high", "0.02", "--beta", "0.001"]).config
    assert (changed.epsilon, changed.epsilon_high, changed.beta) == (0.01, 0.02, 0.001)
    assert changed.steps_per_generation == 8
    assert parse(["--config", path, "--steps_per_generation", "4"]).config.steps_per_generation == 4


def objective(tmp_path: Any, **keys: Any) -> str:
    return str(parse(["--config", written(tmp_path, **keys)]).config.objective)


def test_the_objective_names_what_differs_from_the_preset(tmp_path):
    assert objective(tmp_path) == "gspo"
    assert objective(tmp_path, loss_type="grpo", epsilon=3e-4) == "gspo"
    assert objective(tmp_path, preset="dapo", epsilon_high=0.3) == "dapo, epsilon_high 0.3"
    own = {"loss_type": "cispo", "importance_sampling_level": "token", "scale_rewards": "batch"}
    named = "loss cispo, epsilon_high 4.0, importance_sampling_level token, scale_rewards batch"
    assert objective(tmp_path, **own, epsilon_high=4.0) == named


@pytest.mark.parametrize("loss_type", [*sorted(set(PRESETS) - {"gspo"}), "bnpo", "luspo", "vespo"])
@pytest.mark.parametrize("preset", ["gspo", "dr_grpo"])
def test_another_loss_takes_no_keys_of_a_preset_that_is_not_its_own(tmp_path, preset, loss_type):
    asked = ["--config", written(tmp_path), "--preset", preset, "--loss_type", loss_type]
    if loss_type == preset:
        assert parse(asked).config.loss_type == loss_type
        return
    said = refused(asked)
    assert f"loss_type is {loss_type}, but importance_sampling_level, scale_rewards" in said
    assert ("epsilon_high" in said) == (loss_type != "vespo")
    assert (f"Give --preset {loss_type}, or also --importance" in said) == (loss_type in PRESETS)


def test_cispo_bounds_the_ratio_itself_and_dr_grpo_divides_by_constants(tmp_path):
    cispo = parse(["--config", written(tmp_path, preset="cispo")]).config
    assert (cispo.loss_type, cispo.importance_sampling_level) == ("cispo", "token")
    assert cispo.epsilon_high > 1 and cispo.scale_rewards == "group"
    dr_grpo = parse(["--config", written(tmp_path, preset="dr_grpo")]).config
    assert (dr_grpo.loss_type, dr_grpo.scale_rewards) == ("dr_grpo", "none")
    assert (dr_grpo.epsilon, dr_grpo.epsilon_high, dr_grpo.beta) == (0.2, None, 0.0)


def test_there_is_no_dropout_whoever_learns(tmp_path):
    assert parse(["--config", written(tmp_path)]).config.disable_dropout
    adapter = parse(["--config", written(tmp_path, use_peft=True)])
    assert adapter.config.disable_dropout and adapter.model.lora_dropout == 0


def test_without_anything_it_says_where_to_begin():
    assert "Give --config FILE or" in refused([])


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_what_it_says_and_the_record_tells_it(tmp_path, preset):
    asked = parse(["--config", written(tmp_path), "--preset", preset])
    for name, value in PRESETS[preset].items():
        assert getattr(asked.config, name) == value
    known = recorded(asked)
    assert known.get("preset", "gspo") == preset
    assert not {"dataset_name", "run", "verify", "evaluate", "license", "dry_run"} & set(known)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_generatons": 4}, "no key 'num_generatons'. Did you mean num_generations?"),
        ({"mode": "judge"}, "mode: 'judge' is not one of deliberator, joint, thinker"),
        ({"preset": "ppo"}, "preset: 'ppo' is not one of gspo, dapo, dr_grpo, cispo"),
        ({"preset": "cispo", "epsilon_high": 0.28}, "epsilon_high is 0.28, but with loss_type cis"),
        ({"preset": "dapo", "delta": 1.2}, "delta is 1.2, below 1 + epsilon_high = 1.28"),
        ({"delta": 0.5}, "Give --delta 2, or leave it out."),
        ({"preset": "cispo", "delta": 6.0}, "delta has no effect with loss_type cispo"),
        ({"mode": None}, "mode is not set. Give --config FILE, such as 1gpu/deliberator"),
        ({"dataset_name": None}, "No training data is given. Give --dataset_name"),
        ({"dataset_name": None, "mode": "joint"}, "--run, the configuration file of a run."),
        ({"run": "r.yaml"}, "Both dataset_name and run are given"),
        ({"run": "r.yaml", "dataset_name": None}, "a deliberator learns from existing caches"),
        (
            {"run": "r.yaml", "dataset_name": None, "mode": "thinker", "verify": {"workers": 1}},
            "verify is given beside run",
        ),
        ({"mode": "thinker", "max_accuracy": 0.5}, "max_accuracy is 0.5, but the mode is thinker"),
        ({"mode": "joint", "unmeasured": "ask"}, "unmeasured is ask, but the mode is joint"),
        ({"max_accuracy": 1.5}, "max_accuracy: 1.5 is not between 0 and 1"),
        ({"temperature": 0.0}, "temperature: 0.0 is not between 0.01 and 100"),
        ({"temperature": float("inf")}, "temperature: inf is not between"),
        ({"max_completion_length": -5}, "max_completion_length: -5 is not between 1"),
        ({"beta": -1.0}, "beta: -1.0 is not between 0"),
        ({"epsilon": float("nan")}, "epsilon: nan is not between 0"),
        ({"learning_rate": float("nan")}, "learning_rate: nan is not more than 0"),
        ({"top_entropy_quantile": 3.0}, "top_entropy_quantile: 3.0 is not between 0 and 1"),
        (
            {"use_peft": True, "lora_dropout": 0.1},
            "lora_dropout: with 0.1 the trained model would be another one",
        ),
        ({"use_peft": True, "lora_target_modules": ["q_proj", "lm_head"]}, "Leave lm_head out."),
        ({"format_share": 0.2}, "format_share: 0.2 is not between 0 and 0.05"),
        ({"claims_share": 0.4}, "claims_share: 0.4 is not between 0 and 0.3"),
        ({"claims_share": 0.1}, "agree. Give --scale_rewards none."),
        (
            {"claims_share": 0.1, "mode": "joint", "scale_rewards": "none"},
            "claims_share is 0.1, but the mode is joint",
        ),
        ({"verify": {"worker": 1}}, "verify: unknown key worker. Did you mean workers?"),
        ({"verify": {"workers": 0}}, "verify: workers: "),
        ({"judge": {"modle": "critic"}}, "judge: unknown key modle. Did you mean model?"),
        ({"judge": {"model": "m", "votes": 0}}, "judge: votes: "),
        ({"prompts": "my.md"}, "takes keys, not a text"),
        ({"prompts": {"judge": "no/such.md"}}, "prompts.judge: no/such.md: No such file"),
        ({"prompts": {"judge": "{{answer}} {{problem}}"}}, "{{reference}} occurs 0 times"),
        ({"prompts": {"thinker": "{{problem}}"}}, "but those of caches are in the sets"),
        ({"judge_timeout_s": 0}, "judge_timeout_s: 0.0 is not between 1 and 86400"),
        ({"num_generations": 3}, "generation_batch_size (16) must be divisible by num_generations"),
        ({"num_generations": 0}, "modulo by zero"),
        ({"num_generations": 1}, "at least 2 generations per prompt"),
        ({"steps_per_generation": 0}, "steps_per_generation: 0 is not more than 0"),
        ({"eval_strategy": "epoch", "per_device_eval_batch_size": 3}, "batch size (3 * 1) must be"),
        ({"held_out": 0}, "held_out: 0 is not between 1"),
        ({"guard_length_below": 1.5}, "guard_length_below: 1.5 is not between 0 and 1"),
        ({"guard_evaluation_falls": 0}, "guard_evaluation_falls: 0 is not between 1"),
        ({"mode": "thinker", "guard_reading": "warn"}, "but a thinker reads no attempts"),
        ({"guard_window": 0}, "guard_window: 0 is not between 1"),
        ({"pass_at_k": 2}, "pass_at_k is 2, but the mode is deliberator"),
        ({"deliberations": 2}, "deliberations is 2, but the mode is deliberator"),
        *(
            ({"mode": "thinker", "scale_rewards": "none", "pass_at_k": k}, f"pass_at_k: {k} is not")
            for k in (0, 4, 5)
        ),
        ({"mode": "thinker", "pass_at_k": 2}, "Give --scale_rewards none."),
        ({"guard_evaluation": "stop"}, "guard_evaluation is stop, but nothing is evaluated"),
        ({"held_out": 8}, "held_out is 8, but nothing is evaluated"),
        ({"held_out_from": "sets/a"}, "held_out_from is sets/a, but nothing is evaluated"),
        ({"guard_entropy": "roll_back"}, "Give --eval_strategy steps, and --save_strategy best"),
        ({"guard_entropy": False}, 'Write "no" or "off" in quotes.'),
        ({"eval_strategy": False}, 'Write "no" or "off" in quotes.'),
        ({"do_eval": True}, "do_eval is given without eval_strategy"),
        ({"eval_strategy": "steps", "num_generations_eval": 0}, "num_generations_eval: 0 is not"),
        (
            {"eval_strategy": "steps", "metric_for_best_model": "eval_loss"},
            "'eval_loss' is not measured in a deliberator training. Give eval_hm or eval_hm",
        ),
        (
            {"mode": "thinker", "eval_strategy": "steps", "metric_for_best_model": "hm"},
            "Give eval_pass_at_1 or eval_pass_at_d",
        ),
        ({"model_name_or_path": None}, "names no model. Add --model_name_or_path: a folder"),
        ({"hub_model_id": "a/b"}, "hub_model_id is set, but push_to_hub is not"),
        *(
            (
                {
                    "use_vllm": True,
                    "use_peft": True,
                    "dtype": "bfloat16",
                    f"load_in_{bits}bit": True,
                },
                f"Give --load_in_{bits}bit false, or --use_vllm false",
            )
            for bits in (4, 8)
        ),
    ],
)
def test_a_fault_is_named_with_what_mends_it(tmp_path, keys, message):
    usual = {"num_generations": 4, "per_device_train_batch_size": 4}
    assert message in refused(["--config", written(tmp_path, **{**usual, **keys})])


def test_only_what_is_measured_is_watched_for_its_fall(tmp_path):
    path = written(tmp_path)
    never = parse(["--config", path])
    assert never.config.guard_evaluation == recorded(never)["guard_evaluation"] == "off"
    measured = parse(["--config", path, "--eval_strategy", "steps"])
    assert measured.config.guard_evaluation == "warn" and "guard_evaluation" not in recorded(
        measured
    )
    assert measured.config.metric_for_best_model == "eval_hm"


def test_a_correction_of_rows_is_refused_where_a_sample_is_an_episode(tmp_path):
    keys = {"mode": "joint", "use_vllm": True, "use_cpu": False}
    path = written(tmp_path, **keys, vllm_importance_sampling_mode="sequence_mask")
    message = refused(["--config", path])
    assert message.startswith(
        "vllm_importance_sampling_mode: sequence_mask applies to single responses"
    )
    assert message.endswith("Set vllm_importance_sampling_mode: token_truncate.")
    usual = parse(["--config", path, "--vllm_importance_sampling_mode", "token_truncate"])
    assert usual.config.use_vllm


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--objective", "row"], message("no_flag", flag="--objective")),
        (["--num_generatons", "4"], message("no_flag", flag="--num_generatons") + " Did you mean"),
        (["--verify", "x"], "--verify: 'x' is not a mapping"),
        (["--judge", "{model: critic"], message("value_not_yaml")),
        (["--judge", "{endpoint: {base_url: 'http://h/v1'}}"], "judge: model"),
        (["--preset", "ppo"], "--preset: 'ppo' is not one of gspo, dapo, dr_grpo"),
    ],
)
def test_a_fault_of_a_flag_names_it(tmp_path, flags, message):
    assert message in refused(["--config", written(tmp_path), *flags])


NUMBERS = st.integers(1, 12)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "generation_batch_size": NUMBERS.map(lambda prompts: 4 * prompts),
            "num_generations": st.just(4),
            "steps_per_generation": st.sampled_from([1, 2, 4]),
            "num_iterations": st.integers(1, 3),
        }
    ),
    st.integers(1, 100),
)
def test_batches_are_counted_as_the_trainer_counts_them(numbers, prompts):
    of_generation = numbers["generation_batch_size"] // numbers["num_generations"]
    config = SimpleNamespace(**numbers, prompts_of_generation=of_generation)
    sampler = RepeatSampler(
        range(prompts),
        mini_repeat_count=numbers["num_generations"],
        batch_size=of_generation,
        repeat_count=numbers["num_iterations"] * numbers["steps_per_generation"],
    )
    of_loader = len(sampler) // numbers["generation_batch_size"]
    assert GrpoConfig.batches(config, prompts) == of_loader


OTHER: dict[str, Any] = {
    "pad_to_multiple_of": 8,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "generation_kwargs": {"typical_p": 0.5},
    "disable_dropout": False,
    "neftune_noise_alpha": 5.0,
    "label_smoothing_factor": 0.1,
    "train_sampling_strategy": "group_by_length",
    "logging_strategy": "no",
    "repetition_penalty": 1.1,
    "vllm_structured_outputs_regex": "a",
    "remove_unused_columns": True,
    "reward_weights": [0.5],
    "multi_objective_aggregation": "normalize_then_sum",
    "chat_template_kwargs": {"enable_thinking": False},
    "max_tool_calling_iterations": 3,
    "log_completions_hub_repo": "a/b",
    "hub_strategy": "all_checkpoints",
    "hub_token": "hf_secret",
    "save_only_model": True,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", OTHER)
def test_what_would_be_ignored_or_bend_the_ratio_is_refused(tmp_path, name):
    assert set(OTHER) == {*REFUSED, *GrpoConfig.refused} - {"auto_find_batch_size"}
    more = {"log_completions": True} if name.startswith("log_") else {}
    message = refused(["--config", written(tmp_path, **{name: OTHER[name]}, **more)])
    assert message.startswith(f"{name} cannot be set: ")
    assert message.endswith(f"Leave {name} out.") and "hf_secret" not in message
