"""What a model's own ``generation_config.json`` may say of how a policy is sampled: nothing.

The ratios are of the policy's own distribution at the temperature of the training. TRL sets
temperature, top_p, top_k, min_p and repetition_penalty, and transformers takes whatever else is in
that file; vLLM, as TRL calls it, takes nothing of it. (TRL's own ``generation_kwargs`` are refused
by ``arguments``.)
"""

from __future__ import annotations

import json

from heavydistill.chat.student import generation_config
from heavydistill.errors import ConfigError

# Settings that change which tokens are sampled, or where a response ends, and what leaves it alone
# beside null and an empty list.
_BENDING = {
    "typical_p": 1.0,
    "top_h": None,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "bad_words_ids": None,
    "sequence_bias": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "force_words_ids": None,
    "constraints": None,
    "guidance_scale": 1.0,
    "watermarking_config": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "num_beams": 1,
    "min_length": 0,
    "min_new_tokens": 0,
    "stop_strings": None,
    "max_time": None,
}


def check_sampling(model: str, revision: str | None = None) -> None:
    """See to it that a model samples from its own distribution.

    Args:
        model: What transformers loads it from.
        revision: Of its repository.

    Raises:
        ConfigError: Its ``generation_config.json`` has a setting that bends it.
    """
    told = generation_config(model, revision)
    found = {
        name: value
        for name, neutral in _BENDING.items()
        if (value := told.get(name)) not in (None, [], neutral)
    }
    if found:
        raise ConfigError(
            f"The generation_config.json of {model} has {json.dumps(found)[1:-1]}, and what is "
            "learnt is what the model itself would write",
            "Take a copy of the model without them, or sample with vLLM (--use_vllm true), which "
            "does not read them.",
        )
