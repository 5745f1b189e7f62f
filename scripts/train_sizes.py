"""Compute the GPU memory of a training, and its tokens per step, without a GPU and without weights.

    python scripts/train_sizes.py sft --config 4b-lora --gpu_gib 48
    python scripts/train_sizes.py grpo --config 1gpu/deliberator
    python scripts/train_sizes.py distill --config 1gpu --teacher_model_name_or_path Qwen/Qwen3-8B
    python scripts/train_sizes.py sft --config 4b-full --accelerate zero2 --num_processes 2

The other flags are those of `heavydistill sft`, `grpo` and `distill`, e.g. --lora_r 32. A model is
one of those whose shapes are below (Qwen/Qwen3-4B if the file names none), or a
folder with a config.json of type qwen3, qwen2 or llama.

All figures are computed. P are parameters, T those that are trained, N processes, S processes that
share a row (context parallelism, else 1), R tokens of a micro-batch divided by S. Sizes of a layer:
H hidden, I intermediate, Q heads x head_dim, K key-value heads x head_dim, h and k heads, r rank.

weights      2 P bytes in bfloat16, 4 P in float32. In 4 bits, a weight of a linear layer has 1/2,
             a scale for 64 weights 1 byte, and a scale for 256 scales 4 (bitsandbytes, nested); the
             embeddings keep 2. DeepSpeed computes in bfloat16: 2 P. ZeRO-3 and FSDP divide by N.
adapter      r (in + out) per linear layer, in float32; in bfloat16 on 4 bits (TRL) and with
             DeepSpeed.
gradients    in the type of the trained weights, and as much again in the buckets of DDP (torch).
             ZeRO: 4 T / N, added in float32, and 1 GB for a bucket of 5e8 bfloat16 values
             (deepspeed, zero/config.py). FSDP: 4 T / N.
optimizer    AdamW: 8 T, in 8 bits 2 T. ZeRO adds 4 T for the float32 weights; all divided by N with
             ZeRO and FSDP. Nothing with offload.
gathered     ZeRO-3: 2 P, at most 2 GB (stage3_max_live_parameters, 1e9 values). FSDP: two layers
             and the embeddings in bfloat16. Without either, bfloat16 copies of float32 weights,
             which autocast keeps during the forward pass: 2 bytes per weight of a linear layer. In
             4 bits, the largest linear layer unpacked.
layer        saved per token of a decoder layer (transformers, modeling_qwen3.py; PEFT,
             lora/layer.py; FlashAttention, or sdpa without a mask: no matrix of R x R):
             float32 weights   26 H + 8 I + 10 Q + 10 K + 8 h + 4 k + 8
             bfloat16          16 H + 8 I + 10 Q + 10 K + 8 h + 4 k + 8
             adapter           8 H + 6 I + 8 Q + 8 K + 8 h + 4 k + 8, and for the input of each
                               adapted linear layer, of n values, 2 n + 2 r, with dropout 3 n + 2 r
             Without norms of queries and keys (llama, qwen2), 4 Q + 4 K + 4 h + 4 k less, and with
             trained weights 2 Q + 2 K less.
activations  with gradient checkpointing, H values per token and layer, and one layer with the
             gradients inside it: 6 I + 14 H bytes per token with an adapter, else 4 I. Without
             checkpointing, all layers.
loss         TRL's loss (trl/kernels/chunked_logprob.py) holds no logits of all tokens: a tile of
             4,096 tokens x 32,768 words in bfloat16, 8 H bytes for each learnt token (all of them
             here), and, if the output layer is trained, its gradient in float32.
peak         activations of one layer and the loss are not there at once: the larger counts.
teacher      of a distillation: 2 P bytes in bfloat16 (4 P with --bf16 false), divided by N with
             ZeRO-3 alone. Its pass keeps nothing: one layer, 4 I + 10 H bytes per token, while
             the student's activations are there; then, in the loss, 2 H bytes per token and a
             second tile.
vLLM         in this process: its share of the GPU (vllm_gpu_memory_utilization), asleep nothing.
             A token of the cache has 2 x layers x 2 K bytes; room for the cache is what is left of
             the share after 2 P and 2 GiB (assumed) for its activations and graphs.
reserve      1.5 GiB for the CUDA context and the workspaces of kernels, and 5 % of the peak for
             fragments (both assumed).

Not covered: mixtures of experts, linear attention, DoRA, layers trained beside an adapter.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.config.shipped import shipped_file
from heavydistill.config.yaml import read_yaml
from heavydistill.errors import ConfigError, UserError
from heavydistill.train.arguments import TrainingOptions, given_values, known_arguments
from heavydistill.train.distill.options import DistillOptions
from heavydistill.train.grpo.options import GrpoOptions
from heavydistill.train.sft.options import SftOptions

GIB = 2**30
PACK = 32768
PROMPT = 1024  # assumed, of a problem in mode joint
_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_TYPES = {"bfloat16": 2, "float16": 2, "float32": 4}
# Bytes of the optimizer's state per trained weight.
_OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused"), 8),
    **dict.fromkeys(("adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"), 2),
}
_4_BITS = 1 / 2 + 1 / 64 + 4 / (64 * 256)
_BUCKET = 10**9
_LIVE = 2 * 10**9
_TILE = 2 * 4096 * 32768
_ENGINE_OF_VLLM = 2 * GIB
_CONTEXT, _FRAGMENTS = 1.5 * GIB, 0.05
_HELD = ("weights", "adapter", "gradients", "optimizer", "gathered", "teacher")


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model: values of its config.json."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    is_tied: bool
    kind: str = "qwen3"

    @property
    def linear(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of the linear layers of a decoder layer."""
        q, k = self.heads * self.head_dim, self.kv_heads * self.head_dim
        hidden, inner = self.hidden, self.intermediate
        attention = (hidden, q), (hidden, k), (hidden, k), (q, hidden)
        perceptron = (hidden, inner), (hidden, inner), (inner, hidden)
        return dict(zip(_LAYERS, (*attention, *perceptron), strict=True))

    @property
    def in_linear(self) -> int:
        """Weights of all linear layers, without the output layer."""
        return self.layers * sum(into * out for into, out in self.linear.values())

    @property
    def embeddings(self) -> int:
        """Weights of the embeddings and of the output layer."""
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def parameters(self) -> int:
        """All weights."""
        extra = 2 * self.head_dim if self.kind == "qwen3" else 0
        if self.kind == "qwen2":
            extra = (self.heads + 2 * self.kv_heads) * self.head_dim
        norms = self.hidden * (2 * self.layers + 1) + self.layers * extra
        return self.in_linear + self.embeddings + norms


