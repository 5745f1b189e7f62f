"""Writes a trained model as a GGUF file, for llama.cpp, Ollama and LM Studio.

The folder holds ``NAME.gguf`` with weights, tokenizer, chat template and the tokens that end a
turn, and a ``Modelfile`` for Ollama, which would otherwise cut prompts at its own default context.

Weights of two dimensions get the chosen type, vectors stay in float32. A row that does not divide
into the blocks of a quantization stays in float16; ``GgufFile.unquantized`` counts such weights.
Covered are models of the classes in ``_KINDS`` with a byte-level BPE tokenizer. Not covered: other
architectures, scaled rotary embeddings, adapters (``train.merge`` comes before), and whether
llama.cpp reads the tokens of a text alike: compare an answer with ``heavydistill doctor``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError
from heavydistill.models.local.adapter import CONFIG
from heavydistill.store.atomic import new_folder

if TYPE_CHECKING:
    import gguf
    import torch
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

QUANTS = ("bf16", "f16", "f32", "q8_0", "q5_1", "q4_0")
_KINDS = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""llama.cpp's name of an architecture, by the class of the model."""
_PERMUTED = "llama"  # its rotary embedding turns neighbours, that of transformers the two halves
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITTERS = {_QWEN2: "qwen2", _QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1): "llama-bpe"}
"""llama.cpp's name of a way to split a text, by the pattern in ``tokenizer.json``."""


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A file that was written."""

    path: Path
    architecture: str  # llama.cpp's name of it
    context: int  # tokens of prompt and response together
    unquantized: int  # number of weights whose rows do not fit the quantization


def export_gguf(model: Path, out: Path, quant: str = "bf16") -> GgufFile:
    """Write the model of a checkpoint folder into a new folder.

    Args:
        quant: Type of the weights, one of ``QUANTS``.

    Raises:
        ConfigError: There is no model in the folder, it is an adapter, or it has an architecture,
            a tokenizer or a quantization that cannot be written; nothing was written.

    """
    try:
        import gguf
    except ImportError as error:
        raise ConfigError(
            "GGUF files are written by the package gguf, which is not installed",
            "Install it: pip install 'heavydistill[gguf]'.",
        ) from error
    from transformers import AutoConfig, AutoTokenizer

    _check(model, quant)
    config = AutoConfig.from_pretrained(model)
    kind = _kind(config, model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    splitter = _splitter(model)
    with new_folder(out) as folder:
        path = folder / f"{model.resolve().name}.gguf"
        writer = gguf.GGUFWriter(path, kind)
        _add_sizes(writer, config, model.resolve().name)
        _add_tokenizer(writer, model, tokenizer, config.vocab_size, splitter)
        writer.add_file_type(gguf.LlamaFileType[_file_type(quant)])
        unquantized = _add_weights(writer, model, config, kind, quant)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        context = config.max_position_embeddings
        text = f"FROM ./{path.name}\nPARAMETER num_ctx {context}\n"
        (folder / "Modelfile").write_text(text, encoding="utf-8")
    return GgufFile(out / path.name, kind, context, unquantized)


def _file_type(quant: str) -> str:
    return "ALL_F32" if quant == "f32" else f"MOSTLY_{quant.upper()}"


def _check(model: Path, quant: str) -> None:
    if quant not in QUANTS:
        raise ConfigError(f"--quant {quant} is unknown", f"Give one of {', '.join(QUANTS)}.")
    if (model / CONFIG).is_file():
        raise ConfigError(
            f"{model} is an adapter, and a GGUF file holds a whole model",
            f"Merge it first: heavydistill merge --adapter {model} --out {model}-merged",
        )
    for name in ("config.json", "tokenizer.json"):
        if not (model / name).is_file():
            raise ConfigError(
                f"{model} has no {name}", "Give the folder of a trained or merged model."
            )
    if not list(model.glob("*.safetensors")):
        raise ConfigError(f"{model} has no weights (*.safetensors)", "Give a complete model.")


def _kind(config: PretrainedConfig, model: Path) -> str:
    """llama.cpp's name of the architecture; raises ConfigError if the model cannot be written."""
    name = next(iter(config.architectures or ()), config.model_type)
    if name not in _KINDS:
        raise ConfigError(
            f"{model} is a {name}, which cannot be written as GGUF here",
            f"Supported: {', '.join(_KINDS)}. llama.cpp's convert_hf_to_gguf.py converts more.",
        )
    rope = (config.rope_parameters or {}).get("rope_type", "default")
    windowed = getattr(config, "sliding_window", None) and getattr(
        config, "use_sliding_window", True
    )
    if rope != "default" or windowed:
        lacks = "a sliding window" if windowed else f"rotary embeddings scaled by {rope!r}"
        raise ConfigError(
            f"{model} has {lacks}, which is not written as GGUF here",
            "Convert it with llama.cpp's convert_hf_to_gguf.py.",
        )
    return _KINDS[name]


