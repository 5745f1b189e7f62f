"""What is sent to the Hub of a folder of sets or of a trained model.

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
and the runs of an evaluation. No link and no key is sent.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heavydistill.errors import PublishError
from heavydistill.hub.cards import CARD
from heavydistill.hub.dataset_card import dataset_card
from heavydistill.hub.model_card import FIGURES, comparison_in, model_card
from heavydistill.hub.options import PublishOptions
from heavydistill.hub.secrets import known_secrets, refuse_secrets
from heavydistill.hub.terms import authors_of, check_origin, check_terms, origin_of
from heavydistill.hub.weights import ADAPTER_CONFIG, WEIGHTS, is_adapter, weights_of
from heavydistill.store.sets.folder import (
    CHAT_TEMPLATE,
    MANIFEST,
    SETS,
    Manifest,
    files_of,
    hashes,
    read_manifest,
)
from heavydistill.store.traces import TRACES_FOLDER, writing
from heavydistill.store.training_record import RECORD, read_record

_COPY = ".dry-run"
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
_MARKS = {"dataset": MANIFEST, "model": RECORD}
_OTHERS = (*_FULL_CONFIGS, ADAPTER_CONFIG, *_TOKENIZER, FIGURES)
_NAMES = {
    "dataset": re.compile(rf"({'|'.join(SETS)})/[^/]+\.parquet|{re.escape(CHAT_TEMPLATE)}"),
    "model": re.compile(rf"{WEIGHTS}|{'|'.join(map(re.escape, _OTHERS))}"),
}

Kind = Literal["dataset", "model"]


@dataclass(frozen=True, slots=True)
class Parcel:
    """What is sent."""

    kind: Kind
    files: dict[str, Path | bytes]  # path in the repository, to a file here or its content
    kept_back: list[str]  # names in the folder that are not sent
    message: str  # of the commit

    @property
    def mark(self) -> str:
        """The file by which a repository is known to hold such a parcel."""
        return _MARKS[self.kind]

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its path in the repository."""
        return {
            name: source.stat().st_size if isinstance(source, Path) else len(source)
            for name, source in self.files.items()
        }


def can_hold(kind: Kind, path: str) -> bool:
    """Whether a parcel of this kind can have a file at this path, beside its card and mark."""
    return bool(_NAMES[kind].fullmatch(path))


def pack(folder: Path, options: PublishOptions) -> Parcel:
    """What is sent of a folder of sets or of a trained model; changes and asks nothing.

    Raises:
        PublishError: The folder is neither, or both; a name or licence is malformed; sets are
            others than the manifest says; a training has not ended, or its weights or what loads
            them are missing or not whole; a link leads out of the folder, the terms do not allow
            it, or a key stands in a text.
        ConfigError: The manifest or the record is of another version, or a profile is none.
    """
    options.check()
    is_sets, is_model = ((folder / name).is_file() for name in (MANIFEST, RECORD))
    if is_sets and is_model:
        raise PublishError(
            f"{folder} holds sets ({MANIFEST}) and a trained model ({RECORD})",
            "Move one of them to a folder of its own.",
        )
    if not (is_sets or is_model):
        raise _neither(folder)
    kind: Kind = "dataset" if is_sets else "model"
    _refuse_links(folder, kind)
    files, message = (_of_sets if is_sets else _of_model)(folder, options)
    return Parcel(kind, files, _kept_back(folder, files), message)


def _of_sets(folder: Path, options: PublishOptions) -> tuple[dict[str, Path | bytes], str]:
    """The files of sets, which were checked, and the message of the commit."""
    manifest = read_manifest(folder)
    _check_set_files(folder, manifest)
    check_terms(authors_of(manifest, options.profiles), options)
    files: dict[str, Path | bytes] = {
        CARD: dataset_card(manifest, folder, options).encode(),
        MANIFEST: folder / MANIFEST,
        **files_of(folder),
    }
    mend = "leave out the problem or run that has it and build the sets again"
    refuse_secrets(files, known_secrets(manifest.model_dump()), mend)
    return files, f"Sets of heavydistill {manifest.heavydistill}"


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


