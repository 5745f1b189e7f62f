"""What the training scripts do around a training: check, print, train, measure, publish."""

from __future__ import annotations

import gc
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.errors import HeavydistillError, RunError, UserError
from heavydistill.run import interrupts

if TYPE_CHECKING:
    from heavydistill.train.arguments import TrainingOptions

# The module with ``parse``, and the one with ``prepare``, ``train`` and ``summary``; importing
# them imports TRL.
_STAGES = {"sft": ("sft", "sft"), "grpo": ("grpo.config", "grpo.train")}
# What a launcher tells its processes; a program that one of them starts is not of them.
_OF_LAUNCH = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|LOCAL_WORLD_SIZE|ROLE_NAME|MASTER_(ADDR|PORT)|"
    r"(ACCELERATE|TORCHELASTIC|FSDP|TORCH_NCCL)_.*"
)


def exit_code(
    script: Callable[[], None],
    goes_on: str = "--resume_from_checkpoint true goes on from the last checkpoint.",
) -> int:
    """Run a script and turn what it raises into a message and an exit code.

    Each of several processes names itself: what broke one may be on its machine alone.
    """
    try:
        with interrupts.recognized():
            script()
    except UserError as error:
        return _print(f"Error: {error}", 2)
    except HeavydistillError as error:
        return _print(f"The training broke: {error}", 1)
    except KeyboardInterrupt:
        return _print(f"Interrupted. {goes_on}", 130)
    return 0


def is_main() -> bool:
    """Whether this is the first process of all machines."""
    return os.environ.get("RANK", "0") == "0"


def options_of(script: str) -> type[TrainingOptions]:
    """The arguments of a script that are ours; TRL is not imported."""
    if script == "sft":
        from heavydistill.train.sft_options import SftOptions

        return SftOptions
    from heavydistill.train.grpo.options import GrpoOptions

    return GrpoOptions


def run_script(script: str, words: Sequence[str]) -> None:
    """A training from its flags to a model, its card, its figures and its place on the Hub."""
    from heavydistill.config.run import load_config
    from heavydistill.hub.model_card import write_model_card
    from heavydistill.hub.options import PublishOptions
    from heavydistill.hub.publish import check_before, publish_trained

    reader, stage = (importlib.import_module(f"{__package__}.{name}") for name in _STAGES[script])
    arguments = reader.parse(words)
    config = arguments.config
    folder = Path(config.output_dir)
    options = (
        PublishOptions(
            config.hub_model_id,
            revision=config.hub_revision,
            private=bool(config.hub_private_repo),
            licence=config.license,
        )
        if config.push_to_hub
        else None
    )
    if config.evaluate:
        load_config(Path(config.evaluate))
    plan = stage.prepare(arguments)
    if is_main():
        lines = stage.summary(plan)
        width = max(len(what) for what, _ in lines)
        for what, how_much in lines:
            print(f"{what:<{width}}  {how_much}", flush=True)
    if config.dry_run:
        return
    if options and is_main():
        check_before(plan.record, folder, options)
    result = stage.train(plan).result
    if not is_main():
        return
    write_model_card(folder)
    if result and result.is_unlearnt:
        raise RunError(
            f"Nothing was learnt, so {folder} holds the model as it was: no response earned a "
            f"reward, and {result.rollouts['verdict/cut_off'].last:.0%} of the last ones were cut "
            f"off at {config.max_completion_length:,} tokens",
            "Raise max_completion_length, or teach shorter responses first, with scripts/sft.py.",
        )
    if config.evaluate:
        evaluate(Path(config.evaluate), str(arguments.model.model_name_or_path), folder)
        write_model_card(folder)
    print(f"The model is in {folder}", flush=True)
    if options:
        print(f"Published: {publish_trained(folder, options).url}", flush=True)


def evaluate(config: Path, before: str, folder: Path) -> None:
    """Measure the base (``before``) and the model in ``folder`` with ``heavydistill evaluate``.

    Raises:
        RunError: The evaluation failed; its own message was printed.
    """
    import torch

    from heavydistill.store.training_record import EVALUATION

    gc.collect()  # a trainer and its model refer to each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # which the other process needs
    models = ["--thinker", str(folder), "--deliberator", str(folder), "--before", before]
    # One journal for all trainings in a place: the base is asked once.
    journal = ["--journal", str(folder.resolve().parent / "journal")]
    flags = ["--config", str(config), *models, "--out", str(folder / EVALUATION), *journal]
    environment = {
        name: text for name, text in os.environ.items() if not _OF_LAUNCH.fullmatch(name)
    }
    done = subprocess.run(
        [sys.executable, "-m", "heavydistill", "evaluate", *flags], env=environment
    )
    if done.returncode:
        raise RunError(
            f"The model is in {folder}; its evaluation ended with exit code {done.returncode}",
            f"Repeat it: heavydistill evaluate {' '.join(flags)}",
        )


def _print(message: str, code: int) -> int:
    several = os.environ.get("WORLD_SIZE", "1") != "1"
    process = f"[process {os.environ['RANK']}] " if several else ""
    # In one write, or the lines of processes that fail together run into each other.
    sys.stderr.write(f"{process}{message}\n")
    sys.stderr.flush()
    return code
