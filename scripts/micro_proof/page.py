"""The page of all seeds: each figure as a mean over seeds with its interval, and the goals.

Intervals are Student's t over seeds, so they hold the scatter of problems, traces, order and
weights; they are left out for a figure of one seed. In the tables of seeds, intervals are over
problems. Not covered: seeds of different sizes, which are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats  # type: ignore[import-untyped]

from heavydistill.errors import ConfigError
from heavydistill.metrics.intervals import Interval
from heavydistill.report.grid import bracketed
from heavydistill.report.markdown import table
from micro_proof.figures import FORMAT
from micro_proof.stages import ARMS, POOL, SEEDS, SHOWN, TEMPERATURES, THINKER, D, Sizes

Seed = Mapping[str, Any]
_EMERGENT = 30  # problems without a right attempt, above which a share of them is shown
_MOST_LOST = 0.03
_BELOW = ("garbled", "empty", "foreign", "alone")  # controls that HM must be above
_READING = {
    "heavy_mean": "HM",
    "heavy_minus_vote": "HM - vote",
    "heavy_minus_step_vote": "HM - step vote",
    "parting_minus_plurality": "parting steps - plurality",
    "unanimous_true": "unanimous true steps",
    "regress": "vote right, HM wrong",
}
_HEAD = """# What the micro models show

