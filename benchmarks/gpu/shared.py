"""What the checks share: the machine, models with weights at random, their data, and table rows.

Without a GPU the models are tiny, and the rows say ``cpu, tiny``: they show that a check works, and
no figure of them is one of a GPU.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from invented import write_run
from run import ROW
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, TrainerCallback

ROOT = Path(__file__).parents[2]
STUDENT = ROOT / "heavydistill" / "micro" / "student"
TINY = not torch.cuda.is_available()
WHERE = "cpu, tiny" if TINY else torch.cuda.get_device_name()
DEVICE = "cpu" if TINY else "cuda"
GIB = 2**30
LIMIT_GIB = 80e9 / GIB
"""Memory of the GPU that configs/grpo/1gpu and configs/sft/32b-qlora.yaml are made for."""
ATTENTIONS = ("sdpa", "FlashAttention")

# The sizes in the config.json of Qwen/Qwen3-*.
_QWEN3 = {
    "0.6B": (1024, 3072, 28, 16, True),
    "4B": (2560, 9728, 36, 32, True),
    "32B": (5120, 25600, 64, 64, False),
}


class Skipped(Exception):
    """Nothing can be measured here; the text says why."""


def row(what: str, bound: str, measured: str, verdict: bool | str) -> None:
    """Print a row; ``verdict`` is whether it passed, or why it was skipped."""
    if isinstance(verdict, bool):
        verdict = "passed" if verdict else "failed"
    cells = {"what": what, "where": WHERE, "bound": bound, "measured": measured, "verdict": verdict}
    print(f"\n{ROW}{json.dumps(cells)}", flush=True)


@contextlib.contextmanager
def measuring(what: str, bound: str) -> Iterator[None]:
    """Make a row of an error: skipped without a library, or else failed."""
    try:
        yield
    except (Skipped, ImportError) as error:
        row(what, bound, "", f"skipped: {error}")
    except Exception as error:
        first_line = str(error).strip().partition("\n")[0]
        row(what, bound, f"{type(error).__name__}: {first_line[:200]}", False)


def config_of(size: str, layers: int | None = None) -> Qwen3Config:
    """The configuration of a Qwen3 of this size, or of a tiny one."""
    usual = {"head_dim": 128, "num_key_value_heads": 8, "vocab_size": 151_936}
    width, inner, depth, heads, is_tied = _QWEN3[size]
    if TINY:
        usual = {"head_dim": 16, "num_key_value_heads": 2, "vocab_size": len(tokenizer())}
        width, inner, depth, heads = 64, 128, 2, 4
    return Qwen3Config(
        **usual,
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers or depth,
        num_attention_heads=heads,
        tie_word_embeddings=is_tied,
        max_position_embeddings=40_960,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        bos_token_id=None,
        eos_token_id=tokenizer().eos_token_id,
        pad_token_id=tokenizer().pad_token_id,
    )


def tokenizer() -> Any:
    """That of the micro student, whose tokens every vocabulary here contains."""
    return AutoTokenizer.from_pretrained(STUDENT)


def named(size: str) -> str:
    """What is made in place of a Qwen3 of this size."""
    return "a tiny model" if TINY else f"Qwen3-{size}"


def new_model(config: Any, **options: Any) -> Any:
    """A model with weights at random, in bfloat16."""
    torch.manual_seed(0)
    with torch.device(DEVICE):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, **options)


def checkpoint(folder: Path, size: str, layers: int | None = None) -> Path:
    """A folder with such a model, for a training that loads one."""
    new_model(config_of(size, layers)).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    free()
    return folder


def free() -> None:
    """Free what no longer has a name, and forget the peak."""
    import gc

    gc.collect()
    if not TINY:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def peak_gib() -> float:
    """GiB that the GPU held at most since ``free``."""
    return torch.cuda.max_memory_reserved() / GIB


def memory(most: float = LIMIT_GIB) -> tuple[str, bool]:
    """The text on the peak since ``free``, and whether it is at most so many GiB."""
    if TINY:
        return "no peak memory on a CPU", True
    return f"peak {peak_gib():.1f} GiB", peak_gib() <= most


def implementation(attention: str) -> str:
    """The implementation of sdpa or FlashAttention that ``auto`` finds; raises ``Skipped``."""
    from heavydistill.train.loop import AUTO, FALLBACK
    from heavydistill.train.loop import attention as found_on

    arguments: Any = SimpleNamespace(model=SimpleNamespace(attn_implementation=AUTO))
    found = FALLBACK if attention == FALLBACK else found_on(arguments)
    if found == FALLBACK != attention:
        raise Skipped("no FlashAttention here: pip install 'heavydistill[kernels]', on a GPU")
    return found


def sets(folder: Path, student: Path) -> Path:
    """Sets of invented traces, built for a student."""
    from heavydistill.config.sets import load_build_config
    from heavydistill.curate.build import build_sets

    traces, k = (30, 2) if TINY else (300, 8)
    write_run(folder / "run", traces, k=k, d=1)
    keys = {"runs": [str(folder / "run")], "out": str(folder / "sets"), "against": []}
    keys |= {"student": str(student), "validation": 0, "preset": "natural"}
    build_sets(load_build_config(None, keys))
    return folder / "sets"


def sft_flags(size: str, model: Path, data: Path, out: Path, **keys: Any) -> list[str]:
    """The flags of a short training by configs/sft, with these keys in place of its own."""
    given = {"model_name_or_path": model, "dataset_name": data, "output_dir": out}
    given |= {"role": "both", "use_cpu": TINY, "eval_strategy": "no", "warmup_steps": 0}
    given |= {"load_best_model_at_end": False, "save_strategy": "no", **keys}
    flags = [part for key, value in given.items() for part in (f"--{key}", str(value))]
    return ["--config", str(ROOT / "configs" / "sft" / f"{size}.yaml"), *flags]


def sft_plan(*given: Any, **keys: Any) -> Any:
    """The plan of that training."""
    from heavydistill.train.sft.train import parse, prepare

    return prepare(parse(sft_flags(*given, **keys)))


def command(*words: str) -> None:
    """Run a command of heavydistill in this process; raises ``RuntimeError`` if it fails."""
    from heavydistill.cli.app import main

    try:
        main(words)
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"heavydistill {words[0]} ended with code {end.code}") from end


class Clock(TrainerCallback):
    """Seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._started = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if not TINY:
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._started)


