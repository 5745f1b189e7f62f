"""The training subcommands, whose flags are TRL's and ours."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from heavydistill.cli.verbs import Rows
from heavydistill.config.yaml import first_sentence
from heavydistill.errors import ConfigError
from heavydistill.report.terminal import print_command
from heavydistill.train.fields import Argument, own_arguments

if TYPE_CHECKING:
    from heavydistill.train.arguments import TrainingOptions
    from heavydistill.train.merge import MergeResult

# The flags listed by `--help`, in this order, with our text where TRL's does not fit our use.
_USED = (
    *("config", "model_name_or_path", "teacher_model_name_or_path", "dataset_name", "role"),
    *("mode", "run", "output_dir"),
    *("resume_from_checkpoint", "dry_run", "accelerate", "num_processes"),
)
_TEXTS = {
    "config": "YAML file with flags as keys; flags win. Shipped files, by name: {}.",
    "model_name_or_path": "Model to train: a folder, an id on the Hub, or a profile's name.",
    "output_dir": "Folder for the model, its record and its checkpoints.",
    "resume_from_checkpoint": "Checkpoint to continue from: a folder, or true for the last whole "
    "one in output_dir.",
    "accelerate": "How many processes train and what they share: an accelerate file, or a shipped "
    "one by name: {}. [default: one process]",
}
_FILES = ("config", "accelerate")
_VALUES = {None: "TEXT", int: "N", float: "X"}


def _rows(script: str) -> Rows:
    """Return the help of all flags of a training; the common ones are under ``Options``."""
    from heavydistill.config.shipped import shipped
    from heavydistill.train.arguments import known_arguments
    from heavydistill.train.launch import FLAGS

    options = options_of(script)
    ours, launcher = own_arguments(options), {name: Argument(name, "int") for name in FLAGS}
    theirs = {name: each for name, each in known_arguments(options).items() if name not in ours}
    texts = {**FLAGS, **{name: each.help for name, each in ours.items()}, **_TEXTS}
    files = [
        name
        for name in shipped(f"configs/{script}")
        if name.split("/")[0] not in ("problems", "phases")
    ]
    texts["config"] = texts["config"].format(", ".join(files))
    texts["accelerate"] = texts["accelerate"].format(", ".join(shipped("configs/accelerate")))
    known = {name: Argument(name, "str") for name in _FILES} | ours | launcher | theirs
    # Nearly all distillations have sets; a list of more than ten flags is not read.
    rare = {"run"} if script == "distill" else set()
    used = [name for name in _USED if name in known and name not in rare]
    groups = {
        "Options": used,
        "Data, reward and guards": [name for name in ours if name not in used],
        "Processes": [name for name in launcher if name not in used],
        "Flags of TRL and transformers": [name for name in theirs if name not in used],
    }
    return {
        heading: [_row(known[name], texts.get(name)) for name in names]
        for heading, names in groups.items()
    }


def _row(argument: Argument, text: str | None) -> tuple[str, str]:
    """Return a flag and its help: ``text``, or the first sentence of TRL's help."""
    text = text or first_sentence(argument.help)
    words = "|".join(map(str, argument.choices))
    if len(words) > 40:
        text, words = f"{text} One of {words.replace('|', ', ')}.", "WORD"
    if argument.default not in (None, "", False) and "[default" not in text:
        text += f" [default: {argument.default}]"
    value = "NAME|FILE" if argument.name in _FILES else _VALUES[argument.number]
    return f"--{argument.name} {'' if argument.is_switch else words or value}".rstrip(), text


def sft(context: typer.Context) -> None:
    """Train a thinker, a deliberator, or one model for both on the sets of `heavydistill build`.

    `heavydistill sft --config 4b-lora --role deliberator --dataset_name sets/glm`

    Supervised fine-tuning by TRL. All flags of TRL's SFTConfig and ModelConfig work, except those
    that would cut rows, learn something else or do nothing; each says why. After a crash the same
    command with `--resume_from_checkpoint true` continues from the last whole checkpoint.
    """
    _train("sft", context.args)


def grpo(context: typer.Context) -> None:
    """Train a deliberator, a thinker, or one model for both; the reward is a verifier's verdict.

    `heavydistill grpo --config 1gpu/deliberator --model_name_or_path out/student --dataset_name
    sets/glm`

    Reinforcement learning (GRPO) by TRL, from a whole model that SFT made: merge an adapter first
    with `heavydistill merge`. All flags of TRL's GRPOConfig and ModelConfig work, except those that
    would bend the ratio or break what the reward sees; each says why. After a crash the same
    command with `--resume_from_checkpoint true` continues from the last whole checkpoint.
    """
    _train("grpo", context.args)


