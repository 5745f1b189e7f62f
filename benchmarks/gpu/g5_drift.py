"""G5: does the base of an adapter keep every bit while vLLM is sent base + adapter?

A merge into bfloat16 that is subtracted again does not restore the base, and drifts with every
sync. ``merged_weights`` merges into a float32 copy and never writes the base. Here the adapter of a
4B model moves 60 times, as far as a training may move it, and all weights are sent each time, to
nobody: this needs no vLLM.

Bound: after 60 syncs the base is equal to the bit, and what is sent last is base + adapter in
float32, rounded once, to the bit.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora.layer import LoraLayer
from shared import config_of, measuring, new_model, report, row

from heavydistill.train.rollouts.vllm import merged_weights

SYNCS = 60
WHAT = f"base after {SYNCS} syncs of an adapter, bfloat16"
BOUND = "equal to the bit"


def check() -> None:
    """The base of an adapter while weights are sent to vLLM"""
    lora = LoraConfig(r=32, target_modules="all-linear", use_rslora=True, task_type="CAUSAL_LM")
    model = get_peft_model(new_model(config_of("4B")), lora)
    sender: Any = SimpleNamespace(
        model=model,
        _fix_param_name_to_vllm=lambda name, extra_prefixes: name,
        _dist=SimpleNamespace(gather_params=lambda _: nullcontext()),
    )
    named = dict(model.named_parameters())
    base = {name: weight for name, weight in named.items() if not weight.requires_grad}
    before = {name: weight.detach().clone() for name, weight in base.items()}
    with measuring(WHAT, BOUND):
        seconds = 0.0
        sent: dict[str, torch.Tensor] = {}
        for number in range(SYNCS):
            torch.manual_seed(number)
            for weight in named.values():
                if weight.requires_grad:
                    weight.data += 0.01 * torch.randn_like(weight)
            started = time.perf_counter()
            for name, weight in merged_weights(sender):
                if number == SYNCS - 1:
                    sent[name] = weight.detach()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds += time.perf_counter() - started
        changed = sum(not torch.equal(before[name], weight) for name, weight in base.items())
        text = f"{len(base) - changed} of {len(base)} weights; {seconds / SYNCS:.3f} s a sync"
        row(WHAT, BOUND, text, changed == 0)
    what = "weights sent by the last sync, beside base + adapter in float32"
    with measuring(what, BOUND):
        right = moved = 0
        layers = [(name, one) for name, one in model.named_modules() if isinstance(one, LoraLayer)]
        for name, layer in layers:
            own = layer.get_base_layer().weight
            whole = (own.float() + layer.get_delta_weight("default").float()).to(own.dtype)
            found = sent[f"{name.removeprefix('base_model.model.')}.weight"]
            right += torch.equal(found, whole)
            moved += not torch.equal(found, own)
        text = f"{right} of {len(layers)} matrices, {moved} of them moved by the adapter"
        row(what, BOUND, text, right == moved == len(layers))


if __name__ == "__main__":
    report(check)