def recorded(kind: Any, samples: Sequence[Any], **changes: Any) -> Any:
    """A trainer of GRPO that learns an adapter from these samples in place of what it would sample.

    ``samples`` are rows of (prompt, completion) tokens, or episodes of such rows for a trainer of
    episodes; all of one generation. Other keys are those of TRL, or ``model`` and ``attention``.
    """
    from datasets import Dataset
    from grpo import Recorded, made_up
    from peft import LoraConfig
    from trl import GRPOConfig

    from heavydistill.train.grpo.joint import JointTrainer

    is_joint = issubclass(kind, JointTrainer)
    size = len(samples[0]) if is_joint else 1
    model = new_model(changes.pop("model"), attn_implementation=changes.pop("attention", "sdpa"))
    usual = {
        "output_dir": "out",
        "use_cpu": TINY,
        "bf16": True,
        "gradient_checkpointing": True,
        "num_generations": len(samples) * size,
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "learning_rate": 1e-5,
        "max_completion_length": 32_768,
        "save_strategy": "no",
        "report_to": "none",
        "logging_steps": 1,
        "disable_tqdm": True,
    }
    config = GRPOConfig(**{**usual, **changes})
    rewards = [float(number % 2) for number in range(len(samples))]
    asked = {"prompt": [{"role": "user", "content": "?"}], "problem": "p", "text": "?"}
    asked |= {"reference": "1", "verifier": "math", "verifier_args": "{}"}
    count = len(samples) * size // config.num_generations * (config.max_steps or 1)
    options: dict[str, Any] = {
        "model": model,
        "args": config,
        "train_dataset": Dataset.from_list([asked] * count),
        "reward_funcs": lambda completions, **_: rewards[: len(completions)],
        "processing_class": tokenizer(),
        "peft_config": LoraConfig(
            r=32, target_modules="all-linear", use_rslora=True, task_type="CAUSAL_LM"
        ),
    }
    if is_joint:
        played = [made_up(rows, seed) for seed, rows in enumerate(samples)]
        return kind(episodes=Recorded(size - 1, played), verdicts=None, **options)
    rollout = made_up(samples)
    return kind(
        **options,
        rollout_func=lambda *_: {
            "prompt_ids": [row.prompt_ids for row in rollout.rows],
            "completion_ids": [row.completion.ids for row in rollout.rows],
            "logprobs": None,
        },
    )


def report(check: Callable[[], None]) -> None:
    """Run a check; an error that it did not expect is a row too."""
    with measuring(str(check.__doc__), ""):
        check()
    sys.stdout.flush()
