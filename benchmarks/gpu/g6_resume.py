"""G6: is a killed training, resumed, the training that was never killed?

``scripts/sft.py`` with configs/sft/4b-lora.yaml trains a 0.6B model in 20 steps. The same training
is killed by SIGKILL after step 12 and resumed with --resume_from_checkpoint true. Data order,
optimizer, schedule and random states have to come from the checkpoint.

Bound: the losses of both differ by at most a tenth of the median change from step to step. On a GPU
sums without a fixed order may make some difference; a training that goes on elsewhere makes one of
the size of such a change.
"""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from shared import ROOT, checkpoint, command, measuring, named, report, row, sets, sft_flags

from heavydistill.train.callbacks import LOG

STEPS, KILLED_AFTER = 20, 12
SCRIPT = ROOT / "scripts" / "sft.py"


def losses(folder: Path) -> dict[int, float]:
    """The loss of each step in the log of a training."""
    lines = (folder / LOG).read_text("utf-8").splitlines() if (folder / LOG).exists() else []
    logs = [json.loads(line) for line in lines if line.endswith("}")]
    return {log["step"]: log["loss"] for log in logs if "loss" in log}


def check() -> None:
    """A killed training, resumed"""
    what = f"losses of {named('0.6B')}, SFT killed after step {KILLED_AFTER} of {STEPS}, resumed"
    bound = "differ by a tenth of a step's change"
    model = checkpoint(Path("model"), "0.6B")
    data = sets(Path("data"), model)
    keys: dict[str, Any] = {"max_steps": STEPS, "gradient_accumulation_steps": 1}
    keys |= {"save_strategy": "steps", "save_steps": 5}
    keys |= {"learning_rate": 1e-3, "lr_scheduler_type": "constant"}

    def train(out: str, **more: Any) -> None:
        command("sft", *sft_flags("4b-lora", model, data, Path(out), **keys, **more))

    with measuring(what, bound):
        train("whole")
        flags = sft_flags("4b-lora", model, data, Path("killed"), **keys)
        process = subprocess.Popen([sys.executable, SCRIPT, *flags])
        while process.poll() is None and max(losses(Path("killed")), default=0) < KILLED_AFTER:
            time.sleep(0.01)
        process.kill()
        if process.wait() != -signal.SIGKILL:
            raise RuntimeError(f"the training ended with code {process.returncode} by itself")
        train("killed", resume_from_checkpoint="true")
        whole, resumed = losses(Path("whole")), losses(Path("killed"))
        most = max(abs(whole[step] - resumed[step]) for step in whole)
        change = median(abs(one - other) for one, other in itertools.pairwise(whole.values()))
        text = f"{most:.2g}; a step changes {change:.2g}"
        row(what, bound, text, most <= change / 10 and len(whole) == len(resumed) == STEPS)


if __name__ == "__main__":
    report(check)
