"""The loss of a distillation against plain loops, and what TRL's trainer does otherwise here."""

import math
from typing import Any

import pytest
import tiny_distill
import tiny_rollouts
import torch
import vllm_engine
from peft import LoraConfig
from students import PAD
from students import TURN_ENDS as END
from tiny_grpo import Scripted, held_out
from trl import DistillationTrainer

from heavydistill.store.training_record import LEARNT
from heavydistill.train.distill.trainer import DistillTrainer
from heavydistill.train.rollouts import vllm
from heavydistill.train.rollouts.data import OF_TEACHER
from heavydistill.train.rollouts.trainer import SamplingTrainer

PROMPT, COMPLETION = 24, 20
LENGTHS = [(7, 11), (13, 3), (9, 1), (5, 18)]
CUT_OFF = 2
"""Row that was cut off."""


def micro_batch() -> dict[str, torch.Tensor]:
    """Rows of ``LENGTHS`` as TRL pads them in a larger batch; one of them is not learnt."""
    batch = tiny_rollouts.padded_rows(LENGTHS, PROMPT, COMPLETION)
    learnt = batch["completion_mask"].clone()
    learnt[CUT_OFF] = 0
    return {**batch, "tool_mask": learnt, "num_items_in_batch": learnt.sum()}


def distributions(model: Any, ids: list[int], words: int, temperature: float) -> Any:
    """The log-probabilities of the next word behind each id of one row without padding."""
    logits = model(torch.tensor([ids])).logits[0, :, :words]
    return torch.log_softmax(logits.float() / temperature, dim=-1)


def divergence(student: list[float], teacher: list[float], beta: float) -> float:
    """Of two lists of log-probabilities, word by word."""
    total = 0.0
    for of_student, of_teacher in zip(student, teacher, strict=True):
        q, p = math.exp(of_student), math.exp(of_teacher)
        if beta == 0:
            total += p * (of_teacher - of_student)
        elif beta == 1:
            total += q * (of_student - of_teacher)
        else:
            mixture = math.log(beta * p + (1 - beta) * q)
            total += beta * p * (of_teacher - mixture) + (1 - beta) * q * (of_student - mixture)
    return total


def plain_loss(
    made: Any,
    inputs: dict[str, torch.Tensor],
    beta: float,
    words: int,
    temperature: float = 1.0,
    of_teacher: list[list[int]] | None = None,
) -> float:
    """The mean over the learnt tokens, by loops over rows, tokens and words."""
    total = tokens = 0.0
    for row, (prompt, completion) in enumerate(LENGTHS):
        if row == CUT_OFF:
            continue
        mine = inputs["prompt_ids"][row, PROMPT - prompt :].tolist()
        theirs = of_teacher[row] if of_teacher else mine
        said = inputs["completion_ids"][row, :completion].tolist()
        pairs = (made.model, mine), (made.teacher_model, theirs)
        with torch.no_grad():
            found = [
                distributions(model.float(), [*ids, *said], words, temperature)[len(ids) - 1 : -1]
                for model, ids in pairs
            ]
        for one, other in zip(*(each.tolist() for each in found), strict=True):
            total, tokens = total + divergence(one, other, beta), tokens + 1
    return total / tokens


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = tiny_distill.trainer(tmp_path_factory.mktemp("out"))
    found.current_gradient_accumulation_steps = 1
    found.model.train()  # there is no dropout; TRL then divides by the tokens of the step
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("beta", [0.0, 1.0, 0.3])
def test_the_loss_is_that_of_plain_loops(made, beta, temperature):
    inputs = micro_batch()
    made.beta, made.temperature = beta, temperature
    loss = made.compute_loss(made.model, dict(inputs)).item()
    words = made.model.config.vocab_size
    assert loss > 0.1
    assert loss == pytest.approx(plain_loss(made, inputs, beta, words, temperature), abs=1e-5)


