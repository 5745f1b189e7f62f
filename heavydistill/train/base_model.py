"""The model to train: its location, its tokenizer and its chat template.

The chat template comes from ``chat_template_path`` if it is set; otherwise from the folder of sets,
where the build stored a repaired one; otherwise from the model.

Of a vision-language model, the text tower is trained and the rest stays as it is
(``models.local.architecture``). Not covered: an adapter as the base model (merge it first).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.chat.student import generation_settings, stops_of
from heavydistill.chat.template import Chat, own_template, read_template
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models.hub_files import file_in, unloadable
from heavydistill.models.local.architecture import TextTower, model_class, text_tower
from heavydistill.models.local.engine import local_revision
from heavydistill.models.registry import profile_file
from heavydistill.store.redact import name_alone
from heavydistill.store.training_record import RECORD, BaseModelUsed, TrainingRecord, read_record

if TYPE_CHECKING:
    from transformers import PreTrainedConfig
    from transformers import PreTrainedTokenizerBase as Tokenizer

    from heavydistill.train.arguments import TrainArguments, TrainingOptions
    from heavydistill.train.datasets import SetsFolder

_CHECKPOINT = "a folder with a transformers checkpoint (config.json and tokenizer.json)"
_QUESTION, _ANSWER = "3f9c1a57 question", "8d02b6e4 answer"


@dataclass(frozen=True, slots=True)
class BaseCheckpoint:
    """A base model before its weights are loaded. Its tokenizer uses the template of ``chat``."""

    name: str  # Name of the model's folder, id on the Hub, or name of a profile
    path: str  # Folder or Hub id from which transformers loads the model
    revision: str  # Commit on the Hub, or a digest of the files
    tokenizer: Tokenizer
    chat: Chat
    context: int  # Maximum number of tokens of prompt and response together
    vocabulary: int  # Rows of the output layer, which may be more than the tokenizer has tokens
    is_quantized: bool  # Whether the checkpoint itself is quantized
    tower: TextTower | None
    """The part to train of a vision-language model; None if the whole model is text."""
    training: TrainingRecord | None
    """Record of the training that made this model; None if there is none."""

    @property
    def used(self) -> BaseModelUsed:
        """Return the description of this model that a training's record stores."""
        return BaseModelUsed(
            name=self.name,
            revision=self.revision,
            template_sha256=self.chat.sha256,
            architecture=self.tower.architecture if self.tower else "",
            training=self.training,
        )


def locate_base(given: str, revision: str | None = None) -> str:
    """Return the folder or Hub id of the model to train, without importing transformers.

    Raises:
        ConfigError: The model is an adapter.
        TeacherError: There is no such model.
    """
    path = given
    with contextlib.suppress(TeacherError):
        if file := profile_file(given):  # template of a profile
            path = file.folder or file.hub or given
    if (Path(path) / "adapter_config.json").is_file():
        raise ConfigError(
            f"{given} is an adapter, and a training needs a whole model",
            f"Merge it first: heavydistill merge --adapter {given} --out {given}-merged",
        )
    try:
        file_in(path, "config.json", revision)
    except Exception as error:  # not found or no network; the Hub's library has its own exceptions
        raise unloadable("model", given, error, _CHECKPOINT) from error
    return path


def load_base(
    arguments: TrainArguments[TrainingOptions], found: Sequence[SetsFolder]
) -> BaseCheckpoint:
    """Find the model named in the arguments, and load its tokenizer.

    Raises:
        ConfigError: As ``load_checkpoint``; or its template differs from the sets' template, or the
            sets have different templates.
        TeacherError: The model cannot be loaded.
    """
    return load_checkpoint(
        str(arguments.model.model_name_or_path),
        arguments.model.model_revision,
        arguments.config.trust_remote_code,
        lambda tokenizer: _template(arguments, tokenizer, found),
    )


