"""Folders of trained models, as scripts/sft.py leaves them, for tests of what reads one.

The weights are real: those of the bundled student, or a LoRA adapter on it made with peft.
"""

import shutil
from pathlib import Path
from typing import Any

from adapters import write_adapter
from set_folders import manifest
from students import MICRO
from trainings import RECORD, RESULT

from heavydistill.hub.model_card import write_model_card
from heavydistill.store.sets.folder import Manifest, RunUsed
from heavydistill.store.training_record import (
    BaseModelUsed,
    Launch,
    SetsUsed,
    TrainingRecord,
    write_record,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GENERATED = RunUsed(
    name="run",
    traces=24,
    config={"problems": {"source": "micro"}, "think": {"k": 8}, "deliberate": {"d": 4}},
    summary={},
)
MADE_HERE = RunUsed(name="run", traces=2, config={"problems": {"source": "micro"}}, summary={})
ON_HUB = BaseModelUsed(name="Qwen/Qwen3-8B", revision=COMMIT, template_sha256="1" * 64)
TOKENIZER = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}
FULL = {"model.safetensors", "config.json", "generation_config.json"}
ADAPTER = {"adapter_model.safetensors", "adapter_config.json"}


def write_model(folder: Path, *, lora: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A folder of a trained deliberator, with changed fields of its record.

    Args:
        lora: Makes it an adapter: what its configuration has other than usual.
    """
    if lora is None:
        shutil.copytree(MICRO, folder)
    else:
        write_adapter(folder, **{"r": 4, "lora_alpha": 8, **lora})
    method = "full" if lora is None else "dora" if lora.get("use_dora") else "lora"
    write_record(record(**{"method": method, **changes}), folder)
    return folder


def record(**changes: Any) -> TrainingRecord:
    """That of the folder."""
    usual: dict[str, Any] = {
        "versions": {"trl": "1.16.0", "peft": "0.21.2"},
        "role": "deliberator",
        "method": "full",
        "sets": [sets()],
        "max_length": 96,
        "arguments": {"learning_rate": 0.0002, "packing": True, "report_to": ["trackio"]},
        "launch": Launch(processes=2, engine="ddp", device="cpu", attention="sdpa"),
        "result": RESULT,
    }
    return RECORD.model_copy(update=usual | changes)


def sets(told: Manifest | None = None, **changes: Any) -> SetsUsed:
    """Rows of a deliberator, of sets that the micro teacher wrote."""
    usual = SetsUsed(
        name="sets",
        role="deliberator",
        rows={"train": 1200, "validation": 60},
        left_out={"train": 3, "validation": 1},
        manifest=told or manifest(runs=[GENERATED]),
    )
    return usual.model_copy(update=changes)


def contents(folder: Path) -> dict[str, bytes]:
    """The files in a folder, by their paths."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def shard(folder: Path) -> Path:
    """Spread the weights of a full model in it over several files."""
    from transformers import AutoModelForCausalLM

    (folder / "model.safetensors").unlink()
    model = AutoModelForCausalLM.from_pretrained(MICRO)
    model.save_pretrained(folder, max_shard_size="300KB")
    return folder


def card_of(folder: Path, **changes: Any) -> str:
    """The card of such a folder, which is made for it; changes as of ``write_model``."""
    write_model_card(write_model(folder, **changes))
    return (folder / "README.md").read_text(encoding="utf-8")
