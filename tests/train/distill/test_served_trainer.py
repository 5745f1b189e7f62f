"""The loss of a served teacher against plain loops, and what a failing server leaves."""

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_distill
import tiny_rollouts
import torch
from scoring_server import ScoringServer
from students import TURN_ENDS as END
from test_distill_trainer import CUT_OFF, LENGTHS, PROMPT, distributions, generated, micro_batch
from transformers import TrainerCallback

from heavydistill.errors import StoppedError
from heavydistill.train.distill import served_trainer
from heavydistill.train.distill.served_trainer import ServedDistillTrainer

WORDS = len(tiny_rollouts.tokenizer())


@pytest.fixture(scope="module")
def server() -> Iterator[ScoringServer]:
    with tiny_distill.served_teacher(max_logprobs=WORDS) as found:
        yield found


@contextlib.contextmanager
def made(folder: Path, server: ScoringServer, top_k: int = 0, **keys: Any) -> Iterator[Any]:
    with tiny_distill.served_trainer(folder, server, top_k, **keys) as found:
        found.current_gradient_accumulation_steps = 1
        found.model.train()
        yield found


def scored(trainer: Any) -> dict[str, torch.Tensor]:
    """The rows of ``LENGTHS`` with what the server says of them."""
    inputs = micro_batch()
    ids, logps = trainer._scores(inputs)
    return {**inputs, "completion_teacher_ids": ids, "completion_teacher_logps": logps}


def rows_of(inputs: dict[str, torch.Tensor]) -> Iterator[tuple[int, list[int]]]:
    """(tokens of the prompt, ids) of each learnt row."""
    for row, (prompt, completion) in enumerate(LENGTHS):
        if row != CUT_OFF:
            ids = inputs["prompt_ids"][row, PROMPT - prompt :].tolist()
            yield prompt, ids + inputs["completion_ids"][row, :completion].tolist()


def plain_loss(model: Any, inputs: dict[str, torch.Tensor], top_k: int) -> float:
    """The mean over the learnt tokens, by loops over rows, tokens and words."""
    total, tokens = 0.0, 0
    for prompt, ids in rows_of(inputs):
        with torch.no_grad():
            mine = distributions(model.float(), ids, WORDS, 1.0).tolist()
        theirs = tiny_distill.logprobs(ids)
        for at in range(prompt, len(ids)):
            q, p, tokens = mine[at - 1], theirs[at - 1], tokens + 1
            if not top_k:
                total += q[ids[at]] - p[ids[at]]
                continue
            best = sorted(range(WORDS), key=lambda word: -p[word])[:top_k]
            mass = sum(math.exp(p[word]) for word in best)
            for word in best:
                share = math.exp(p[word]) / mass
                total += share * (math.log(share) - q[word])
    return total / tokens


@pytest.mark.parametrize("top_k", [0, 1, 5, WORDS])
def test_the_loss_is_that_of_plain_loops(tmp_path, server, top_k):
    with made(tmp_path, server, top_k) as trainer:
        inputs = scored(trainer)
        loss = trainer.compute_loss(trainer.model, dict(inputs)).item()
        assert abs(loss) > 0.1
        assert loss == pytest.approx(plain_loss(trainer.model, inputs, top_k), abs=1e-5)


@pytest.mark.parametrize("top_k", [0, 5])
def test_in_bfloat16_it_is_the_same_within_2_percent(tmp_path, server, top_k):
    keys = {"bf16": True, "model_init_kwargs": {"dtype": "bfloat16"}}
    with made(tmp_path, server, top_k, **keys) as trainer:
        inputs = scored(trainer)
        with trainer.compute_loss_context_manager():
            loss = trainer.compute_loss(trainer.model, dict(inputs)).item()
        assert loss == pytest.approx(plain_loss(trainer.model, inputs, top_k), rel=0.02)


def gradient(trainer: Any, inputs: dict[str, torch.Tensor]) -> tuple[float, torch.Tensor]:
    trainer.model.zero_grad()
    loss = trainer.compute_loss(trainer.model, dict(inputs))
    loss.backward()
    parts = [each.grad.flatten() for each in trainer.model.parameters() if each.grad is not None]
    return loss.item(), torch.cat(parts)


