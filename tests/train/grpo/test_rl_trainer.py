"""Micro-batches without their padding: the same loss and gradients, in less columns."""

import random
from pathlib import Path
from typing import Any

import messages
import pytest
import tiny_rollouts
import torch
from tiny_rollouts import END, tokenizer
from trl import GRPOTrainer

from heavydistill.train.grpo.trainer import RlTrainer
from heavydistill.train.rollouts.trainer import dealt

PROMPT, COMPLETION = 40, 32
# Of the longest rows the prompt is shorter than PROMPT, as in one micro-batch of several.
LENGTHS = [(7, 20), (30, 3), (12, 1), (5, 24)]


class Padded(RlTrainer):
    """With TRL's own forward pass."""

    _get_per_token_logps_and_entropies = GRPOTrainer._get_per_token_logps_and_entropies


class TheirSteps(Padded):
    """With TRL's own steps too."""

    _prepare_inputs = GRPOTrainer._prepare_inputs


def trainer(kind: type[RlTrainer], folder: Path, **changes: Any) -> Any:
    usual = {
        "num_generations": 4,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 1,
    }
    made = tiny_rollouts.trainer(kind, folder, [0.0, 1.0, 0.0, 1.0], **{**usual, **changes})
    made.current_gradient_accumulation_steps = 1
    return made


def micro_batch(masked: tuple[int, ...] = ()) -> dict[str, torch.Tensor]:
    """Rows of ``LENGTHS`` as TRL pads them in a larger batch; completions that are masked."""
    batch = tiny_rollouts.padded_rows(LENGTHS, PROMPT, COMPLETION)
    batch["completion_mask"][list(masked)] = 0
    torch.manual_seed(5)
    return {
        **batch,
        "advantages": torch.tensor([1.0, -0.5, 0.7, -1.2]),
        "num_items_in_batch": batch["completion_mask"].sum(),
    }


def loss_and_gradients(
    made: RlTrainer, inputs: dict[str, torch.Tensor]
) -> tuple[float, torch.Tensor]:
    made.model.zero_grad()
    loss = made.compute_loss(made.model, inputs)
    loss.backward()
    return loss.item(), torch.cat([p.grad.flatten() for p in made.model.parameters()])


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).norm() <= 1e-5 * other.norm())


