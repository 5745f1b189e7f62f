"""Train a thinker, a deliberator, or one model for both, on what `heavydistill build` wrote.

    heavydistill build runs/glm --student Qwen/Qwen3-4B --out sets/glm
    accelerate launch --config_file configs/accelerate/single.yaml scripts/sft.py \\
        --config configs/sft/4b-lora/deliberator.yaml --dataset_name sets/glm

Every flag of TRL's SFTConfig and ModelConfig works, in the file as on the command line, which wins:
--learning_rate 1e-4, --lora_r 128, --report_to trackio, --push_to_hub. Beside them there are
--dataset_name, --role, --too_long, --muon, --evaluate, --license and --dry_run, and in the file
datasets, a mixture. --help lists all; configs/sft/README.md says which file to begin with.

The output folder has the model, its card, its record (training.json), the checkpoints, and with
--evaluate the figures before and after. After a crash the same command with
--resume_from_checkpoint true goes on from the last checkpoint that is whole.

Exit codes: 0 done; 1 it broke; 2 you can mend it; 130 interrupted. `accelerate launch` ends with
1 for all but 0, below what is said here.
"""

from __future__ import annotations

import sys
from pathlib import Path

from heavydistill.training.running import evaluate, exit_code, is_main


def main() -> None:
    from heavydistill.training.arguments import parse

    # First, for the file may set variables that the libraries read when they are imported.
    asked = parse(description=__doc__)

    from heavydistill.config import load_config
    from heavydistill.hub.model import check_before, publish_trained
    from heavydistill.hub.model_card import write_model_card
    from heavydistill.hub.parcel import Wish
    from heavydistill.training.outline import outline
    from heavydistill.training.sft import prepare, train

    folder, sft = Path(asked.trl.output_dir), asked.trl
    wish = (
        Wish(
            sft.hub_model_id,
            revision=sft.hub_revision,
            private=bool(sft.hub_private_repo),
            licence=asked.sets.license,
        )
        if sft.push_to_hub
        else None
    )
    if asked.sets.evaluate:
        load_config(Path(asked.sets.evaluate))
    prepared = prepare(asked)
    if is_main():
        lines = outline(prepared)
        width = max(len(what) for what, _ in lines)
        for what, how_much in lines:
            print(f"{what:<{width}}  {how_much}", flush=True)
    if asked.sets.dry_run:
        return
    if wish and is_main():
        check_before(prepared.record, folder, wish)
    train(prepared)
    if not is_main():
        return
    write_model_card(folder)
    if asked.sets.evaluate:
        evaluate(Path(asked.sets.evaluate), str(asked.model.model_name_or_path), folder)
        write_model_card(folder)
    print(f"The model is in {folder}", flush=True)
    if wish:
        print(f"Published: {publish_trained(folder, wish).url}", flush=True)


if __name__ == "__main__":
    sys.exit(exit_code(main))
