"""Writes a trained model as a GGUF file, for llama.cpp, Ollama and LM Studio.

The folder holds ``NAME.gguf`` with weights, tokenizer, chat template and the tokens that end a
turn. Ollama reads only templates that it knows, and cuts prompts at its own default context, so a
model whose template is ChatML also gets a ``Modelfile`` with the template and the context.

Weights of two dimensions get the chosen type, vectors stay in float32. A row that does not divide
into the blocks of a quantization stays in float16; ``GgufFile.unquantized`` counts such weights.
Covered are models of the classes in ``_KINDS`` with a byte-level BPE tokenizer. Not covered: other
architectures, scaled rotary embeddings, adapters (``train.merge`` comes before), and Unicode that
is not in the form NFC, which a tokenizer of Qwen composes and llama.cpp does not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError, UserError
from heavydistill.models.local.adapter import CONFIG
from heavydistill.store.atomic import new_folder

if TYPE_CHECKING:
    import gguf
    import torch
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_MOST_ENDS = 3  # tokens that end a turn: GGUF has eos, eot and eom
_CHATML = (  # as a template of Ollama
    "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n"
    "{{ end }}<|im_start|>assistant\n"
)
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
    has_modelfile: bool  # False if Ollama cannot be told the chat template


def export_gguf(model: Path, out: Path, quant: str = "bf16") -> GgufFile:
    """Write the model of a checkpoint folder into a new folder.

    Args:
        quant: Type of the weights, one of ``QUANTS``.

    Raises:
        ConfigError: The package gguf is not installed; there is no model in the folder, it cannot
            be read, it is an adapter, or it has an architecture, a tokenizer, ends or a
            quantization that cannot be written. Nothing was written.
    """
    try:
        import gguf
    except ImportError as error:
        raise ConfigError(
            "GGUF files are written by the package gguf, which is not installed",
            "Install it: pip install 'heavydistill[gguf]'.",
        ) from error
    _check(model, quant)
    config, tokenizer = _read(model)
    kind, splitter = _kind(config, model), _splitter(model)
    with new_folder(out) as folder:
        path = folder / f"{model.resolve().name}.gguf"
        writer = gguf.GGUFWriter(path, kind)
        _add_sizes(writer, config, model.resolve().name)
        _add_tokenizer(writer, model, tokenizer, config.vocab_size, splitter)
        file_type = "ALL_F32" if quant == "f32" else f"MOSTLY_{quant.upper()}"
        writer.add_file_type(gguf.LlamaFileType[file_type])
        unquantized = _add_weights(writer, model, config, kind, quant)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        context = config.max_position_embeddings
        template = _for_ollama(tokenizer)
        if template:
            text = f"FROM ./{path.name}\nPARAMETER num_ctx {context}\n{template}"
            (folder / "Modelfile").write_text(text, encoding="utf-8")
    return GgufFile(out / path.name, kind, context, unquantized, bool(template))


def _read(model: Path) -> tuple[PretrainedConfig, PreTrainedTokenizerBase]:
    """The configuration and the tokenizer of a model whose files can be read and are complete."""
    from transformers import AutoConfig, AutoTokenizer

    try:
        config = AutoConfig.from_pretrained(model)
        tokenizer = AutoTokenizer.from_pretrained(model)
        _ends(model, tokenizer)
        _require_whole(model, config)
    except UserError:
        raise
    except Exception as error:  # transformers and safetensors raise their own
        raise ConfigError(
            f"{model} cannot be read: {type(error).__name__}: {error}",
            "Give the folder of a trained or merged model.",
        ) from error
    return config, tokenizer


def _for_ollama(tokenizer: PreTrainedTokenizerBase) -> str:
    """The lines of a Modelfile with a ChatML template; empty if the template is another one."""
    if not tokenizer.chat_template:
        return ""
    turns = [("user", "What?")]  # our prompts have no other turns
    system = ""
    for has_system in (False, True):  # without one, some templates add their own
        given = [("system", "Be brief."), *turns] if has_system else turns
        messages = [{"role": role, "content": text} for role, text in given]
        try:
            shown = tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except Exception:  # a template's own refusal, of a system message for one
            return ""
        plain = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in given)
        head, found, end = shown.partition(plain)
        if not found or end != "<|im_start|>assistant\n":
            return ""
        if head:
            opened, closed = "<|im_start|>system\n", "<|im_end|>\n"
            if has_system or not (head.startswith(opened) and head.endswith(closed)):
                return ""
            system = head.removeprefix(opened).removesuffix(closed)
    lines = [f'SYSTEM """{system}"""'] if system else []
    return "\n".join([*lines, 'PARAMETER stop "<|im_end|>"', f'TEMPLATE """{_CHATML}"""', ""])


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
    if not _weight_files(model):
        raise ConfigError(f"{model} has no weights (*.safetensors)", "Give a complete model.")


def _require_whole(model: Path, config: PretrainedConfig) -> None:
    """Raise ConfigError unless each layer has as many weights as the first."""
    from safetensors import safe_open

    counts = Counter[str]()
    for path in _weight_files(model):
        with safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith("model.layers.")]  # noqa: SIM118
            counts.update(name.split(".")[2] for name in names)
    layers = {str(layer) for layer in range(config.num_hidden_layers)}
    if set(counts) != layers or len(set(counts.values())) != 1:
        raise ConfigError(
            f"{model} lacks weights of some of its {len(layers)} layers",
            "Give a complete model: copy or merge it again.",
        )


def _weight_files(model: Path) -> list[Path]:
    """The files of the weights: the shards of the index, or the one file."""
    index = model / "model.safetensors.index.json"
    if index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return [model / name for name in sorted(names)]
    return [file] if (file := model / "model.safetensors").is_file() else []


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
    is_gated = config.hidden_act == "silu"
    if rope != "default" or windowed or not is_gated:
        lacks = "a sliding window" if windowed else f"rotary embeddings scaled by {rope!r}"
        lacks = lacks if is_gated else f"the activation {config.hidden_act}"
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
    normalizer = tree["normalizer"] or {"type": "NFC"}
    normalizers = normalizer.get("normalizers", [normalizer])
    whole: dict[str, object] = next((step for step in steps if step.get("type") == "ByteLevel"), {})
    is_plain = all(step["type"] == "NFC" for step in normalizers)
    is_plain &= not whole.get("add_prefix_space", True)
    is_plain &= whole.get("use_regex", True) is ("Split" not in kinds)
    if tree["model"]["type"] == "BPE" and is_plain:
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
    for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
        add(width)
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
    # llama.cpp ends at each; the second is often the base's own end of text.
    adding = (writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id)
    for index, add in zip(_ends(model, tokenizer), adding, strict=False):
        add(index)
    if tokenizer.pad_token_id is not None:
        writer.add_pad_token_id(tokenizer.pad_token_id)
    if tokenizer.bos_token_id is not None:
        writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_add_bos_token(tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id])


def _ends(model: Path, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end a turn, at most three, with the tokenizer's own first."""
    file = model / "generation_config.json"
    tree = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    declared = tree.get("eos_token_id")
    others = declared if isinstance(declared, list) else [declared]
    ends = [end for end in dict.fromkeys([tokenizer.eos_token_id, *others]) if end is not None]
    if not 1 <= len(ends) <= _MOST_ENDS:
        raise ConfigError(
            f"{model} has {len(ends)} tokens that end a turn, and a GGUF file holds one to three",
            "Set eos_token in tokenizer_config.json and eos_token_id in generation_config.json.",
        )
    return ends


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
            # The rows of each head, halves interleaved as llama.cpp turns them.
            rows = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
            weight = rows.transpose(1, 2).reshape(weight.shape)
        type_ = wanted if weight.ndim > 1 else gguf.GGMLQuantizationType.F32
        try:
            data = gguf.quants.quantize(weight.numpy(), type_)
        except gguf.QuantError:
            type_ = gguf.GGMLQuantizationType.F16
            data = gguf.quants.quantize(weight.numpy(), type_)
            unquantized += 1
        writer.add_tensor(own, data, raw_dtype=type_)
    return unquantized


def _weights(model: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """All weights in float32, one file after the other."""
    from safetensors import safe_open

    for path in _weight_files(model):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118, no mapping
                yield name, file.get_tensor(name).float()
