"""Train the bundled micro models from scratch: tokenizer, base student, teacher.

    python scripts/train_micro.py --out heavydistill/micro

Problems are procedural (see micro_models/rows.py) with seeds that evaluation never uses, and
solutions are those of micro_models/worked.py. The stages, each saved under --work so that a stopped
run continues there:

1. tokenizer     from texts like those of the training
2. thinker       arithmetic on long problems, and attempts with random slips; both models
                 start from it
3. student       and deliberations that only restate one attempt
4. small-caches  the teacher: deliberations on two or three attempts
5. caches        deliberations on up to twelve attempts
6. practice      arithmetic on long problems again, beside thinkers and deliberations
7. slips         the same with slips in every row, so that nothing computes without them
8. deliberation  more thinkers and deliberations
9. garbled       more deliberations on garbled attempts, and on copies of one to three attempts
10. reading      the same, less often
11. teacher      the mean of the weights of stages 8, 9 and twice 10, which errs less than each

A share of the deliberations reads garbled attempts or none. There the teacher is on its own, and
learns to slip as often as a thinker: its advantage must come from the attempts. No row is chosen
because its answer is right. After each stage of the teacher, its accuracy on fresh problems is
printed, with and without the attempts' values.

heavydistill/micro/README.md has wall times and results.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from micro_models import rows
from micro_models.rows import MicroProblem, MicroRow
from micro_models.tokenizer import train_tokenizer
from micro_models.training import Schedule, Size, Stream, new_model, train
from micro_models.worked import solve
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from heavydistill.config.models import Sampling
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.request import Request, sample_seed, user_turn
from heavydistill.problems.procedural import MICRO_LEVELS
from heavydistill.text.extraction import boxed

CONTEXT = 2048
SIZE = Size(hidden=128, layers=4, heads=4, feed_forward=384)
SLIP_RATE = 0.15
# Lower while the model's own errors add to its slips.
PRACTICE_SLIP_RATE = 0.12
TEACHER_SLIP_RATE = 0.16
SLIP_RATES = (0.08, 0.15, 0.15, 0.25, 0.4)  # of the attempts in a cache, by turns
NO_ATTEMPTS, GARBLED = 0.05, 0.15  # shares of the deliberations
# Shares of garbled attempts and of copies in the last stages. Copies agree on wrong values, which
# other attempts seldom do.
OFTEN, LESS_OFTEN = (0.35, 0.25), (0.25, 0.2)
WATCHED, K, SAMPLING = 100, 8, Sampling(temperature=1.0, top_p=0.95, top_k=10, max_tokens=400)


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
            problems, rng = self._problems(0)
            texts: list[str] = []
            for problem in itertools.islice(problems, 3000):
                attempts = [solve(problem.task, rng, SLIP_RATE) for _ in range(4)]
                for row in (
                    rows.thinker_row(problem, SLIP_RATE, rng),
                    rows.deliberator_row(problem, attempts, SLIP_RATE, rng),
                ):
                    texts += [row.prompt, f"\n{row.reasoning}\n", f"\n{row.answer_text}"]
            self._save(folder, train_tokenizer(texts, CONTEXT))
        return AutoTokenizer.from_pretrained(folder)

    def thinker(self) -> Path:
        streams = [self._long(9, 16, 0.6), self._thinkers(3, 12, 0.4)]
        return self._stage("thinker", None, Schedule(2000, 4e-3), streams)

    def student(self) -> Path:
        streams = [self._thinkers(1, 12, 0.5), self._restating(2, 6, 0.5)]
        return self._stage("student", self.thinker(), Schedule(400, 2e-3), streams)

    def teacher(self) -> Path:
        streams = [self._thinkers(5, 8, 0.3), self._deliberators(4, 16, 0.7, most=3)]
        small = self._stage("small-caches", self.thinker(), Schedule(800, 3e-3), streams)
        rate = PRACTICE_SLIP_RATE
        streams = [self._thinkers(7, 8, 0.3, rate), self._deliberators(6, 8, 0.7, rate)]
        caches = self._stage("caches", small, Schedule(1000, 3e-3), streams)
        streams = [self._thinkers(11, 8, 0.3, rate), self._deliberators(12, 8, 0.5, rate)]
        streams = [self._long(10, 8, 0.2), *streams]
        practice = self._stage("practice", caches, Schedule(1050, 3e-3), streams)
        rate = TEACHER_SLIP_RATE
        streams = [self._thinkers(14, 8, 0.3, rate), self._deliberators(15, 8, 0.5, rate)]
        streams = [self._long(13, 8, 0.2, rate), *streams]
        slips = self._stage("slips", practice, Schedule(450, 2e-3), streams)
        streams = [self._thinkers(16, 8, 0.3, rate), self._deliberators(17, 10, 0.7, rate)]
        deliberation = self._stage("deliberation", slips, Schedule(800, 2e-3), streams)
        streams = [self._thinkers(18, 8, 0.3, rate), self._deliberators(19, 10, 0.7, rate, *OFTEN)]
        garbled = self._stage("garbled", deliberation, Schedule(450, 2e-3), streams)
        deliberators = self._deliberators(21, 10, 0.8, rate, *LESS_OFTEN)
        streams = [self._thinkers(20, 6, 0.2, rate), deliberators]
        reading = self._stage("reading", garbled, Schedule(600, 2e-3), streams)
        return self._mean("teacher", [deliberation, garbled, reading, reading])

    def _problems(
        self, number: int, levels: Mapping[str, Mapping[str, Any]] = MICRO_LEVELS
    ) -> tuple[Iterator[MicroProblem], random.Random]:
        """The problems of a stream and its random numbers; each use has a number of its own."""
        number += self.seed * 100
        return rows.problems(number, levels), random.Random(number)

    def _long(self, number: int, batch: int, weight: float, slip_rate: float = 0.0) -> Stream:
        problems, rng = self._problems(number, rows.LONG_LEVELS)
        made = (rows.long_row(problem, slip_rate, rng) for problem in problems)
        return Stream("long", made, batch, weight)

    def _thinkers(
        self, number: int, batch: int, weight: float, slip_rate: float = SLIP_RATE
    ) -> Stream:
        problems, rng = self._problems(number)
        made = (rows.thinker_row(problem, slip_rate, rng) for problem in problems)
        return Stream("thinker", made, batch, weight)

    def _restating(self, number: int, batch: int, weight: float) -> Stream:
        def made() -> Iterator[MicroRow]:
            problems, rng = self._problems(number)
            for problem in problems:
                count = rows.attempt_count(rng)
                attempts = [solve(problem.task, rng, SLIP_RATE) for _ in range(count)]
                yield rows.restating_row(problem, attempts, rng)

        return Stream("deliberator", made(), batch, weight)

    def _deliberators(
        self,
        number: int,
        batch: int,
        weight: float,
        slip_rate: float = SLIP_RATE,
        garbled: float = GARBLED,
        copies: float = 0.0,
        most: int = rows.MOST_ATTEMPTS,
    ) -> Stream:
        """Deliberations on at most ``most`` attempts; ``garbled`` and ``copies`` are shares."""

        def made() -> Iterator[MicroRow]:
            problems, rng = self._problems(number)
            for problem in problems:
                count = rows.attempt_count(rng, most)
                of_attempts, kind = rng.choice(SLIP_RATES), rng.random()
                attempts = [solve(problem.task, rng, of_attempts) for _ in range(count)]
                if copies and rng.random() < copies:
                    attempts = rng.choices(attempts[: rng.randint(1, 3)], k=count)
                if NO_ATTEMPTS <= kind < NO_ATTEMPTS + garbled:
                    yield rows.garbled_row(problem, attempts, slip_rate, rng)
                else:
                    shown = attempts if kind >= NO_ATTEMPTS else []
                    yield rows.deliberator_row(problem, shown, slip_rate, rng)

        return Stream("deliberator", made(), batch, weight)

    def _stage(
        self, name: str, start: Path | None, schedule: Schedule, streams: Sequence[Stream]
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
        train(model, tokenizer, streams, schedule, lambda line: log(f"{name}: {line}"))
        return self._finish(folder, tokenizer, model)

    def _mean(self, name: str, stages: Sequence[Path]) -> Path:
        """Average the weights of stages; see arXiv 2203.05482."""
        folder = self.work / name
        if folder.is_dir():
            return folder
        models = [LlamaForCausalLM.from_pretrained(stage, dtype=torch.float32) for stage in stages]
        weights = [model.state_dict() for model in models]
        mean = {key: torch.stack([w[key] for w in weights]).mean(dim=0) for key in weights[0]}
        models[0].load_state_dict(mean)
        return self._finish(folder, self.tokenizer(), models[0])

    def _finish(
        self, folder: Path, tokenizer: PreTrainedTokenizerFast, model: LlamaForCausalLM
    ) -> Path:
        self._save(folder, tokenizer, model)
        log(f"{folder.name}: {figures(folder, itertools.islice(self._problems(8)[0], WATCHED))}")
        return folder

    def _save(self, folder: Path, *parts: PreTrainedTokenizerFast | LlamaForCausalLM) -> None:
        unfinished = folder.with_suffix(".part")
        for part in parts:
            part.save_pretrained(unfinished)
        unfinished.rename(folder)


def figures(model: Path, problems: Iterator[MicroProblem]) -> str:
    """Accuracy of attempts, of deliberations on them, and of deliberations on garbled ones."""
    engine, listed = LocalEngine(str(model)), list(problems)
    right = [solve(problem.task).answer for problem in listed]

    def ask(prompts: Sequence[str]) -> list[str]:
        turns = [
            Request(user_turn(prompt), SAMPLING, sample_seed(0, place))
            for place, prompt in enumerate(prompts)
        ]
        return [response.answer_text for response in engine.generate(turns)]

    def accuracy(texts: Sequence[str], each: int) -> str:
        is_right = [boxed(text) == right[place // each] for place, text in enumerate(texts)]
        return f"{100 * fmean(is_right):.1f}"

    texts = ask([rows.thinker_prompt(problem) for problem in listed for _ in range(K)])
    pools = [texts[K * place : K * (place + 1)] for place in range(len(listed))]
    garbled = [rows.with_other_numbers(pool, str(place)) for place, pool in enumerate(pools)]
    heavy, on_garbled = (
        ask([rows.cache_prompt(*each) for each in zip(listed, caches, strict=True)])
        for caches in (pools, garbled)
    )
    return (
        f"right in per cent: attempts {accuracy(texts, K)}, deliberations {accuracy(heavy, 1)}, "
        f"on garbled attempts {accuracy(on_garbled, 1)}"
    )


def log(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def _ship(stage: Path, target: Path) -> None:
    """Copy a trained stage into the package, with weights in bfloat16."""
    model = LlamaForCausalLM.from_pretrained(stage, dtype=torch.bfloat16)
    shutil.rmtree(target, ignore_errors=True)
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(stage).save_pretrained(target)
    # safetensors writes the file with permissions for the owner alone.
    (target / "model.safetensors").chmod(0o644)
    log(f"wrote {target}")


if __name__ == "__main__":
    main()