def _splitter(model: Path) -> str:
    """llama.cpp's name for how the tokenizer splits a text; raises ConfigError if it has none."""
    tree = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    steps = tree["pre_tokenizer"] or {}
    steps = steps.get("pretokenizers", [steps])
    kinds = [step.get("type") for step in steps]
    if tree["model"]["type"] == "BPE":
        if kinds == ["ByteLevel"]:
            return "gpt-2"
        if kinds == ["Digits", "ByteLevel"] and steps[0]["individual_digits"]:
            return "smollm"
        if kinds == ["Split", "ByteLevel"]:
            pattern = steps[0]["pattern"].get("Regex", "")
            if pattern in _SPLITTERS:
                return _SPLITTERS[pattern]
    raise ConfigError(
        f"The tokenizer of {model} splits a text in a way that is not known here",
        "Convert it with llama.cpp's convert_hf_to_gguf.py, which knows more tokenizers.",
    )


def _add_sizes(writer: gguf.GGUFWriter, config: PretrainedConfig, name: str) -> None:
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_name(name)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _add_tokenizer(
    writer: gguf.GGUFWriter,
    model: Path,
    tokenizer: PreTrainedTokenizerBase,
    size: int,
    splitter: str,
) -> None:
    import gguf

    names = {index: token for token, index in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder

    def kind(index: int) -> gguf.TokenType:
        if index not in names:
            return gguf.TokenType.UNUSED
        if index not in added:
            return gguf.TokenType.NORMAL
        return gguf.TokenType.CONTROL if added[index].special else gguf.TokenType.USER_DEFINED

    tree = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    merges = tree["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitter)
    writer.add_token_list([names.get(index, f"[PAD{index}]") for index in range(size)])
    writer.add_token_types([kind(index) for index in range(size)])
    writer.add_token_merges([" ".join(pair) if isinstance(pair, list) else pair for pair in merges])
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)
    _add_ends(writer, model, tokenizer)


def _add_ends(writer: gguf.GGUFWriter, model: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Add the tokens that begin, end and fill a text."""
    from transformers import GenerationConfig

    ends = tokenizer.eos_token_id
    generation = GenerationConfig.from_pretrained(model)
    others = generation.eos_token_id
    others = others if isinstance(others, list) else [others]
    writer.add_eos_token_id(ends)
    # llama.cpp ends at either; the base's own end of text is often the second.
    for index in [one for one in others if one not in (None, ends)][:1]:
        writer.add_eot_token_id(index)
    if tokenizer.pad_token_id is not None:
        writer.add_pad_token_id(tokenizer.pad_token_id)
    if tokenizer.bos_token_id is not None:
        writer.add_bos_token_id(tokenizer.bos_token_id)
    adds_bos = tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id]
    writer.add_add_bos_token(adds_bos)


def _add_weights(
    writer: gguf.GGUFWriter, model: Path, config: PretrainedConfig, kind: str, quant: str
) -> int:
    """Add all weights; returns the number of those that could not be quantized."""
    import gguf

    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == kind)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    wanted = gguf.GGMLQuantizationType[quant.upper()]
    unquantized = 0
    for name, weight in _weights(model):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if own is None:
            raise ConfigError(
                f"{model}: llama.cpp has no name for the weight {name}",
                "Convert it with llama.cpp's convert_hf_to_gguf.py.",
            )
        if kind == _PERMUTED and (".q_proj." in name or ".k_proj." in name):
            is_query = ".q_proj." in name
            heads = config.num_attention_heads if is_query else config.num_key_value_heads
            weight = _permuted(weight, heads)
        type_ = wanted if weight.ndim > 1 else gguf.GGMLQuantizationType.F32
        data = weight.numpy()
        try:
            data = gguf.quants.quantize(data, type_)
        except gguf.QuantError:
            type_ = gguf.GGMLQuantizationType.F16
            data = gguf.quants.quantize(data, type_)
            unquantized += 1
        writer.add_tensor(own, data, raw_dtype=type_)
    return unquantized


def _weights(model: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """All weights in float32, one file after the other."""
    from safetensors import safe_open

    for path in sorted(model.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118, no mapping
                yield name, file.get_tensor(name).float()


def _permuted(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows of each head, halves interleaved as llama.cpp turns them."""
    rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return rows.transpose(1, 2).reshape(weight.shape)
