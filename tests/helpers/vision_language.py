"""Tiny vision-language checkpoints with random weights, and the chat templates of real models."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from students import real_template, tokenizer_with

_TEXT = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 2048,
    "initializer_range": 0.2,
    "tie_word_embeddings": True,
}
_LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
_EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
_QWEN_EYE = {
    "depth": 1,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_heads": 2,
    "out_hidden_size": 32,
    "num_position_embeddings": 16,
}
_OF_ATTENTION = ("k_proj", "o_proj", "q_proj", "v_proj")
_OF_MLP = ("down_proj", "gate_proj", "up_proj")
_OF_LINEAR = ("in_proj_a", "in_proj_b", "in_proj_qkv", "in_proj_z", "out_proj")


class Family(NamedTuple):
    """A family of real models."""

    architecture: str
    template: str  # its name in TRL's collection
    eos: str
    text: dict[str, Any]
    eye: dict[str, Any]
    linear: tuple[str, ...]  # the layers of the text tower that an adapter changes


FAMILIES = {
    "qwen3_5": Family(
        "Qwen3_5ForConditionalGeneration",
        "qwen3_5_think",
        "<|im_end|>",
        _TEXT | _LINEAR,
        _QWEN_EYE,
        (*_OF_ATTENTION, *_OF_MLP, *_OF_LINEAR),
    ),
    # Qwen3.6 has the classes of Qwen3.5; this is the one with experts.
    "qwen3_5_moe": Family(
        "Qwen3_5MoeForConditionalGeneration",
        "qwen3_6",
        "<|im_end|>",
        _TEXT | _LINEAR | _EXPERTS,
        _QWEN_EYE,
        (*_OF_ATTENTION, *_OF_MLP, *_OF_LINEAR, "shared_expert_gate"),
    ),
    "gemma4": Family(
        "Gemma4ForConditionalGeneration",
        "gemma4_v5",
        "<turn|>",
        _TEXT
        | {
            "global_head_dim": 16,
            "hidden_size_per_layer_input": 8,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "use_bidirectional_attention": "vision",
        },
        {
            "hidden_size": 32,
            "intermediate_size": 32,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "position_embedding_size": 64,
        },
        (
            *_OF_ATTENTION,
            *_OF_MLP,
            *("per_layer_input_gate", "per_layer_model_projection", "per_layer_projection"),
        ),
    ),
}


def write_checkpoint(folder: Path, family: str) -> Path:
    """A checkpoint of a family with the files that its real ones have."""
    import torch
    import transformers

    kind = FAMILIES[family]
    tokenizer = tokenizer_with(real_template(kind.template), kind.eos)
    tokenizer.pad_token = None  # as in some repositories
    marks = {"image_token_id": 3, "video_token_id": 4}
    text = {**kind.text, "vocab_size": len(tokenizer), "pad_token_id": 0}
    if family == "gemma4":
        text["vocab_size_per_layer_input"] = len(tokenizer)
        marks |= {"audio_token_id": 5}
    config = transformers.AutoConfig.for_model(
        family, text_config=text, vision_config=kind.eye, tie_word_embeddings=True, **marks
    )
    torch.manual_seed(0)
    model = getattr(transformers, kind.architecture)(config).to(torch.bfloat16)
    stops = [tokenizer.eos_token_id, 1]
    model.generation_config = transformers.GenerationConfig(eos_token_id=stops, pad_token_id=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor = {"image_processor_type": "Qwen2VLImageProcessor", "chat_template": "of the base"}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    return folder
