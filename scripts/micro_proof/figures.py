"""The figures of one seed, as ``seed-N.json`` has them, read from the folders of its stages.

Shares and differences are mappings with ``mean``, ``low`` and ``high``, 95 % intervals over
problems, as ``summary.json`` and ``controls.json`` have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from micro_proof.runner import Runner
from micro_proof.stages import (
    POOL,
    OfSeed,
    Sizes,
    learnt_tokens,
    read_json,
    thinker_of,
)

FORMAT = "heavydistill-micro-proof/1"
_ON_POLICY_TOKENS = {"grpo": "completions/mean_length", "distill": "completions/learnt_tokens"}
_STEPS = ("unanimous_true", "unanimous_false", "parting")


def figures_of_seed(
    of_seed: OfSeed, arms: Sequence[str], runner: Runner, sizes: Sizes
) -> dict[str, Any]:
    """The figures of a seed, with those of these arms whose stages are done."""
    arms = [arm for arm in arms if all(runner.done(stage.name) for stage in of_seed.measured(arm))]
    return {
        "format": FORMAT,
        "seed": of_seed.seed,
        "sizes": {"traces": sizes.traces, "measured": sizes.measured, "controlled": sizes.some},
        "thinkers": {
            thinker: _thinker(Path(of_seed.path(f"attempts-{thinker}-{POOL}")))
            for thinker in dict.fromkeys(map(thinker_of, arms))
        },
        "arms": {arm: _arm(of_seed, runner, arm) for arm in arms},
    }


def _arm(of_seed: OfSeed, runner: Runner, arm: str) -> dict[str, Any]:
    figures = {
        name: reading(read_json(folder / "after" / "summary.json"))
        for name in ("frozen", "own", "hot")
        if (folder := Path(of_seed.path(f"{name}-{arm}"))).is_dir()
    }
    figures["frozen"]["temperature"] = of_seed.temperature(arm)
    controls = read_json(Path(of_seed.path(f"controls-{arm}")) / "controls.json")
    figures["controls"] = {
        each["name"]: {"right": each["answering"]["accuracy"], "heavy_minus": each["heavy_minus"]}
        for each in controls["controls"]
    }
    figures["planted"] = {str(each["shared"]): each for each in controls["planted"]}
    if training := _training(of_seed, runner, arm):
        figures["training"] = training
    return figures


def reading(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a deliberator made of pools, from the summary of its run."""
    steps, vote = summary["steps"] or {}, summary["step_vote"] or {}
    of_steps = {name: steps[name]["written"] for name in _STEPS if steps.get(name)}
    if steps.get("parting"):
        of_steps["parting_minus_plurality"] = steps["parting"]["written_minus_plurality"]
    return {
        "heavy_mean": summary["heavy_mean_at_d"],
        "vote": summary["vote_at_k"],
        "heavy_minus_vote": summary["heavy_minus_vote"],
        "step_vote": vote.get("accuracy"),
        "heavy_minus_step_vote": vote.get("heavy_minus"),
        **of_steps,
        "regress": summary["regress"]["interval"],
        "emergent": summary["emergent"],
    }


def _thinker(attempts: Path) -> dict[str, Any]:
    summary = read_json(attempts / "summary.json")
    return {name: summary[name] for name in ("mean_at_k", "vote_at_k", "pass_at_k")}


def _training(of_seed: OfSeed, runner: Runner, arm: str) -> dict[str, float] | None:
    """Tokens with a loss, passes included, and processor minutes of the arm's own last training."""
    done, folder = runner.done(f"seed-{of_seed.seed}/{arm}"), Path(of_seed.path(arm))
    if done is None:
        return None
    if metric := _ON_POLICY_TOKENS.get(arm):
        lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
        logged = [json.loads(line) for line in lines]
        steps = max(line.get("step", 0) for line in logged)
        mean = fmean(line[metric] for line in logged if metric in line)
        tokens = steps * mean * (1 if arm == "distill" else 256)
    else:
        tokens = learnt_tokens(folder)
    return {"learnt_tokens": tokens, "cpu_minutes": done.cpu_seconds / 60}
