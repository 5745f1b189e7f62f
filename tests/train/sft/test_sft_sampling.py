"""What an SFT measures on held-out caches: deliberations that the model in training writes."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from set_folders import rewrite
from tiny_grpo import RIGHT, WRONG
from trainings import (
    SCRIPT,
    flags,
    in_two_processes,
    main,
    same_weights,
    sft_arguments,
    written,
)

from heavydistill.config.run import Verifying
from heavydistill.store.sets.folder import read_rows
from heavydistill.train.held_out import held_out
from heavydistill.train.rollouts.reward import VerdictReward
from heavydistill.train.sft.sampling import sampled_caches
from heavydistill.train.sft.train import new_trainer, prepare, summary, train
from heavydistill.verifiers.pool import VerdictPool

EVALUATED: dict[str, Any] = {
    **{"role": "deliberator", "max_steps": 2, "eval_strategy": "steps", "eval_steps": 1},
    **{"save_strategy": "no", "logging_steps": 1},
}
HM = ("eval_hm", "eval_v", "eval_hm_garbled", "eval_cut_off")


def history(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "log.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def trained(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A training that samples three caches twice, and its record."""
    folder = tmp_path_factory.mktemp("sampled") / "out"
    return folder, train(prepare(sft_arguments(sets, folder, held_out=3, **EVALUATED)))


def test_an_evaluation_has_the_figures_of_sampled_deliberations(trained, capsys):
    folder, record = trained
    entries = [entry for entry in history(folder) if "eval_hm" in entry]
    assert [entry["step"] for entry in entries] == [1, 2]
    assert all(0 <= entry[name] <= 1 for entry in entries for name in HM)
    # The figures of the training so far are not logged with them.
    assert not any("mean_token_accuracy" in entry for entry in entries)
    ends = record.result.rollouts
    assert ends["eval_v"].first == ends["eval_v"].last == entries[0]["eval_v"]
    assert (ends["eval_hm"].first, ends["eval_hm"].last) == tuple(e["eval_hm"] for e in entries)
    assert not record.result.is_unlearnt and record.result.eval_loss["deliberator"] > 0
    assert record.arguments["held_out"] == 3


def test_sampling_changes_nothing_in_the_training(trained, sets, tmp_path):
    train(prepare(sft_arguments(sets, tmp_path / "out", held_out=0, **EVALUATED)))
    assert same_weights(trained[0], tmp_path / "out")
    assert not any("eval_hm" in entry for entry in history(tmp_path / "out"))


def made(sets: Path, folder: Path, **keys: Any) -> Any:
    """A trainer whose judge keeps what it is shown in ``seen``, and calls all of it right."""
    plan = prepare(sft_arguments(sets, folder, **{**EVALUATED, "held_out": 3, **keys}))
    with VerdictPool(Verifying(workers=1)) as pool:
        trainer = new_trainer(plan, pool)
    trainer.seen = []

    def judge(rows: Sequence[Any], ids: Sequence[list[int]]) -> list[Any]:
        trainer.seen.append((list(rows), [list(each) for each in ids]))
        return [RIGHT] * len(ids)

    trainer._judge = judge
    return trainer


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"use_peft": True, "lora_target_modules": "all-linear"},
        {"bf16": True},
        {"bf16": True, "dtype": "bfloat16", "use_peft": True, "lora_target_modules": "all-linear"},
        {"gradient_checkpointing": True},
    ],
)
def test_the_model_in_training_writes_the_responses(sets, tmp_path, keys):
    trainer = made(sets, tmp_path / "out", **keys)
    generator = torch.Generator().manual_seed(0)
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:  # an adapter that changes nothing would not be seen
            weight.data.copy_(0.1 * torch.randn(weight.shape, generator=generator))
    trainer._most_tokens = {"deliberator": 8}
    rows = trainer._held_out["deliberator"]
    prompts = trainer._prompt_ids(rows)
    trainer.model.eval()
    torch.manual_seed(1)
    written = trainer._sampled("deliberator", prompts)
    width = max(map(len, prompts))
    padded = [[0] * (width - len(ids)) + ids for ids in prompts]
    mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
    torch.manual_seed(1)
    with torch.no_grad():
        expected = []
        ids, seen = torch.tensor(padded), torch.tensor(mask)
        for _ in range(8):
            logits = trainer.model(
                input_ids=ids, attention_mask=seen, position_ids=(seen.cumsum(1) - 1).clamp(0)
            ).logits[:, -1]
            drawn = torch.multinomial(logits.float().softmax(-1), 1)
            expected.append(drawn)
            ids = torch.cat([ids, drawn], dim=1)
            seen = torch.cat([seen, torch.ones_like(drawn)], dim=1)
    ends = trainer._chat.stops
    for row, own in zip(written, torch.cat(expected, dim=1).tolist(), strict=True):
        assert row == own[: len(row)] and (len(row) == 8 or row[-1] in ends)
        assert not set(row[:-1]) & ends
    assert prompts == [
        trainer.processing_class.apply_chat_template(row["prompt"], add_generation_prompt=True)[
            "input_ids"
        ]
        for row in rows
    ]


