"""Real vLLM as the teacher of a distillation: its log-probabilities, checks and a training."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import messages
import pytest
import torch
from command_line import MICRO
from real_vllm import serving
from runs import build, write_run
from trainings import DISTILL, flags, run
from transformers import AutoModelForCausalLM, AutoTokenizer

from heavydistill.config.models import Endpoint
from heavydistill.models.http.probe import TOKEN_IDS
from heavydistill.models.http.scoring import PromptScorer, Scored, TokenScores, most_top
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Response
from heavydistill.train.distill.train import parse, prepare

TOP = 24
USUAL = {
    "mode": "deliberator",
    "per_device_train_batch_size": 2,
    "learning_rate": 1e-4,
    "report_to": "none",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    words = ["--dtype=float32", "--max-model-len=2048", "--served-model-name=teacher"]
    with serving(log, MICRO, *words, f"--max-logprobs={TOP}") as url:
        yield url


@pytest.fixture(scope="module")
def scorer(url: str) -> Iterator[PromptScorer]:
    endpoint = Endpoint(base_url=url)
    with contextlib.closing(PromptScorer(profile_at("teacher", endpoint), endpoint)) as scorer:
        yield scorer


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    build(folder / "sets", write_run(folder / "run", 30, k=4, words=6), validation=0.2)
    return folder / "sets"


def of_transformers(ids: list[int]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(MICRO, dtype=torch.float32)
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, :-1].log_softmax(dim=-1)


def test_scores_are_those_of_transformers(scorer):
    sequences = [TOKEN_IDS, TOKEN_IDS[5:] * 30, TOKEN_IDS[::-1]]
    found = scorer.scores([Scored(ids, 3) for ids in sequences], TOP)
    for ids, scores in zip(sequences, found, strict=True):
        assert isinstance(scores, TokenScores), scores
        expected = of_transformers(ids)[2:]
        own = expected.gather(1, torch.tensor(ids[3:])[:, None])[:, 0]
        assert [token for token, _ in scores.tokens] == ids[3:]
        assert torch.tensor([value for _, value in scores.tokens]).sub(own).abs().max() < 1e-3
        values = torch.tensor([[value for _, value in best] for best in scores.top])
        assert values.sub(expected.topk(TOP, dim=-1).values).abs().max() < 1e-3


def test_a_text_is_split_into_the_ids_of_the_checkpoint(scorer):
    text = "<|im_start|>user\n17 + 25 = ?<|im_end|>\n"
    (found,) = scorer.scores([Scored(text)])
    ids = AutoTokenizer.from_pretrained(MICRO).encode(text, add_special_tokens=False)
    assert isinstance(found, TokenScores) and [token for token, _ in found.tokens] == ids[1:]


def test_what_it_refuses_is_understood(scorer):
    (many,) = scorer.scores([Scored(TOKEN_IDS)], 10**6)
    (long,) = scorer.scores([Scored(TOKEN_IDS * 60)])
    (unknown,) = scorer.scores([Scored([5, 10**6])])
    assert isinstance(many, Response) and most_top(str(many.error)) == TOP
    assert isinstance(long, Response) and long.failure in ("too_long", "context_overflow")
    assert isinstance(unknown, Response) and unknown.failure == "rejected"


def test_a_limit_that_is_too_low_is_refused_with_its_number(sets, url, tmp_path):
    keys = {"teacher_model_name_or_path": "teacher", "teacher_endpoint": url, "beta": 0.0}
    given = flags(sets, tmp_path / "out", USUAL, teacher_top_k=TOP + 1, **keys)
    with messages.raises("fewer_prompt_logprobs", top=TOP + 1, limit=TOP):
        prepare(parse(given))


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_student_learns_from_it(sets, url, tmp_path, beta):
    out = tmp_path / "out"
    keys = {"teacher_model_name_or_path": "teacher", "teacher_endpoint": url, "beta": beta}
    keys |= {"max_steps": 3, "max_completion_length": 64, "mask_truncated_completions": False}
    code, said = run(flags(sets, out, USUAL, **keys), script=DISTILL)
    assert code == 0, said
    logged = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in logged if "loss" in entry]
    assert len(losses) == 3 and all(losses)
    assert any(entry.get("grad_norm", 0.0) > 0 for entry in logged)
