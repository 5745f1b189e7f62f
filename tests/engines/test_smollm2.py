"""Every verb on a real pretrained model, SmolLM2-135M-Instruct: not how well, but that it works.

Its weights come from a GGUF file of four bits, as docs/guides/gguf.md says. The attempts are those
of other models on GSM8K, in ``../shared/data``.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from command_line import run_command
from import_files import lines
from real_llama import serving, smollm
from test_gguf_answers import asked

from heavydistill.config.models import Sampling
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.request import Request, user_turn
from heavydistill.store.traces import read_traces

GSM8K = Path(__file__).parents[2] / ".." / "shared" / "data" / "gsm8k_solutions_k4.jsonl"
WRITERS = ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification")
ON_CPU = ["--use_cpu=true", "--bf16=false", "--report_to=none", "--gradient_accumulation_steps=1"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GSM8K.exists(), reason="the shared data is not here"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoint ``smol``, the run ``pools`` and its ``sets``."""
    folder = tmp_path_factory.mktemp("smollm2")
    _convert(folder / "smol")
    rows = [json.loads(line) for line in GSM8K.read_text(encoding="utf-8").splitlines()[:120]]
    lines(folder / "rows.jsonl", *map(_answers, rows))
    run("import", "--from=answers", folder / "rows.jsonl", "--out", folder / "pools")
    keys = ["--set=against=[]", "--set=retention=0", "--set=validation=0.1"]
    run("build", folder / "pools", "--student", folder / "smol", *keys, "--out", folder / "sets")
    return folder


def _convert(folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"gguf_file": smollm().name}
    tokenizer = AutoTokenizer.from_pretrained(smollm().parent, **source)
    model = AutoModelForCausalLM.from_pretrained(smollm().parent, **source)
    for name in ("hf_quantizer", "is_quantized", "quantization_method", "_weight_conversions"):
        delattr(model, name)
    del model.config.quantization_config
    tokenizer.eos_token = tokenizer.pad_token = "<|im_end|>"
    tokenizer.clean_up_tokenization_spaces = False
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _answers(row: dict[str, object]) -> dict[str, object]:
    """A row of GSM8K with its four answers in boxes, without the marks of its calculator."""

    def boxed(text: str) -> str:
        return re.sub(r"\n?A: (.*)$", r"\nIt is \\boxed{\1}.", re.sub("<<.*?>>", "", text.strip()))

    answers = [boxed(row[name]["solution"]) for name in WRITERS]  # type: ignore[index]
    reference = str(row["ground_truth"]).rpartition("A: ")[2]
    return {"text": row["question"], "reference": reference, "answers": answers}


def run(*words: object) -> CompletedProcess[str]:
    done = run_command(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_it_deliberates_on_a_vllm_that_the_run_starts(place):
    lengths = ["--set=deliberate.sampling.max_tokens=160", "--set=endpoint.context=2048"]
    flags = ["--start-vllm", "--d=1", "--limit=8", "--set=domain=brief", *lengths]
    out = place / "deliberated"
    run(
        "generate",
        "--pools",
        place / "pools",
        "--deliberator",
        place / "smol",
        *flags,
        "--out",
        out,
    )
    traces = list(read_traces(out))
    assert len(traces) == 8 and not any(d.error for trace in traces for d in trace.deliberations)


def test_the_guard_shows_what_is_learnt(place):
    shown = run("show", place / "sets", "--tokens", "--student", place / "smol").stdout
    assert "guard: the whole completion is learnt" in shown and "<|im_start|>assistant" in shown


@pytest.fixture(scope="module")
def adapter(place: Path) -> Path:
    return sft(place, "adapter", "--use_peft=true", "--lora_r=8", "--dtype=bfloat16")


def sft(place: Path, name: str, *flags: str) -> Path:
    given = ["--model_name_or_path", place / "smol", "--dataset_name", place / "sets", *ON_CPU]
    given += ["--role=thinker", "--max_steps=2", "--per_device_train_batch_size=2", *flags]
    run("sft", *given, "--max_length=1024", "--eval_strategy=no", "--output_dir", place / name)
    return place / name


def test_all_weights_are_trained_in_float32(place):
    out = sft(place, "whole", "--use_peft=false", "--dtype=float32", "--learning_rate=1e-4")
    assert (out / "model.safetensors").is_file()


def test_a_trained_adapter_is_merged_exported_and_answers_in_llama_cpp(place, adapter):
    run("merge", "--adapter", adapter, "--out", place / "merged", "--dtype=float32")
    run("export", place / "merged", "--to=gguf", "--quant=f32", "--out", place / "gguf")
    text = "Tom has 3 bags of 4 apples and eats 2. How many apples are left?"
    body = {"model": "gguf", "messages": user_turn(text), "temperature": 0, "max_tokens": 40}
    with serving(place / "gguf" / "merged.gguf") as url:
        choice = asked(url, "chat/completions", body)["choices"][0]
    engine = LocalEngine(str(place / "merged"), think_tags=None)
    request = Request(user_turn(text), Sampling(temperature=0.0, max_tokens=40), seed=0)
    (own,) = engine.generate([request])
    assert choice["message"]["content"].strip() == own.answer_text.strip()


def test_an_adapter_is_evaluated_beside_its_base_with_a_control(place, adapter):
    lengths = ["--set=deliberate.sampling.max_tokens=96", "--set=endpoint.context=2048"]
    flags = ["--start-vllm", "--d=1", "--limit=6", "--controls=garbled", *lengths]
    words = ["--before", place / "smol", "--deliberator", adapter, "--pools", place / "pools"]
    done = run_command("evaluate", *words, *flags, "--out", place / "evaluation")
    # It leaves its answers unread as often as not, of which the exit code tells.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert (place / "evaluation" / "controls.json").is_file()
    # The control is asked of the server of the run that it belongs to.
    logs = {log.name for log in place.glob("evaluation.*.vllm.log")}
    assert logs == {"evaluation.before.vllm.log", "evaluation.after.vllm.log"}


def test_grpo_with_vllm_in_its_process_keeps_the_engine_in_step(place):
    figures = place / "grpo.json"
    flags = ["--mode=deliberator", "--unmeasured=ask", "--mask_truncated_completions=false"]
    flags += ["--use_vllm=true", "--vllm_mode=colocate", "--vllm_gpu_memory_utilization=0.3"]
    flags += ["--num_generations=4", "--per_device_train_batch_size=4", "--steps_per_generation=1"]
    flags += ["--max_completion_length=48", "--max_steps=2", "--use_peft=true", "--lora_r=8"]
    flags += ["--dtype=float32", "--learning_rate=1e-4", f"--output_dir={place / 'grpo'}", *ON_CPU]
    named = [f"--model_name_or_path={place / 'smol'}", f"--dataset_name={place / 'sets'}"]
    program = Path(__file__).with_name("colocate.py")
    done = subprocess.run(
        [sys.executable, str(program), str(figures), *named, *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "ENGINE_DTYPE": "float32"},
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr[-4000:]
    gaps = json.loads(figures.read_text())
    assert len(gaps) == 2 and all(largest < 1e-3 and mean < 1e-4 for largest, mean in gaps)


def test_what_would_be_published_is_said(place, adapter):
    words = ["publish", adapter, "--to=org/smol", "--license=apache-2.0", "--dry-run"]
    refused = run_command(*words)
    assert refused.returncode == 2 and "--allow-unknown-terms" in refused.stderr
    run(*words, "--allow-unknown-terms")
    assert (place / "adapter.dry-run" / "README.md").is_file()
