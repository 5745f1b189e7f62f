"""What the trainers of the GRPO stage cost and save beside TRL's GRPOTrainer, on the same rollouts.

    OMP_NUM_THREADS=1 python benchmarks/grpo.py

Three contestants learn from the same rows in turn, each anew in every round. The rows are given to
them in place of what a policy would sample, so that all else is compared:

    bare      TRL's GRPOTrainer
    rows      our ``RlTrainer`` with TRL's objective
    episodes  our ``JointTrainer``, with the objective of whole episodes

on rows of equal length, where there is nothing to trim and all that is ours is an expense, and on
rows of two roles, short prompts with long completions and the other way around. Prints seconds a
step, and of each round the ratio to ``bare``, with the median. Then joint training samples by
itself, and the seconds of a step are split into rollout, reward and update.

``--hidden`` and ``--layers`` take a Llama of that size with weights at random, for a GPU.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from heavydistill.chat.student import stops_of
from heavydistill.chat.template import Chat
from heavydistill.config.run import Problems, RunConfig
from heavydistill.errors import UserError
from heavydistill.heavy import prompts
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.problems.procedural import micro_problems
from heavydistill.schema import Cache, Trajectory
from heavydistill.train.grpo import episodes as playing
from heavydistill.train.grpo.episodes import EpisodeRow, Episodes, PolicyCompletion, Rollout
from heavydistill.train.grpo.joint import JointTrainer
from heavydistill.train.grpo.trainer import RlTrainer
from heavydistill.verifiers.pool import VerdictPool

WARM_UP = 4  # steps: one generation
OF_ROWS = {"bare": GRPOTrainer, "rows": RlTrainer}
MICRO = str(Path(__file__).parents[1] / "heavydistill" / "micro" / "student")
ATTEMPT = Trajectory(
    id="t",
    index=0,
    model="",
    seed=-1,
    reasoning="",
    answer_text="",
    finish_reason="stop",
    error=None,
    verdict=None,
    prompt_tokens=0,
    completion_tokens=0,
    latency_s=0.0,
    request_id="",
)
NO_CACHE = Cache(
    id="c",
    round=1,
    seed=0,
    selection="",
    prompt_version="",
    reader="",
    budget_tokens=1,
    prompt_tokens=1,
    defused=0,
    items=[],
    left_out=[],
    prompt="",
)


class Clock(TrainerCallback):
    """Seconds of the steps after the first ones, by a clock."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self.steps = 0
        self.seconds = 0.0
        self._started = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self.steps == WARM_UP:
            self._started = self._now()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.steps += 1
        self.seconds = self._now() - self._started


class Recorded(Episodes):
    """Gives the same episodes in every generation."""

    def __init__(self, k: int, played: list[Rollout]) -> None:
        self.k, self.d = k, 1
        self.played = played

    def rollout(self, rows: Sequence[Mapping[str, Any]], *_: Any) -> list[Rollout]:
        return self.played[: len(rows)]