def test_all_rows_are_judged_whole_and_the_garbled_ones_too(sets, tmp_path):
    trainer = made(sets, tmp_path / "out", held_out=100)
    metrics = trainer.evaluate()
    expected = held_out(sets, 100, None).roles["deliberator"]
    (plain, ids), (garbled, _) = trainer.seen
    assert sorted(row["cache"] for row in plain) == sorted(row["cache"] for row in expected)
    assert garbled and {row["cache"] for row in garbled} <= {row["cache"] for row in plain}
    longest = max(row["completion_tokens"] for row in read_rows(sets, "sft_deliberator", "train"))
    assert max(map(len, ids)) <= longest == trainer._most_tokens["deliberator"]
    assert metrics["eval_hm"] == metrics["eval_hm_garbled"] == 1
    assert metrics["eval_deliberator_loss"] > 0
    assert trainer.model.generation_config.eos_token_id is not None  # the model's own is back


def test_rows_at_once_are_few_where_their_keys_and_values_are_large(sets, tmp_path, monkeypatch):
    trainer = made(sets, tmp_path / "out")
    prompts = [[1] * 100]
    assert trainer._rows_at_once(prompts) > 100  # a small model
    monkeypatch.setattr(trainer.model.config, "num_hidden_layers", 10**9)
    trainer._most_tokens, trainer._max_length = {"deliberator": 100}, 1000
    assert trainer._rows_at_once(prompts) == 10 * trainer.args.per_device_train_batch_size
    trainer._max_length = 40
    assert trainer._rows_at_once(prompts) == 1


def test_the_guard_fires_where_hm_rises_and_reading_falls(sets, tmp_path, monkeypatch, capsys):
    right = {True: [3, 4, 5, 6], False: [0, 2, 4, 6]}  # of the caches, and of the garbled ones

    def judge(_: object, rows: Sequence[Any], ids: object) -> list[Any]:
        number = right["vote" in rows[0]].pop(0)
        return [RIGHT if row < number else WRONG for row in range(len(rows))]

    monkeypatch.setattr(VerdictReward, "judge", judge)
    keys = {**EVALUATED, "max_steps": 3, "eval_on_start": True, "held_out": 6}
    record = train(prepare(sft_arguments(sets, tmp_path / "out", **keys)))
    (alarm,) = [each for each in record.result.alarms if each.guard == "reading"]
    assert (alarm.step, alarm.bound, alarm.value, alarm.action) == (3, 0.5, 0, "warn")
    assert "Guard reading, step 3: HM minus HM with garbled attempts fell 3 times in a row" in (
        capsys.readouterr().out
    )
    assert not (tmp_path / "out" / "curves.png").exists()


def without_validation(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "split": "train"}]


def judged(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**row, "verifier": "judged", "verifier_args": "{}"}]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (without_validation, "has no problem in its validation split"),
        (judged, "leaves every answer that does not equal the reference to a judge"),
    ],
)
def test_sets_that_allow_none_are_said_and_refused_if_some_are_asked_for(
    sets, tmp_path, capsys, change, why
):
    folder = shutil.copytree(sets, tmp_path / "other")
    rewrite(folder, "problems", change)
    plan = prepare(sft_arguments(folder, tmp_path / "out", **EVALUATED))
    text = dict(summary(plan))["held out"]
    assert text.startswith("only losses, because ") and why in text and not plan.sampled.rows
    asked = flags(folder, tmp_path / "out", **EVALUATED, held_out=4)
    assert main(asked, SCRIPT) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "held_out is 4, but " in said and why in said and "Leave held_out out" in said


