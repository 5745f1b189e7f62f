"""G9: does GRPO in bfloat16 behave as in float32?

The bundled micro student learns to deliberate on caches of attempts, by ``scripts/grpo.py``
with configs/grpo/micro/deliberator.yaml, eight generations of four steps each: once in float32, and
once with bfloat16 autocast. In the first step of a generation every ratio is 1, so that nothing can
be clipped; with rounding in it, GSPO would clip there.

Bound: nothing clipped in the first steps, and no loss or gradient that is not finite. Beside it, in
both: the mean reward of the first and the last generation, and the share that is clipped in the
other steps.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from statistics import fmean

from shared import ROOT, TINY, command, measuring, report, row

import heavydistill as hd
from heavydistill.train.callbacks import LOG

GENERATIONS, STEPS = (2, 4) if TINY else (8, 4)
BOUND = "nothing clipped in first steps"


def made_caches() -> Path:
    """Sets with caches of the bundled teacher's attempts."""
    size, k = (6, 2) if TINY else (48, 3)
    keys = {"problems.size": size, "problems.seed": 1_000_000, "think.k": k, "deliberate.d": 1}
    hd.generate({"teacher": "micro", "out": "run", **keys})
    command(
        *["build", "run", "--student", "micro-student", "--set", "validation=0", "--out", "sets"]
    )
    return Path("sets")


def check() -> None:
    """GRPO in float32 and in bfloat16"""
    data = made_caches()
    each = 4 if TINY else 8
    for name, is_half in {"float32": "false", "bfloat16 autocast": "true"}.items():
        what = f"micro deliberator, {GENERATIONS} generations of {STEPS} steps, {name}"
        with measuring(what, BOUND):
            out = Path(name.replace(" ", "-"))
            flags = ["--config", str(ROOT / "configs" / "grpo" / "micro" / "deliberator.yaml")]
            flags += ["--dataset_name", str(data), "--unmeasured", "ask", "--bf16", is_half]
            flags += ["--model_name_or_path", "micro-student", "--output_dir", str(out)]
            flags += ["--use_cpu", str(TINY), "--num_generations", str(each)]
            flags += ["--per_device_train_batch_size", str(2 if TINY else 16)]
            flags += ["--gradient_accumulation_steps", "1", "--steps_per_generation", str(STEPS)]
            flags += ["--max_steps", str(GENERATIONS * STEPS), "--save_strategy", "no"]
            if TINY:
                flags += ["--max_completion_length", "160"]
            command("grpo", *flags)
            logs = [json.loads(line) for line in (out / LOG).read_text("utf-8").splitlines()]
            steps = [log for log in logs if "clip_ratio/region_mean" in log]
            clipped = [log["clip_ratio/region_mean"] for log in steps]
            firsts = clipped[::STEPS]
            others = [share for at, share in enumerate(clipped) if at % STEPS]
            rewards = [log["reward"] for log in steps if "reward" in log]
            text = f"first steps {max(firsts):.1%}, others {fmean(others):.1%}; reward "
            text += f"{rewards[0]:.3f} to {rewards[-1]:.3f}"
            finite = all(math.isfinite(log[key]) for log in steps for key in ("loss", "grad_norm"))
            is_whole = len(steps) == GENERATIONS * STEPS
            row(what, BOUND, text, is_whole and finite and max(firsts) == 0)


if __name__ == "__main__":
    report(check)