def test_all_words_of_the_teacher_are_the_forward_kl_of_one_on_this_machine(tmp_path, server):
    local = tiny_distill.trainer(tmp_path, beta=0.0)
    local.current_gradient_accumulation_steps = 1
    local.model.train()
    with made(tmp_path, server, WORDS) as trainer:
        ours = gradient(trainer, scored(trainer))
    theirs = gradient(local, micro_batch())
    assert ours[0] == pytest.approx(theirs[0], abs=1e-5)
    assert (ours[1] - theirs[1]).norm() <= 1e-5 * theirs[1].norm()


def test_the_mean_over_samples_is_the_reverse_kl_and_its_gradient(tmp_path, server):
    """At one place, of the row of one token: each word is sampled as often as it is drawn."""
    inputs = micro_batch()
    inputs["tool_mask"] *= 0
    inputs["tool_mask"][CUT_OFF, 0] = 1
    inputs["num_items_in_batch"] = torch.tensor(1)
    row = inputs["prompt_ids"][CUT_OFF, PROMPT - LENGTHS[CUT_OFF][0] :].tolist()
    ids = [*row, inputs["completion_ids"][CUT_OFF, 0].item()]
    with made(tmp_path, server) as trainer:
        words = trainer._words = trainer.model.config.vocab_size  # as the local loss has them
        p = torch.tensor(tiny_distill.logprobs(ids)[-1])
        with torch.no_grad():
            hidden = trainer.model.model(torch.tensor([ids])).last_hidden_state[0, -2:-1]
        hidden.requires_grad_()
        q = trainer.model.lm_head(hidden)[0].log_softmax(dim=-1)
        exact = (q.exp() * (q - p)).sum()
        (expected,) = torch.autograd.grad(exact, hidden)
        value, mean = 0.0, torch.zeros_like(expected)
        for word in range(words):
            drawn = torch.tensor([[word]]), p[word].reshape(1, 1)
            one, _ = trainer._divergence(trainer.model, hidden, *drawn)
            share = q[word].exp().item()
            value += share * one.item()
            mean += share * torch.autograd.grad(one, hidden)[0]
    assert value == pytest.approx(exact.item(), abs=1e-5)
    assert (mean - expected).norm() <= 1e-5 * expected.norm()
    local = tiny_distill.trainer(tmp_path, beta=1.0)
    local.current_gradient_accumulation_steps = 1
    local.model.train()
    assert local.compute_loss(local.model, inputs).item() == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("top_k", [0, 5])
def test_rows_in_several_micro_batches_have_the_loss_and_gradient_of_one(tmp_path, server, top_k):
    with made(tmp_path, server, top_k) as trainer:
        inputs = scored(trainer)
        whole = gradient(trainer, inputs)
        trainer.model.zero_grad()
        parts = 0.0
        for row in range(len(LENGTHS)):
            one = {name: v[row : row + 1] if v.dim() else v for name, v in inputs.items()}
            loss = trainer.compute_loss(trainer.model, one)
            loss.backward()  # also of the row without a learnt token
            parts += loss.item()
        summed = torch.cat([each.grad.flatten() for each in trainer.model.parameters()])
    assert parts == pytest.approx(whole[0], abs=1e-5)
    assert (summed - whole[1]).norm() <= 1e-5 * whole[1].norm()


def test_logits_are_computed_for_some_tokens_at_a_time(tmp_path, server, monkeypatch):
    with made(tmp_path, server, 5) as trainer:
        inputs = scored(trainer)
        whole = gradient(trainer, inputs)
        monkeypatch.setattr(served_trainer, "_LOGITS", 3 * WORDS)
        seen: list[int] = []
        trainer.model.lm_head.register_forward_hook(lambda *each: seen.append(len(each[2])))
        parted = gradient(trainer, inputs)
    assert max(seen) == 3 and len(seen) == 2 * math.ceil(32 / 3)  # again in the backward pass
    assert parted[0] == pytest.approx(whole[0], abs=1e-5)
    assert (parted[1] - whole[1]).norm() <= 1e-5 * whole[1].norm()


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("Gemma2Config", {"final_logit_softcapping": 5.0}),
        ("CohereConfig", {"logit_scale": 0.25}),
        ("GraniteConfig", {"logits_scaling": 8.0}),
        ("Qwen3Config", {}),
    ],
)
def test_logits_are_those_of_the_models_own_head(kind, keys):
    model = tiny_rollouts.random_model(kind, torch.float32, **keys)
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        hidden = model.base_model(ids).last_hidden_state
        own, ours = model(ids).logits, served_trainer._logits(model, hidden)
    assert torch.allclose(ours, own, atol=1e-5)
    plain = model.get_output_embeddings()(hidden)
    assert torch.allclose(plain, own, atol=1e-5) is (not keys)