SHAPES = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Shape(576, 30, 1536, 9, 3, 64, 49152, True, "llama"),
    "Qwen/Qwen3-0.6B": Shape(1024, 28, 3072, 16, 8, 128, 151936, True),
    "Qwen/Qwen3-1.7B": Shape(2048, 28, 6144, 16, 8, 128, 151936, True),
    "Qwen/Qwen3-4B": Shape(2560, 36, 9728, 32, 8, 128, 151936, True),
    "Qwen/Qwen3-8B": Shape(4096, 36, 12288, 32, 8, 128, 151936, False),
    "Qwen/Qwen3-14B": Shape(5120, 40, 17408, 40, 8, 128, 151936, False),
    "Qwen/Qwen3-32B": Shape(5120, 64, 25600, 64, 8, 128, 151936, False),
}


def shape_of(model: str) -> Shape:
    """The shape of a model by its id, its folder or its config.json.

    Raises:
        ConfigError: The model is not known, or is none of those whose layers are known here.
    """
    if model in SHAPES:
        return SHAPES[model]
    file = Path(model) / "config.json" if Path(model).is_dir() else Path(model)
    if not file.is_file():
        raise ConfigError(
            f"{model}: its shape is not known",
            f"Give a folder with a config.json, or --model_name_or_path with {', '.join(SHAPES)}.",
        )
    found = json.loads(file.read_text(encoding="utf-8"))
    if (kind := found.get("model_type")) not in ("qwen3", "qwen2", "llama"):
        raise ConfigError(
            f"{file}: model_type {kind} is not covered", "Give qwen3, qwen2 or llama."
        )
    heads = found["num_attention_heads"]
    return Shape(
        found["hidden_size"],
        found["num_hidden_layers"],
        found["intermediate_size"],
        heads,
        found.get("num_key_value_heads", heads),
        found.get("head_dim") or found["hidden_size"] // heads,
        found["vocab_size"],
        found.get("tie_word_embeddings", False),
        kind,
    )


