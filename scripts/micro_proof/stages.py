"""The stages of the proof: what is made for each seed, from what, and by which command.

A seed has problems, traces, an order of rows and samples of its own. Its arms differ only in what
the deliberator learnt:

    base      nothing: the bundled student
    sft       SFT on the teacher's deliberations on the base's attempts
    plain     SFT on the teacher's solutions of problems, without attempts
    grpo      ``sft``, then GRPO with verdicts on its own deliberations
    distill   ``sft``, then distillation from the teacher on its own deliberations, on caches with
              right and wrong attempts
    more      ``sft``, then SFT on the teacher's deliberations on other problems
    both      SFT of one model for both roles, whose thinker is the model itself
    teacher   the bundled teacher, for comparison

``plain`` learns from as many tokens, passes included, as ``sft``, and so does the second stage of
``grpo``, ``distill`` and ``more``. ``base``, ``both`` and ``teacher`` think for themselves; the
thinker of the others is the student after SFT of that role. Each deliberator reads the pools of the
base (``frozen``) and those of its own thinker (``own``), four attempts of each problem.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.store.training_record import read_record

ARMS = ("base", "sft", "plain", "grpo", "distill", "more", "both", "teacher")
IN_ALL_SEEDS = ("base", "sft", "distill", "teacher")
SEEDS, SEEDS_OF_OTHERS = 5, 3
TEMPERATURES = (0.3, 0.6, 1.0)  # each arm has the best of them on problems of no other use
SHOWN, POOL, D = 4, 8, 2  # attempts in a cache, attempts that measure a thinker, deliberations
CONTROLS = "alone,garbled,empty,foreign,answers,steps,planted"
STUDENT, TEACHER, THINKER = "micro-student", "micro", "thinker"

_FURTHER = ("--set", "sets.widths=[2,3,4]", "--set", "sets.per_problem=4")  # caches of a problem
_PLAIN = ("--preset", "natural")
_SFT = (
    *_PLAIN, "--teacher", TEACHER, *_FURTHER, "--set", "sets.written_by=student",
    "--set", "redeliberate.d=1",
)  # fmt: skip
_DISTILL = ("--preset", "genselect", *_FURTHER)  # with right and wrong attempts

_EPOCHS = 1
_RESPONSE_TOKENS = 185  # of a deliberation on four attempts, on the mean
_ON_POLICY = {  # configuration, steps accumulated in one process, responses of an optimizer step
    "grpo": ("micro/deliberator", 32, 256),
    "distill": ("micro", 8, 64),
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of problems."""

    traces: int = 2000
    solutions: int = 1500
    measured: int = 1000
    some: int = 300  # with controls, and to choose a temperature on


@dataclass(frozen=True, slots=True)
class Stage:
    """One command and the folder that it writes."""

    name: str  # path in the output folder, e.g. ``seed-1/sft``
    minutes: float  # processor time at full size, as estimated from earlier runs
    needs: tuple[str, ...]  # names of stages that it reads
    command: Callable[[], list[str]]
    """Called when these are done, since figures of theirs are among its arguments."""


def arms_of(seed: int) -> tuple[str, ...]:
    """The arms of a seed: the first seeds have all of them."""
    return ARMS if seed <= SEEDS_OF_OTHERS else IN_ALL_SEEDS


def thinker_of(arm: str) -> str:
    """The arm, or ``THINKER``, whose model thinks for an arm."""
    return arm if arm in ("base", "both", "teacher") else THINKER


def stages(
    out: Path, seed: int, arms: Sequence[str], sizes: Sizes, chosen: Mapping[str, float]
) -> list[Stage]:
    """All stages of these arms of a seed, each after those that it needs.

    ``chosen`` has the temperature of each arm that has one already; the others are chosen with the
    models of seed 1.
    """
    made: dict[str, Stage] = {}
    for arm in arms:
        of_seeds = [OfSeed(out, seed, sizes, chosen)]
        if arm not in chosen:
            of_seeds.insert(0, OfSeed(out, 1, sizes, chosen))
        for of_seed in of_seeds:
            made |= {stage.name: stage for stage in of_seed.made(arm)}
        if arm not in chosen:
            made |= {stage.name: stage for stage in of_seeds[0].choice(arm)}
        made |= {stage.name: stage for stage in of_seeds[-1].measured(arm)}
    return list(made.values())


