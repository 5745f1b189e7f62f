"""The commands ``sft``, ``grpo`` and ``distill``: check, print, train, evaluate, publish."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from heavydistill.config.run import load_config
from heavydistill.config.shipped import shipped_file
from heavydistill.errors import ConfigError, RunError
from heavydistill.hub.model_card import write_model_card
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.publish import check_before, publish_trained
from heavydistill.models.hub_files import parameters_in
from heavydistill.problems.procedural import seeds_used
from heavydistill.report.terminal import going_on, print_command
from heavydistill.sandbox.memory import free_memory
from heavydistill.store.training_record import EVALUATION, TrainingRecord
from heavydistill.train import checkpoints
from heavydistill.train.arguments import TrainingOptions, given_values
from heavydistill.train.base_model import locate_base
from heavydistill.train.datasets import locate, locate_source
from heavydistill.train.distill.options import DistillOptions
from heavydistill.train.grpo.options import GrpoOptions
from heavydistill.train.launch import is_main
from heavydistill.train.sft.options import SftOptions, folder_of, roles_of, sources_of

_MEASURED = 300  # problems; an interval of a share is then at most +-6 points
# Variables that a launcher sets for its processes, and that child processes must not inherit.
_OF_LAUNCH = re.compile(
    r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|LOCAL_WORLD_SIZE|ROLE_NAME|MASTER_(ADDR|PORT)|"
    r"(ACCELERATE|TORCHELASTIC|FSDP|TORCH_NCCL)_.*"
)


def sft(**arguments: object) -> TrainingRecord:
    """Train on sets with TRL's SFT in this process, as ``heavydistill sft`` does.

    The arguments are its flags, e.g. ``model_name_or_path="Qwen/Qwen3-4B", role="deliberator"``;
    ``config`` is a file, or the name of a shipped one. The log is ``log.jsonl`` in ``output_dir``.

    Returns:
        Content of ``training.json``; without a ``result`` after a ``dry_run``.

    Raises:
        UserError: The user can fix the cause; nothing was trained.
        RunError: The training failed; whole checkpoints remain.
    """
    return _train(SftOptions, arguments)


def grpo(**arguments: object) -> TrainingRecord:
    """Train with TRL's GRPO in this process, as ``heavydistill grpo`` does; like ``sft``."""
    return _train(GrpoOptions, arguments)


def distill(**arguments: object) -> TrainingRecord:
    """Learn from a teacher on the student's own responses, as ``heavydistill distill`` does; like
    ``sft``."""
    return _train(DistillOptions, arguments)


def _train(options: type[TrainingOptions], arguments: Mapping[str, object]) -> TrainingRecord:
    words = []
    for name, given in arguments.items():
        if given is None:
            continue
        values = given if isinstance(given, list | tuple) else [given]
        texts = [str(v) if isinstance(v, str | Path) else json.dumps(v) for v in values]
        words += [f"--{name}={texts[0]}"] if len(texts) == 1 else [f"--{name}", *texts]
    check_files(options, given_values(options, words))
    with _without_bars():
        return run_script(options.script, words, is_shown=False)


def check_files(
    options: type[TrainingOptions], values: Mapping[str, Any], on_this_machine: bool = True
) -> None:
    """Check what can be checked before torch and TRL are imported, which takes many seconds.

    Args:
        options: Class of our arguments of the training.
        values: Given values by name; see ``given_values``.
        on_this_machine: Whether this process trains; a launcher's processes check for a GPU.

    Raises:
        UserError: There are no such sets, no such model or no such file; ``output_dir`` has a
            training; or the training computes in bfloat16 and there is no GPU.
    """
    if on_this_machine:
        _require_gpu(options.script, values)
    sources = sources_of(values) if options.script == "sft" else ()
    for source in sources:
        locate_source(source)
    if values.get("dataset_name") and not sources:
        locate(values["dataset_name"], ())
    for key, kind in (("run", "generate"), ("evaluate", "evaluate")):
        if values.get(key):
            load_config(shipped_file(kind, values[key]))
    for model in ("model", *["teacher_model"] * (not values.get("teacher_endpoint"))):
        if given := values.get(f"{model}_name_or_path"):
            locate_base(given, values.get(f"{model}_revision"))
    if on_this_machine:
        _require_memory(values)
    if output := values.get("output_dir") or (sources and folder_of(roles_of(sources))):
        checkpoints.start_of(Path(output), values.get("resume_from_checkpoint"))