@dataclass(frozen=True, slots=True)
class Engine:
    """What an accelerate file starts."""

    name: str = "single"
    """single, ddp, zero2, zero3 or fsdp2."""
    processes: int = 1
    split: int = 1
    """Processes that share a row."""
    is_offloaded: bool = False

    @property
    def shares(self) -> int:
        """Processes that share gradients and optimizer."""
        return self.processes if self.name in ("zero2", "zero3", "fsdp2") else 1


def engine_of(file: Path, processes: int | None) -> Engine:
    """The engine of an accelerate file, with another number of processes if one is given."""
    tree = read_yaml(file)
    number = processes or int(tree.get("num_processes", 1))
    deepspeed = tree.get("deepspeed_config") or {}
    parallel = tree.get("parallelism_config") or {}
    split = max(int(parallel.get(f"parallelism_config_{each}_size", 1)) for each in ("cp", "sp"))
    name = "ddp" if number > 1 else "single"
    if deepspeed:
        name = f"zero{deepspeed['zero_stage']}"
    elif tree.get("fsdp_config"):
        name = "fsdp2"
    if number % split:
        raise ConfigError(
            f"{number} processes cannot share rows by {split}",
            f"Give a multiple: --num_processes {split}.",
        )
    offloaded = deepspeed.get("offload_optimizer_device", "none") != "none"
    return Engine(name, number, split, offloaded)


@dataclass(frozen=True, slots=True)
class Teacher:
    """The teacher of a distillation."""

    shape: Shape
    size: int = 2
    """Bytes of a weight."""

    def add(self, parts: dict[str, float], engine: Engine, rows: float) -> float:
        """Add its weights and its part of the loss; return the bytes of its pass.

        Args:
            parts: Bytes by part, as in ``memory``.
            engine: The processes.
            rows: Tokens of a micro-batch in one process.
        """
        shape, is_shared = self.shape, engine.name == "zero3"
        parts["teacher"] = self.size * shape.parameters / (engine.shares if is_shared else 1)
        if is_shared:
            parts["teacher"] += min(self.size * shape.parameters, _LIVE)
        parts["loss"] += _TILE + 2 * shape.hidden * rows
        return rows * (4 * shape.intermediate + 10 * shape.hidden)


@dataclass(frozen=True, slots=True)
class Method:
    """What is trained, and in which types."""

    adapter: bool = False
    is_4_bits: bool = False
    dtype: str = "float32"
    rank: int = 16
    targets: tuple[str, ...] = _LAYERS
    dropout: float = 0.0
    optimizer: str = "adamw_torch_fused"
    checkpointing: bool = True

    def adapter_of(self, shape: Shape) -> int:
        """Parameters of the adapter."""
        sizes = (sum(shape.linear[name]) for name in self.targets)
        return self.adapter * shape.layers * self.rank * sum(sizes)