def test_a_teacher_may_read_another_prompt_than_the_student(made):
    prompts = [[30 + row, *range(100, 104 + 5 * row)] for row in range(len(LENGTHS))]
    texts = [{OF_TEACHER: ids} for ids in prompts]
    made._prompt_ids = lambda rows: [row["prompt"] for row in rows]
    made.beta, made.temperature = 1.0, 1.0
    inputs, words = micro_batch(), made.model.config.vocab_size
    other = {**inputs, **made._prompts_of_teacher(texts)}
    loss = made.compute_loss(made.model, other).item()
    assert loss == pytest.approx(plain_loss(made, inputs, 1.0, words, 1.0, prompts), abs=1e-5)
    assert abs(loss - plain_loss(made, inputs, 1.0, words)) > 0.01
    again = made.compute_loss(made.model, inputs).item()
    assert again == pytest.approx(plain_loss(made, inputs, 1.0, words), abs=1e-5)


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.3])
def test_its_gradient_is_that_of_the_formula(made, beta):
    inputs = micro_batch()
    made.beta, made.temperature = beta, 1.0
    found = []
    for loss in (made.compute_loss(made.model, dict(inputs)), by_autograd(made, inputs, beta)):
        made.model.zero_grad()
        loss.backward()
        found.append(torch.cat([each.grad.flatten() for each in made.model.parameters()]))
    ours, plain = found
    assert (ours - plain).norm() <= 1e-5 * plain.norm()


def by_autograd(made: Any, inputs: dict[str, torch.Tensor], beta: float) -> torch.Tensor:
    """The same mean in one expression of torch per row."""
    words, parts = made.model.config.vocab_size, []
    for row, (prompt, completion) in enumerate(LENGTHS):
        if row == CUT_OFF:
            continue
        ids = inputs["prompt_ids"][row, PROMPT - prompt :].tolist()
        ids += inputs["completion_ids"][row, :completion].tolist()
        learnt = slice(prompt - 1, prompt + completion - 1)
        q = distributions(made.model, ids, words, 1.0)[learnt]
        p = distributions(made.teacher_model, ids, words, 1.0)[learnt].detach()
        if beta == 0:
            parts.append((p.exp() * (p - q)).sum(dim=-1))
        elif beta == 1:
            parts.append((q.exp() * (q - p)).sum(dim=-1))
        else:
            mixture = (beta * p.exp() + (1 - beta) * q.exp()).log()
            parts.append(
                (beta * p.exp() * (p - mixture) + (1 - beta) * q.exp() * (q - mixture)).sum(dim=-1)
            )
    return torch.cat(parts).mean()


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.3])
def test_in_bfloat16_it_is_the_same_within_2_percent(tmp_path, beta):
    own = {"teacher_model": tiny_distill.teacher("bfloat16")}
    keys = {"bf16": True, "model_init_kwargs": {"dtype": "bfloat16"}, "beta": beta}
    in_half = tiny_distill.trainer(tmp_path, own=own, **keys)
    inputs, words = micro_batch(), in_half.model.config.vocab_size
    with in_half.compute_loss_context_manager():
        loss = in_half.compute_loss(in_half.model, dict(inputs)).item()
    assert loss == pytest.approx(plain_loss(in_half, inputs, beta, words), rel=0.02)


def test_rows_in_several_micro_batches_have_the_loss_of_one(made):
    inputs = micro_batch()
    made.beta, made.temperature = 1.0, 1.0
    whole = made.compute_loss(made.model, dict(inputs)).item()
    parts = 0.0
    for row in range(len(LENGTHS)):
        one = {
            name: value[row : row + 1] if value.dim() else value for name, value in inputs.items()
        }
        parts += made.compute_loss(made.model, one).item()
    assert parts == pytest.approx(whole, abs=1e-5)


