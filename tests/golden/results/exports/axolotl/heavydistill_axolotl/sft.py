"""How axolotl learns an SFT set: everything after what opens the answer."""

from axolotl.prompt_strategies.chat_template import load as load_chat_template


def load(tokenizer, cfg, ds_cfg=None, processor=None):
    strategy = load_chat_template(tokenizer, cfg, ds_cfg, processor)
    strategy.roles_to_train = []
    strategy.train_on_eos = strategy.train_on_eot = None
    return strategy