def distill(context: typer.Context) -> None:
    """Train a student on its own responses, each token of which a larger teacher scores.

    `heavydistill distill --config 1gpu --model_name_or_path out/student --dataset_name sets/glm`

    On-policy distillation by TRL, from a whole model that SFT made. The student deliberates on the
    caches of sets, or answers problems, and learns the teacher's distribution at every token; the
    teacher, on this machine or behind a vLLM server (`--teacher_endpoint`), must have the student's
    tokenizer and chat template. All flags of TRL's DistillationConfig and ModelConfig work, except
    those that would sample from another distribution; each says why. After a crash the same command
    with `--resume_from_checkpoint true` continues from the last whole checkpoint.
    """
    _train("distill", context.args)


def _train(script: str, words: Sequence[str]) -> None:
    from heavydistill.train.launch import exit_code

    sys.exit(exit_code(lambda: _checked(script, words)))


def options_of(script: str) -> type[TrainingOptions]:
    """Return the class of our own arguments of a training script, without importing TRL."""
    if script == "sft":
        from heavydistill.train.sft.options import SftOptions

        return SftOptions
    if script == "distill":
        from heavydistill.train.distill.options import DistillOptions

        return DistillOptions
    from heavydistill.train.grpo.options import GrpoOptions

    return GrpoOptions


def _checked(script: str, words: Sequence[str]) -> None:
    from heavydistill.config.shipped import shipped_file
    from heavydistill.train.arguments import FlagParser, given_values, spellings
    from heavydistill.train.launch import FLAGS, is_launched, launch

    parser = FlagParser(script)
    for name in ("accelerate", *FLAGS):
        parser.add_argument(*spellings(name))
    given, rest = parser.parse_known_args(words)
    chosen = {name: text for name, text in vars(given).items() if text is not None}
    options = options_of(script)
    values = given_values(options, rest, [f"--{name}" for name in ("accelerate", *FLAGS)])
    for name, text in chosen.items():
        if name not in ("accelerate", "main_process_ip") and not text.isdecimal():
            raise ConfigError(f"--{name}: {text!r} is not a whole number", f"Give --{name} N.")
    if chosen and given.accelerate is None:
        raise ConfigError(
            f"--{next(iter(chosen))} is given without --accelerate",
            "Give --accelerate ddp, or another of configs/accelerate.",
        )
    from heavydistill.train.script import check_files, run_script

    check_files(options, values, on_this_machine=not chosen)
    if not chosen:
        run_script(script, rest)
    else:
        file = shipped_file("accelerate", chosen.pop("accelerate"))
        flags = [word for name, text in chosen.items() for word in (f"--{name}", text)]
        if code := launch(file, flags, [script, *rest]):
            sys.exit(code)
    if values.get("dry_run") and not is_launched():
        print("Nothing was written.", flush=True)
        flag = FlagParser(script, {"dry_run": Argument("dry_run", "bool")})
        following = flag.parse_known_args(words)[1]
        print_command("Next", ["heavydistill", script, *following], Console())


for verb in (sft, grpo, distill):
    verb.reads_words = True  # type: ignore[attr-defined]
    verb.more_help = functools.partial(_rows, verb.__name__)  # type: ignore[attr-defined]


def merge(
    adapter: Annotated[str, typer.Option(help="Folder or Hub id of the adapter.")],
    out: Annotated[Path, typer.Option(help="New folder for the merged model.")],
    base: Annotated[
        str | None,
        typer.Option(
            help="Folder or Hub id of the base model. [default: the one that the adapter names]"
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Type of the weights: bfloat16, float16 or float32. [default: as in the base]"
        ),
    ] = None,
) -> None:
    """Merge an adapter (LoRA, rsLoRA, DoRA) into the model that it was trained on.

    `heavydistill merge --adapter out/deliberator --out out/merged`

    The new folder holds a whole model with its tokenizer and the chat template of the training, for
    transformers, `heavydistill generate --teacher out/merged` and `vllm serve out/merged`. It is
    loaded and compared with base + adapter on a prompt before it gets its name. An adapter of a
    base in 4 bits is merged into the base as it is on disk. Merging needs no GPU, and as much
    memory as the model in its own type, or in float32 with `--dtype`.
    """
    from heavydistill.train.merge import merge as merge_adapter
    from heavydistill.train.script import evaluation_command

    merged = merge_adapter(adapter, out, base, dtype)
    print(f"{out}: {adapter} merged into {merged.base}, {merged.dtype}")
    print(
        f"Largest difference of a logit to base + adapter: {merged.difference:.3g}. Rounding the "
        f"weights once changes it by {merged.rounding:.3g}, the adapter by {merged.effect:.3g}."
    )
    _print_notes(merged)
    print_command("Serve it", ["vllm", "serve", out], Console())
    if merged.record:
        following = evaluation_command(merged.record, out, merged.base)
        print_command("Next", following, Console())


def _print_notes(merged: MergeResult) -> None:
    """Print what a merged model lacks."""
    if not merged.record:
        print(
            "Note: it has no training.json, because the adapter has none or was trained on another "
            "base, so `heavydistill publish` refuses it."
        )
    if merged.is_drowned:
        print(
            f"Note: the adapter changes little more than rounding to {merged.dtype} does, so part "
            "of what it learned may be lost. Merge with --dtype float32 to keep it."
        )