def test_the_logged_entropy_is_that_of_micro_batches_with_learnt_tokens(made):
    made._metrics["train"]["entropy"].clear()
    inputs = micro_batch()
    for row in range(len(LENGTHS)):
        one = {name: each[row : row + 1] if each.dim() else each for name, each in inputs.items()}
        made.compute_loss(made.model, one)
    logged = made._metrics["train"].pop("entropy")  # those that are not numbers are left out
    assert [math.isnan(value) for value in logged] == [row == CUT_OFF for row in range(4)]


def test_no_column_is_read_that_is_padding_or_learnt_by_no_row(made):
    seen = tiny_rollouts.widths(made.model)
    made.compute_loss(made.model, micro_batch())
    assert seen == [(len(LENGTHS), 13 + 18)]


def test_output_layers_of_different_lengths_are_cut_for_the_loss_alone(tmp_path):
    wide, words = tiny_distill.teacher(), len(tiny_rollouts.tokenizer())
    wide.resize_token_embeddings(wide.config.vocab_size + 40, mean_resizing=False)
    wide.config.vocab_size -= 40  # as ``load_teacher`` leaves it
    own = {"teacher_model": wide, "cut_to": words}
    cut = tiny_distill.trainer(tmp_path, own=own)
    inputs, before = micro_batch(), cut.model.get_output_embeddings().weight.shape
    assert before[0] > words
    loss = cut.compute_loss(cut.model, dict(inputs))
    assert loss.item() == pytest.approx(plain_loss(cut, inputs, 1.0, words), abs=1e-5)
    assert cut.model.get_output_embeddings().weight.shape == before


ENDING = [[200, 201, END], [300, 301, 302, 303], [400, END], [500, 501, 502]]
"""Responses of which 0 and 2 end, 1 and 3 are cut off."""


def generated(made: Any, written: list[list[int]] = ENDING) -> Any:
    """A generation of four responses."""
    prompts = [[101, 102, 103]] * 4
    made._generate = lambda _: (prompts, written, None, None, [])
    made.model.train()
    return made._generate_and_score_completions(tiny_rollouts.problems(4).to_list())


def test_responses_that_were_cut_off_are_left_out_of_the_loss(tmp_path):
    made = tiny_distill.trainer(tmp_path)
    batch = generated(made)
    assert batch["tool_mask"].sum(dim=1).tolist() == [3, 0, 2, 0]
    assert batch["num_items_in_batch"] == 5
    assert made._metrics["train"][LEARNT] == [5]


def test_they_are_learnt_if_that_is_chosen(tmp_path):
    made = tiny_distill.trainer(tmp_path, mask_truncated_completions=False)
    batch = generated(made)
    assert batch["tool_mask"].sum(dim=1).tolist() == [3, 4, 2, 3]
    assert batch["num_items_in_batch"] == 12


def test_a_response_with_an_id_that_the_tokenizer_does_not_have_is_left_out(tmp_path):
    made = tiny_distill.trainer(tmp_path, mask_truncated_completions=False)
    beyond = made.model.config.vocab_size - 1
    assert beyond >= len(tiny_rollouts.tokenizer())
    written = [[200, 201, END], [300, beyond, END], [400, END], [500, 501, 502]]
    batch = generated(made, written)
    assert batch["tool_mask"].sum(dim=1).tolist() == [3, 0, 2, 3]
    assert batch["completion_ids"][1].tolist() == [300, PAD, END]
    assert batch["num_items_in_batch"] == 8


def test_a_generation_without_an_end_teaches_nothing_and_is_finite(tmp_path):
    made = tiny_distill.trainer(tmp_path)
    made.eos_token_ids = [END - 1]
    batch = generated(made)
    assert batch["num_items_in_batch"] == 0
    loss = made.compute_loss(made.model, dict(batch))
    loss.backward()
    assert loss.item() == 0
    assert not any(each.grad.any() for each in made.model.parameters() if each.grad is not None)
    assert math.isnan(made._metrics["train"][LEARNT][0])  # which the log leaves out