def of_layer(shape: Shape, method: Method, is_float32: bool) -> float:
    """Bytes per token that a decoder layer saves for its backward pass.

    ``is_float32``: whether weights are trained in float32 with autocast.
    """
    hidden, inner, heads, kv = shape.hidden, shape.intermediate, shape.heads, shape.kv_heads
    q, k = heads * shape.head_dim, kv * shape.head_dim
    saved = 4 * q + 4 * k + 4 * heads + 8.0  # attention and the roots of both norms
    if shape.kind == "qwen3":
        saved += 4 * q + 4 * k + 4 * heads + 4 * kv
    if not method.adapter:
        saved += 8 * inner + (26 if is_float32 else 16) * hidden
        return saved + (2 * q + 2 * k if shape.kind == "qwen3" else 0)
    saved += 8 * hidden + 6 * inner
    each = 3 if method.dropout else 2
    return saved + sum(each * shape.linear[name][0] + 2 * method.rank for name in method.targets)


def memory(
    shape: Shape,
    method: Method,
    engine: Engine,
    tokens: int,
    of_pass: int | None = None,
    teacher: Teacher | None = None,
) -> dict[str, float]:
    """The bytes on one GPU while it learns, by part; ``peak`` is what counts.

    Args:
        shape: The model.
        method: What is trained.
        engine: The processes.
        tokens: Tokens of a micro-batch.
        of_pass: Tokens of its longest forward pass, if it has several. [default: all]
        teacher: Teacher of a distillation.
    """
    all_of, trained = shape.parameters, method.adapter_of(shape) or shape.parameters
    is_zero, shares = engine.name.startswith("zero"), engine.shares
    is_float32 = (
        method.dtype == "float32" and not method.adapter and engine.name in ("single", "ddp")
    )
    # Bytes of a weight that is trained.
    own = (2 if method.is_4_bits else 4) if method.adapter else _TYPES[method.dtype]
    parts: dict[str, float] = dict.fromkeys(("adapter", "gathered", "teacher"), 0.0)
    parts["weights"] = all_of * (2 if is_zero else _TYPES[method.dtype])
    if method.is_4_bits:
        parts["weights"] = shape.in_linear * _4_BITS + (all_of - shape.in_linear) * 2
        parts["gathered"] = 2 * max(into * out for into, out in shape.linear.values())
    elif is_float32:
        parts["gathered"] = 2 * shape.in_linear
    if engine.name in ("zero3", "fsdp2"):
        parts["weights"] /= shares
        of_two = 2 * (2 * shape.in_linear / shape.layers + shape.embeddings)
        parts["gathered"] = min(2 * all_of, _LIVE if is_zero else of_two)
    if method.adapter:
        parts["adapter"] = trained * (2 if is_zero else own)
        parts["adapter"] /= 1 if engine.name == "zero2" else shares
    if is_zero:
        parts["gradients"] = 4 * trained / shares + _BUCKET
        parts["optimizer"] = (4 + _OPTIMIZERS[method.optimizer]) * trained / shares
    else:
        parts["gradients"] = own * trained / shares * (2 if engine.name == "ddp" else 1)
        of_state = _OPTIMIZERS[method.optimizer]
        # The states of torch's AdamW have the type of the weights.
        parts["optimizer"] = min(of_state, 2 * own) * trained / shares
    if engine.is_offloaded:
        parts |= {"weights": 0.0, "adapter": 0.0, "gradients": _BUCKET, "optimizer": 0.0}
    rows, one_pass = tokens / engine.split, (of_pass or tokens) / engine.split
    layer = of_layer(shape, method, is_float32)
    inside = (
        6 * shape.intermediate + 14 * shape.hidden if method.adapter else 4 * shape.intermediate
    )
    kept = rows * shape.layers * shape.hidden * (4 if is_float32 else 2)
    whole = rows * shape.layers * layer
    one = one_pass * (layer + inside)
    trained_head = 0 if method.adapter else 4 * shape.vocabulary * shape.hidden
    parts["loss"] = _TILE + 8 * shape.hidden * rows + trained_head
    of_teacher = teacher.add(parts, engine, rows) if teacher else 0.0
    parts["checkpoints"], parts["layer"] = kept, one
    parts["without checkpointing"] = whole + one_pass * inside
    held = sum(parts[name] for name in _HELD)
    running = kept + max(one, parts["loss"], of_teacher)
    if not method.checkpointing:
        running = whole + max(one_pass * inside, parts["loss"], of_teacher)
    parts["held"], parts["peak"] = held, held + running
    parts["total"] = parts["peak"] * (1 + _FRAGMENTS) + _CONTEXT
    return parts