def now(made: RlTrainer, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The log-probabilities of the model as it is."""
    ids, mask = (
        torch.cat([inputs[f"prompt_{name}"], inputs[f"completion_{name}"]], dim=1)
        for name in ("ids", "mask")
    )
    with torch.no_grad():
        logps, _, _ = made._get_per_token_logps_and_entropies(made.model, ids, mask, COMPLETION)
    return logps


def noise(columns: int = COMPLETION) -> torch.Tensor:
    return 0.3 * torch.randn(len(LENGTHS), columns)


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
@pytest.mark.parametrize("level", ["sequence", "token"])
@pytest.mark.parametrize(
    "more",
    ["on policy", "truncated", "all truncated", "off policy", "reference", "by token", "by row"],
)
def test_loss_and_gradients_are_those_of_padded_micro_batches(
    tmp_path, trainers, loss_type, level, more
):
    masked = {"truncated": (1, 3), "all truncated": (0, 1, 2, 3)}.get(more, ())
    inputs = micro_batch(masked)
    if more in ("off policy", "by token", "by row"):
        inputs["old_per_token_logps"] = now(trainers[0], inputs) + noise()
    if more == "reference":
        inputs["ref_per_token_logps"] = now(trainers[0], inputs) + noise()
    if more in ("by token", "by row"):
        inputs["importance_sampling_ratio"] = noise(COMPLETION if more == "by token" else 1).exp()
    found = []
    for made in trainers:
        made.loss_type, made.importance_sampling_level = loss_type, level
        made.beta = 0.04 if more == "reference" else 0.0
        made.use_vllm = "importance_sampling_ratio" in inputs
        found.append(loss_and_gradients(made, dict(inputs)))
    (padded, of_padded), (trimmed, of_trimmed) = found
    assert trimmed == pytest.approx(padded, abs=5e-6)
    assert close(of_trimmed, of_padded)
    assert bool(of_padded.any()) == (more != "all truncated")


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> list[RlTrainer]:
    return [trainer(kind, tmp_path_factory.mktemp("out")) for kind in (Padded, RlTrainer)]


def test_no_column_is_padding_in_all_rows(tmp_path):
    made = trainer(RlTrainer, tmp_path)
    seen = tiny_rollouts.widths(made.model)
    loss_and_gradients(made, micro_batch())
    loss_and_gradients(made, micro_batch(masked=(0, 3)))
    inputs = micro_batch()
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    logps, entropies, _ = made._get_per_token_logps_and_entropies(
        made.model, ids, mask, COMPLETION, batch_size=1, compute_entropy=True
    )
    assert seen == [
        (4, 30 + 24),
        (4, 30 + 3),
        *((1, length) for length in sorted(map(sum, LENGTHS))),
    ]
    assert logps.shape == entropies.shape == (4, COMPLETION)
    together, _, _ = made._get_per_token_logps_and_entropies(made.model, ids, mask, COMPLETION)
    assert torch.allclose(logps, together, rtol=1e-5, atol=1e-5)
    # What is no completion counts as TRL has it.
    assert not logps[inputs["completion_mask"] == 0].any()
    assert logps[inputs["completion_mask"] == 1].all()


GENERATION = {"num_generations": 8, "steps_per_generation": 8, "gradient_accumulation_steps": 2}


def generation(made: Any) -> list[dict[str, torch.Tensor]]:
    """The micro-batches of 8 responses to each of 4 problems, whose responses are equally long."""
    rng = random.Random(7)
    prompts = [rng.choices(range(100, 600), k=5 + 3 * problem) for problem in range(4)]
    rows = [
        (prompt, [*rng.choices(range(100, 600), k=2 + 3 * problem), END])
        for problem, prompt in enumerate(prompts)
        for _ in range(8)
    ]
    made.rollout_func = lambda *_: {
        "prompt_ids": [prompt for prompt, _ in rows],
        "completion_ids": [completion for _, completion in rows],
        "logprobs": None,
    }
    batch, found = next(iter(made.get_train_dataloader())), []
    for step in range(GENERATION["steps_per_generation"]):
        made._step = step
        found.append(made._prepare_inputs(batch))
    return found


def test_a_step_learns_from_many_problems_and_a_generation_as_a_whole_from_the_same(tmp_path):
    rewards = [random.Random(1).random() for _ in range(32)]
    found = {}
    for kind in (TheirSteps, RlTrainer):
        own = {"reward_funcs": tiny_rollouts.rewarding(rewards)}
        made = trainer(kind, tmp_path, own=own, **GENERATION)
        made.model.train()
        batches = generation(made)
        accumulated = GENERATION["gradient_accumulation_steps"]
        made.current_gradient_accumulation_steps = accumulated
        made.model.zero_grad()
        losses = []
        for inputs in batches:
            loss = made.compute_loss(made.model, inputs)
            loss.backward()
            losses.append(loss.item())
        found[kind] = sum(losses), torch.cat([p.grad.flatten() for p in made.model.parameters()])
    (theirs, of_theirs), (ours, of_ours) = found.values()
    assert ours == pytest.approx(theirs, abs=5e-6) and close(of_ours, of_theirs)
    of_steps = [batches[at : at + accumulated] for at in range(0, len(batches), accumulated)]
    for step in of_steps:
        assert (
            len({inputs["prompt_mask"][row].sum().item() for inputs in step for row in range(4)})
            == 4
        )
        # And each of its micro-batches has the two problems that are nearest in length.
        assert [len(set(inputs["prompt_mask"].sum(dim=1).tolist())) for inputs in step] == [2, 2]
    ids = sorted(str(row.tolist()) for inputs in batches for row in inputs["completion_ids"])
    assert len(set(ids)) == 32


@pytest.mark.parametrize(
    ("lengths", "size", "steps", "expected"),
    [
        ([1, 1, 1, 1, 2, 2, 2, 2], 2, 2, [[0, 2], [4, 6], [1, 3], [5, 7]]),
        ([4, 3, 2, 1], 1, 4, [[3], [2], [1], [0]]),
        ([4, 3, 2, 1], 4, 4, [[3, 2, 1, 0]]),  # one micro-batch
        ([1, 2, 3, 4, 5, 6], 2, 2, [[0, 1], [2, 3], [4, 5]]),  # that steps do not divide
        ([1, 2, 3, 4, 5, 6, 7], 2, 2, [[0, 2], [4, 6], [1, 3], [5]]),
    ],
)
def test_samples_are_dealt_to_the_steps(lengths, size, steps, expected):
    found = dealt(torch.tensor(lengths), size, steps)
    assert [rows.tolist() for rows in found] == expected


def test_what_goes_on_asks_what_it_would_have_asked(tmp_path):
    asked: list[str] = []

    def reward(problem: list[str], **_: Any) -> list[float]:
        asked.append(problem[0])
        return [0.0, 1.0]

    def train(resume: str | None = None) -> None:
        made = trainer(
            RlTrainer,
            tmp_path,
            num_generations=2,
            per_device_train_batch_size=2,
            steps_per_generation=1,
            max_completion_length=1,
            shuffle_dataset=True,
            max_steps=11,
            save_strategy="steps",
            save_steps=6,
        )
        made.reward_funcs = [reward]
        made.train(resume_from_checkpoint=resume)

    train()
    epochs = [asked[:4], asked[4:8], asked[8:]]
    assert all(len(set(epoch)) == len(epoch) for epoch in epochs)
    assert epochs[0] != epochs[1] and epochs[1][:3] != epochs[2]
    whole, asked = asked, []
    train(str(tmp_path / "checkpoint-6"))
    assert asked == whole[6:]


PRIVATE = (
    "_calculate_rewards",
    "_compute_loss",
    "_generate_and_score_completions",
    "_generate_single_turn",
    "_get_per_token_logps_and_entropies",
    "_get_train_sampler",
    "_log_completion_extra",
    "_log_metric",
    "_prepare_inputs",
)


def test_what_is_replaced_of_trl_is_there_and_known():
    from heavydistill.train.grpo.joint import JointTrainer

    assert all(callable(getattr(GRPOTrainer, name)) for name in PRIVATE)
    replaced = {
        name
        for kind in (RlTrainer, JointTrainer)
        for name in vars(kind)
        if name.startswith("_") and not name.startswith("__") and hasattr(GRPOTrainer, name)
    }
    assert replaced <= set(PRIVATE)


def test_a_training_that_diverges_is_an_error_and_none_that_has_no_figure(tmp_path):
    made = trainer(RlTrainer, tmp_path)
    made._metrics["train"]["policy_loss"] = [float("nan")]
    made.log({"loss": 0.5})
    with messages.raises("diverged", what="loss", step=0):
        made.log({"loss": float("nan")})


def rolled_out(folder: Path, **changes: Any) -> tuple[list[list[int]], list[int]]:
    """What is written of some prompts, without chance; and the rows of each forward pass."""
    made = trainer(RlTrainer, folder, top_k=1, max_completion_length=96, **changes)
    asked = [[{"role": "user", "content": f"What is {n} + {7 * n}?"}] for n in (3, 12, 250, 31, 4)]
    prompts = tokenizer().apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    forward, rows = made.model.forward, []

    def counting(input_ids: torch.Tensor, **options: Any) -> Any:
        rows.append(len(input_ids))
        return forward(input_ids=input_ids, **options)

    made.model.forward = counting
    written, _ = made._generate_single_turn(prompts, None, {}, 1)
    return written, rows


def test_rows_that_have_ended_are_not_asked_about_and_the_same_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("heavydistill.models.local.decoding._STRETCH", 4)
    ours, rows = rolled_out(tmp_path / "ours")
    theirs, all_rows = rolled_out(tmp_path / "theirs", cache_implementation="dynamic")
    assert ours == theirs
    assert len(set(map(len, ours))) > 1
    assert set(all_rows) == {5} and rows[0] == 5 and min(rows) < 5


@pytest.mark.parametrize("keys", [{}, {"cache_implementation": "dynamic"}])
def test_settings_that_keep_rows_are_said(tmp_path, capfd, keys):
    trainer(RlTrainer, tmp_path, **keys)
    assert ("until its longest one ends" in capfd.readouterr().out) == bool(keys)


def test_settings_of_the_models_own_bend_nothing_and_stay(tmp_path):
    made = trainer(RlTrainer, tmp_path, max_completion_length=4)
    own = made.model.generation_config
    own.min_p, own.no_repeat_ngram_size = 1.0, 3  # only the likeliest token
    prompt = tokenizer()("17 + 25 =")["input_ids"]
    written = made._generate_single_turn([prompt] * 32, None, {}, 1)[0]
    assert len({tuple(ids) for ids in written}) >= 8
    assert made.model.generation_config is own
