"""The trainers' own code on what is written for them: the same tokens are learnt everywhere.

TRL is a dependency. The others are skipped where they are not installed: each asks for a stack of
its own. Their wheels without their dependencies, in a folder of PYTHONPATH, are enough for what is
called here, together with ``addict`` and ``omegaconf`` (axolotl), ``omegaconf``, ``hydra-core`` and
``tensordict`` (verl), ``torchaudio`` (LLaMA-Factory), ``modelscope``, ``modelscope_hub`` and
``json_repair`` (ms-swift).
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from datasets import load_dataset
from set_folders import write_sets
from transformers import AutoTokenizer

from heavydistill.curate.exports.export import export

MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "student")
# As that of Qwen3: thinking only after the last user turn, and its marks even without thinking.
QWEN3 = (
    "{%- set ns = namespace(user=messages|length - 1) %}"
    "{%- for m in messages %}{% if m.role == 'user' %}{% set ns.user = loop.index0 %}{% endif %}"
    "{% endfor %}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 > ns.user %}"
    "<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ON_CPU = ["--use_cpu", "True", "--bf16", "False", "--report_to", "none"]
LEARNT = (
    "<think>\nAttempt 1 is right, attempt 2 is wrong: 2*3=6.\n</think>\n\n"
    "The product is \\boxed{6}.<|im_end|>\n"
)


@pytest.fixture
def out(tmp_path, monkeypatch):
    """Exports for a trainer; the current folder from then on, as its README asks."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    before = set(sys.modules)

    def write(to: str) -> Path:
        export(write_sets(tmp_path / "sets"), to, tmp_path / "out")
        monkeypatch.chdir(tmp_path / "out")
        monkeypatch.syspath_prepend(".")
        return tmp_path / "out"

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("heavydistill_"):
            del sys.modules[name]


@pytest.fixture
def tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    tokenizer.chat_template = QWEN3
    return tokenizer


def config(name: str) -> dict:
    return yaml.safe_load(Path(f"{name}.yaml").read_text(encoding="utf-8"))


def installed(*names: str):
    """The last of the modules; the test is skipped if one is not there."""
    return [
        pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)
        for name in names
    ][-1]


@pytest.mark.slow
def test_trl_learns_the_completion_alone(out, tokenizer):
    from trl import SFTTrainer
    from trl.scripts.sft import make_parser

    out("trl")
    script, args, _, _ = make_parser().parse_args_and_config(
        ["--config", "sft_deliberator.yaml", *ON_CPU]
    )
    rows = load_dataset(script.dataset_name)
    trainer = SFTTrainer(
        model=MICRO,
        args=args,
        train_dataset=rows[script.dataset_train_split],
        eval_dataset=rows[script.dataset_test_split],
        processing_class=tokenizer,
    )
    row = trainer.train_dataset[0]
    assert tokenizer.decode([one for one in row["labels"] if one != -100]) == LEARNT
    assert args.max_length == 2048


@pytest.mark.slow
def test_trl_rewards_what_a_student_answers(out):
    from trl import GRPOTrainer
    from trl.scripts.grpo import make_parser

    out("trl")
    short = ["--max_steps", "1", "--max_completion_length", "16", "--eval_strategy", "no"]
    script, args, _, _ = make_parser().parse_args_and_config(
        ["--config", "rl.yaml", *ON_CPU, *short]
    )
    module, name = script.reward_funcs[0].rsplit(".", 1)
    written = importlib.import_module(module)
    rewards = []

    def reward(**columns):
        rewards.extend(found := getattr(written, name)(**columns))
        return found

    with written.POOL:
        GRPOTrainer(
            model=MICRO,
            reward_funcs=[reward],
            args=args,
            train_dataset=load_dataset(script.dataset_name)["train"],
        ).train()
    assert len(rewards) == 8
    assert set(rewards) <= {1.0, 0.0, None}