@dataclass(frozen=True, slots=True)
class OfSeed:
    """The stages of one seed."""

    out: Path
    seed: int
    sizes: Sizes
    chosen: Mapping[str, float]

    def made(self, arm: str) -> Iterator[Stage]:
        """Traces, sets and trainings of an arm and of its thinker; nothing for bundled models."""
        if arm in ("base", "teacher"):
            return
        yield self._traces("traces", 1_000_000)
        flags = ["--teacher", TEACHER, "--k", "2", "--d", "0"]
        yield self._generate("solutions", 2, 2_000_000, self.sizes.solutions, flags)
        yield self._build("sets", "traces solutions", _SFT, 12)
        if arm == "both":
            yield from self._sft("both", "both", "sets")
            return
        yield from self._sft(THINKER, "thinker", "sets")
        yield from self._sft("sft", "deliberator", "sets")
        if arm == "plain":
            yield self._build("plain-sets", "solutions", _PLAIN)
            yield from self._sft("plain", "thinker", "plain-sets", as_many_as="sft")
        elif arm == "more":
            yield self._traces("more-traces", 1_020_000)
            yield self._build("more-sets", "more-traces", _SFT, 12)
            yield from self._sft("more", "deliberator", "more-sets", base="sft", as_many_as="sft")
        elif arm == "grpo":
            yield self._on_policy(arm, "sets")
        elif arm == "distill":
            yield self._build("distill-sets", "traces", _DISTILL)
            yield self._on_policy(arm, "distill-sets")

    def choice(self, arm: str) -> Iterator[Stage]:
        """The arm at each temperature, on problems that serve nothing else."""
        yield self._attempts("base", SHOWN, "choice", 8000, self.sizes.some)
        for temperature in TEMPERATURES:
            yield self._read(f"choice-{arm}-{temperature:g}", 1.2, arm, "choice", 1, temperature)

    def measured(self, arm: str) -> Iterator[Stage]:
        """Attempts of the base and of the arm's thinker, and what the arm makes of them."""
        thinker = thinker_of(arm)
        for of in dict.fromkeys(("base", thinker)):
            yield self._attempts(of, POOL)
            yield self._attempts(of, SHOWN)
        base = f"attempts-base-{SHOWN}"
        yield self._read(f"frozen-{arm}", 5, arm, base, D, None)
        if thinker != "base":
            yield self._read(f"own-{arm}", 5, arm, f"attempts-{thinker}-{SHOWN}", D, None)
        yield self._read(f"hot-{arm}", 3, arm, base, 1, 1.0)
        limit = ["--limit", str(self.sizes.some), "--controls", CONTROLS]
        yield self._read(f"controls-{arm}", 7, arm, base, 1, None, limit)

    def temperature(self, arm: str) -> float:
        """The temperature at which the arm was best, now or before."""

        def right(temperature: float) -> float:
            folder = self.out / "seed-1" / f"choice-{arm}-{temperature:g}"
            return float(read_json(folder / "after" / "summary.json")["heavy_mean_at_d"]["mean"])

        return self.chosen[arm] if arm in self.chosen else max(TEMPERATURES, key=right)

    def path(self, name: str) -> str:
        return str(self.out / f"seed-{self.seed}" / name)

    def _stage(
        self, name: str, minutes: float, needs: Sequence[str], command: Callable[[], list[str]]
    ) -> Stage:
        own = tuple(need if "/" in need else f"seed-{self.seed}/{need}" for need in needs)
        return Stage(f"seed-{self.seed}/{name}", minutes, own, command)

    def _model(self, arm: str) -> tuple[str, list[str]]:
        """The model of an arm, and the stage that makes it."""
        bundled = {"base": STUDENT, "teacher": TEACHER}
        return (bundled[arm], []) if arm in bundled else (self.path(arm), [arm])

    def _generate(
        self, name: str, minutes: float, first: int, size: int, flags: list[str], *needs: str
    ) -> Stage:
        return self._stage(name, minutes, needs, lambda: _verb(
            "generate", *flags, "--set", f"problems.size={size}",
            "--set", f"problems.seed={first + 40_000 * self.seed if first >= 10**6 else first}",
            "--set", f"seed={self.seed}", "--journal", str(self.out / "journal"),
            "--out", self.path(name),
        ))  # fmt: skip

    def _traces(self, name: str, first: int) -> Stage:
        flags = ["--thinker", STUDENT, "--deliberator", TEACHER, "--k", str(SHOWN), "--d", "1"]
        return self._generate(name, 9, first, self.sizes.traces, flags)

    def _attempts(
        self, thinker: str, k: int, name: str = "", first: int = 0, size: int = 0
    ) -> Stage:
        model, needs = self._model(thinker)
        flags = [
            "--thinker", model, "--deliberator", STUDENT, "--k", str(k), "--d", "0",
            "--set", "domain=brief", "--set", "think.sampling.max_tokens=192",
        ]  # fmt: skip
        minutes = 4.0
        if not name and k == SHOWN:  # the journal has them
            needs, minutes = [*needs, f"attempts-{thinker}-{POOL}"], 0.5
        name = name or f"attempts-{thinker}-{k}"
        first = first or 9000 + 1000 * self.seed
        return self._generate(name, minutes, first, size or self.sizes.measured, flags, *needs)

    def _build(self, name: str, runs: str, flags: Sequence[str], minutes: float = 1) -> Stage:
        """Sets of runs; if the teacher deliberates on further caches, the journal keeps it."""
        common = ["--student", STUDENT, "--set", f"seed={self.seed}"]
        if "--teacher" in flags:
            common += ["--set", f"redeliberate.journal={self.out / 'journal'}"]
        return self._stage(name, minutes, runs.split(), lambda: _verb(
            "build", *map(self.path, runs.split()), *common, *flags, "--out", self.path(name)
        ))  # fmt: skip

    def _sft(
        self, name: str, role: str, sets: str, base: str = "", as_many_as: str = ""
    ) -> Iterator[Stage]:
        """SFT for ``_EPOCHS``, or on as many learnt tokens as the stage ``as_many_as``."""

        train = _train(
            "sft", "micro", self.path(sets), self.path(name), self.seed, 4,
            "--role", role, *(["--model_name_or_path", self.path(base)] if base else []),
        )  # fmt: skip
        needs = [sets, *([base] if base else [])]
        if not as_many_as:
            epochs = ["--num_train_epochs", f"{_EPOCHS:g}"]
            minutes = 3 if role == "thinker" else 13
            yield self._stage(name, minutes, needs, lambda: [*train, *epochs])
            return
        count = f"{name}-tokens"
        yield self._stage(count, 0.5, needs, lambda: [*train, "--dry_run"])

        def command() -> list[str]:
            wanted = learnt_tokens(Path(self.path(as_many_as)))
            epochs = wanted / _tokens_of_epoch(log_of(self.out, f"seed-{self.seed}/{count}"))
            return [*train, "--num_train_epochs", f"{epochs:.3f}"]

        yield self._stage(name, 13, [*needs, as_many_as, count], command)

    def _on_policy(self, arm: str, sets: str) -> Stage:
        """GRPO or distillation of ``sft`` on about as many tokens as it has learnt."""
        config, accumulated, responses = _ON_POLICY[arm]

        def command() -> list[str]:
            before = self.path("sft")
            steps = max(1, round(learnt_tokens(Path(before)) / (_RESPONSE_TOKENS * responses)))
            train = _train(arm, config, self.path(sets), self.path(arm), self.seed, accumulated,
                "--model_name_or_path", before, "--unmeasured", "ask", "--max_steps", str(steps),
            )  # fmt: skip
            return train + ["--steps_per_generation", str(accumulated)] * (arm == "grpo")

        return self._stage(arm, 26, (sets, "sft"), command)

    def _read(
        self,
        name: str,
        minutes: float,
        arm: str,
        pools: str,
        d: int,
        temperature: float | None,
        more: Sequence[str] = (),
    ) -> Stage:
        """What the arm makes of attempts, at a temperature or, with None, at its best one."""
        model, needs = self._model(arm)
        if temperature is None and arm not in self.chosen:
            needs += [f"seed-1/choice-{arm}-{each:g}" for each in TEMPERATURES]
        return self._stage(name, minutes, [pools, *needs], lambda: _verb(
            "evaluate", "--pools", self.path(pools), "--deliberator", model, "--d", str(d),
            "--set", "domain=brief", "--set", "deliberate.sampling.max_tokens=448",
            "--set", f"deliberate.sampling.temperature={temperature or self.temperature(arm):g}",
            "--set", f"seed={self.seed}", *more,
            "--journal", str(self.out / "journal"), "--out", self.path(name),
        ))  # fmt: skip


