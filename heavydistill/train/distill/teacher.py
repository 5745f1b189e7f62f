"""The teacher of a distillation: whether it fits the student, and how it is loaded.

Student and teacher read the same token ids, and their distributions are compared word by word. So
before any weights are loaded, these are compared:

    vocabulary   every token has the same id in both tokenizers
    template     every prompt of the training is rendered to the same text by both templates
    tokenizer    prompts of the training, at most ``_PROBES``, become the same ids
    ends         at least one token ends a response for both
    context      the longest prompt and a response fit the teacher

The output layers of one family may have different numbers of rows, padded beyond the tokenizer's
length for speed. Then both are cut to the tokenizer's length for the loss (``trainer``).

A teacher behind a server is looked at by ``served``.

Not covered: a teacher of another tokenizer; whether it is any better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heavydistill.chat.template import Messages
from heavydistill.errors import ConfigError
from heavydistill.store.training_record import Launch
from heavydistill.text.words import parts_at
from heavydistill.train.base_model import BaseCheckpoint, load_checkpoint
from heavydistill.train.distill.options import DistillOptions
from heavydistill.train.distill.served import ServedTeacher, find_served
from heavydistill.train.rollouts.data import Prompts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_PROBES = 64
_OTHER = "Give a teacher of the student's family"


def find_teacher(
    config: DistillOptions, base: BaseCheckpoint, prompts: Prompts, launch: Launch
) -> BaseCheckpoint | ServedTeacher:
    """Find the teacher that ``config`` names, and compare it with the student ``base``.

    Raises:
        ConfigError: The teacher does not fit the student, the prompts or this machine.
        TeacherError: The teacher cannot be loaded, or its server cannot be used.
    """
    if config.teacher_server:
        return find_served(config, base, prompts, launch)
    given, revision = config.teacher_model_name_or_path, config.teacher_model_revision
    teacher = load_checkpoint(str(given), revision, config.trust_remote_code)
    if teacher.is_quantized and launch.device == "cpu":
        raise ConfigError(
            f"The teacher {teacher.name} is quantized, which needs a GPU, and this training runs "
            "on a CPU",
            "Give the teacher in its original precision, or leave out --use_cpu on a machine with "
            "a GPU.",
        )
    _check_vocabulary(base, teacher)
    if teacher.vocabulary != base.vocabulary and launch.engine.startswith(("zero3", "fsdp")):
        raise ConfigError(
            f"The output layers of {base.name} ({base.vocabulary:,} rows) and of the teacher "
            f"{teacher.name} ({teacher.vocabulary:,}) would have to be cut to the tokenizer's "
            f"length, and {launch.engine} spreads them over processes",
            "Launch with --accelerate zero2 or ddp.",
        )
    _check_prompts(base, teacher, prompts)
    longest = prompts.longest_of_teacher(base)
    needed = longest + int(config.max_completion_length or 0)
    if needed > teacher.context:
        raise ConfigError(
            f"The teacher {teacher.name} reads {teacher.context:,} tokens, but the longest prompt "
            f"({longest:,}) and a response of {config.max_completion_length:,} have "
            f"{needed:,}",
            "Give a smaller --max_completion_length, sets with a smaller max_tokens, or another "
            "teacher.",
        )
    return teacher


def _check_vocabulary(base: BaseCheckpoint, teacher: BaseCheckpoint) -> None:
    mine, theirs = base.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    if different := {name for name, _ in mine.items() ^ theirs.items()}:
        raise ConfigError(
            f"The tokenizers of {base.name} and of the teacher {teacher.name} differ in "
            f"{len(different):,} tokens, such as {min(different)!r}, and their distributions "
            "cannot be compared",
            f"{_OTHER}, whose tokenizer is the same.",
        )
    if not base.chat.stops & teacher.chat.stops:
        raise ConfigError(
            f"No token ends a response of both {base.name} and the teacher {teacher.name}",
            f"{_OTHER} that is tuned for the same chat template.",
        )


def _check_prompts(base: BaseCheckpoint, teacher: BaseCheckpoint, prompts: Prompts) -> None:
    for number, prompt in enumerate(prompts.train["prompt"]):
        mine, theirs = base.chat.render(prompt, opens=True), _rendered(teacher, prompt)
        if mine != theirs:
            at = parts_at(mine, theirs)
            raise ConfigError(
                f"The chat templates of {base.name} and of the teacher {teacher.name} write the "
                f"prompts of the training differently: {mine[at : at + 40]!r} and "
                f"{theirs[at : at + 40]!r}",
                f"{_OTHER} with the same template, or build the sets and train with the teacher's: "
                "`heavydistill build --chat-template FILE` and --chat_template_path FILE.",
            )
        if number < _PROBES and base.chat.ids(mine) != teacher.chat.ids(theirs):
            raise ConfigError(
                f"The tokenizers of {base.name} and of the teacher {teacher.name} have the same "
                "tokens, but split the prompts of the training differently",
                f"{_OTHER}, whose tokenizer is the same.",
            )


def _rendered(teacher: BaseCheckpoint, prompt: Messages) -> str:
    try:
        return teacher.chat.render(prompt, opens=True)
    except ValueError as error:
        return f"[{error}]"


def load_teacher(
    config: Any, teacher: BaseCheckpoint, base: BaseCheckpoint, launch: Launch
) -> PreTrainedModel:
    """Load the weights of the teacher, in the precision of the computation unless one is given.

    TRL would load them in float32 on a CPU and GPU alike, and refuses another vocabulary size than
    the student's; the configuration of the model in memory gets that of ``base``.

    Raises:
        ConfigError: The teacher does not fit on the GPUs.
    """
    from trl.trainer.utils import create_model_from_path

    computed = "bfloat16" if config.bf16 else "float16" if config.fp16 else "float32"
    options = {
        "dtype": computed,
        "revision": config.teacher_model_revision,
        "attn_implementation": launch.attention,
        "trust_remote_code": config.trust_remote_code,
        **(config.teacher_model_init_kwargs or {}),
    }
    # Several processes have one device each.
    if config.distributed_state.distributed_type in ("MULTI_GPU", "DEEPSPEED"):
        options["device_map"] = None
    model = create_model_from_path(teacher.path, **options)
    places = [*getattr(model, "hf_device_map", {}).values()]
    if elsewhere := sum(place in ("cpu", "disk") for place in places) * (launch.device != "cpu"):
        raise ConfigError(
            f"The teacher {teacher.name} is too large for the GPUs: {elsewhere} of its "
            f"{len(places)} parts would be computed on the processor",
            "Give a smaller teacher, more GPUs with --accelerate zero3, or a teacher behind a "
            "server: --teacher_endpoint ADDRESS.",
        )
    model.config.get_text_config().vocab_size = base.vocabulary
    return model