def test_verl_learns_the_completion_alone(out, tokenizer):
    omegaconf = installed("tensordict", "omegaconf")
    imports = installed("verl.utils.dataset.multiturn_sft_dataset", "verl.utils.import_utils")
    out("verl")
    data = config("sft_deliberator")["data"]
    kind = imports.load_extern_object(data["custom_cls"]["path"], data["custom_cls"]["name"])
    settings = omegaconf.OmegaConf.create({**data, "pad_mode": "no_padding"})
    row = kind([data["train_files"]], tokenizer, settings)[0]
    assert tokenizer.decode(row["input_ids"][row["loss_mask"] == 1]) == LEARNT


def test_verl_takes_the_configurations(out):
    hydra = installed("tensordict", "omegaconf", "verl", "hydra")
    folder = out("verl")
    for name in ("sft_deliberator", "rl"):
        with hydra.initialize_config_dir(version_base=None, config_dir=str(folder)):
            composed = hydra.compose(config_name=name)
        assert composed.data.train_files == f"{name}/train.parquet"
    assert composed.reward.custom_reward_function.name == "compute_score"
    assert composed.reward.reward_manager.name == "naive"


def test_axolotl_learns_the_completion_alone(out, tokenizer):
    schema = installed("addict", "axolotl.utils.schemas.config")
    strategies = installed("axolotl.prompt_strategies.chat_template", "axolotl.prompt_strategies")
    wrapped = importlib.import_module("axolotl.utils.dict").DictDefault
    out("axolotl")
    tree = schema.AxolotlInputConfig(**config("sft_deliberator")).model_dump(exclude_none=True)
    settings = wrapped(tree)
    (described,) = settings.datasets
    strategy = strategies.load(described.type, tokenizer, settings, described)
    row = strategy.tokenize_prompt(load_dataset("json", data_files=described.path)["train"][0])
    learnt = [one for one in row["labels"] if one != -100]
    assert tokenizer.decode(learnt) == LEARNT
    assert schema.AxolotlInputConfig(**config("rl")).rl == "grpo"


def test_llamafactory_learns_the_completion_alone(out, tokenizer):
    installed("torchaudio", "llamafactory.data.template")
    llamafactory = {
        name: importlib.import_module(f"llamafactory.data.{name}")
        for name in ("parser", "converter", "template", "processor.supervised")
    }
    out("llamafactory")
    settings = SimpleNamespace(
        **{**config("sft_deliberator"), "template": "qwen3"},
        tool_format=None,
        default_system=None,
        preserve_thinking=False,
        mask_history=False,
    )
    (described,) = llamafactory["parser"].get_dataset_list([settings.dataset], ".")
    rows = load_dataset("json", data_files=described.dataset_name)["train"]
    row = llamafactory["converter"].SharegptDatasetConverter(described, settings)(rows[0])
    template = llamafactory["template"].get_template_and_fix_tokenizer(tokenizer, settings)
    processor = llamafactory["processor.supervised"].SupervisedDatasetProcessor(
        template=template, tokenizer=tokenizer, processor=None, data_args=settings
    )
    _, labels = processor._encode_data_example(
        row["_prompt"], row["_response"], row["_system"], row["_tools"], [], [], []
    )
    assert tokenizer.decode([one for one in labels if one != -100]) == LEARNT


def test_swift_keeps_the_response_whole_and_the_columns_of_the_reward(out, monkeypatch):
    core = installed("modelscope_hub", "json_repair", "swift.dataset.preprocessor.core")
    folder = out("ms-swift")
    monkeypatch.setattr(core, "get_cache_dir", lambda: str(folder.parent / "cache"))
    kept = {
        name: core.AutoPreprocessor()(
            load_dataset("json", data_files=config(name)["dataset"])["train"], strict=True
        )[0]
        for name in ("sft_deliberator", "rl")
    }
    assert kept["sft_deliberator"]["messages"][-1]["content"] + "<|im_end|>\n" == LEARNT
    assert kept["rl"].keys() >= {"text", "reference", "verifier", "verifier_args"}
    importlib.import_module("swift.utils.utils").import_external_file("heavydistill_swift.py")
    reward = importlib.import_module("swift.rewards").orms[config("rl")["reward_funcs"][0]]()
    columns = {name: [value] for name, value in kept["rl"].items()}
    assert reward(["\\boxed{6}"], **columns) == [1.0]
