"""The formulas of scripts/train_sizes.py, beside what torch, PEFT and TRL hold for tiny models."""

import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import run_script
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from train_sizes import (
    _BUCKET,
    _LIVE,
    _TILE,
    SHAPES,
    Engine,
    Method,
    Shape,
    memory,
    of_layer,
    shape_of,
)

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
peft = pytest.importorskip("peft", reason="PEFT is not installed")
pytest.importorskip("trl", reason="TRL is not installed")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "train_sizes.py"
CLASSES = {"qwen3": "Qwen3", "qwen2": "Qwen2", "llama": "Llama"}
METHODS = {
    "float32": Method(),
    "bfloat16": Method(dtype="bfloat16"),
    "adapter": Method(adapter=True, dtype="bfloat16", rank=4),
    "adapter of two": Method(
        adapter=True, dtype="bfloat16", rank=4, targets=("q_proj", "down_proj")
    ),
}
TOKENS = 512


def tiny(kind: str = "qwen3", layers: int = 2, tied: bool = True) -> Shape:
    return Shape(64, layers, 160, 4, 2, 16 if kind == "qwen2" else 32, 128, tied, kind)


def model_of(shape: Shape) -> Any:
    name = CLASSES[shape.kind]
    config = getattr(transformers, f"{name}Config")(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        intermediate_size=shape.intermediate,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.is_tied,
        attn_implementation="sdpa",
    )
    return getattr(transformers, f"{name}ForCausalLM")(config)


def made(shape: Shape, method: Method) -> Any:
    """The model as it is trained."""
    torch.manual_seed(0)
    model = model_of(shape).to(getattr(torch, method.dtype))
    if method.adapter:
        wanted = peft.LoraConfig(r=method.rank, target_modules=[*method.targets], lora_dropout=0.0)
        model = peft.get_peft_model(model, wanted)
        model.enable_input_require_grads()
    return model.train()


def forward(model: Any, method: Method, tokens: int = TOKENS) -> torch.Tensor:
    backbone = (model.get_base_model() if method.adapter else model).model
    ids = torch.arange(tokens)[None] % 128
    # As the Trainer does; weights that are trained in bfloat16 are those under DeepSpeed.
    is_mixed = method.adapter or method.dtype == "float32"
    with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
        hidden: torch.Tensor = backbone(input_ids=ids, use_cache=False).last_hidden_state
    return hidden


def saved(shape: Shape, method: Method, checkpointing: bool = False) -> int:
    """Bytes that a forward pass keeps for the backward pass, without those of weights."""
    model = made(shape, method)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if TOKENS in tensor.shape:  # else it is a weight, or its copy in bfloat16
            kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward(model, method)
    assert result.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