def test_spread_weights_are_not_sampled_from(sets, tmp_path):
    arguments = sft_arguments(sets, tmp_path / "out", **EVALUATED)
    plan = prepare(arguments)
    assert dict(summary(plan))["held out"].startswith(
        "6 caches, 6 of them also garbled; a response"
    )
    for engine in ("zero3", "fsdp2", "zero2, 8 share a row"):
        launch = plan.record.launch.model_copy(update={"engine": engine})
        found = sampled_caches(arguments.config, plan.base, launch, plan.record.max_length)
        assert engine in found.text and not found.rows


def test_held_out_problems_that_another_source_trains_on_are_found(sets, tmp_path):
    other = shutil.copytree(sets, tmp_path / "other")
    swap = {"train": "validation", "validation": "train"}
    rewrite(other, "problems", lambda row: [{**row, "split": swap[row["split"]]}])
    sources = [
        {"path": str(sets), "role": "deliberator"},
        {"path": str(other), "role": "thinker"},
    ]
    keys = {**EVALUATED, "role": None, "config": written(tmp_path, {}, datasets=sources)}
    plan = prepare(sft_arguments(None, tmp_path / "out", **keys))
    assert "are also trained on" in plan.sampled.text


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"held_out": -1}, "held_out: -1 is less than 0"),
        ({"held_out": 4, "eval_strategy": "no"}, "held_out is 4, but nothing is evaluated"),
        ({"held_out": 4, "role": "thinker"}, "held_out is 4, but a thinker reads no attempts"),
        ({"metric_for_best_model": "eval_hm", "held_out": 0}, "'eval_hm' is not measured"),
    ],
)
def test_bad_input_ends_with_2(sets, tmp_path, monkeypatch, capsys, keys, said):
    monkeypatch.chdir(tmp_path)
    assert main(flags(sets, "out", **{**EVALUATED, **keys}), SCRIPT) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


# Of three caches and two processes, the second one answers one, and one more to fill up.
PROGRAM = """
import json, os, sys
from pathlib import Path
from heavydistill.config.run import Verifying
from heavydistill.train.sft.train import new_trainer, prepare
from heavydistill.verifiers.pool import VerdictPool
from test_sft_sampling import EVALUATED
from tiny_grpo import RIGHT, WRONG
from trainings import sft_arguments

folder, sets, rank = Path(sys.argv[1]), sys.argv[2], int(os.environ["RANK"])
plan = prepare(sft_arguments(sets, folder / "out", held_out=3, **EVALUATED))
seen = []

def judge(rows, ids):
    seen.append([[row["cache"], one] for row, one in zip(rows, ids)])
    return [RIGHT if sum(one) % 2 else WRONG for one in ids]

with VerdictPool(Verifying(workers=1)) as pool:
    trainer = new_trainer(plan, pool)
trainer._judge = judge
trainer.train()
found = [entry for entry in trainer.state.log_history if "eval_hm" in entry]
(folder / f"{rank}.json").write_text(json.dumps([seen, found]))
"""


@pytest.mark.slow
def test_two_processes_sample_their_shares(sets, tmp_path):
    in_two_processes(PROGRAM, tmp_path, str(sets))
    (first, logged), (second, same) = (
        json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)
    )
    names = ("eval_hm", "eval_hm_garbled", "eval_v")
    assert len(logged) == len(same) == 2
    for number, (one, other) in enumerate(zip(logged, same, strict=True)):
        assert [one[name] for name in names] == [other[name] for name in names]
        plain = [first[2 * number], second[2 * number]]
        assert [len(part) for part in plain] == [2, 2]
        counted = [*plain[0], plain[1][0]]
        assert len({cache for cache, _ in counted}) == 3
        right = sum(sum(ids) % 2 for _, ids in counted) / 3
        assert one["eval_hm"] == pytest.approx(right)
