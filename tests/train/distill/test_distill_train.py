"""Distillation of the micro student by the micro teacher, from sets to a model and its record."""

import json
import shutil
from pathlib import Path
from typing import Any

import messages
import pytest
import tiny_distill
from messages import message
from runs import rows
from set_folders import rewrite
from students import checkpoint
from tiny_distill import distill_flags, survives_a_kill
from trainings import DISTILL, LOOKED_AT, main, run, run_file
from trl import DistillationTrainer

from heavydistill.heavy.cache import without_instructions
from heavydistill.store.sets.set_rows import SftRow
from heavydistill.store.training_record import LEARNT, Launch, read_record
from heavydistill.train.distill.teacher import find_teacher, load_teacher
from heavydistill.train.distill.train import new_trainer, parse, prepare, train
from heavydistill.verifiers.pool import VerdictPool


def arguments(sets: Path | str | None, out: Path | str, **keys: Any) -> Any:
    return parse(distill_flags(sets, out, **keys))


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(
    sets, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(distill_flags(sets, "out", dry_run=True, beta=0.5), DISTILL) == 0
    said = " ".join(capsys.readouterr().out.split())
    learnt = rows(sets, "sft_deliberator", "train")
    longest = max(row["completion_tokens"] for row in learnt if row["role"] == "deliberator")
    assert "sets, deliberator " in said and "micro, scores every token" in said
    assert f"2 responses of up to {longest} tokens; generalized JSD, beta 0.5" in said
    assert list(tmp_path.iterdir()) == []


def test_all_caches_of_the_training_split_are_asked_whatever_is_right(sets, tmp_path):
    caches = [row for row in rows(sets, "caches") if row["rl_label"] in ("", *_TEACHING)]
    train = {row["id"] for row in rows(sets, "problems") if row["split"] == "train"}
    asked = prepare(arguments(sets, tmp_path / "out")).prompts.train["cache"]
    assert {*asked} == {row["id"] for row in caches if row["problem"] in train}
    assert len({*asked}) > len(rows(sets, "rl", "train"))
    measured = prepare(arguments(sets, tmp_path / "out", unmeasured="leave_out"))
    assert len(measured.prompts.train) == len(rows(sets, "rl", "train"))


def test_the_teacher_reads_instructions_that_the_student_does_not(sets, tmp_path, monkeypatch):
    keys = {"wording": "none", "max_completion_length": 8, "max_steps": 1}
    plan = prepare(arguments(sets, tmp_path / "out", **keys))
    given = {row["id"]: row["prompt"] for row in rows(sets, "caches")}
    for row in plan.prompts.train:
        (theirs,), (own,) = row["teacher_prompt"], row["prompt"]
        assert theirs["content"] == given[row["cache"]]
        assert own["content"] == without_instructions(theirs["content"])
    read: dict[bool, list[str]] = {True: [], False: []}
    own_states = DistillationTrainer._get_last_hidden_state

    def states(made: Any, model: Any, ids: Any, mask: Any, *others: Any, **options: Any) -> Any:
        is_teacher = model is made.accelerator.unwrap_model(made.teacher_model)
        read[is_teacher] += made.processing_class.batch_decode(ids)
        return own_states(made, model, ids, mask, *others, **options)

    monkeypatch.setattr(DistillationTrainer, "_get_last_hidden_state", states)
    with VerdictPool(plan.settings.verify) as pool:
        new_trainer(plan, pool).train()
    assert len(read[True]) == len(read[False]) == 2
    for theirs, own in zip(read[True], read[False], strict=True):
        assert "Below are a problem" in theirs and "Below are a problem" not in own
        assert theirs.partition("End of attempts")[2][-20:] == own[-20:]


_TEACHING = ("unmeasured", "never_right", "always_right")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"teacher_model_name_or_path": None}, "No teacher is given. Give --teacher_model_name_or"),
        ({"teacher_model_name_or_path": "nowhere"}, "nowhere"),
        ({"teacher": "micro"}, "Did you mean --teacher_model_name_or_path"),
        ({"beta": 1.5}, "beta must be in [0.0, 1.0], got 1.5"),
        ({"mode": "joint"}, "is not one of deliberator, thinker"),
        ({"top_p": 0.9}, "top_p cannot be set: responses must be samples of the model's own"),
        ({"max_completion_length": 2000}, "Give a smaller max_completion_length"),
        ({"guard_reading": "warn"}, "guard_reading is warn, but nothing is evaluated"),
        ({"mode": "thinker", "max_accuracy": 0.5}, "max_accuracy is 0.5, but the mode is thinker"),
        ({"gradient_accumulation_steps": 999}, "17. Give a smaller --gradient_accumulation_steps"),
        ({"judge_timeout_s": 9}, "judge_timeout_s is 9.0, but nothing is evaluated"),
        ({"judge": "{model: some}"}, "judge is given, but a distillation judges only held-out"),
        ({"budget": "3usd"}, "and nothing is evaluated. Give --eval_strategy steps, or leave it"),
        ({"guard_undecided": "off"}, message("no_flag", flag="--guard_undecided")),
    ],
)
def test_bad_input_ends_with_2_before_any_weights_are_loaded(
    sets, tmp_path, monkeypatch, capsys, keys, said
):
    monkeypatch.chdir(tmp_path)
    forbid_weights(monkeypatch)
    assert main(distill_flags(sets, "out", **keys), DISTILL) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert list(tmp_path.iterdir()) == []


