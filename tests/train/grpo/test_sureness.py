"""A rate of its own for the weights of the last normalisation, whatever the model is made of."""

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from heavydistill.errors import ConfigError
from heavydistill.train.grpo.sureness import set_rate

SIZES = {"vocab_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}
LLAMA = LlamaConfig(**SIZES, intermediate_size=8)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (LlamaForCausalLM(LLAMA), {"model.norm.weight"}),
        (
            GPT2LMHeadModel(GPT2Config(vocab_size=16, n_layer=2, n_head=2, n_embd=8)),
            {"transformer.ln_f.weight", "transformer.ln_f.bias"},
        ),
    ],
)
def test_its_weights_and_no_others_have_it(model: PreTrainedModel, names: set[str]) -> None:
    decayed = [weight for weight in model.parameters() if weight.dim() > 1]
    spared = [weight for weight in model.parameters() if weight.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": spared, "weight_decay": 0.0}], lr=1e-4
    )
    set_rate(optimizer, model, 0.05)
    by_weight = {
        id(weight): (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for weight in group["params"]
    }
    assert len(by_weight) == len(list(model.parameters()))
    for name, weight in model.named_parameters():
        decay = 0.1 if weight.dim() > 1 else 0.0
        assert by_weight[id(weight)] == (0.05 if name in names else 1e-4, decay)


class Projected(LlamaForCausalLM):
    """With a norm of another width behind the last one, as some models have."""

    def __init__(self, width: int) -> None:
        super().__init__(LLAMA)
        self.projection_norm = nn.LayerNorm(width)


def test_a_norm_of_another_width_is_not_taken_for_the_last_one() -> None:
    model = Projected(4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    set_rate(optimizer, model, 0.05)
    assert optimizer.param_groups[-1]["params"] == [model.model.norm.weight]


def test_where_it_cannot_be_told_it_is_refused() -> None:
    model = Projected(8)
    with pytest.raises(ConfigError, match=r"cannot be told: model\.norm, projection_norm"):
        set_rate(torch.optim.AdamW(model.parameters()), model, 0.1)
