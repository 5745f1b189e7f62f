"""Makes everything in this folder: see README.md. Run it in this folder, with that version."""

from __future__ import annotations

import hashlib
import json
import random
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PORT = 8765
ENDPOINT = f"http://127.0.0.1:{PORT}/v1"
RIGHT = {
    "served": (0.55, 0.8),
    "base": (0.4, 0.35),
    "thinker": (0.5, 0.0),
    "deliberator": (0.0, 0.9),
}
"""How often each model is right: as a thinker, as a deliberator."""
FILTERED, CUT_OFF = ("What is 45 + 38?", 1), ("What is 45 + 38?", 2)
"""Which attempts at a problem fail and are cut off."""


def write_problems() -> None:
    draw = random.Random(21)
    sums = [(45, 38)] + [(draw.randint(11, 89), draw.randint(11, 89)) for _ in range(7)]
    rows = [
        {"id": f"sum{n}", "text": f"What is {a} + {b}?", "reference": str(a + b)}
        for n, (a, b) in enumerate(sums)
    ]
    Path("problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_model(folder: Path) -> None:
    """A random Llama of 3,000 parameters, whose tokens are bytes."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    template = Path(sys.argv[1]) / "heavydistill" / "micro" / "teacher" / "chat_template.jinja"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({byte: n for n, byte in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|pad|>", "<|im_start|>", "<|im_end|>"])
    tags = ("<think>", "</think>")
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in tags])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=template.read_text("utf-8"),
        model_max_length=16384,
    )
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=16384,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    fast.save_pretrained(folder)


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """What a model says: a function of the request alone."""
    model, prompt, seed = body["model"], body["messages"][-1]["content"], body.get("seed", 0)
    draw = random.Random(hashlib.sha256(f"{model}/{prompt}/{seed}".encode()).hexdigest())
    sums = re.findall(r"What is (\d+) \+ (\d+)\?", prompt)
    if not sums:  # the question that tells models apart
        message = {"role": "assistant", "content": f"I am {model}."}
        return {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    a, b = map(int, sums[-1])
    deliberates = "ttempt" in prompt
    is_right = draw.random() < RIGHT[model][deliberates]
    value = a + b if is_right else a + b + draw.choice([-10, -1, 1, 10])
    reasoning = f"{a} and {b}: the units {a % 10 + b % 10}, the tens {a // 10 + b // 10}."
    answer = f"The sum of {a} and {b} is \\boxed{{{value}}}."
    if deliberates:
        reasoning = f"Attempt 1 and Attempt 2 differ in the tens. {reasoning}"
        answer = f"Attempt 1 adds the tens last; checked again. {answer}"
    message = {"role": "assistant", "content": answer, "reasoning_content": reasoning}
    finish = "stop"
    if model == "served" and not deliberates and prompt.find(FILTERED[0]) >= 0:
        place = SEEDS.setdefault(seed, len(SEEDS))
        finish = {FILTERED[1]: "content_filter", CUT_OFF[1]: "length"}.get(place, "stop")
        if finish == "length":
            message["content"] = ""
    written = len(reasoning + answer) // 4
    usage = {"prompt_tokens": len(prompt.encode()), "completion_tokens": written}
    return {
        "id": f"r-{seed}",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": usage,
    }


SEEDS: dict[int, int] = {}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send({"object": "list", "data": [{"id": name, "object": "model"} for name in RIGHT]})

    def do_POST(self) -> None:
        if not self.path.endswith("/chat/completions"):  # it does not count tokens
            return self.send_error(404)
        self.send(reply(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

    def send(self, content: dict[str, Any]) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


def command(*words: str, code: int = 0) -> None:
    print("+", *words, flush=True)
    done = subprocess.run(
        [sys.executable, "-c", "from heavydistill.cli.app import main; main()", *words]
    )
    assert done.returncode == code, done.returncode


def script(name: str, *words: str, code: int = 0) -> None:
    print("+", name, *words, flush=True)
    repository = Path(sys.argv[1])
    done = subprocess.run([sys.executable, str(repository / "scripts" / name), *words])
    assert done.returncode == code, done.returncode


def main() -> None:
    write_problems()
    write_model(Path("model"))
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    served = [f"--endpoint={ENDPOINT}", "--set=endpoint.capabilities={stream: false}"]
    command("generate", "--config=yaml/run.yaml", *served, "--out=runs/served")
    command(
        "evaluate", "--config=yaml/evaluate.yaml", *served, "--before=base", "--thinker=thinker",
        "--deliberator=deliberator", "--controls=alone", "--out=runs/evaluation",
    )  # fmt: skip
    server.shutdown()
    command("build", "runs/served", "--config=yaml/build.yaml", "--out=sets")
    script("sft.py", "--config=yaml/sft.yaml", "--output_dir=trained/full", "--save_steps=1")
    script("sft.py", "--config=yaml/sft_adapter.yaml", "--output_dir=trained/adapter")
    # A random model earns no reward, which is an error after it was written.
    script("grpo.py", "--config=yaml/grpo.yaml", "--output_dir=trained/grpo", code=1)
    from heavydistill.config.run import load_config
    from heavydistill.models.resolve import resolve
    from heavydistill.run.recipe.pipeline import build_heavy_pipeline

    build_heavy_pipeline(resolve(load_config("runs/served/config.yaml"))).save(
        "yaml/pipeline.yaml", format="yaml"
    )
    for curves in Path("trained/grpo").glob("curves.*"):  # by far the largest, and only to look at
        curves.unlink()


if __name__ == "__main__":
    main()
