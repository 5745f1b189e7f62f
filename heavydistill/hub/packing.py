"""What is sent of a folder of sets or of a trained model.

Of sets:

    README.md                 the card, made for the place where it goes
    manifest.json
    chat_template.jinja       if there is one
    NAME/SPLIT-....parquet    of every set that has rows

Of a model:

    README.md                  the card
    training.json              the record of the training
    model.safetensors          or its shards and their index, with config.json and
                               generation_config.json; or
    adapter_model.safetensors  with adapter_config.json, in which the base model has the name that
                               it has on the Hub, and not a folder of this machine
    tokenizer.json, ...        what the tokenizer needs, and the chat template
    evaluation/evaluation.json the figures before and after, if it was evaluated

Whatever else lies in the folder stays there and is named: checkpoints, states of optimizers, logs
and the runs of an evaluation.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from heavydistill.errors import PublishError
from heavydistill.hub.dataset_card import dataset_card
from heavydistill.hub.model_card import FIGURES, comparison_in, model_card
from heavydistill.hub.parcel import (
    CARD,
    Parcel,
    PublishOptions,
    check_options,
    kept_back,
    known_secrets,
    refuse_links,
    refuse_secrets,
)
from heavydistill.hub.terms import Base, authors_of, check_origin, check_terms, origin_of
from heavydistill.hub.weights import ADAPTER_CONFIG, is_adapter, is_weights, weights_of
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    MANIFEST,
    SETS,
    Manifest,
    files_of,
    hashes,
    read_manifest,
)
from heavydistill.store.traces import TRACES_FOLDER
from heavydistill.store.training_record import RECORD, read_record

_CHECKPOINT = re.compile(r"checkpoint-\d+")
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


def pack(folder: Path, options: PublishOptions) -> Parcel:
    """What is sent of a folder of sets or of a trained model; changes and asks nothing.

    Raises:
        PublishError: The folder is neither, or both; a name or licence is malformed, sets are
            others than the manifest says, a link leads out of the folder, the terms do not allow
            it, or a key stands in a text; or see ``pack_model``.
        ConfigError: The manifest or the record is of another version, or a profile is none.
    """
    check_options(options)
    is_sets, is_model = ((folder / name).is_file() for name in (MANIFEST, RECORD))
    if is_sets and is_model:
        raise PublishError(
            f"{folder} holds sets ({MANIFEST}) and a trained model ({RECORD})",
            "Move one of them to a folder of its own.",
        )
    if is_sets:
        return _pack_sets(folder, options)
    if is_model:
        return pack_model(folder, options)
    raise _neither(folder)


def _pack_sets(folder: Path, options: PublishOptions) -> Parcel:
    """Check everything that can be checked here, and make the card; changes and asks nothing."""
    refuse_links(folder, MANIFEST, _is_of_sets)
    manifest = read_manifest(folder)
    _check_set_files(folder, manifest)
    check_terms(
        authors_of(manifest, options.profiles),
        allow_unknown=options.allow_unknown,
        allow_restricted=options.allow_restricted,
    )
    text = dataset_card(
        manifest,
        folder,
        options.repo_id,
        revision=options.revision,
        licence=options.licence,
        profiles=options.profiles,
    )
    files: dict[str, Path | bytes] = {
        CARD: text.encode(),
        MANIFEST: folder / MANIFEST,
        **files_of(folder),
    }
    refuse_secrets(
        files,
        known_secrets(manifest.model_dump()),
        "leave out the problem or run that has it and build the sets again",
    )
    return Parcel(
        kind="dataset",
        files=files,
        kept_back=kept_back(folder, files),
        message=f"Sets of heavydistill {manifest.heavydistill}",
        mark=MANIFEST,
        is_of_kind=_is_of_sets,
    )


def _is_of_sets(path: str) -> bool:
    name, _, file = path.rpartition("/")
    return path == CHAT_TEMPLATE or (name in SETS and file.endswith(".parquet"))


def _check_set_files(folder: Path, manifest: Manifest) -> None:
    there = hashes(folder)
    if not any(name.endswith(".parquet") for name in there):
        raise PublishError(f"{folder} holds no rows of any set", "Build the sets again.")
    if there != manifest.files:
        names = sorted({*there, *manifest.files})
        other = next(name for name in names if there.get(name) != manifest.files.get(name))
        raise PublishError(
            f"{folder / other} is not what {MANIFEST} says: it was changed, added or removed "
            "after the build",
            "Build the sets again.",
        )


def pack_model(folder: Path, options: PublishOptions) -> Parcel:
    """Check everything that can be checked here, and make the card; changes and asks nothing.

    Raises:
        PublishError: The name of the repository or licence is malformed, the training has not
            ended, weights or what loads them are missing or not whole, a link leads out of the
            folder, the terms do not allow it, or a key stands in a text.
        ConfigError: There is no record or one of another version, or a profile is none.
    """
    check_options(options)
    refuse_links(folder, RECORD, _is_of_model)
    record = read_record(folder)
    if record.result is None:
        raise PublishError(
            f"The training in {folder} has not ended",
            "Wait for its end, or let it go on from its last checkpoint.",
        )
    names = [*weights_of(folder), *_model_files(folder)]
    check_origin(record, options)
    text = model_card(
        record,
        folder,
        options.repo_id,
        revision=options.revision,
        licence=options.licence,
        profiles=options.profiles,
    )
    files: dict[str, Path | bytes] = {CARD: text.encode(), RECORD: folder / RECORD}
    files |= {name: folder / name for name in names}
    if is_adapter(folder):
        base = origin_of(record, options.profiles).base
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


def _model_files(folder: Path) -> list[str]:
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


def _neither(folder: Path) -> PublishError:
    if (folder / TRACES_FOLDER).is_dir():
        return PublishError(
            f"{folder} is a run, and what is published are sets and trained models",
            f"Build sets with `heavydistill build {folder} --out FOLDER`: every problem, attempt, "
            "candidate set and deliberation of the run is in them too.",
        )
    if _CHECKPOINT.fullmatch(folder.resolve().name):
        return PublishError(
            f"{folder} is a checkpoint in the middle of a training",
            f"Give the folder of the trained model, {folder.resolve().parent}.",
        )
    return PublishError(
        f"{folder} holds no sets and no trained model: there is neither {MANIFEST} nor {RECORD}",
        "Give the folder that `heavydistill build --out FOLDER` wrote, or the output folder of "
        "scripts/sft.py.",
    )
