"""The tokenizer of the micro models: byte-level BPE, one token per digit, ChatML.

Any text can be encoded, because the alphabet is bytes. Merges are learnt from the models' prompts
and worked solutions. Digits are never merged, so that a model of this size can learn arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

VOCABULARY = 768
THINK_TAGS = ("<think>", "</think>")
_TURN_OPENS, _TURN_ENDS, _PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"

# TRL and the chat APIs keep the thinking of a turn in ``reasoning_content``; the generation markers
# let TRL train only on the assistant's tokens.
_TEACHER = Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher"
CHAT_TEMPLATE = (_TEACHER / "chat_template.jinja").read_text("utf-8")


def train_tokenizer(texts: Iterable[str], context: int) -> PreTrainedTokenizerFast:
    """Train a BPE tokenizer on texts; ``context`` is the maximum length of a row in tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    single_digits = pre_tokenizers.Digits(individual_digits=True)
    bytes_of_words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([single_digits, bytes_of_words])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - 5,
        special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(chain(["user\n", "assistant\n"] * 100, texts), trainer)
    tokenizer.add_special_tokens([_PAD, _TURN_OPENS, _TURN_ENDS])
    # The think tags are not special tokens, because decoding must keep the thinking.
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in THINK_TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=_PAD,
        eos_token=_TURN_ENDS,
        additional_special_tokens=[_TURN_OPENS],
        chat_template=CHAT_TEMPLATE,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