def _require_gpu(script: str, values: Mapping[str, object]) -> None:
    """Raise ConfigError if bfloat16 is asked for, by default or explicitly, and there is no GPU."""
    computes_in_bf16 = values.get("bf16", not values.get("fp16"))
    if computes_in_bf16 and not _is_on_cpu(values) and not may_have_gpu():
        name = f"micro/{values.get('mode', 'deliberator')}" if script == "grpo" else "micro"
        raise ConfigError(
            "This training computes in bfloat16 on a GPU, and this machine has none",
            f"--config {name} is for CPUs; any other training of a small model runs on one with "
            "--use_cpu true --bf16 false.",
        )


def _is_on_cpu(values: Mapping[str, object]) -> bool:
    """Return whether a CPU is asked for."""
    by_launcher = os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
    return bool(values.get("use_cpu")) or by_launcher


def _require_memory(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if what a training on a CPU holds at all times exceeds the free memory.

    That are the weights, and as much for gradients and twice as much for AdamW if all are trained.
    Not covered: activations, and models that are not in a folder.
    """
    free, model = free_memory(), values.get("model_name_or_path")
    if free is None or not model or not (_is_on_cpu(values) or not may_have_gpu()):
        return
    count = parameters_in(Path(locate_base(model, values.get("model_revision"))))
    size = 2 if values.get("dtype") in ("bfloat16", "float16") else 4
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    needed = count * size * (1 if values.get("use_peft") else 4) * processes
    if needed <= free:
        return
    held, ways = "the weights", "take fewer processes or a smaller model, or end other programs."
    if not values.get("use_peft"):
        held = "weights, gradients and AdamW's averages"
        adapter = "--use_peft true --lora_target_modules all-linear --dtype bfloat16"
        ways = f"train an adapter ({adapter}, from {2 * count / 1e9:,.1f} GB), {ways}"
    raise ConfigError(
        f"A training of the {count / 1e6:,.0f} M parameters of {model} needs more than "
        f"{needed / 1e9:,.1f} GB for {held} in {processes} process{'es' * (processes > 1)}, and "
        f"{free / 1e9:,.1f} GB of memory are free",
        f"{ways[0].upper()}{ways[1:]}",
    )


def may_have_gpu() -> bool:
    """Return whether a driver of a GPU or another accelerator may be there.

    False only on Linux without the device file of any driver, or if CUDA_VISIBLE_DEVICES hides all.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    drivers = ("nvidia[0-9]*", "nvidiactl", "dxg", "kfd", "dri/render*", "accel*", "davinci*")
    devices = (path for pattern in drivers for path in Path("/dev").glob(pattern))
    return sys.platform != "linux" or any(devices)


def run_script(script: str, words: Sequence[str], is_shown: bool = True) -> TrainingRecord:
    """Run a training from its flags to the model, its card, its evaluation and its publication.

    Prints its progress if ``is_shown``. Returns the record, without a result after a dry run.
    """
    is_shown = is_shown and is_main()
    with going_on("loading the libraries", is_shown):
        from heavydistill.train.callbacks import LOG

        stage = importlib.import_module(f"{__package__}.{script}.train")
    arguments = dataclasses.replace(stage.parse(words), is_shown=is_shown)
    config = arguments.config
    folder = Path(config.output_dir)
    options = None
    if config.push_to_hub:
        options = PublishOptions(
            repo_id=config.hub_model_id,
            revision=config.hub_revision,
            private=bool(config.hub_private_repo),
            licence=config.license,
        )
    with going_on("reading the model's files and the sets", is_shown):
        plan = stage.prepare(arguments)
    if is_main():
        _print_summary(stage.summary(plan), is_shown)
    record: TrainingRecord = plan.record
    if config.dry_run:
        return record
    if options and is_main():
        check_before(record, folder, options)
    with going_on("training", is_shown):
        record = stage.train(plan)
    result = record.result
    if not is_main():
        return record
    write_model_card(folder)
    if result and result.is_unlearnt:
        is_rewarded = record.stage == "grpo"
        cut = result.rollouts["verdict/cut_off" if is_rewarded else "completions/clipped_ratio"]
        raise RunError(
            f"Nothing was learnt, and {folder} has the unchanged model: no response "
            f"{'earned a reward' if is_rewarded else 'ended'}, and {cut.last:.0%} of the last ones "
            f"were cut off at {config.max_completion_length:,} tokens",
            "Raise max_completion_length, or teach shorter responses first, by `heavydistill sft`.",
        )
    base = str(arguments.model.model_name_or_path)
    following = evaluation_command(record, folder, base)
    if config.evaluate:
        evaluate(Path(config.evaluate), base, folder)
        write_model_card(folder)
        following = ["heavydistill", "report", str(folder / EVALUATION)]
    url = publish_trained(folder, options).url if options else ""
    if is_shown:
        print(f"The model is in {folder}\nAll figures of the training: {folder / LOG}", flush=True)
        if url:
            print(f"Published: {url}", flush=True)
        print_command("Next", following, Console())
    return record


def _print_summary(lines: Sequence[tuple[str, str]], is_shown: bool) -> None:
    """Print lines of a label and a text; only warnings unless ``is_shown``."""
    width = max(len(what) for what, _ in lines)
    for what, how_much in lines:
        if is_shown or what == "warning":
            print(f"{what:<{width}}  {how_much}", flush=True)


def evaluation_command(record: TrainingRecord, folder: Path, base: str) -> list[str]:
    """Return the command that compares a trained model with its base on problems not trained on.

    Generated problems get another seed; otherwise FILE is a placeholder for the user's file. The
    size of pools and caches and the lengths are those of the runs that it was trained on: a model
    that has seen four attempts need not read eight. A deliberator gets controls. The output is next
    to ``folder``: inside it, the next training would be refused.
    """
    runs = [run.config for sets in record.sets for run in sets.manifest.runs if run.config]
    if record.rl and record.rl.run:
        runs.append(record.rl.run)
    words = ["heavydistill", "evaluate", "--before", base]
    words += [word for role in record.roles for word in (f"--{role}", str(folder))]
    sources = [run.get("problems") or {} for run in runs]  # empty if the answers were imported
    names = {source.get("source", "") for source in sources}
    if len(names) == 1 and (name := names.pop()).partition(":")[0] in ("micro", "gym"):
        words += ["--problems", name, *_other_problems(sources)]
    else:
        words += ["--problems", "FILE"]
    words += _as_trained(record, runs)
    return [*words, "--out", f"{folder}-{EVALUATION}"]


def _other_problems(sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the flags of generated problems of the same kinds as these, from another seed."""
    seed = max(source.get("seed", 0) + seeds_used(source) for source in sources)
    words = [f"problems.seed={seed}", f"problems.size={_MEASURED}"]
    gym = {family: of for source in sources for family, of in source.get("gym", {}).items()}
    words += [f"problems.gym.{family}={json.dumps(options)}" for family, options in gym.items()]
    if templates := list(dict.fromkeys(t for s in sources for t in s.get("templates") or ())):
        words.append(f"problems.templates={json.dumps(templates)}")
    flags = [flag for word in words for flag in ("--set", word)]
    if rewrite := next(filter(None, (source.get("rewrite") for source in sources)), ""):
        flags += ["--set", f"problems.rewrite={rewrite}", "--plugin", "FILE"]
    return flags


def _as_trained(record: TrainingRecord, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the flags of pools, caches and lengths that are those of the training, and controls.

    A limit of tokens is that of the runs, but at most the longest row of the training.
    """
    deliberated = [run for run in runs if (run.get("deliberate") or {}).get("d")]
    words = []
    if deliberated and "deliberator" in record.roles:
        sizes = [(run["think"]["k"], (run.get("cache") or {}).get("width")) for run in deliberated]
        k, width = max(k for k, _ in sizes), max(width or k for k, width in sizes)
        words = ["--k", str(k), *(["--set", f"cache.width={width}"] if width < k else [])]
    for stage, of_stage in (("think", runs), ("deliberate", deliberated)):
        sampling = [(run.get(stage) or {}).get("sampling") or {} for run in of_stage]
        limits = [each.get("max_tokens") for each in sampling]
        if most := max(filter(None, limits), default=0):
            tokens = min(most, record.max_length)
            words += ["--set", f"{stage}.sampling.max_tokens={tokens}"]
    return [*words, *(["--controls", "alone,garbled"] if "deliberator" in record.roles else [])]


def evaluate(config: Path, before: str, folder: Path) -> None:
    """Evaluate the base (``before``) and the model in ``folder`` with ``heavydistill evaluate``.

    Raises:
        RunError: The evaluation failed; the command has already printed its error.
    """
    import torch

    gc.collect()  # a trainer and its model reference each other
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # frees GPU memory for the child process
    models = ["--thinker", str(folder), "--deliberator", str(folder), "--before", before]
    # One journal for all trainings in a folder, so that the base is evaluated once.
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


@contextlib.contextmanager
def _without_bars() -> Iterator[None]:
    """Turn off the bars of ``datasets``, which would disturb our progress line."""
    from datasets import utils

    had_bars = not utils.are_progress_bars_disabled()
    utils.disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            utils.enable_progress_bars()
