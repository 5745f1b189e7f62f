"""The dataset of SFT for verl: all after what opens the answer is learnt."""

import torch
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset


class PromptAndCompletion(MultiTurnSFTDataset):
    """Conversations of one user turn and one assistant turn."""

    def _process_single_message(
        self, index, message, full_message, tools=None, enable_thinking=None
    ):
        opened = self._ids(full_message[:1], add_generation_prompt=True)
        ids, learnt = opened, 0
        if index == 1:
            whole = self._ids(full_message, add_generation_prompt=False)
            if not torch.equal(whole[: len(opened)], opened):
                raise ValueError("The chat template changes the prompt when an answer follows it.")
            ids, learnt = whole[len(opened) :], 1
        return ids, torch.full_like(ids, learnt), torch.ones_like(ids), {}

    def _ids(self, messages, add_generation_prompt):
        rendered = (self.processor or self.tokenizer).apply_chat_template(
            messages,
            add_generation_prompt=add_generation_prompt,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            **self.apply_chat_template_kwargs,
        )
        return rendered["input_ids"][0]
