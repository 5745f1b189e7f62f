"""Pairs and labelled responses as other trainers read them; TRL's own code reads ours."""

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import load_dataset
from runs import build, rows, write_run
from samples import STUDENT
from transformers import AutoTokenizer

from heavydistill.chat.student import Student
from heavydistill.curate.exports.export import SFT_SHARE, TRAINERS, export

PAIRS, LABELLED = "preferences_deliberator", "unpaired_thinker"
ON_CPU = ["--use_cpu", "True", "--bf16", "False", "--report_to", "none", "--max_steps", "1"]
ON_CPU += ["--eval_strategy", "no", "--per_device_train_batch_size", "2", "--max_length", "1024"]


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    run, also = write_run(folder / "run", 24, d=4), ["preferences", "unpaired", "critiques"]
    build(folder / "sets", run, preset="natural", also=also, validation=0.2)
    return folder / "sets"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def spoken(turn: dict[str, Any]) -> str:
    return f"<think>\n{turn['reasoning_content']}\n</think>\n\n{turn['content']}"


def test_each_trainer_gets_what_it_trains_on_and_the_rest_is_said(sets, tmp_path):
    stages = {
        to: {name.partition("_")[0] for name in export(sets, to, tmp_path / to).rows}
        for to in TRAINERS
    }
    pairs = {"sft", "critiques", "preferences"}
    expected = {to: {"sft", "critiques", "rl"} for to in ("verl", "ms-swift", "axolotl")}
    expected |= {to: pairs for to in ("openrlhf", "nemo-rl", "tinker")}
    expected |= {to: pairs | {"unpaired"} for to in ("llamafactory", "unsloth")}
    assert stages == expected | {"trl": pairs | {"unpaired", "rl"}}
    for to in TRAINERS:
        readme = (tmp_path / to / "README.md").read_text(encoding="utf-8")
        assert ("## Right and wrong responses" in readme) == ("preferences" in stages[to])
        assert (f"`{PAIRS}` is not here" in readme) != ("preferences" in stages[to])
        for name in stages[to] & {"critiques"}:
            assert (tmp_path / to / name).is_dir()


@pytest.mark.parametrize(
    ("to", "shape"),
    [
        (
            "nemo-rl",
            lambda row: {
                "context": row["prompt"],
                "completions": [
                    {"rank": 0, "completion": row["chosen"]},
                    {"rank": 1, "completion": row["rejected"]},
                ],
            },
        ),
        (
            "tinker",
            lambda row: {
                "comparison": {
                    "prompt_conversation": row["prompt"],
                    "completion_A": [{"role": "assistant", "content": spoken(row["chosen"][0])}],
                    "completion_B": [{"role": "assistant", "content": spoken(row["rejected"][0])}],
                },
                "label": "A",
            },
        ),
        (
            "llamafactory",
            lambda row: {
                "messages": row["prompt"],
                "chosen": {"role": "assistant", "content": spoken(row["chosen"][0])},
                "rejected": {"role": "assistant", "content": spoken(row["rejected"][0])},
            },
        ),
        (
            "openrlhf",
            lambda row: {name: row[name] for name in ("prompt", "chosen", "rejected")},
        ),
    ],
)
def test_a_pair_stands_in_the_columns_of_a_trainer(sets, tmp_path, to, shape):
    export(sets, to, tmp_path / "out")
    pairs = rows(sets, PAIRS, "train")
    assert pairs and lines(tmp_path / "out" / PAIRS / "train.jsonl") == list(map(shape, pairs))


def test_llamafactory_is_told_which_columns_rank_and_label(sets, tmp_path):
    export(sets, "llamafactory", tmp_path / "out")
    known = json.loads((tmp_path / "out" / "dataset_info.json").read_text())
    assert known[PAIRS]["ranking"] is True
    assert known[PAIRS]["columns"] == {
        "messages": "messages",
        "chosen": "chosen",
        "rejected": "rejected",
    }
    assert known[LABELLED]["columns"] == {"messages": "messages", "kto_tag": "label"}
    assert "ranking" not in known["critiques"]
    found = lines(tmp_path / "out" / LABELLED / "train.jsonl")
    assert [row["label"] for row in found] == [
        row["label"] for row in rows(sets, LABELLED, "train")
    ]
    stages = {
        name: yaml.safe_load((tmp_path / "out" / f"{name}.yaml").read_text())["stage"]
        for name in (PAIRS, f"{PAIRS}_reward", LABELLED, "critiques")
    }
    assert [*stages.values()] == ["dpo", "rm", "kto", "sft"]


def test_openrlhf_and_nemo_rl_cut_and_mask_no_row(sets, tmp_path):
    for to in ("openrlhf", "nemo-rl"):
        export(sets, to, tmp_path / to)
    for name in ("sft_deliberator", PAIRS, f"{PAIRS}_reward"):
        script = tmp_path / "openrlhf" / f"{name}.sh"
        subprocess.run(["bash", "-n", script], check=True)
        assert "--data.max_len 2048 " in script.read_text()
        tree = yaml.safe_load((tmp_path / "nemo-rl" / f"{name}.yaml").read_text())
        assert tree["policy"]["max_total_sequence_length"] == 2049
        assert tree["policy"]["tokenizer"]["chat_template"] == "default"
        assert tree["data"]["validation"]["data_path"].endswith("validation.jsonl")
    tree = yaml.safe_load((tmp_path / "nemo-rl" / f"{PAIRS}.yaml").read_text())
    assert tree["dpo"]["sft_loss_weight"] == SFT_SHARE and "rm" not in tree


