"""An exported model answers in llama.cpp as in transformers, whatever its architecture."""

import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import MICRO, run_command
from real_llama import MODEL, serving
from transformers import (
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from heavydistill.config.models import Sampling
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.request import Request, user_turn
from heavydistill.train.gguf import _QWEN2 as QWEN2
from heavydistill.train.gguf import export_gguf

PROBLEM = (
    "State the final answer to the following arithmetic problem: 15 + 43 - 12 =\n\n"
    "Solve the problem step by step. End with the final answer in \\boxed{}."
)
SIZES = {
    "vocab_size": 704,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "eos_token_id": 670,
    "pad_token_id": 668,
    "bos_token_id": None,
}
KINDS = {
    "llama, untied": LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=False)),
    "qwen2, with biases": Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3, wide heads": Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=32)),
}
TEXTS = [
    "It's 1234567 apples, don't they'll say: naïve café 自然语言 x=3.14\n\n\n  - done\t!",
    "  two  blanks\r\n\r\nand 99 bottles; \\boxed{42} <think>so</think><|im_end|>",
]


def asked(url: str, path: str, body: dict[str, Any]) -> Any:
    """What the server answers to a body."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def served(url: str, tokens: int) -> tuple[str, str]:
    """(text, finish reason) of the greedy answer to the problem."""
    body = {
        "model": MODEL,
        "messages": user_turn(PROBLEM),
        "temperature": 0,
        "max_tokens": tokens,
        "reasoning_format": "none",
    }
    choice = asked(url, "chat/completions", body)["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def own(model: Path | str, tokens: int) -> tuple[str, str]:
    """The same of the checkpoint in this process."""
    engine = LocalEngine(str(model), think_tags=None)
    sampling = Sampling(temperature=0.0, max_tokens=tokens)
    (response,) = engine.generate([Request(user_turn(PROBLEM), sampling, seed=0)])
    return response.answer_text, response.finish_reason


@pytest.mark.parametrize("quant", ["f32", "bf16", "q8_0"])
def test_the_micro_teacher_answers_alike_and_ends_its_turn(tmp_path, quant):
    done = run_command(
        "export", MICRO, "--to", "gguf", "--out", tmp_path / "gguf", "--quant", quant
    )
    assert done.returncode == 0, done.stderr
    with serving(tmp_path / "gguf" / "teacher.gguf") as url:
        answer = served(url, 192)
    assert answer == own(MICRO, 192)
    assert answer[1] == "stop"


@pytest.mark.parametrize("name", KINDS)
def test_each_architecture_answers_alike(tmp_path, name):
    torch.manual_seed(0)
    model = KINDS[name]
    for weight in model.parameters():  # a fresh model says one token again and again
        weight.data = torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 1.0)
    model.save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(MICRO).save_pretrained(tmp_path / "model")
    export_gguf(tmp_path / "model", tmp_path / "gguf", "f32")
    with serving(tmp_path / "gguf" / "model.gguf") as url:
        text, _ = served(url, 24)
    assert len(set(text)) > 8
    assert text == own(tmp_path / "model", 24)[0]


@pytest.mark.parametrize(
    "steps",
    [
        [{"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}],
        [
            {
                "type": "Split",
                "pattern": {"Regex": QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)},
                "behavior": "Isolated",
                "invert": False,
            }
        ],
        [{"type": "Digits", "individual_digits": True}],
        [],
    ],
    ids=["qwen2", "llama 3", "smollm", "gpt-2"],
)
def test_each_tokenizer_reads_alike(tmp_path, steps):
    model = tmp_path / "model"
    shutil.copytree(MICRO, model)
    file = model / "tokenizer.json"
    tree = json.loads(file.read_text())
    splits = bool(steps) and steps[0]["type"] == "Split"
    whole = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    whole["use_regex"] = not splits
    tree["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [*steps, whole]}
    if not steps:
        tree["pre_tokenizer"] = whole
    # Pairs of digits and words with their blanks, where the ways to split differ.
    vocab, merges = tree["model"]["vocab"], tree["model"]["merges"]
    for pair in (["1", "2"], ["3", "4"], ["9", "9"], ["Ġ", "Ġ"], ["Ċ", "Ċ"], ["'", "t"]):
        if "".join(pair) not in vocab:
            vocab["".join(pair)] = len(vocab)
            merges.append(pair)
    for index, token in enumerate(tree["added_tokens"]):
        token["id"] = len(vocab) + index
    file.write_text(json.dumps(tree))
    tokenizer = AutoTokenizer.from_pretrained(model)
    export_gguf(model, tmp_path / "gguf", "f32")
    with serving(tmp_path / "gguf" / "model.gguf") as url:
        root = url.removesuffix("/v1")
        for text in TEXTS:
            body = {"content": text, "add_special": False, "parse_special": True}
            expected = tokenizer(text, add_special_tokens=False).input_ids
            assert asked(root, "tokenize", body)["tokens"] == expected
