"""What is sent of the folder of a trained model.

    README.md                  the card, made for the place where it goes
    training.json              the record of the training
    model.safetensors          or its shards and their index, with config.json and
                               generation_config.json; or
    adapter_model.safetensors  with adapter_config.json, in which the base model has the name that
                               it has on the Hub, and not a folder of this machine
    tokenizer.json, ...        what the tokenizer needs, and the chat template
    evaluation/evaluation.json the figures before and after, if it was measured

Checkpoints, states of optimizers, logs and the runs of an evaluation stay there and are named.
"""

from __future__ import annotations

import json
from pathlib import Path

from heavydistill.errors import HeavydistillError, PublishError
from heavydistill.hub.measured import FIGURES, comparison_in
from heavydistill.hub.model_card import model_card
from heavydistill.hub.notes import CARD
from heavydistill.hub.origin import Base, check_origin, origin_of
from heavydistill.hub.parcel import Parcel, Wish, check_wish, kept_back, refuse_links
from heavydistill.hub.publish import Published, check_access, publish
from heavydistill.hub.secrets import known_secrets, refuse_secrets
from heavydistill.hub.weights import ADAPTER_CONFIG, is_adapter, is_weights, weights_of
from heavydistill.store.sets.folder import CHAT_TEMPLATE
from heavydistill.store.training_record import RECORD, TrainingRecord, read_record

_FULL_CONFIGS = ("config.json", "generation_config.json")
_TOKENIZER_CONFIG = "tokenizer_config.json"
_TOKENIZER = (
    "tokenizer.json",
    _TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    CHAT_TEMPLATE,
)


def pack_model(folder: Path, wish: Wish) -> Parcel:
    """Check everything that can be checked here, and make the card; changes and asks nothing.

    Raises:
        PublishError: The name of the repository or licence is malformed, the training has not
            ended, weights or what loads them are missing or not whole, a link leads out of the
            folder, the terms do not allow it, or a key stands in a text.
        ConfigError: There is no record or one of another version, or a profile is none.
    """
    check_wish(wish)
    refuse_links(folder, RECORD, _is_of_model)
    record = read_record(folder)
    if record.result is None:
        raise PublishError(
            f"The training in {folder} has not ended",
            "Wait for its end, or let it go on from its last checkpoint.",
        )
    names = [*weights_of(folder), *_others(folder)]
    check_origin(record, wish)
    text = model_card(
        record,
        folder,
        wish.repo_id,
        revision=wish.revision,
        licence=wish.licence,
        profiles=wish.profiles,
    )
    files: dict[str, Path | bytes] = {CARD: text.encode(), RECORD: folder / RECORD}
    files |= {name: folder / name for name in names}
    if is_adapter(folder):
        base = origin_of(record, wish.profiles).base
        files[ADAPTER_CONFIG] = _portable(folder / ADAPTER_CONFIG, base)
    comparison = comparison_in(folder)
    secrets = known_secrets(record.model_dump(), comparison.config if comparison else {})
    refuse_secrets(files, secrets, "train again without it")
    return Parcel(
        kind="model",
        files=files,
        kept_back=kept_back(folder, files),
        message=f"Model of heavydistill {record.heavydistill}",
        mark=RECORD,
        is_of_kind=_is_of_model,
    )


def check_before(record: TrainingRecord, folder: Path, wish: Wish) -> None:
    """Before a training, find out whether its model can be published; makes the repository.

    Args:
        record: Of the training, without a result.
        folder: Where the model will be.
        wish: How it will be published.

    Raises:
        PublishError: Names, licence or terms do not allow it, or as of ``check_access``.
        RunError: As of ``check_access``.
    """
    check_wish(wish)
    try:
        check_origin(record, wish)
    except PublishError as error:
        later = f"`heavydistill publish {folder} --to {wish.repo_id}`"
        fix = f"Train without push_to_hub, and publish afterwards: {later} has flags for that."
        raise PublishError(error.what, fix) from error
    check_access(wish)


def publish_trained(folder: Path, wish: Wish) -> Published:
    """Pack and publish a model right after its training; a fault tells how to do it later.

    Raises:
        HeavydistillError: As of ``pack_model`` and ``publish``, of the same kinds.
    """
    try:
        return publish(pack_model(folder, wish), wish)
    except HeavydistillError as error:
        again = f"`heavydistill publish {folder} --to {wish.repo_id}`"
        fix = f"The model is in {folder}; once that is mended, send it with {again}."
        raise type(error)(error.what, fix) from error


def _others(folder: Path) -> list[str]:
    """What weights need to be of use, and the figures."""
    configs = (ADAPTER_CONFIG,) if is_adapter(folder) else _FULL_CONFIGS
    there = [name for name in (*configs, *_TOKENIZER, FIGURES) if (folder / name).is_file()]
    for name in (configs[0], _TOKENIZER_CONFIG):
        if name not in there:
            raise PublishError(
                f"{folder} lacks {name}, without which nobody can load the model",
                "Train again, or put back the file.",
            )
    return there


def _portable(config: Path, base: Base) -> bytes:
    """The configuration of an adapter, with a base model that others can find."""
    try:
        tree = json.loads(config.read_bytes())
        tree |= {"base_model_name_or_path": base.hub or base.name, "revision": base.revision}
    except (ValueError, TypeError) as error:
        raise PublishError(f"{config} is no configuration", "Train again.") from error
    return (json.dumps(tree, indent=2, ensure_ascii=False) + "\n").encode()


def _is_of_model(path: str) -> bool:
    return is_weights(path) or path in (*_FULL_CONFIGS, ADAPTER_CONFIG, *_TOKENIZER, FIGURES)