def _of_model(folder: Path, options: PublishOptions) -> tuple[dict[str, Path | bytes], str]:
    """The files of a model, which were checked, and the message of the commit."""
    record = read_record(folder)
    if record.result is None:
        raise PublishError(
            f"The training in {folder} has not ended",
            "Wait for its end, or let it go on from its last checkpoint.",
        )
    weights, adapts = weights_of(folder), is_adapter(folder)
    configs = (ADAPTER_CONFIG,) if adapts else _FULL_CONFIGS
    there = [name for name in (*configs, *_TOKENIZER, FIGURES) if (folder / name).is_file()]
    for name in (configs[0], _TOKENIZER_CONFIG):
        if name not in there:
            raise PublishError(
                f"{folder} lacks {name}, without which nobody can load the model",
                "Train again, or put back the file.",
            )
    check_origin(record, options)
    files: dict[str, Path | bytes] = {
        CARD: model_card(record, folder, options).encode(),
        RECORD: folder / RECORD,
        **{name: folder / name for name in (*weights, *there)},
    }
    if adapts:
        base, config = origin_of(record, options.profiles).base, folder / ADAPTER_CONFIG
        try:
            tree = json.loads(config.read_bytes())
            tree |= {"base_model_name_or_path": base.hub or base.name, "revision": base.revision}
        except (ValueError, TypeError) as error:
            raise PublishError(f"{config} is no configuration", "Train again.") from error
        files[ADAPTER_CONFIG] = f"{json.dumps(tree, indent=2, ensure_ascii=False)}\n".encode()
    comparison = comparison_in(folder)
    secrets = known_secrets(record.model_dump(), comparison.config if comparison else {})
    refuse_secrets(files, secrets, "train again without it")
    return files, f"Model of heavydistill {record.heavydistill}"


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


def _kept_back(folder: Path, files: dict[str, Path | bytes]) -> list[str]:
    """What of a folder is not among these files; a folder of which nothing is goes by its name."""
    opened = {name.partition("/")[0] for name in files if "/" in name}
    left = [path for path in folder.iterdir() if path.name not in opened]
    left += [path for name in opened for path in (folder / name).iterdir()]
    names = (path.relative_to(folder).as_posix() for path in left)
    return sorted(name for name in names if name not in files)


def _refuse_links(folder: Path, kind: Kind) -> None:
    """Refuse to send what a link leads to outside of the folder, and links that lead nowhere.

    Links within the folder are followed. A snapshot in the Hub's cache consists of links to the
    blobs of the same repository, which belong to it.
    """
    root = folder.resolve()
    homes = [root, root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [root]
    for top in sorted(folder.iterdir()):
        for path in sorted(top.iterdir()) if top.is_dir() else [top]:
            name = path.relative_to(folder).as_posix()
            is_sent = name in (CARD, _MARKS[kind]) or can_hold(kind, name)
            link, real = (top if top.is_symlink() else path), Path(os.path.realpath(path))
            if (is_sent or path == top) and not real.exists():
                raise PublishError(
                    f"{link} is a link to {os.readlink(link)}, which is not there",
                    f"Put back what it leads to, or remove it: `rm {shlex.quote(str(link))}`.",
                )
            if is_sent and not any(real.is_relative_to(home) for home in homes):
                place, source = (shlex.quote(str(p)) for p in (link, os.path.realpath(link)))
                raise PublishError(
                    f"{link} is a link that leads out of the folder, to {source}; nothing was sent",
                    "If that is to be published, put a copy in place of the link: "
                    f"`rm {place} && cp -r {source} {place}`. If not, remove the link.",
                )


def copy(parcel: Parcel, folder: Path) -> Path:
    """Write what would be sent into a folder beside its own; an earlier copy is replaced.

    Returns:
        The folder.

    Raises:
        PublishError: Something else has its name.
        RunError: The disk is full or fails.
    """
    folder = folder.resolve()
    target = folder.with_name(folder.name + _COPY)
    files = (path for path in target.rglob("*") if not path.is_dir())
    names = (path.relative_to(target).as_posix() for path in files)
    if target.exists() and not (
        target.is_dir() and all(n in (CARD, parcel.mark) or can_hold(parcel.kind, n) for n in names)
    ):
        raise PublishError(
            f"{target} is in the way of the copy that shows what would be sent",
            "Give it another name, or remove it.",
        )
    with writing(target):
        if target.exists():
            shutil.rmtree(target)
        for name, source in parcel.files.items():
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(source, Path):
                shutil.copyfile(source, place)
            else:
                place.write_bytes(source)
    return target
