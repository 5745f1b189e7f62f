"""SFT of the micro student, from sets to a folder with a model and its record."""

import json
import re
import shutil
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hub_server
import messages
import pytest
from runs import build, rows, write_run
from students import MICRO
from trainings import Trained, flags, history, logged, main, refusal, run, sft_arguments, weights

import heavydistill as hd
from heavydistill.errors import ConfigError
from heavydistill.store.sets.set_rows import SPLITS
from heavydistill.store.training_record import read_record
from heavydistill.train import script
from heavydistill.train.datasets import ROLES
from heavydistill.train.sft import train as sft
from heavydistill.train.sft.train import SftPlan, new_trainer, parse, prepare, summary, train

# Setting up the training that several tests look at counts for the first of them.
MODEL = {
    "model.safetensors",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "training.json",
}


@pytest.fixture(scope="module")
def trained(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Both roles, 20 steps in packs."""
    folder = tmp_path_factory.mktemp("trained") / "out"
    keys = {"max_steps": 20, "save_strategy": "steps", "save_steps": 10, "save_total_limit": 1}
    keys |= {"eval_strategy": "steps", "eval_steps": 10, "eval_on_start": True}
    prepared = prepare(sft_arguments(sets, folder, packing=True, **keys))
    record = train(prepared)
    return Trained(folder, record, dict(summary(prepared)))


def test_the_folder_has_the_model_its_record_and_checkpoints_alone(trained):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    names = {path.name for path in trained.folder.iterdir()}
    assert names - {"README.md"} == MODEL | {"checkpoint-20", "log.jsonl"}
    assert read_record(trained.folder) == trained.record
    model, before = AutoModelForCausalLM.from_pretrained(trained.folder), weights(MICRO)
    assert any(not one.equal(before[name]) for name, one in model.named_parameters())
    template = AutoTokenizer.from_pretrained(trained.folder).chat_template
    assert template == (MICRO / "chat_template.jinja").read_text(encoding="utf-8")


def test_what_is_learnt_is_seen_on_validation_rows_of_each_role(trained):
    logs = history(trained.folder)
    for role in ("thinker", "deliberator"):
        key = f"eval_{role}_loss"
        losses = {entry["step"]: entry[key] for entry in logs if key in entry}
        assert losses[20] < losses[10] < losses[0] - 1
        assert trained.record.result is not None
        assert trained.record.result.eval_loss[role] == pytest.approx(losses[20], abs=1e-4)


def test_the_record_tells_how_it_came_about(trained, sets):
    record = trained.record
    assert (record.role, record.method, record.base.name) == ("both", "full", "micro-student")
    # A deliberator's plain problems are copies of the thinker's rows, which are learnt too.
    assert {one.role: one.rows for one in record.sets} == {
        role: {
            split: sum(row["role"] == role for row in rows(sets, f"sft_{role}", split))
            for split in SPLITS
        }
        for role in ROLES
    }
    assert all(one.manifest.files and one.name == "sets" for one in record.sets)
    assert record.arguments["packing"] is True and record.arguments["max_steps"] == 20
    assert record.launch.processes == 1 and record.launch.engine == "single"
    assert str(sets.parent) not in (trained.folder / "training.json").read_text(encoding="utf-8")
    result = record.result
    assert result is not None
    assert result.steps == 20 and result.peak_memory_gib is None and result.seconds > 0
    losses = logged(trained.folder, "loss")
    assert result.train_loss == pytest.approx(sum(losses) / 20, rel=1e-3)
    assert result.tokens == max(logged(trained.folder, "num_tokens"))


def test_the_outline_says_what_is_trained(trained, sets):
    said, record = trained.summary, trained.record
    thinker = next(one.rows for one in record.sets if one.role == "thinker")
    assert (
        said["sets, thinker"] == f"{thinker['train']} rows, {thinker['validation']} for validation"
    )
    copies = sum(
        row["role"] == "thinker" for split in SPLITS for row in rows(sets, "sft_deliberator", split)
    )
    assert said["sets, deliberator"].endswith(
        f"{copies} plain problems are learnt as the thinker's"
    )
    assert said["packs"].startswith(f"{record.sequences} of up to {record.max_length} tokens, ")
    assert said["steps"].startswith("20 of 2 packs, ")
    epochs = float(said["steps"].split(", ")[1].split()[0])
    assert record.result is not None
    assert epochs == pytest.approx(record.result.epochs, rel=0.05)
    assert said["launch"] == "1 process, single, cpu, attention: sdpa"


@pytest.mark.parametrize(
    ("count", "steps", "epochs"), [(7, 1, 2.5), (7, 3, 1), (7, 4, 2.5), (8, 3, 2.5), (8, 4, 1)]
)
def test_the_outline_counts_steps_as_the_trainer_does(sets, tmp_path, count, steps, epochs):
    keys = {"gradient_accumulation_steps": steps, "num_train_epochs": epochs}
    prepared = prepare(sft_arguments(sets, tmp_path / "out", role="thinker", **keys))
    record = prepared.record.model_copy(update={"sequences": count})
    prepared = replace(prepared, train=prepared.train.select(range(count)), record=record)
    said = dict(summary(prepared))["steps"].split()[0]
    trainer = new_trainer(prepared)
    loader = trainer.get_train_dataloader()
    *_, total = trainer.set_initial_training_values(trainer.args, loader)
    assert int(said) == total


@pytest.mark.parametrize(
    ("keys", "method"),
    [
        ({}, "lora"),
        ({"use_rslora": True}, "rslora"),
        ({"use_dora": True}, "dora"),
        pytest.param({"load_in_4bit": True}, "qlora", marks=pytest.mark.slow),
    ],
)
def test_an_adapter_is_trained_and_can_be_loaded(sets, tmp_path, keys, method):
    from peft import AutoPeftModelForCausalLM

    if method == "qlora":
        pytest.importorskip("bitsandbytes")
    folder = tmp_path / "out"
    lora = {"use_peft": True, "lora_target_modules": "all-linear", "lora_r": 4, "max_steps": 2}
    record = train(
        prepare(sft_arguments(sets, folder, packing=True, role="thinker", **lora, **keys))
    )
    assert record.method == method
    assert ("bitsandbytes" in record.versions) == (method == "qlora")
    names = {path.name for path in folder.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "training.json"} <= names
    assert not names & {"config.json", "model.safetensors", "training_args.bin"}
    config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    assert (config["use_rslora"], config["use_dora"]) == (method == "rslora", method == "dora")
    model = AutoPeftModelForCausalLM.from_pretrained(folder)
    moved = [value for name, value in model.named_parameters() if "lora_B" in name]
    assert moved and all(value.abs().sum() > 0 for value in moved)


def refused(sets: Path, out: Path, **keys: Any) -> str:
    return refusal(lambda: train(prepare(sft_arguments(sets, out, **keys))))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"load_in_4bit": True}, "load_in_4bit is set, but use_peft is not"),
        ({"use_dora": True}, "use_dora is set, but use_peft is not"),
        ({"lora_r": 8}, "lora_r is set, but use_peft is not. Set use_peft: true, or leave lora_r"),
        (
            {"use_peft": True, "use_bnb_nested_quant": True, "load_in_8bit": True},
            "use_bnb_nested_quant is set, but load_in_4bit is not",
        ),
        ({"use_peft": True, "load_in_4bit": True, "dtype": "auto"}, "Give --dtype bfloat16"),
        ({"gradient_accumulation_steps": 0}, "gradient_accumulation_steps: 0 is not more than 0"),
        ({"num_train_epochs": 0}, "num_train_epochs: 0.0 is not more than 0"),
        ({"learning_rate": -1}, "learning_rate: -1.0 is not more than 0"),
        (
            {"eval_strategy": "steps", "metric_for_best_model": "loss"},
            "metric_for_best_model: 'loss' is not measured. Give thinker_loss or deliberator_loss",
        ),
        ({"use_peft": True, "lora_target_modules": "nothing"}, "nothing"),
        ({"attn_implementation": "flash_attention_9"}, "flash_attention_9"),
        ({"loss_type": "dft", "router_aux_loss_coef": 1.0}, "router_aux_loss_coef"),
    ],
)
def test_what_the_libraries_do_not_take_is_said_and_nothing_is_left(sets, tmp_path, keys, message):
    assert message in refused(sets, tmp_path / "out", **keys)
    assert list((tmp_path / "out").glob("*")) == []  # transformers may have made it


def test_a_model_without_weights_is_said(sets, tmp_path):
    shutil.copytree(MICRO, tmp_path / "base")
    (tmp_path / "base" / "model.safetensors").unlink()
    message = refused(sets, tmp_path / "out", model_name_or_path=tmp_path / "base")
    assert messages.is_in(message, "not_set_up") and "model.safetensors" in message


def test_what_the_message_says_trains_on_sets_without_validation_rows(tmp_path):
    made = write_run(tmp_path / "runs" / "sums", 12, k=4, words=4)
    build(tmp_path / "sets", made, validation=0)
    config = Path(__file__).parents[3] / "configs" / "sft" / "micro.yaml"
    given = ["--config", config, "--role", "both"]
    given += ["--dataset_name", tmp_path / "sets", "--output_dir", tmp_path]
    with pytest.raises(ConfigError, match="have no validation rows") as raised:
        prepare(parse([str(one) for one in given]))
    given += re.findall(r"(--eval\S+ no) (--load\S+ false)", raised.value.fix)[0]
    prepared = prepare(parse(" ".join(map(str, given)).split()))
    assert prepared.validation == {} and not prepared.arguments.config.load_best_model_at_end


def test_rows_without_packing_may_be_flattened(sets, tmp_path):
    keys = {"padding_free": True, "role": "thinker"}
    batch = next(
        iter(new_trainer(prepare(sft_arguments(sets, tmp_path, **keys))).get_train_dataloader())
    )
    assert "position_ids" in batch and len(batch["input_ids"]) == 1


def test_one_source_may_lack_validation_rows(sets, tmp_path):
    other = write_run(tmp_path / "runs" / "more", 12, k=4, words=4, seed=3)
    build(tmp_path / "more", other, validation=0)
    config = tmp_path / "train.yaml"
    config.write_text(
        f"datasets:\n- {{path: {sets}, role: deliberator}}\n"
        f"- {{path: {tmp_path / 'more'}, role: thinker}}\n",
        encoding="utf-8",
    )
    keys = {"config": config, "role": None, "do_eval": True, "packing": True}
    prepared = prepare(sft_arguments(None, tmp_path / "out", **keys))
    there = len(rows(sets, "sft_deliberator", "validation"))
    assert there and [one.rows["validation"] for one in prepared.record.sets] == [there, 0]


def test_a_training_from_python_returns_its_record_and_prints_nothing(sets, tmp_path, capsys):
    out = tmp_path / "out"
    given: dict[str, Any] = {"role": "deliberator", "dataset_name": sets, "output_dir": out}
    given |= {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "max_steps": 1}
    given |= {"eval_strategy": "no", "load_best_model_at_end": False, "save_strategy": "no"}
    planned = hd.sft(model_name_or_path="micro-student", **given, dry_run=True, license=None)
    assert planned.result is None and not out.exists()
    record = hd.sft(model_name_or_path="micro-student", **given, logging_steps=1)
    assert record.result and record.result.steps == 1 and record == read_record(out)
    assert len((out / "log.jsonl").read_text("utf-8").splitlines()) == 2
    printed = "".join(capsys.readouterr()).splitlines()
    assert not [line for line in printed if "[WARNING]" not in line]  # DeepSpeed has some


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(
    sets, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(flags(sets, "out", dry_run=True, packing=True)) == 0
    said = capsys.readouterr().out
    assert "30 rows" in said and "micro-student, full" in said
    assert "The model is in" not in said
    ending = said.partition("Nothing was written.\nNext: heavydistill sft ")[2]
    assert "--packing" in ending and "dry" not in ending
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"role": None},
            "Error: A training needs dataset_name and role, or datasets alone; given: ",
        ),
        ({"dataset_name": "nowhere"}, "Error: There is no folder nowhere"),
        ({"evaluate": "nowhere.yaml"}, "Error: nowhere.yaml: No such file"),
        ({"max_length": 5}, "Error: max_length: "),
        ({"report_to": "tensorboard"}, "TensorBoardCallback requires tensorboard"),
    ],
)
def test_bad_input_ends_with_2_and_leaves_nothing(
    sets, tmp_path, monkeypatch, capsys, keys, message
):
    monkeypatch.chdir(tmp_path)
    assert main(flags(sets, "out", **keys)) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("looked_at", [True, False], ids=["validation", "steps"])
def test_a_training_that_diverges_ends_with_2_and_leaves_no_model(
    sets, tmp_path, capsys, looked_at
):
    out = tmp_path / "out"
    keys: dict[str, Any] = {"learning_rate": 1e30, "role": "thinker", "max_steps": 3}
    # What is only logged at the end is seen as well.
    keys |= {"eval_strategy": "steps", "eval_steps": 2} if looked_at else {}
    assert main(flags(sets, out, **keys, logging_steps=50)) == 2
    said = capsys.readouterr().err
    assert messages.is_in(said, "diverged", rate="1e+30")
    assert {path.name for path in out.iterdir()} == {"training.json", "log.jsonl"}
    assert read_record(out).result is None


def test_what_goes_on_from_the_last_step_takes_none_and_is_the_same_model(sets, tmp_path):
    out = tmp_path / "out"
    keys: dict[str, Any] = {"role": "thinker", "max_steps": 4, "lr_scheduler_type": "constant"}
    keys |= {"save_strategy": "steps", "save_steps": 2}
    train(prepare(sft_arguments(sets, out, **keys)))
    learnt = (out / "model.safetensors").read_bytes()
    (out / "config.json").unlink()  # as if it was killed while the model was saved
    (out / "model.safetensors").unlink()
    record = train(prepare(sft_arguments(sets, out, resume_from_checkpoint="true", **keys)))
    assert record.result is not None
    assert (record.result.steps, record.result.tokens, record.result.train_loss) == (4, 0, None)
    assert (out / "model.safetensors").read_bytes() == learnt
    assert {path.name for path in out.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}


def test_the_model_is_let_go_before_another_process_measures_it(sets, tmp_path, monkeypatch):
    made: list[weakref.ref[Any]] = []
    alive: list[Any] = []

    def new(prepared: SftPlan, pool: object) -> Any:
        trainer = new_trainer(prepared)
        made.extend([weakref.ref(trainer), weakref.ref(trainer.model)])
        return trainer

    def started(*command: Any, **options: Any) -> SimpleNamespace:
        alive.extend(one() for one in made)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(sft, "new_trainer", new)
    train(prepare(sft_arguments(sets, tmp_path / "out", role="thinker", max_steps=1)))
    monkeypatch.setattr(script.subprocess, "run", started)
    script.evaluate(tmp_path / "run.yaml", "micro-student", tmp_path / "out")
    assert alive == [None, None]


@pytest.mark.slow
def test_nobody_is_told_of_a_training(sets, tmp_path, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("HF_HUB_DISABLE_TELEMETRY", raising=False)
    with hub_server.serving() as hub:
        given = flags(sets, tmp_path / "out", role="thinker", max_steps=1)
        code, said = run(given, HF_ENDPOINT=hub.url, HF_HUB_OFFLINE="0")
    assert code == 0, said
    assert f"The model is in {tmp_path / 'out'}" in said
    assert re.search(r" 1 step in \d+ s, training loss \d+\.\d{4} ", said)
    assert "Next: heavydistill evaluate --before micro-student " in said
    for noise in ("Loading weights", "examples/s", "FutureWarning", "[transformers]", "WARNING"):
        assert noise not in said
    assert [path for _, path in hub.requests if "telemetry" in path] == []
