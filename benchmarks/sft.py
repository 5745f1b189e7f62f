"""What scripts/sft.py costs and saves beside TRL's SFTTrainer, on the same rows.

    heavydistill generate --thinker micro-student --deliberator micro \\
        --set problems.size=400 --out runs/mixed
    heavydistill build runs/mixed --student micro-student --out sets/mixed
    OMP_NUM_THREADS=1 python benchmarks/sft.py --sets sets/mixed

Three contestants train the same model in turn, each anew in every round:

    ours      the trainer of scripts/sft.py, on packs of one role each, with AdamW as the others
    bare      an SFTTrainer that is given the same packs and the same arguments
    default   an SFTTrainer with TRL's defaults, on the rows: 1,024 tokens, 8 rows a batch, padded

Useful tokens are those of rows that are whole: padding is none, nor is a row that lost its end.
The first steps of each are not counted, nor is round 0, in which the machine warms up. Prints
useful tokens a second, the ratios of each round and their median, and on a GPU the most memory.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, concatenate_datasets
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

from heavydistill.errors import UserError
from heavydistill.train.sft.train import SftPlan, new_trainer, parse, prepare

WARM_UP = 2  # steps
DEFAULT_LENGTH = 1024  # TRL's
GIB = 2**30


class Clock(TrainerCallback):
    """Seconds and useful tokens of the steps after the first ones."""

    def __init__(self, whole: int | None) -> None:
        self.whole = whole
        self.tokens = 0
        self.seconds = 0.0
        self.steps = 0
        self._started = 0.0

    def watch(self, trainer: SFTTrainer) -> None:
        """Count what the collator makes."""
        collate = trainer.data_collator

        def counted(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            if self.steps >= WARM_UP:
                lengths = [len(row["input_ids"]) for row in rows]
                self.tokens += sum(n for n in lengths if self.whole is None or n < self.whole)
            return collate(rows)

        trainer.data_collator = counted

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self.steps == WARM_UP:
            self._started = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.steps += 1
        self.seconds = time.perf_counter() - self._started


def bare(plan: SftPlan, folder: Path) -> SFTTrainer:
    """TRL's trainer on the same packs."""
    sft = plan.arguments.config
    config = SFTConfig(
        output_dir=str(folder),
        packing=True,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=plan.record.max_length,
        per_device_train_batch_size=sft.per_device_train_batch_size,
        gradient_accumulation_steps=sft.gradient_accumulation_steps,
        gradient_checkpointing=sft.gradient_checkpointing,
        learning_rate=sft.learning_rate,
        bf16=sft.bf16,
        max_steps=sft.max_steps,
        save_strategy="no",
        report_to="none",
        model_init_kwargs={
            "attn_implementation": plan.record.launch.attention,
            "dtype": plan.arguments.model.dtype,
        },
    )
    return SFTTrainer(
        plan.base.path,
        config,
        train_dataset=plan.train,
        processing_class=plan.base.tokenizer,
    )


def default(plan: SftPlan, folder: Path) -> SFTTrainer:
    """TRL's trainer with what it does unasked, but for what the machine cannot."""
    sft = plan.arguments.config
    config = SFTConfig(
        output_dir=str(folder),
        bf16=sft.bf16,
        max_steps=sft.max_steps,
        save_strategy="no",
        report_to="none",
    )
    rows = concatenate_datasets(
        [
            Dataset.from_parquet(
                str(Path(source.path) / f"sft_{source.role}" / "train-00000-of-00001.parquet")
            ).select_columns(["prompt", "completion"])
            for source in plan.arguments.config.sources
        ]
    )
    return SFTTrainer(
        plan.base.path, config, train_dataset=rows, processing_class=plan.base.tokenizer
    )


def measure(make: Any, whole: int | None) -> tuple[float, float]:
    """(useful tokens a second, GiB of GPU memory)."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    trainer = make()
    clock = Clock(whole)
    clock.watch(trainer)
    trainer.add_callback(clock)
    trainer.train()
    memory = torch.cuda.max_memory_allocated() / GIB if torch.cuda.is_available() else 0.0
    return clock.tokens / clock.seconds, memory


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", required=True, help="folder of sets")
    parser.add_argument("--config", default="configs/sft/micro.yaml")
    parser.add_argument("--model", help="instead of the configuration's")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    chosen, more = parser.parse_known_args()
    model = ["--model_name_or_path", chosen.model] if chosen.model else []
    rates: dict[str, list[float]] = {"ours": [], "bare": [], "default": []}
    with tempfile.TemporaryDirectory() as name:
        for number in range(chosen.rounds + 1):
            folder = Path(name) / str(number)
            asked = parse(
                [
                    "--config",
                    chosen.config,
                    "--dataset_name",
                    chosen.sets,
                    *model,
                    "--role",
                    "both",
                    "--output_dir",
                    str(folder),
                    "--max_steps",
                    str(chosen.steps),
                    "--save_strategy",
                    "no",
                    "--eval_strategy",
                    "no",
                    "--load_best_model_at_end",
                    "false",
                    "--muon",
                    "false",
                    *more,
                ]
            )
            plan = prepare(asked)
            contestants = {
                "ours": functools.partial(new_trainer, plan),
                "bare": functools.partial(bare, plan, folder / "bare"),
                "default": functools.partial(default, plan, folder / "default"),
            }
            order = list(contestants)[number % 3 :] + list(contestants)[: number % 3]
            for contestant in order:
                whole = DEFAULT_LENGTH if contestant == "default" else None
                rate, memory = measure(contestants[contestant], whole)
                if number:
                    rates[contestant].append(rate)
                print(
                    f"round {number}  {contestant:8} {rate:10,.0f} tokens/s  {memory:6.2f} GiB",
                    flush=True,
                )
    for other in ("bare", "default"):
        ratios = [a / b for a, b in zip(rates["ours"], rates[other], strict=True)]
        print(
            f"ours / {other}: median {statistics.median(ratios):.3f}, "
            f"from {min(ratios):.3f} to {max(ratios):.3f}"
        )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"Error: {error}")