def load_checkpoint(
    given: str,
    revision: str | None,
    has_own_code: bool,
    template_of: Callable[[Tokenizer], str] = own_template,
) -> BaseCheckpoint:
    """Find a model, and load its tokenizer with the template of ``template_of``.

    Raises:
        ConfigError: The model is an adapter; it is no causal language model, or a vision-language
            model whose text tower is not known; its template has no generation prompt.
        TeacherError: The model cannot be loaded.
    """
    from transformers import AutoConfig, AutoTokenizer

    path = locate_base(given, revision)
    options = {"revision": revision, "trust_remote_code": has_own_code}
    try:
        whole = AutoConfig.from_pretrained(path, **options)
        config = whole.get_text_config()
        # TRL decodes with this tokenizer, and cleaning up spaces would change the text
        # (``models.http.completion``).
        tokenizer = AutoTokenizer.from_pretrained(
            path, clean_up_tokenization_spaces=False, **options
        )
        commit = getattr(whole, "_commit_hash", None) or local_revision(path)
    except Exception as error:  # no such model, network or tokenizer; these share no base class
        raise unloadable("model", given, error, _CHECKPOINT) from error
    tower = _text_tower(whole, given, has_own_code)
    template = template_of(tokenizer)
    chat = Chat(tokenizer, stops_of(path), template)
    _check_opening(chat, given)
    if len(tokenizer) > config.vocab_size:
        raise ConfigError(
            f"The tokenizer of {given} has {len(tokenizer):,} tokens, but the model has only "
            f"{config.vocab_size:,}: the tokenizer belongs to another model",
            "Give the model with its own tokenizer.",
        )
    tokenizer.chat_template = template
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = _pad_token(tokenizer, generation_settings(path).get("pad_token_id"))
    training = read_record(Path(path)) if (Path(path) / RECORD).is_file() else None
    return BaseCheckpoint(
        name=name_alone(given),
        path=path,
        revision=commit,
        tokenizer=tokenizer,
        chat=chat,
        context=config.max_position_embeddings,
        vocabulary=config.vocab_size,
        is_quantized=getattr(whole, "quantization_config", None) is not None,
        tower=tower,
        training=training,
    )


def _text_tower(config: PreTrainedConfig, name: str, has_own_code: bool) -> TextTower | None:
    """Return the text tower of a vision-language model; None for a model of text."""
    fix = "Give a causal language model, or Qwen3.5, Qwen3.6 or Gemma 4."
    try:
        tower = text_tower(config)
    except ValueError as error:
        raise ConfigError(f"{name} cannot be trained: {error}", fix) from error
    named = next(iter(config.architectures or ()), "no class")
    # TRL loads the class by this name.
    if model_class(config).__name__ != named and not has_own_code:
        raise ConfigError(
            f"{name} cannot be trained: `architectures` in its config.json names {named}, which "
            "does not write text in this version of transformers",
            fix,
        )
    return tower


def _pad_token(tokenizer: Tokenizer, pad: object) -> str:
    """Return the pad token of the base's generation settings, or else the end of sequence.

    Padding with the end of sequence would also make it the pad token of the saved model.
    """
    known = isinstance(pad, int) and 0 <= pad < len(tokenizer)
    return str(tokenizer.convert_ids_to_tokens(pad) if known else tokenizer.eos_token)


def _template(
    arguments: TrainArguments[TrainingOptions], tokenizer: Tokenizer, found: Sequence[SetsFolder]
) -> str:
    name = arguments.model.model_name_or_path
    if arguments.config.chat_template_path is not None:
        return read_template(Path(arguments.config.chat_template_path), "--chat_template_path")
    texts = {sets.template for sets in found}
    if len(texts) > 1:
        names = ", ".join(sorted({sets.name for sets in found}))
        raise ConfigError(
            f"The sets {names} have different chat templates",
            "Build them for the same student, or give a template with --chat_template_path FILE.",
        )
    template = next(iter(texts), "") or own_template(tokenizer)
    chat = Chat(tokenizer, template=template)
    for sets in found:
        student = sets.manifest.student
        if student.template_sha256 != chat.sha256:
            raise ConfigError(
                f"{sets.name} was built for {student.name}, but {name} has another chat template",
                f"Build the sets with --student {name}, or give --chat_template_path FILE.",
            )
    return template


def _check_opening(chat: Chat, name: str) -> None:
    """Raise an error if prompts of this template do not end with the start of an assistant turn.

    The model would then learn to write control tokens itself, and servers would prompt it
    differently.
    """
    question = [{"role": "user", "content": _QUESTION}]
    answer = [{"role": "assistant", "content": _ANSWER}]
    try:
        closed, opened = chat.render(question), chat.render(question, opens=True)
        whole = chat.render([*question, *answer])
    except ValueError:
        return  # rows that cannot be rendered are reported by the guard
    header = whole.removeprefix(opened).partition(_ANSWER)[0]
    if closed == opened and whole.startswith(opened) and chat.control_token(header):
        raise ConfigError(
            f"The chat template of {name} does not end prompts with the answer's header {header!r}",
            "Copy the template, and let the copy write this header at the end of a prompt if "
            "add_generation_prompt is true. Build the sets with --chat-template FILE, and train "
            "with --chat_template_path FILE.",
        )