class _Sft(SftOptions):
    """The flags of ``heavydistill sft``, of which none is needed here."""

    @classmethod
    def check_given(cls, values: Mapping[str, object]) -> None:
        """Accept everything."""


class _Grpo(GrpoOptions):
    """The flags of ``heavydistill grpo``, of which none is needed here."""

    @classmethod
    def check_given(cls, values: Mapping[str, object]) -> None:
        """Accept everything."""


class _Distill(DistillOptions):
    """The flags of ``heavydistill distill``, of which none is needed here."""

    @classmethod
    def check_given(cls, values: Mapping[str, object]) -> None:
        """Accept everything."""


_OPTIONS: dict[str, type[TrainingOptions]] = {"sft": _Sft, "grpo": _Grpo, "distill": _Distill}


def method_of(values: Mapping[str, Any]) -> Method:
    """What the values of a training train; raises ConfigError for what is not covered."""
    for key in ("use_dora", "lora_modules_to_save", "load_in_8bit", "muon"):
        if values.get(key):
            raise ConfigError(f"{key} is not covered", f"Leave {key} out.")
    optimizer = values["optim"] or "adamw_torch_fused"
    if optimizer not in _OPTIMIZERS:
        raise ConfigError(f"optim: {optimizer} is not covered", f"Give {', '.join(_OPTIMIZERS)}.")
    targets = values["lora_target_modules"] or ["q_proj", "v_proj"]  # PEFT's of these models
    dtype = values["dtype"]
    return Method(
        adapter=values["use_peft"],
        is_4_bits=values["load_in_4bit"],
        dtype=dtype if dtype in _TYPES else "bfloat16",
        rank=values["lora_r"],
        targets=_LAYERS if "all-linear" in targets else tuple(targets),
        dropout=values["lora_dropout"],
        optimizer=optimizer,
        checkpointing=values["gradient_checkpointing"],
    )