Made by `bash scripts/reproduce_micro.sh` on CPU cores alone, without a model or data from anywhere
else. Seeds: {seeds}. Each has its own {traces:,} problems with traces, its own order of rows and
its own {measured:,} problems to measure on; no two of these sets share a problem. K = {shown}
attempts a problem, all of which a deliberation sees and the votes count; D = {d}, but 1 in the
controls and at temperature 1. Attempts have temperature 1, and deliberations the best of
{temperatures} for their arm, chosen once on other problems; top_p 0.95, top_k 10. In per cent:
means over seeds with 95 % intervals over seeds (Student's t).

| arm | what its deliberator learnt |
| :-- | :-- |
| base | nothing: the bundled student |
| sft | SFT on the teacher's deliberations on the base's attempts |
| plain | SFT on the teacher's solutions without attempts, as many tokens |
| grpo | sft, then GRPO with verdicts, about as many tokens again |
| distill | sft, then distillation from the teacher, about as many tokens again |
| more | sft, then SFT on deliberations on other problems, as many tokens again |
| both | SFT of one model for both roles |
| teacher | the bundled teacher, for comparison |
"""
_NOT_SHOWN = """## What this does not show

Both models have 0.9 million parameters and solve procedural arithmetic. Nothing here says by how
much a model of billions of parameters gains, or on which problems.
"""


def page(seeds: Sequence[Seed]) -> str:
    """The page, from the figures of the seeds.

    Raises:
        ConfigError: The seeds have different sizes or another format.
    """
    for seed in seeds:
        if seed["format"] != FORMAT or seed["sizes"] != seeds[0]["sizes"]:
            raise ConfigError(
                f"seed {seed['seed']} has other sizes or another format than seed "
                f"{seeds[0]['seed']}",
                "Make it again: bash scripts/reproduce_micro.sh --seeds N.",
            )
    numbers = ", ".join(str(seed["seed"]) for seed in seeds)
    sizes = seeds[0]["sizes"]
    parts = [
        _HEAD.format(
            seeds=numbers, shown=SHOWN, d=D, temperatures=", ".join(map(str, TEMPERATURES)), **sizes
        )
    ]
    if len(seeds) < SEEDS:
        parts.append(
            f"**Not finished: {len(seeds)} of {SEEDS} seeds; arms without rows are missing.**\n"
        )
    if sizes["measured"] < Sizes().measured:
        parts.append("**A trial with few problems: its figures are no evidence.**\n")
    parts += ["## Goals\n", table(["goal", "reached", "figure"], list(_goals(seeds))), ""]
    for name, title in {
        "frozen": "On the base's attempts",
        "own": "On the attempts of the arm's own thinker",
        "hot": "On the base's attempts, at temperature 1",
    }.items():
        parts += [f"## {title}\n", _readings(seeds, name), ""]
    parts += ["## Controls, on the base's attempts\n", _controls(seeds), ""]
    parts += ["## A planted wrong step\n", _planted(seeds), ""]
    parts += ["## Thinkers\n", _thinkers(seeds), ""]
    parts += ["## Cost\n", _costs(seeds), ""]
    parts += ["## Seed by seed, on the base's attempts\n", _by_seed(seeds), "", _NOT_SHOWN]
    return "\n".join(parts)


def _measured(seeds: Sequence[Seed]) -> list[str]:
    return [arm for arm in ARMS if any(arm in seed["arms"] for seed in seeds)]


def over_seeds(values: Sequence[float]) -> Interval:
    """Mean over seeds with Student's 95 % interval; without width for a single seed."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, mean, mean)
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return Interval(mean, mean - float(half), mean + float(half))


def _values(seeds: Sequence[Seed], *keys: str) -> list[float]:
    """The figure at these keys of each seed that has it."""
    return [value for value in (_at(seed, *keys) for seed in seeds) if value is not None]


def _at(seed: Seed, *keys: str) -> float | None:
    value: Any = seed
    for key in keys:
        value = value.get(key) if value is not None else None
    value = value["mean"] if isinstance(value, Mapping) else value
    return None if value is None else float(value)


def _differences(seeds: Sequence[Seed], keys: Sequence[str], others: Sequence[str]) -> list[float]:
    """The figure at ``keys`` minus that at ``others``, of each seed that has both."""
    pairs = [(_at(seed, *keys), _at(seed, *others)) for seed in seeds]
    return [one - other for one, other in pairs if one is not None and other is not None]


def _cell(values: Sequence[float], signed: bool = False) -> str:
    if not values:
        return "-"
    if len(values) == 1:
        return f"{100 * values[0]:+.1f}" if signed else f"{100 * values[0]:.1f}%"
    return bracketed(over_seeds(values), signed=signed)


def _readings(seeds: Sequence[Seed], pools: str) -> str:
    rows = []
    for arm in _measured(seeds):
        values = [_values(seeds, "arms", arm, pools, name) for name in _READING]
        if values[0]:
            signed = [" - " in title for title in _READING.values()]
            rows.append([arm, str(len(values[0])), *map(_cell, values, signed)])
    return table(["arm", "seeds", *_READING.values()], rows)


def _controls(seeds: Sequence[Seed]) -> str:
    names = dict.fromkeys(
        name for seed in seeds for arm in seed["arms"].values() for name in arm["controls"]
    )
    rows = [
        [arm, *(_cell(_values(seeds, "arms", arm, "controls", name, "right")) for name in names)]
        for arm in _measured(seeds)
    ]
    return table(["right on", *names], rows)


def _planted(seeds: Sequence[Seed]) -> str:
    places = [str(place) for place in range(1, SHOWN + 1)]
    rows = [
        [arm, *(_cell(_values(seeds, "arms", arm, "planted", each, "follows")) for each in places)]
        for arm in _measured(seeds)
    ]
    return table(["follows it", *(f"shared by {each} of {SHOWN}" for each in places)], rows)


def _thinkers(seeds: Sequence[Seed]) -> str:
    titles = {"mean_at_k": f"M@{POOL}", "vote_at_k": f"V@{POOL}", "pass_at_k": f"P@{POOL}"}
    names = dict.fromkeys(name for seed in seeds for name in seed["thinkers"])
    rows = [
        [name, *(_cell(_values(seeds, "thinkers", name, figure)) for figure in titles)]
        for name in names
    ]
    return table(["thinker", *titles.values()], rows)


def _costs(seeds: Sequence[Seed]) -> str:
    rows = []
    for arm in _measured(seeds):
        tokens, minutes = (
            _values(seeds, "arms", arm, "training", name)
            for name in ("learnt_tokens", "cpu_minutes")
        )
        if tokens:
            rows.append([arm, f"{np.mean(tokens):,.0f}", f"{np.mean(minutes):.1f}"])
    return table(["last training", "tokens with a loss", "processor minutes"], rows)


def _by_seed(seeds: Sequence[Seed]) -> str:
    rows = []
    for seed in seeds:
        for arm, figures in seed["arms"].items():
            reading = figures["frozen"]
            intervals = [
                bracketed(Interval(**reading[name]), signed=" - " in title)
                if reading.get(name)
                else "-"
                for name, title in _READING.items()
            ]
            emergent = figures["frozen"]["emergent"]
            is_shown = emergent["of"] > _EMERGENT
            share = bracketed(Interval(**emergent["interval"])) if is_shown else "-"
            rows.append([f"{arm}, seed {seed['seed']}", *intervals, share])
    return table(["arm", *_READING.values(), "right where no attempt is"], rows)


def _goals(seeds: Sequence[Seed]) -> Iterator[list[str]]:
    """Each goal, whether these seeds reach it, and its figure."""
    sft = ("arms", "sft")
    for name in ("heavy_minus_vote", "heavy_minus_step_vote"):
        title, of = _READING[name], {at: _values(seeds, *sft, at, name) for at in ("frozen", "own")}
        yield _in_all(f"sft: {title} above 0 in every seed, base's attempts", of["frozen"])
        text = f"sft: {title} above 0 on the mean, own attempts"
        yield _on_the_mean(text, of["own"], above=0)
    kept, parting, lost = (
        _values(seeds, *sft, "frozen", name)
        for name in ("unanimous_true", "parting_minus_plurality", "regress")
    )
    yield _on_the_mean("sft: unanimous true steps kept in 99.5 %", kept, above=0.995)
    text = "sft: parting steps - plurality at least 15 points"
    yield _on_the_mean(text, parting, above=0.15)
    yield _on_the_mean("sft: HM wrong where the vote is right, at most 10 %", lost, below=0.1)
    for control in _BELOW:
        values = _values(seeds, *sft, "controls", control, "heavy_minus")
        yield _in_all(f"sft: HM - HM({control}) above 0 in every seed", values)
    heavy = ("frozen", "heavy_mean")
    for other, bound in {"sft": 0.05, "more": 0.0, "grpo": 0.0}.items():
        gains = _differences(seeds, ("arms", "distill", *heavy), ("arms", other, *heavy))
        text = f"distill: HM - HM of {other}, at least {100 * bound:g} points, base's attempts"
        yield _on_the_mean(text, gains, above=bound)
    for shared in map(str, range(1, SHOWN)):
        keys = ("planted", shared, "follows")
        more = _differences(seeds, (*sft, *keys), ("arms", "teacher", *keys))
        text = f"a step planted in {shared} of {SHOWN}: followed by sft - by the teacher, at most 0"
        yield _on_the_mean(text, more, below=0)
    for name, title in {"mean_at_k": f"M@{POOL}", "pass_at_k": f"P@{POOL}"}.items():
        losses = _differences(seeds, ("thinkers", "base", name), ("thinkers", THINKER, name))
        reached = _upper(losses) < _MOST_LOST if len(losses) > 1 else None
        text = f"thinker: {title} lost, base - thinker, below 3 points (one-sided 95 % bound)"
        yield [text, _yes(reached), _cell(losses, signed=True)]


def _in_all(text: str, values: Sequence[float]) -> list[str]:
    above = sum(value > 0 for value in values)
    reached = above == len(values) if values else None
    return [text, _yes(reached), f"{above} of {len(values)}; {_cell(values, signed=True)}"]


def _on_the_mean(
    text: str, values: Sequence[float], above: float = -1.0, below: float = 1.0
) -> list[str]:
    reached = above <= float(np.mean(values)) <= below if values else None
    return [text, _yes(reached), _cell(values, signed=" - " in text)]


def _upper(values: Sequence[float]) -> float:
    """The one-sided 95 % bound above the mean over seeds."""
    half = stats.t.ppf(0.95, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values) + half)


def _yes(reached: bool | None) -> str:
    return "not measured" if reached is None else "yes" if reached else "**no**"
