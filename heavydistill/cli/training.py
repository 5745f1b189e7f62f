"""What the training scripts do around a training: check, say, train, measure, publish."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any


def carry_out(asked: Any, stage: ModuleType) -> None:
    """A training from its arguments to a model, its card, its figures and its place on the Hub.

    Args:
        asked: The arguments.
        stage: The module with ``prepare``, ``train`` and ``outline`` for them.

    Raises:
        HeavydistillError: Whatever does not work out; the message says what is there by then.
    """
    from heavydistill.config.run import load_config
    from heavydistill.errors import RunError
    from heavydistill.hub.model import check_before, publish_trained
    from heavydistill.hub.model_card import write_model_card
    from heavydistill.hub.parcel import Wish
    from heavydistill.train.running import evaluate, is_main

    folder, trl, around = Path(asked.trl.output_dir), asked.trl, asked.around
    wish = (
        Wish(
            trl.hub_model_id,
            revision=trl.hub_revision,
            private=bool(trl.hub_private_repo),
            licence=around.license,
        )
        if trl.push_to_hub
        else None
    )
    if around.evaluate:
        load_config(Path(around.evaluate))
    prepared = stage.prepare(asked)
    if is_main():
        lines = stage.outline(prepared)
        width = max(len(what) for what, _ in lines)
        for what, how_much in lines:
            print(f"{what:<{width}}  {how_much}", flush=True)
    if around.dry_run:
        return
    if wish and is_main():
        check_before(prepared.record, folder, wish)
    result = stage.train(prepared).result
    if not is_main():
        return
    write_model_card(folder)
    if result and result.is_unlearnt:
        raise RunError(
            f"Nothing was learnt, so {folder} holds the model as it was: no response earned a "
            f"reward, and {result.rollouts['verdict/cut_off'].last:.0%} of the last ones were cut "
            f"off at {trl.max_completion_length:,} tokens",
            "Raise max_completion_length, or teach the model shorter responses first, with "
            "scripts/sft.py.",
        )
    if around.evaluate:
        evaluate(Path(around.evaluate), str(asked.model.model_name_or_path), folder)
        write_model_card(folder)
    print(f"The model is in {folder}", flush=True)
    if wish:
        print(f"Published: {publish_trained(folder, wish).url}", flush=True)