def test_a_generation_is_scored_by_whole_learnt_rows_without_padding(tmp_path, server):
    server.asked.clear()
    with made(tmp_path, server) as trainer:
        batch = generated(trainer)
    prompt = [101, 102, 103]
    assert sorted(each["prompt"] for each in server.asked) == sorted(
        [[*prompt, 200, 201, END], [*prompt, 400, END]]
    )
    logps = batch["completion_teacher_logps"][..., 0]
    row = tiny_distill.logprobs([*prompt, 400, END])
    assert logps[2, :2].tolist() == pytest.approx([row[2][400], row[3][END]], abs=1e-5)
    assert torch.isinf(logps[2, 2:]).all() and torch.isinf(logps[1]).all()


def test_a_word_that_the_students_tokenizer_does_not_have_is_not_learnt(tmp_path, server):
    with made(tmp_path, server, 5) as trainer:
        trainer._words = 500
        inputs = scored(trainer)
        learnt = inputs["tool_mask"].bool()
        ids, logps = (inputs[f"completion_teacher_{part}"][learnt] for part in ("ids", "logps"))
        assert (ids < 500).all() and torch.isinf(logps).any()
        assert math.isfinite(trainer.compute_loss(trainer.model, inputs).item())


def test_a_server_that_fails_stops_the_training_with_a_checkpoint_of_the_last_step(tmp_path):
    whole = tmp_path / "whole"
    keys = {"max_steps": 4, "mask_truncated_completions": False, "save_strategy": "steps"}
    with tiny_distill.served_teacher() as server:
        with made(whole, server, save_steps=4, **keys) as trainer:
            trainer.train()
        asked = len(server.asked)
        server.plan = lambda _, number: "broken" if number >= asked + 8 else None
        with made(tmp_path / "out", server, save_steps=4, **keys) as trainer:
            with pytest.raises(StoppedError, match="did not score 4 responses at step 3: HTTP 500"):
                trainer.train()
            assert trainer.state.global_step == 2
        server.plan = lambda *_: None
        with made(tmp_path / "out", server, save_steps=4, **keys) as trainer:
            trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    ends = [folder / "checkpoint-4" for folder in (whole, tmp_path / "out")]
    assert len({(end / "model.safetensors").read_bytes() for end in ends}) == 1
    states = [json.loads((end / "trainer_state.json").read_text("utf-8")) for end in ends]
    assert states[0]["num_input_tokens_seen"] == states[1]["num_input_tokens_seen"] > 0


class OutOfBudget(TrainerCallback):
    def on_step_end(self, *arguments: Any, **options: Any) -> None:
        raise StoppedError("The budget is spent", "Raise it.")


def test_after_another_stop_the_training_continues_with_new_random_numbers(tmp_path, server):
    keys = {"max_steps": 2, "mask_truncated_completions": False, "save_strategy": "steps"}
    out = tmp_path / "out"
    with made(tmp_path / "whole", server, save_steps=2, **keys) as trainer:
        trainer.train()
    with made(out, server, save_steps=2, **keys) as trainer:
        trainer.add_callback(OutOfBudget())
        with pytest.raises(StoppedError, match="budget"):
            trainer.train()
    with made(out, server, save_steps=2, **keys) as trainer:
        trainer.train(resume_from_checkpoint=str(out / "checkpoint-1"))
    ends = [folder / "checkpoint-2" for folder in (tmp_path / "whole", out)]
    assert len({(end / "model.safetensors").read_bytes() for end in ends}) == 1


def test_a_server_that_fails_at_the_first_step_leaves_nothing_to_resume(tmp_path):
    with (
        tiny_distill.served_teacher(plan=lambda *_: "broken") as server,
        made(tmp_path, server, max_steps=1, mask_truncated_completions=False) as trainer,
        pytest.raises(StoppedError, match="at step 1: HTTP 500") as stopped,
    ):
        trainer.train()
    assert stopped.value.fix == "When the server answers again, repeat the command."
    assert not [*tmp_path.glob("checkpoint-*")]


def test_what_is_replaced_of_trl_is_there():
    assert {"_compute_loss", "_save_checkpoint", "_get_last_hidden_state"} <= set(
        dir(ServedDistillTrainer)
    )