def test_what_openrlhf_subtracts_from_a_conversation_is_its_prompt(sets):
    """It takes as the response what follows the length of the rendered prompt."""
    tokenizer = AutoTokenizer.from_pretrained(STUDENT)
    for row in rows(sets, PAIRS)[:5]:
        asked = tokenizer.apply_chat_template(
            row["prompt"], tokenize=False, add_generation_prompt=True
        )
        for side in ("chosen", "rejected"):
            whole = tokenizer.apply_chat_template(row["prompt"] + row[side], tokenize=False)
            assert whole.startswith(asked)


def test_the_scripts_of_tinker_name_their_rows(sets, tmp_path):
    export(sets, "tinker", tmp_path / "out")
    for name in ("sft_thinker", "critiques", PAIRS):
        script = (tmp_path / "out" / f"{name}.py").read_text()
        compile(script, name, "exec")
        assert f'"{name}/train.jsonl"' in script and "max_length=2048" in script
    assert not (tmp_path / "out" / f"{PAIRS}_reward.py").exists()


def test_weights_balance_right_and_wrong_rows(sets, tmp_path):
    export(sets, "trl", tmp_path / "out")
    config = yaml.safe_load((tmp_path / "out" / f"{LABELLED}.yaml").read_text())
    labels = [row["label"] for row in rows(sets, LABELLED, "train")]
    right, wrong = sum(labels), len(labels) - sum(labels)
    weights = config["desirable_weight"], config["undesirable_weight"]
    assert min(weights) == 1.0 and right != wrong
    assert right * weights[0] == pytest.approx(wrong * weights[1], rel=0.02)


@pytest.fixture
def exported(sets, tmp_path, monkeypatch):
    """A function that exports for a trainer and enters the folder."""
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))

    def enter(to: str) -> None:
        export(sets, to, tmp_path / "out")
        monkeypatch.chdir(tmp_path / "out")

    return enter


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "name", "columns"),
    [
        ("dpo", PAIRS, {"chosen_ids", "rejected_ids"}),
        ("reward", f"{PAIRS}_reward", {"chosen_ids", "rejected_ids"}),
        ("kto", LABELLED, {"completion_ids", "label"}),
    ],
)
def test_trl_makes_a_step_on_the_micro_student(exported, stage, name, columns):
    import trl

    exported("trl")
    parser = importlib.import_module(f"trl.scripts.{stage}").make_parser()
    script, args, *_ = parser.parse_args_and_config(["--config", f"{name}.yaml", *ON_CPU])
    title = {"dpo": "DPO", "reward": "Reward", "kto": "KTO"}[stage]
    found = load_dataset(script.dataset_name)
    tokenizer = AutoTokenizer.from_pretrained(STUDENT)
    trainer = getattr(trl, f"{title}Trainer")(
        model=str(STUDENT),
        args=args,
        train_dataset=found[script.dataset_train_split],
        processing_class=tokenizer,
    )
    assert len(trainer.train_dataset) == len(found["train"]), "none is cut off or left out"
    first, row = trainer.train_dataset[0], found["train"][0]
    assert columns <= first.keys()
    side = "chosen" if stage != "kto" else "completion"
    learnt = Student("micro-student").chat.tokens(row["prompt"], row[side]).completion
    assert first[f"{side}_ids"][-len(learnt) :] == learnt
    assert trainer.train().training_loss > 0


@pytest.mark.slow
def test_the_script_for_unsloth_hands_its_model_to_trl(exported, monkeypatch):
    """A stand-in loads the model as transformers does: Unsloth itself needs a GPU."""
    from transformers import AutoModelForCausalLM

    class FastLanguageModel:
        @staticmethod
        def from_pretrained(name: str, max_seq_length: int, load_in_4bit: bool) -> tuple[Any, Any]:
            assert (name, max_seq_length, load_in_4bit) == ("micro-student", 1024, False)
            loaded = AutoModelForCausalLM.from_pretrained(STUDENT)
            return loaded, AutoTokenizer.from_pretrained(STUDENT)

        @staticmethod
        def get_peft_model(model: Any, r: int, lora_alpha: int) -> Any:
            assert (r, lora_alpha) == (16, 32)
            return model

    exported("unsloth")
    stub: Any = types.ModuleType("unsloth")
    stub.FastLanguageModel = FastLanguageModel
    monkeypatch.setitem(sys.modules, "unsloth", stub)
    config = yaml.safe_load(Path(f"{PAIRS}.yaml").read_text()) | {
        **{"use_cpu": True, "bf16": False, "report_to": "none", "max_steps": 1},
        **{"eval_strategy": "no", "per_device_train_batch_size": 2, "max_length": 1024},
    }
    Path("short.yaml").write_text(yaml.safe_dump(config))
    spec = importlib.util.spec_from_file_location("of_unsloth", "heavydistill_unsloth.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main("dpo", "short.yaml")
    assert Path("out", PAIRS, "model.safetensors").is_file()