def forbid_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(*_: Any, **__: Any) -> None:
        raise AssertionError("weights are loaded")

    monkeypatch.setattr("transformers.PreTrainedModel.from_pretrained", loads)


def test_bfloat16_without_a_gpu_is_refused_with_the_file_for_cpus(sets, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    code, said = run(distill_flags(sets, tmp_path / "out", bf16=True, use_cpu=None), script=DISTILL)
    assert code == 2 and "this machine has none. --config micro is for CPUs" in said


def test_sets_without_the_role_are_refused(sets, tmp_path, monkeypatch):
    forbid_weights(monkeypatch)
    bare = shutil.copytree(sets, tmp_path / "bare")
    for name in ("rl", "caches"):
        rewrite(bare, name, lambda row: [])
    rewrite(bare, "sft_deliberator", lambda row: [], SftRow)
    with messages.raises("no_response_length", mode="deliberator"):
        prepare(arguments(bare, tmp_path / "out"))
    with messages.raises("no_cache_to_distill"):
        prepare(arguments(bare, tmp_path / "out", max_completion_length=64))
    with messages.raises("no_response_length_of_run"):
        keys = {"mode": "thinker", "run": run_file(tmp_path)}
        prepare(arguments(None, tmp_path / "out", **keys))


def teacher_like(folder: Path, **config: Any) -> str:
    """The micro teacher with other values in its config.json."""
    shutil.copytree(tiny_distill.TEACHER, folder)
    known = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps({**known, **config}), "utf-8")
    return str(folder)


def test_a_teacher_of_a_smaller_context_is_refused(sets, tmp_path, monkeypatch):
    forbid_weights(monkeypatch)
    small = teacher_like(tmp_path / "small", max_position_embeddings=256)
    with messages.raises("teacher_context"):
        prepare(arguments(sets, tmp_path / "out", teacher_model_name_or_path=small))


def test_a_quantized_teacher_is_refused_on_a_cpu(sets, tmp_path, monkeypatch):
    forbid_weights(monkeypatch)
    quantized = teacher_like(tmp_path / "fp8", quantization_config={"quant_method": "fp8"})
    with messages.raises("teacher_quantized"):
        prepare(arguments(sets, tmp_path / "out", teacher_model_name_or_path=quantized))


def test_a_teacher_of_another_tokenizer_or_end_is_refused(sets, tmp_path, monkeypatch):
    forbid_weights(monkeypatch)
    other = checkpoint(tmp_path / "other", tokenizer_template(), "<|end_of_text|>")
    config = json.loads((tmp_path / "other" / "config.json").read_text("utf-8"))
    (tmp_path / "other" / "config.json").write_text(json.dumps({**config, "vocab_size": 999}))
    with messages.raises("teacher_vocabulary"):
        prepare(arguments(sets, tmp_path / "out", teacher_model_name_or_path=other))


def tokenizer_template() -> str:
    return (Path(tiny_distill.TEACHER) / "chat_template.jinja").read_text("utf-8")


def test_a_teacher_of_another_template_or_splitting_is_refused(sets, tmp_path, monkeypatch):
    forbid_weights(monkeypatch)
    folder = Path(teacher_like(tmp_path / "template"))
    (folder / "chat_template.jinja").write_text(f"Be brief.{tokenizer_template()}", "utf-8")
    with messages.raises("teacher_template"):
        prepare(arguments(sets, tmp_path / "out", teacher_model_name_or_path=str(folder)))
    merges = Path(teacher_like(tmp_path / "merges"))
    known = json.loads((merges / "tokenizer.json").read_text("utf-8"))
    known["normalizer"] = {"type": "Lowercase"}
    (merges / "tokenizer.json").write_text(json.dumps(known), "utf-8")
    with messages.raises("teacher_splitting"):
        prepare(arguments(sets, tmp_path / "out", teacher_model_name_or_path=str(merges)))