class Allocated(TorchDispatchMode):
    """Follows the bytes of all tensors that operators make."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if not isinstance(tensor, torch.Tensor):
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in self._seen:
                self._seen.add(storage._cdata)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return made

    def _freed(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.now -= size


@pytest.mark.parametrize("name", SHAPES)
def test_a_known_shape_has_the_parameters_of_its_model(name):
    with torch.device("meta"):
        assert model_of(SHAPES[name]).num_parameters() == SHAPES[name].parameters
    # The total that the model's publisher names, in billions.
    assert (
        round(SHAPES[name].parameters / 1e9, 1)
        == {
            "HuggingFaceTB/SmolLM2-135M-Instruct": 0.1,
            "Qwen/Qwen3-0.6B": 0.6,
            "Qwen/Qwen3-1.7B": 1.7,
            "Qwen/Qwen3-4B": 4.0,
            "Qwen/Qwen3-8B": 8.2,
            "Qwen/Qwen3-14B": 14.8,
            "Qwen/Qwen3-32B": 32.8,
        }[name]
    )


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
def test_a_config_json_has_the_parameters_of_its_model(kind, tied, tmp_path):
    model = model_of(tiny(kind, tied=tied))
    model.config.save_pretrained(tmp_path)
    assert shape_of(str(tmp_path)).parameters == model.num_parameters()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_weights_gradients_and_optimizer_have_the_bytes_that_are_computed(method):
    shape = tiny()
    model = made(shape, method)
    parts = memory(shape, method, Engine(), TOKENS)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, foreach=False)
    forward(model, method).sum().backward()
    optimizer.step()
    weights = sum(weight.nbytes for weight in model.parameters())
    assert parts["weights"] + parts["adapter"] == weights
    assert parts["gradients"] == sum(weight.grad.nbytes for weight in trained)
    states = [state for of_one in optimizer.state.values() for state in of_one.values()]
    assert parts["optimizer"] == sum(state.nbytes for state in states if state.dim())


def test_4_bits_have_the_bytes_that_are_computed():
    functional = pytest.importorskip("bitsandbytes").functional
    weight = torch.randn(512, 512)
    packed, state = functional.quantize_4bit(weight, compress_statistics=True, quant_type="nf4")
    scales = state.absmax.nbytes + state.state2.absmax.nbytes
    shape = Shape(512, 1, 512, 4, 4, 128, 1, True)
    parts = memory(shape, Method(adapter=True, is_4_bits=True, dtype="bfloat16"), Engine(), 1)
    others = 2 * (shape.parameters - shape.in_linear)
    assert parts["weights"] == 7 * (packed.nbytes + scales) + others


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_layer_saves_the_bytes_that_are_computed(kind, method):
    two, four = (saved(tiny(kind, layers), method) for layers in (2, 4))
    each = of_layer(tiny(kind), method, is_float32=method.dtype == "float32")
    assert (four - two) / 2 / TOKENS == each


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_with_checkpointing_a_layer_saves_its_input_alone(method):
    two, four = (saved(tiny(layers=layers), method, checkpointing=True) for layers in (2, 4))
    assert four - two == memory(tiny(layers=2), method, Engine(), TOKENS)["checkpoints"]


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_the_backward_pass_of_a_layer_needs_about_the_bytes_that_are_computed(method):
    shape = Shape(256, 4, 768, 4, 2, 64, 128, True)
    model = made(shape, method)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    peaks = []
    for tokens in (512, 1024):
        for weight in model.parameters():
            weight.grad = torch.zeros_like(weight) if weight.requires_grad else None
        with Allocated() as allocated:
            hidden = forward(model, method, tokens)
            hidden.backward(torch.ones_like(hidden))
            del hidden
        peaks.append(allocated.peak)
    few, many = (memory(shape, method, Engine(), tokens) for tokens in (512, 1024))
    computed = sum(many[part] - few[part] for part in ("checkpoints", "layer"))
    assert peaks[1] - peaks[0] == pytest.approx(computed, rel=0.05)


def test_the_loss_of_trl_holds_a_tile_and_no_logits():
    from trl.kernels.chunked_logprob import TOKEN_CHUNK_SIZE
    from trl.trainer.utils import _CHUNKED_LOGPROB_CHUNK_SIZE, add_fused_lm_head

    assert _TILE == 2 * TOKEN_CHUNK_SIZE * _CHUNKED_LOGPROB_CHUNK_SIZE
    words = 131
    model = model_of(replace(tiny(), vocabulary=words))
    add_fused_lm_head(model)
    ids = torch.arange(TOKENS)[None] % words
    kept: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.shape)
        return tensor

    for is_fused in (False, True):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(input_ids=ids, labels=ids, fused_lm_head=is_fused)
        logits = [size for size in kept if size[-1:] == (words,) and size.numel() > TOKENS * 99]
        assert bool(logits) == (not is_fused)


def test_the_buffers_of_deepspeed_are_its_defaults():
    config = pytest.importorskip("deepspeed.runtime.zero.config").DeepSpeedZeroConfig()
    assert 2 * config.reduce_bucket_size == _BUCKET
    assert 2 * config.max_live_parameters == _LIVE


def test_processes_share_what_the_engine_shares():
    shape, full = SHAPES["Qwen/Qwen3-4B"], Method()
    one, two = (memory(shape, full, Engine("zero2", n), 1024) for n in (1, 2))
    assert (one["weights"], one["optimizer"]) == (two["weights"], 2 * two["optimizer"])
    one, two = (memory(shape, full, Engine("zero3", n), 1024) for n in (1, 2))
    assert one["weights"] == 2 * two["weights"]
    whole = memory(shape, full, Engine("zero2", 8), 65536)
    split = memory(shape, full, Engine("zero2", 8, split=8), 65536)
    assert split["checkpoints"] == whole["checkpoints"] / 8 and split["layer"] == whole["layer"] / 8


def test_it_prints_what_a_training_needs(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}), encoding="utf-8")
    done = run_script(SCRIPT, "sft", "--config", "4b-lora", "--gpu_gib", "12", "--lora_r", "8")
    assert done.returncode == 0, done.stderr
    assert "16,515,072 trained" in done.stdout and "12 GiB is NOT enough" in done.stdout
    for words, message in (
        (["--model_name_or_path", str(tmp_path)], "model_type gpt2 is not covered"),
        (["--model_name_or_path", "Qwen/Qwen4"], "its shape is not known"),
        (["--use_dora", "true"], "use_dora is not covered"),
        (["--accelerate", "zero2", "--lora_rank", "8"], "--lora_rank"),
    ):
        done = run_script(SCRIPT, "sft", "--config", "4b-lora", *words)
        assert done.returncode == 2 and message in done.stderr, done.stderr