def batch_of(values: Mapping[str, Any], length: int | None) -> tuple[int, int, str]:
    """(tokens of a micro-batch, of its longest forward pass, what they are), at most."""
    rows = values["per_device_train_batch_size"]
    if "vllm_max_model_length" not in values:
        length = length or values["max_length"] or PACK
        kind = "pack" if values["packing"] else "row"
        return rows * length, rows * length, f"{rows} {kind}{'s' * (rows > 1)} of {length:,} tokens"
    length = length or values["vllm_max_model_length"] or PACK
    if values.get("mode") != "joint":
        text = f"{rows} responses with their prompts, of {length:,} tokens at most"
        return rows * length, rows * length, text
    last = values["deliberations"] * (rows // (values["k"] + values["deliberations"]))
    attempts = (rows - last) * (PROMPT + values["max_completion_length"])
    text = f"{rows - last} attempts of {attempts // (rows - last):,} tokens, {last} of {length:,}"
    return attempts + last * length, max(attempts, last * length), f"{text}, at most"


def gib(size: float) -> str:
    """A size in GiB."""
    return f"{size / GIB:7.1f}"


def report(chosen: argparse.Namespace, words: Sequence[str]) -> tuple[list[str], float]:
    """(the lines to print, the bytes of a GPU that are needed).

    Raises:
        ConfigError: A flag or a key is wrong, or not covered.
    """
    options = _OPTIONS[chosen.stage]
    known = known_arguments(options)
    values = {name: each.default for name, each in known.items()} | given_values(options, words)
    name = str(values["model_name_or_path"] or "Qwen/Qwen3-4B")
    shape, method = shape_of(name), method_of(values)
    engine = engine_of(shipped_file("accelerate", chosen.accelerate), chosen.num_processes)
    if run := values.get("run"):
        values["k"] = (read_yaml(Path(run)).get("think") or {}).get("k", 8)
    tokens, of_pass, batch = batch_of(values, chosen.length)
    teacher = None
    of_teacher = values.get("teacher_model_name_or_path")
    if of_teacher and not values.get("teacher_endpoint"):
        teacher = Teacher(shape_of(str(of_teacher)), 4 if values["bf16"] is False else 2)
    parts = memory(shape, method, engine, tokens, of_pass, teacher)
    trained = method.adapter_of(shape) or shape.parameters
    split = f", {engine.split} share a row" * (engine.split > 1)
    accumulated, replicas = values["gradient_accumulation_steps"], engine.processes // engine.split
    told = f"teacher       {of_teacher}: {teacher.shape.parameters:,} parameters" if teacher else ""
    lines = [
        f"model         {name}: {shape.parameters:,} parameters, {trained:,} trained",
        *[told] * bool(teacher),
        f"launch        {engine.processes} x {engine.name}{split}",
        f"micro-batch   {batch}",
        f"tokens        {tokens * accumulated * replicas:,} per step at most, in "
        f"{accumulated * replicas} micro-batches",
        "",
        "GiB of one GPU, computed",
    ]
    for part in _HELD:
        lines += [f"{gib(parts[part])}  {part}"] if parts[part] else []
    if method.checkpointing:
        lines += [
            f"{gib(parts['checkpoints'])}  activations: inputs of {shape.layers} layers",
            f"{gib(parts['layer'])}  activations: one layer with its gradients",
            f"{gib(parts['loss'])}  loss, when that layer is not there",
        ]
    lines += [
        f"{gib(parts['without checkpointing'])}  activations without gradient checkpointing",
        f"{gib(parts['peak'])}  peak",
        f"{gib(parts['total'])}  with a reserve of 1.5 GiB and 5 % (assumed)",
    ]
    needed = parts["total"]
    if values.get("use_vllm") and values["vllm_mode"] == "colocate":
        share = values["vllm_gpu_memory_utilization"] * chosen.gpu_gib * GIB
        sampling = share + parts["held"] - parts["gathered"] + _CONTEXT
        needed = max(sampling, needed + share * (not values["vllm_enable_sleep_mode"]))
        of_token = 4 * shape.layers * shape.kv_heads * shape.head_dim
        room = max(0.0, share - 2 * shape.parameters - _ENGINE_OF_VLLM)
        lines += [
            f"{gib(share)}  vLLM while it samples, {gib(room).strip()} of it for its cache",
            f"{gib(sampling)}  sampling: vLLM, the training's state and 1.5 GiB",
            f"cache of vLLM: {of_token:,} bytes per token, {int(room / of_token):,} tokens",
        ]
    fits = "enough" if needed <= chosen.gpu_gib * GIB else "NOT enough"
    lines.append(f"needed: {needed / GIB:.1f} GiB; a GPU of {chosen.gpu_gib:g} GiB is {fits}")
    return lines, needed


def parsed(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """(our flags, those of a training)."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("stage", choices=(*_OPTIONS,))
    parser.add_argument("--accelerate", default="single", help="name or file of a launch")
    parser.add_argument("--num_processes", type=int, help="GPUs, if not those of the launch")
    parser.add_argument("--gpu_gib", type=float, default=80, help="memory of a GPU (default: 80)")
    parser.add_argument(
        "--length",
        type=int,
        help=f"tokens of a pack or row (default: max_length, the context of vLLM, or {PACK:,})",
    )
    return parser.parse_known_args(words)


def main() -> int:
    try:
        lines, _ = report(*parsed(sys.argv[1:]))
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