def test_output_layers_of_different_lengths_are_cut_unless_they_are_spread(sets, tmp_path):
    wide = teacher_like(tmp_path / "wide", vocab_size=744)
    model = tiny_distill.teacher()
    model.resize_token_embeddings(744, mean_resizing=False)
    model.save_pretrained(wide)
    asked = arguments(sets, tmp_path / "out", teacher_model_name_or_path=wide)
    plan = prepare(asked)
    with VerdictPool() as pool:
        made = new_trainer(plan, pool)
    assert made._cut_to == len(plan.base.tokenizer) < plan.base.vocabulary
    spread = Launch(processes=8, engine="zero3", device="cuda", attention="sdpa")
    with messages.raises("teacher_spread"):
        find_teacher(asked.config, plan.base, plan.prompts, spread)


@pytest.mark.parametrize(("device", "is_refused"), [("NVIDIA H100", True), ("cpu", False)])
def test_a_teacher_that_lands_on_the_processor_beside_gpus_is_refused(
    sets, tmp_path, monkeypatch, device, is_refused
):
    from trl.trainer import utils

    made = utils.create_model_from_path

    def spread(*given: Any, **options: Any) -> Any:
        model = made(*given, **options)
        model.hf_device_map = {"model.layers.0": 0, "model.layers.1": "cpu", "lm_head": "disk"}
        return model

    monkeypatch.setattr(utils, "create_model_from_path", spread)
    asked = arguments(sets, tmp_path / "out")
    plan = prepare(asked)
    launch = Launch(processes=1, engine="single", device=device, attention="sdpa")
    given = (asked.config, plan.teacher, plan.base, launch)
    if is_refused:
        with messages.raises("teacher_too_large"):
            load_teacher(*given)
    else:
        assert load_teacher(*given).hf_device_map


def test_the_teacher_computes_in_the_precision_of_the_training(sets, tmp_path):
    asked = arguments(sets, tmp_path / "out", teacher_model_init_kwargs='{"dtype": "bfloat16"}')
    plan = prepare(asked)
    with VerdictPool() as pool:
        assert str(new_trainer(plan, pool).teacher_model.dtype) == "torch.bfloat16"
    plan = prepare(arguments(sets, tmp_path / "out"))
    with VerdictPool() as pool:
        assert str(new_trainer(plan, pool).teacher_model.dtype) == "torch.float32"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["deliberator", "thinker"])
def test_the_command_trains_measures_and_records(sets, tmp_path, capfd, mode):
    out = tmp_path / "out"
    keys = {"mode": mode, "max_steps": 4, "gradient_accumulation_steps": 2, **LOOKED_AT}
    keys |= {"save_strategy": "steps", "save_steps": 4, "max_completion_length": 352}
    assert main(distill_flags(sets, out, **keys), DISTILL) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "loss entropy gradient tokens cut off lr" in said and "4 steps in" in said
    assert "Next: heavydistill evaluate --before micro-student" in said
    record = read_record(out)
    assert (record.stage, record.role, record.method) == ("distill", mode, "full")
    assert record.rl and record.rl.teacher and record.rl.objective == "reverse KL"
    assert record.rl.teacher.name == "micro" and len(record.rl.teacher.revision) == 16
    result = record.result
    assert result and result.steps == 4 and not result.is_unlearnt
    assert {LEARNT, "loss", "entropy", "eval_pass_at_1"} <= result.rollouts.keys()
    assert ("eval_hm_garbled" in result.rollouts) == (mode == "deliberator")
    assert str(tmp_path) not in (out / "training.json").read_text("utf-8")
    card = " ".join((out / "README.md").read_text("utf-8").split())
    assert "teacher `micro` (reverse KL)" in card
    assert {"config.json", "model.safetensors", "curves.png"} <= {p.name for p in out.iterdir()}


def test_a_training_without_an_end_says_that_nothing_was_learnt(sets, tmp_path, capfd):
    keys = {"max_completion_length": 2, "max_steps": 1}
    assert main(distill_flags(sets, tmp_path / "out", **keys), DISTILL) == 1
    said = capfd.readouterr().err
    assert "Nothing was learnt" in said and "no response ended, and 100% of the last ones" in said
    assert read_record(tmp_path / "out").result.is_unlearnt


@pytest.mark.slow
def test_a_distillation_that_is_killed_ends_with_the_same_weights(sets, tmp_path):
    steps = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "seed": 5}
    steps |= {"max_completion_length": 48, "mask_truncated_completions": False}
    survives_a_kill(lambda out: distill_flags(sets, out, **steps), tmp_path)


def test_another_teacher_is_another_training(sets, tmp_path):
    out = tmp_path / "out"
    train(prepare(arguments(sets, out, max_steps=1, save_strategy="steps", save_steps=1)))
    keys = {"max_steps": 1, "resume_from_checkpoint": "true"}
    keys |= {"save_strategy": "steps", "save_steps": 1}
    keys |= {"teacher_model_name_or_path": "micro-student"}
    with messages.raises("other_training", before="teacher ('micro'"):
        prepare(arguments(sets, out, **keys))