class Timed(JointTrainer):
    """Knows where the seconds of its steps go."""

    def __init__(self, **options: Any) -> None:
        self.seconds: collections.Counter[str] = collections.Counter()
        super().__init__(**options)

    @contextlib.contextmanager
    def _time(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        if self.state.global_step >= WARM_UP:
            self.seconds[name] += time.perf_counter() - started

    def _generate(self, asked: list[Any]) -> Any:
        with self._time("rollout"):
            return super()._generate(asked)

    def _calculate_rewards(self, *given: Any) -> Any:
        with self._time("reward"):
            return super()._calculate_rewards(*given)


def model_of(chosen: argparse.Namespace) -> Any:
    """The model, or one of its kind with weights at random."""
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    if not chosen.hidden:
        return AutoModelForCausalLM.from_pretrained(chosen.model, dtype=dtype)
    config = AutoConfig.from_pretrained(chosen.model)
    config.hidden_size, config.intermediate_size = chosen.hidden, 3 * chosen.hidden
    config.num_hidden_layers, config.head_dim = chosen.layers, 64
    config.num_attention_heads = config.num_key_value_heads = chosen.hidden // 64
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def made_up(lengths: Sequence[tuple[int, int]], seed: int = 0) -> Rollout:
    """An episode whose rows have so many (prompt, completion) tokens; the last one deliberates."""
    rng = random.Random(seed)
    asked = [{"role": "user", "content": "?"}]

    def row(prompt: int, completion: int) -> EpisodeRow:
        ids = rng.choices(range(100, 600), k=prompt + completion)
        return EpisodeRow(asked, ids[:prompt], PolicyCompletion(ids[prompt:], is_whole=True))

    rows = [row(*tokens) for tokens in lengths]
    return Rollout(rows, [ATTEMPT] * (len(rows) - 1), NO_CACHE, None)


def problems(number: int) -> Dataset:
    """Micro problems, as thinkers are asked them."""
    wording = prompts.load("thinker", "brief", "en")
    return Dataset.from_list(
        [
            {
                "prompt": [{"role": "user", "content": prompts.thinker_prompt(one.text, wording)}],
                "problem": one.id,
                "text": one.text,
                "reference": one.reference,
                "verifier": one.verifier,
                "verifier_args": one.verifier_args,
            }
            for one in micro_problems(Problems(size=number, seed=3))
        ]
    )


def arguments(chosen: argparse.Namespace, folder: str) -> GRPOConfig:
    """Of GSPO, four steps a generation, micro-batches of as many episodes as a problem has."""
    size = chosen.k + 1
    on_gpu = torch.cuda.is_available()
    return GRPOConfig(
        output_dir=folder,
        use_cpu=not on_gpu,
        bf16=on_gpu,
        gradient_checkpointing=False,
        per_device_train_batch_size=chosen.problems * chosen.episodes * size // 4,
        gradient_accumulation_steps=1,
        steps_per_generation=4,
        num_generations=chosen.episodes * size,
        max_completion_length=chosen.tokens[1],
        max_steps=chosen.steps + WARM_UP,
        importance_sampling_level="sequence",
        loss_type="grpo",
        epsilon=3e-4,
        epsilon_high=4e-4,
        learning_rate=1e-6,
        save_strategy="no",
        report_to="none",
        logging_steps=chosen.steps,
        disable_tqdm=True,
    )


def trainer_of(name: str, chosen: argparse.Namespace, folder: str, played: list[Rollout]) -> Any:
    """One of the contestants, with these rollouts."""
    size = chosen.k + 1

    def rewards(completions: list[Any], **_: Any) -> list[float]:
        count = len(completions)
        episodes = count // size if name in OF_ROWS else count
        return [float(n % 2) for n in range(episodes) for _ in range(count // episodes)]

    def replay(asked: list[Any], _: Any) -> dict[str, Any]:
        rows = [row for episode in played for row in episode.rows][: len(asked)]
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion.ids for row in rows],
            "logprobs": None,
            "env_mask": [[1] * len(row.completion.ids) for row in rows],
        }

    options: dict[str, Any] = {
        "model": model_of(chosen),
        "args": arguments(chosen, folder),
        "train_dataset": problems(chosen.problems * (chosen.steps + WARM_UP)),
        "reward_funcs": rewards,
        "processing_class": AutoTokenizer.from_pretrained(chosen.model),
    }
    if name in OF_ROWS:
        return OF_ROWS[name](**options, rollout_func=replay)
    return JointTrainer(**options, episodes=Recorded(chosen.k, played), verdicts=VerdictPool())


def seconds_a_step(make: Callable[[], Any]) -> float:
    # Without a GPU the processor's time, which is that of the clock where nobody else works.
    now = time.perf_counter if torch.cuda.is_available() else time.process_time
    trainer, clock = make(), Clock(now)
    trainer.add_callback(clock)
    trainer.train()
    return clock.seconds / (clock.steps - WARM_UP)


def compare(kind: str, chosen: argparse.Namespace, folder: str, played: list[Rollout]) -> None:
    """All contestants on the same rows, in turn."""
    names = ["bare", "rows", "episodes"]
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(chosen.rounds):
        for name in names[number % 3 :] + names[: number % 3]:
            found[name].append(
                seconds_a_step(lambda name=name: trainer_of(name, chosen, folder, played))
            )
        shown = "  ".join(f"{name} {found[name][-1]:.3f} s" for name in names)
        print(f"{kind}, round {number + 1}: {shown}", flush=True)
    for name in names[1:]:
        ratios = [one / bare for one, bare in zip(found[name], found["bare"], strict=True)]
        print(
            f"{kind}: {name} / bare: median {statistics.median(ratios):.3f}, "
            f"from {min(ratios):.3f} to {max(ratios):.3f}",
            flush=True,
        )


def split(chosen: argparse.Namespace, folder: str) -> None:
    """Joint training that samples by itself, with the verdicts as rewards."""
    tokenizer = AutoTokenizer.from_pretrained(chosen.model)
    run = RunConfig(domain="brief", think={"k": chosen.k})
    with VerdictPool() as pool:
        chat, reader = Chat(tokenizer, stops_of(chosen.model)), ReaderTokenizer(chosen.model)
        context = AutoConfig.from_pretrained(chosen.model).max_position_embeddings
        args = arguments(chosen, folder)

        def verdicts(completions: list[Any], prompts: list[Any], **columns: Any) -> list[float]:
            fields = ("prompt", *playing.PROBLEM_COLUMNS)
            rows = zip(prompts, *(columns[name] for name in fields[1:]), strict=True)
            asked = [playing.problem_of(dict(zip(fields, row, strict=True))) for row in rows]
            texts = [completion[0]["content"] for completion in completions]
            judged = pool.judge_all(zip(asked, texts, strict=True))
            return [float(one.verdict.is_correct) for one in judged]

        trainer, clock = (
            Timed(
                model=model_of(chosen),
                args=args,
                train_dataset=problems(chosen.problems * (chosen.steps + WARM_UP)),
                reward_funcs=verdicts,
                processing_class=tokenizer,
                episodes=Episodes(run, chat, reader, context, 1, args.max_completion_length),
                verdicts=pool,
            ),
            Clock(),
        )
        trainer.add_callback(clock)
        trainer.train()
    steps = clock.steps - WARM_UP
    rest = clock.seconds - sum(trainer.seconds.values())
    parts = {**trainer.seconds, "update": rest}
    shown = ", ".join(f"{name} {seconds / steps:.3f} s" for name, seconds in parts.items())
    print(f"joint, a step of {clock.seconds / steps:.3f} s: {shown}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=MICRO, help="folder of the model, or of its kind")
    parser.add_argument("--hidden", type=int, help="width of a model of that kind, times 64")
    parser.add_argument("--layers", type=int, default=8, help="its layers")
    parser.add_argument("--k", type=int, default=3, help="thinkers of an episode")
    parser.add_argument("--episodes", type=int, default=4, help="of a problem")
    parser.add_argument("--problems", type=int, default=4, help="of a generation")
    parser.add_argument(
        "--tokens",
        type=int,
        nargs=2,
        default=(40, 400),
        metavar=("PROMPT", "COMPLETION"),
        help="of a thinker's row; a deliberator reads all attempts and writes a seventh of one",
    )
    parser.add_argument("--steps", type=int, default=8, help="that are measured: a multiple of 4")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    thinker: tuple[int, int] = tuple(chosen.tokens)
    answer = thinker[1] // 7
    attempts = chosen.k * thinker[1] + thinker[0]
    with tempfile.TemporaryDirectory() as folder:
        for name, last in {"equal": thinker, "mixed": (attempts, answer)}.items():
            lengths = [thinker] * chosen.k + [last]
            count = chosen.episodes * chosen.problems
            compare(name, chosen, folder, [made_up(lengths, seed) for seed in range(count)])
        split(chosen, folder)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"Error: {error}")