def test_settings_of_the_models_own_bend_nothing_and_stay(tmp_path):
    made = tiny_distill.trainer(tmp_path, max_completion_length=4)
    own = made.model.generation_config
    own.min_p, own.no_repeat_ngram_size = 1.0, 3  # only the likeliest token
    prompt = tiny_rollouts.tokenizer()("17 + 25 =")["input_ids"]
    written = made._generate_single_turn([prompt] * 32, None, {})
    assert len({tuple(ids) for ids in written}) >= 8
    assert made.model.generation_config is own


def test_what_goes_on_asks_what_it_would_have_asked(tmp_path):
    asked: list[str] = []

    def train(resume: str | None = None) -> None:
        keys = {"per_device_train_batch_size": 2, "max_completion_length": 1, "max_steps": 11}
        keys |= {"save_strategy": "steps", "save_steps": 6}
        made = tiny_distill.trainer(tmp_path, 8, **keys)
        generate = made._generate_and_score_completions

        def noted(inputs: list[dict[str, Any]]) -> Any:
            asked.extend(row["problem"] for row in inputs)
            return generate(inputs)

        made._generate_and_score_completions = noted
        made.train(resume_from_checkpoint=resume)

    train()
    epochs = [asked[:8], asked[8:16], asked[16:]]
    assert all(len(set(epoch)) == len(epoch) for epoch in epochs)
    assert epochs[0] != epochs[1] and epochs[1][:6] != epochs[2]
    whole, asked = asked, []
    train(str(tmp_path / "checkpoint-6"))
    assert asked == whole[12:]


def test_held_out_rows_are_judged_by_whole_responses(tmp_path):
    judge = Scripted(0.5, 0.25)
    own = {"judge": judge, "eval_dataset": held_out(4)}
    keys = {"num_generations_eval": 2, "per_device_eval_batch_size": 4, "max_steps": 2}
    keys |= {"eval_strategy": "steps", "eval_steps": 1}
    made = tiny_distill.trainer(tmp_path, own=own, **keys)
    made.train()
    found = [entry["eval_hm"] for entry in made.state.log_history if "eval_hm" in entry]
    assert found == [0.5, 0.25]
    rows, written = judge.seen[0]
    assert len(rows) == len(written) == 8 and all(1 <= len(ids) <= 8 for ids in written)


def test_an_adapter_reaches_vllm_whole_beside_a_base_that_stays(tmp_path, monkeypatch):
    engines = vllm_engine.install(monkeypatch)
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    keys = {"use_vllm": True, "vllm_mode": "colocate", "max_steps": 2, "learning_rate": 1e-2}
    keys |= {"model_init_kwargs": {"dtype": "bfloat16"}}
    made = tiny_distill.trainer(tmp_path, own={"peft_config": lora}, **keys)
    assert made.vllm_generation._iter_named_params.func is vllm.merged_weights
    frozen = {name: each for name, each in made.model.named_parameters() if not each.requires_grad}
    before = {name: each.detach().clone() for name, each in frozen.items()}
    made.train()
    assert all(torch.equal(before[name], each) for name, each in frozen.items())
    made.vllm_generation.sync_weights()
    whole = made.model.float().merge_and_unload()
    for name, weight in engines[0].weights().items():
        expected = dict(whole.named_parameters())[name].detach().to(torch.bfloat16)
        assert torch.equal(weight, expected.float()), name


PRIVATE = (
    "_get_last_hidden_state",
    "_compute_loss",
    "_generate_and_score_completions",
    "_generate_single_turn",
    "_get_train_sampler",
    "_prepare_inputs",
)


def test_what_is_replaced_of_trl_is_there_and_known():
    replaced = {
        name
        for kind in (DistillTrainer, SamplingTrainer)
        for name in vars(kind)
        if name.startswith("_") and not name.startswith("__") and hasattr(DistillationTrainer, name)
    }
    assert replaced <= {*PRIVATE}
    assert all(callable(getattr(DistillationTrainer, name)) for name in PRIVATE)
