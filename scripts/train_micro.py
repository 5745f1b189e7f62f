"""Train the bundled micro models from scratch: tokenizer, base student, teacher.

    python scripts/train_micro.py --out heavydistill/micro

Problems are procedural (see heavydistill/micro/rows.py) with seeds that evaluation never uses.
The stages, each saved under --work so that a stopped run continues there:

1. tokenizer     from texts like those of the training
2. student       thinker rows, and a few deliberator rows that only restate one attempt
3. small-caches  the teacher: thinker rows, and deliberations on two or three invented attempts,
                 so that careful work is learnt on short prompts
4. own-caches    the teacher answers fresh problems, and learns to deliberate on its own attempts

heavydistill/micro/README.md has wall times and results.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from heavydistill.config.models import Sampling
from heavydistill.heavy import prompts
from heavydistill.heavy.prompts import thinker_prompt
from heavydistill.micro import rows
from heavydistill.micro.rows import MicroProblem, MicroRow
from heavydistill.micro.tokenizer import train_tokenizer
from heavydistill.micro.training import Schedule, Size, new_model, train
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.request import Request, sample_seed, user_turn
from heavydistill.verifiers.extraction import boxed

CONTEXT = 2048
SIZE = Size(hidden=128, layers=3, heads=4, feed_forward=256)
STUDENT_STAGE = Schedule(3200, 4e-3, thinker_rows=16, deliberator_rows=1, deliberator_weight=0.2)
SMALL_CACHES_STAGE = Schedule(
    2500, 4e-3, thinker_rows=14, deliberator_rows=8, deliberator_weight=0.5
)
OWN_CACHES_STAGE = Schedule(2000, 3e-3, thinker_rows=10, deliberator_rows=8, deliberator_weight=0.5)
SMALL_CACHE = 3  # maximum number of invented attempts
POOLS, POOL_SIZE = 1600, 10
ALL_RIGHT_KEPT = 1 / 3  # pools without an error teach little
SAMPLING = Sampling(temperature=1.0, top_p=0.95, top_k=10, max_tokens=160)


def main() -> None:
    """Run the missing stages, and copy the models to --out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for teacher/ and student/")
    parser.add_argument(
        "--work", type=Path, default=Path("runs/micro"), help="folder for the stages"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument(
        "--only", choices=("student", "teacher"), help="train only one of the two models"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    make = Maker(arguments.work, arguments.seed)
    if arguments.only != "teacher":
        _ship(make.student(), arguments.out / "student")
    if arguments.only != "student":
        _ship(make.teacher(), arguments.out / "teacher")


class Maker:
    """The stages; each returns its folder, from this run or an earlier one."""

    def __init__(self, work: Path, seed: int) -> None:
        self.work = work
        self.seed = seed
        self.device = "cuda" if torch.cuda.is_available() else "cpu"

    def tokenizer(self) -> PreTrainedTokenizerFast:
        folder = self.work / "tokenizer"
        if not folder.is_dir():
            rng = random.Random(self.seed)
            sample = itertools.islice(self._problems(0), 4000)
            texts = [
                text
                for problem in sample
                for row in (
                    rows.thinker_row(problem),
                    rows.deliberator_row(problem, rows.invented_attempts(problem, 8, rng)),
                )
                for text in (row.prompt, f"\n{row.reasoning}\n", f"\n{row.answer_text}")
            ]
            self._save(folder, train_tokenizer(texts, CONTEXT))
        return AutoTokenizer.from_pretrained(folder)

    def student(self) -> Path:
        rng = random.Random(self.seed + 1)
        return self._stage(
            "student",
            None,
            STUDENT_STAGE,
            self._problems(1),
            (
                rows.restating_row(
                    problem, rows.invented_attempts(problem, rows.attempt_count(rng), rng), rng
                )
                for problem in self._problems(2)
            ),
        )

    def teacher(self) -> Path:
        rng = random.Random(self.seed + 2)
        small_caches = self._stage(
            "small-caches",
            None,
            SMALL_CACHES_STAGE,
            self._problems(3),
            (
                rows.deliberator_row(
                    problem, rows.invented_attempts(problem, rng.randint(2, SMALL_CACHE), rng)
                )
                for problem in self._problems(4)
            ),
        )
        return self._stage(
            "own-caches",
            small_caches,
            OWN_CACHES_STAGE,
            self._problems(5),
            self._own_rows(small_caches),
        )

    def _problems(self, stream: int) -> Iterator[MicroProblem]:
        """The problems of a stream; each use has a stream of its own."""
        return rows.problems(self.seed * 100 + stream)

    def _own_rows(self, model: Path) -> Iterator[MicroRow]:
        """Deliberator rows without end, on pools that the model sampled itself."""
        rng = random.Random(self.seed + 3)
        problems = list(itertools.islice(self._problems(6), POOLS))
        pools = sample_pools(model, problems, self.seed)
        usable = [
            (problem, pool)
            for problem, pool in zip(problems, pools, strict=True)
            if len(pool) >= 2
            and (
                any(answer != problem.worked.answer for _, answer in pool)
                or rng.random() < ALL_RIGHT_KEPT
            )
        ]
        log(f"{len(usable)} of {POOLS} pools are used")
        while usable:
            for problem, pool in rng.sample(usable, len(usable)):
                count = min(rows.attempt_count(rng), len(pool))
                yield rows.deliberator_row(problem, rng.sample(pool, count))

    def _stage(
        self,
        name: str,
        start: Path | None,
        schedule: Schedule,
        thinkers: Iterator[MicroProblem],
        deliberators: Iterator[MicroRow],
    ) -> Path:
        folder = self.work / name
        if folder.is_dir():
            return folder
        tokenizer = self.tokenizer()
        model = (
            LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
            if start
            else new_model(SIZE, tokenizer, self.seed)
        ).to(self.device)
        log(f"{name}: {model.num_parameters() / 1e6:.2f} M parameters on {self.device}")
        train(
            model,
            tokenizer,
            map(rows.thinker_row, thinkers),
            deliberators,
            schedule,
            lambda line: log(f"{name}: {line}"),
        )
        self._save(folder, tokenizer, model)
        return folder

    def _save(self, folder: Path, *parts: PreTrainedTokenizerFast | LlamaForCausalLM) -> None:
        unfinished = folder.with_suffix(".part")
        for part in parts:
            part.save_pretrained(unfinished)
        unfinished.rename(folder)


def sample_pools(
    model: Path, problems: list[MicroProblem], seed: int
) -> list[list[tuple[str, str]]]:
    """The finished attempts of ``model`` at each problem, as (answer text, boxed answer)."""
    engine = LocalEngine(str(model))
    prompt = prompts.load("thinker", rows.PROMPT_DOMAIN, "en")
    requests = [
        Request(user_turn(thinker_prompt(problem.text, prompt)), SAMPLING, sample_seed(seed, n, k))
        for n, problem in enumerate(problems)
        for k in range(POOL_SIZE)
    ]
    started = time.perf_counter()
    responses = engine.generate(requests)
    pools: list[list[tuple[str, str]]] = [[] for _ in problems]
    right = 0
    for index, response in enumerate(responses):
        answer = boxed(response.answer_text) if response.finish_reason == "stop" else None
        if answer is not None:
            pools[index // POOL_SIZE].append((response.answer_text, answer))
            right += answer == problems[index // POOL_SIZE].worked.answer
    log(
        f"{len(requests)} attempts in {time.perf_counter() - started:.0f} s, "
        f"{right / len(requests):.3f} of them right"
    )
    return pools


def log(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _ship(stage: Path, target: Path) -> None:
    """Copy a trained stage into the package, with weights in bfloat16."""
    model = LlamaForCausalLM.from_pretrained(stage, dtype=torch.bfloat16)
    shutil.rmtree(target, ignore_errors=True)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(stage).save_pretrained(target)
    (target / "model.safetensors").chmod(
        0o644
    )  # it is written with permissions for the owner alone
    log(f"wrote {target}")


if __name__ == "__main__":
    main()
