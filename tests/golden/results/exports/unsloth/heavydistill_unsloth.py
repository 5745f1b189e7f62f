"""Trains with Unsloth on a configuration of TRL: heavydistill_unsloth.py STAGE FILE."""

import sys

from unsloth import FastLanguageModel  # isort: skip  # before TRL, which it changes

import trl
from datasets import load_dataset

STAGES = {"sft": "SFT", "dpo": "DPO", "kto": "KTO"}


def main(stage, file):
    name = STAGES[stage]
    kinds = (trl.ScriptArguments, getattr(trl, f"{name}Config"), trl.ModelConfig)
    script, args, wanted = trl.TrlParser(kinds).parse_args_and_config(["--config", file])
    model, tokenizer = FastLanguageModel.from_pretrained(
        wanted.model_name_or_path,
        max_seq_length=args.max_length,
        load_in_4bit=wanted.load_in_4bit,
    )
    model = FastLanguageModel.get_peft_model(model, r=wanted.lora_r, lora_alpha=wanted.lora_alpha)
    rows = load_dataset(script.dataset_name)
    trainer = getattr(trl, f"{name}Trainer")(
        model=model,
        args=args,
        train_dataset=rows["train"],
        eval_dataset=rows.get("validation"),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(args.output_dir)


if __name__ == "__main__":
    main(*sys.argv[1:])