def learnt_tokens(model: Path) -> int:
    """Tokens with a loss that a finished SFT has seen, passes included."""
    record = read_record(model)
    if record.result is None:
        raise ValueError(f"the training of {model} has not ended")
    return round(record.learnt_tokens * record.result.epochs)


def _verb(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "heavydistill", *arguments]


def _train(
    stage: str, config: str, sets: str, out: str, seed: int, accumulated: int, *flags: str
) -> list[str]:
    return [
        sys.executable, f"scripts/{stage}.py", "--config", f"configs/{stage}/{config}.yaml",
        "--dataset_name", sets, "--output_dir", out, "--seed", str(seed),
        "--gradient_accumulation_steps", str(accumulated), *flags,
    ]  # fmt: skip


def log_of(out: Path, name: str) -> Path:
    """What the command of a stage printed."""
    return out / "logs" / f"{name.replace('/', '-')}.log"


def _tokens_of_epoch(log: Path) -> int:
    """Tokens with a loss in an epoch of the training whose dry run printed this."""
    found = re.findall(r"of which ([\d,]+) are learnt", log.read_text(encoding="utf-8"))
    if not found:
        raise ValueError(f"{log} has no number of learnt tokens")
    return int(found[-1].replace(",", ""))


def read_json(path: Path) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return tree
