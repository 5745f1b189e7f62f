"""Adapters on the micro student, made with PEFT, and the records of their training."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from students import MICRO
from trainings import RECORD, RESULT

from heavydistill.config.models import Sampling
from heavydistill.models.local.engine import LocalEngine, local_revision
from heavydistill.models.request import Request, user_turn
from heavydistill.store.training_record import write_record

KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
}
WHOLE_EMBEDDINGS = {"modules_to_save": ["embed_tokens"]}
PROBLEMS = ["What is 17 + 25?", "How many legs have 3 cows and 12 hens?", "Compute 6 * 7 - 5."]
GREEDY = Sampling(temperature=0.0, max_tokens=24)
Q_PROJ = "base_model.model.model.layers.0.self_attn.q_proj"


def write_adapter(
    folder: Path, base: Path = MICRO, strength: float = 0.02, load: Any = None, **changes: Any
) -> Path:
    """An adapter whose weights are random and change every answer, with the base's tokenizer.

    ``strength`` is the standard deviation of what training would have moved.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    usual = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
    model = AutoModelForCausalLM.from_pretrained(base, **(load or {"dtype": "auto"}))
    adapted = get_peft_model(model, LoraConfig(**(usual | changes)))
    random = torch.Generator().manual_seed(0)
    for name, weight in adapted.named_parameters():
        if weight.requires_grad:
            scale = 1.0 if "lora_A" in name else strength
            noise = torch.randn(weight.shape, generator=random) * scale
            weight.data = (
                noise
                if "lora_" in name and "magnitude" not in name
                else weight.data.float() * (1 + noise)
            ).to(weight.dtype)
    adapted.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


def write_training(adapter: Path, base: Path = MICRO, **changes: Any) -> Path:
    """The record of its training beside an adapter."""
    used = RECORD.base.model_copy(update={"revision": local_revision(str(base))})
    usual = {"role": "deliberator", "base": used, "result": RESULT}
    write_record(RECORD.model_copy(update=usual | changes), adapter)
    return adapter


def changed(adapter: Path, folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of an adapter, with another thing made of its tensors."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(adapter, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    change(tensors)
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def other_base(folder: Path, **changes: Any) -> Path:
    """A model as the micro student, but for some of its configuration; its weights are random."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(MICRO)
    config.update(changes)
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(MICRO).save_pretrained(folder)
    return folder


def answers(model: str | Path) -> list[str]:
    """What a model answers greedily to a few problems, with its thinking."""
    engine = LocalEngine(str(model), think_tags=None)
    requests = [Request(user_turn(problem), GREEDY, seed=0) for problem in PROBLEMS]
    return [response.answer_text for response in engine.generate(requests)]
