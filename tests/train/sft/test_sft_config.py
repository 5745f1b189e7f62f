"""What a training takes: TRL's command line, what it refuses, and what of it is recorded."""

import argparse
import functools
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import trainings
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import message
from trainings import ROOT, grpo_arguments, main, sft_arguments
from trl import ModelConfig, TrlParser

from heavydistill.train.arguments import REFUSED, known_arguments, recorded
from heavydistill.train.datasets import SetSource
from heavydistill.train.distill.options import DistillOptions
from heavydistill.train.distill.train import DistillConfig
from heavydistill.train.grpo.options import GrpoOptions
from heavydistill.train.grpo.train import GrpoConfig
from heavydistill.train.launch import FLAGS as LAUNCHER
from heavydistill.train.rollouts.config import RolloutModelConfig
from heavydistill.train.sft.options import SftOptions
from heavydistill.train.sft.train import SftConfig, parse

LEAST = {
    "model_name_or_path": "micro-student",
    "dataset_name": "sets",
    "role": "thinker",
    "use_cpu": True,
    "bf16": False,
}
THINKER = {"path": "a", "role": "thinker"}
DELIBERATOR = {"path": "a", "role": "deliberator"}
written = functools.partial(trainings.written, least=LEAST)
refused = functools.partial(trainings.refusal, parse)


def test_the_file_is_read_in_both_spellings_and_flags_win(tmp_path):
    path = written(tmp_path, learning_rate=1e-3, use_peft=True, lora_r=8, num_train_epochs=2)
    for arguments in (["--config", path], [f"--config={path}"]):
        read = parse([*arguments, "--learning-rate", "1e-5", "--role", "both"])
        assert (read.config.learning_rate, read.model.lora_r) == (1e-5, 8)
        assert read.config.num_train_epochs == 2
        assert read.config.sources == (
            SetSource(path="sets", role="thinker"),
            SetSource(path="sets", role="deliberator"),
        )
        assert read.config.roles == "both"


@pytest.mark.parametrize(
    ("role", "learner"),
    [("thinker", "thinker"), ("deliberator", "deliberator"), ("both", "deliberator")],
)
def test_folder_and_best_model_are_those_of_the_role(tmp_path, role, learner):
    best = {"load_best_model_at_end": True, "eval_strategy": "steps", "save_strategy": "steps"}
    config = parse(["--config", written(tmp_path, role=role, **best)]).config
    assert config.output_dir == f"out/{role}"
    assert config.metric_for_best_model == f"eval_{learner}_loss"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"learning_rte": 1e-4}, "there is no key 'learning_rte'. Did you mean learning_rate?"),
        ({"role": "judge"}, "role: 'judge' is not one of thinker, deliberator, both"),
        (
            {"rle": "judge", "bf16": "maybe"},
            "2 keys in {path} are wrong. Correct them:\n"
            "  line 1: bf16: 'maybe' is neither true nor false.\n"
            "  line 4: there is no key 'rle'. Did you mean role?",
        ),
        ({"too_long": "cut"}, "too_long: 'cut' is not one of refuse, leave_out"),
        ({"eval_strategy": False}, "eval_strategy: False is not one of no, steps, epoch. Write"),
        ({"max_steps": "8.5"}, "line 3: max_steps: '8.5' is not a whole number"),
        ({"learning_rate": "fast"}, "learning_rate: 'fast' is not a number"),
        ({"learning_rate": [1e-4]}, "learning_rate: [0.0001] is not a number"),
        ({"env": 3}, "env: 3 is not a mapping"),
        ({"load_in_4bit": True, "load_in_8bit": True}, "at the same time"),
        ({"bf16": True, "fp16": True}, "At most one of fp16 and bf16"),
        ({"bf16": True, "use_cpu": False}, "This needs a GPU; for a small model on a CPU"),
        ({"model_name_or_path": None}, "names no model. Add --model_name_or_path: a folder"),
        ({"dataset_name": None}, "or datasets alone; given: role. Give"),
        ({"role": None}, "or datasets alone; given: dataset_name. Give"),
        ({"datasets": [THINKER]}, "given: dataset_name, role, datasets. Give"),
        ({"datasets": [THINKER], "dataset_name": None}, "given: role, datasets. Give"),
    ],
)
def test_a_fault_of_the_file_names_the_key(tmp_path, keys, message, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    path = written(tmp_path, **keys)
    assert message.replace("{path}", path) in refused(["--config", path])


def test_a_number_of_which_yaml_makes_text_is_one(tmp_path):
    path = tmp_path / "train.yaml"
    keys = yaml.safe_dump(LEAST)
    path.write_text(f"{keys}learning_rate: 1e-4\nresume_from_checkpoint: true\n", encoding="utf-8")
    read = parse(["--config", str(path)])
    assert read.config.learning_rate == 1e-4
    assert str(read.config.resume_from_checkpoint) == "True"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--learning_rte", "1"], message("no_flag", flag="--learning_rte")),
        (["--dataset", "x"], "Did you mean --dataset_name or --datasets or --dataset_text_field?"),
        (["--learning_rte=1"], message("no_flag", flag="--learning_rte")),
        (["--learn", "1"], message("no_flag", flag="--learn")),
        (["stray"], message("no_flag", flag="stray")),
        (["--max_steps", "ten"], "--max_steps: 'ten' is not a whole number"),
        (["--packing", "maybe"], "'maybe' is neither true nor false"),
        (["--role", "judge"], "--role: 'judge' is not one of thinker, deliberator, both"),
        (["--evaluate", "e.yaml", "--model_revision", "v2"], "but model_revision v2"),
        (["--model_init_kwargs", '{"dtype": "auto"}'], "model_init_kwargs: dtype has a flag"),
        (
            ["--model_init_kwargs", "use_kernels"],
            "model_init_kwargs: 'use_kernels' is not a mapping",
        ),
        (["--model_init_kwargs", '{"a'], "Unterminated string"),
        (["--config"], "--config: expected one argument"),
        (["--learning_rate", "inf"], "learning_rate: inf is not more than 0"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: No such file"),
        (["--datasets", "a"], "given: dataset_name, role, datasets. Give"),
        (["--hub_model_id", "a/b"], "hub_model_id is set, but push_to_hub is not"),
        (["--license", "mit"], "license is set, but push_to_hub is not"),
    ],
)
def test_a_fault_of_a_flag_names_it(tmp_path, flags, message):
    assert message in refused(["--config", written(tmp_path), *flags])


def test_a_mixture_has_a_source_for_each_entry(tmp_path):
    entries = [{**THINKER, "fraction": 0.25}, {**DELIBERATOR, "fraction": 1, "revision": "v1"}]
    path = written(tmp_path, datasets=entries, dataset_name=None, role=None)
    read = parse(["--config", path])
    assert read.config.sources == (
        SetSource(path="a", role="thinker", fraction=0.25),
        SetSource(path="a", role="deliberator", fraction=1, revision="v1"),
    )
    assert read.config.roles == "both"
    assert parse(["--config", path, "--max_steps", "1"]).config.sources == read.config.sources


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["a"], "'str' object is not a mapping"),
        ([{**THINKER, "rol": "x"}], "entry 1: unknown key rol. Did you mean role?"),
        ([THINKER, {"path": "b"}], "entry 2: role is missing. Give role"),
        ([{"path": 3, "role": "thinker"}], "entry 1: path: must be a text (got 3)"),
        (
            [{"path": "a", "role": "both"}],
            "entry 1: role: must be 'thinker' or 'deliberator' (got 'both')",
        ),
        ([{**THINKER, "fraction": 0}], "fraction: must be more than 0 (got 0)"),
        ([{**THINKER, "fraction": 1.5}], message("above_most", key="fraction", most=1)),
        ([{**THINKER, "fraction": True}], "fraction: must be a number (got True)"),
        ([{**THINKER, "revision": 1234567}], "revision: must be a text (got 1234567)"),
        ([{**THINKER, "fraction": 0.5}, DELIBERATOR], "some entries have a fraction"),
    ],
)
def test_an_entry_that_is_none_is_refused(tmp_path, entries, message):
    path = written(tmp_path, datasets=entries, dataset_name=None, role=None)
    assert message in refused(["--config", path])


OTHER: dict[str, Any] = {
    "completion_only_loss": False,
    "assistant_only_loss": True,
    "dataset_text_field": "content",
    "dataset_kwargs": {"skip_prepare_dataset": False},
    "truncation_mode": "keep_end",
    "packing_strategy": "wrapped",
    "eval_packing": True,
    "eos_token": "</s>",
    "pad_token": "</s>",
    "shuffle_dataset": True,
    "hub_strategy": "all_checkpoints",
    "hub_token": "hf_secret",
    "save_only_model": True,
    "auto_find_batch_size": True,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(keys=st.sets(st.sampled_from(sorted(OTHER)), min_size=1, max_size=3))
def test_whatever_else_is_asked_for_what_would_be_ignored_or_cut_is_refused(tmp_path, keys):
    assert set(OTHER) == {*REFUSED, *SftConfig.refused}
    path = written(tmp_path, **{key: OTHER[key] for key in keys})
    message = refused(["--config", path])
    named = message.partition(" ")[0]
    assert named in keys and message.endswith(f"Leave {named} out.")
    assert "hf_secret" not in message


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    return done.stdout


def test_variables_of_the_file_are_there_before_the_libraries_and_nothing_is_told(tmp_path):
    path = written(tmp_path, env={"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": 0})
    code = (
        "from heavydistill.train.arguments import given_values\n"
        "from heavydistill.train.sft.options import SftOptions\n"
        f"given_values(SftOptions, ['--config', {path!r}])\n"
        "from heavydistill.train.sft.train import parse\n"
        f"parse(['--config', {path!r}])\n"
        "from huggingface_hub import constants\n"
        "print(constants.HF_HOME, constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_TELEMETRY)"
    )
    assert run_python(code).split() == [str(tmp_path), "False", "True"]


FLAGS = ["--model_name_or_path", "m", "--dataset_name", "s", "--role", "thinker"]


def test_of_defaults_the_precision_alone_is_recorded():
    assert recorded(parse([*FLAGS, "--use_cpu"])) == {"bf16": True, "use_cpu": True}


def test_what_differs_is_told_in_simple_values_and_sorted(tmp_path):
    keys: dict[str, Any] = {
        "lr_scheduler_type": "cosine",
        "eval_strategy": "epoch",
        "use_peft": True,
        "lr_scheduler_kwargs": '{"num_cycles": 2}',
    }
    found = recorded(sft_arguments("sets", tmp_path, **keys))
    assert found["lr_scheduler_type"] == "cosine"
    assert found["eval_strategy"] == "epoch"
    assert found["use_peft"] is True
    assert found["lr_scheduler_kwargs"] == {"num_cycles": 2}
    assert found["learning_rate"] == 1e-3
    assert list(found) == sorted(found)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    "keys",
    [
        {"push_to_hub": True, "hub_model_id": "secret/model"},
        {"run_name": "secret"},
        {"logging_dir": "secret"},
        {"trackio_space_id": "secret/space"},
        {"chat_template_path": "secret.jinja"},
        {"model_init_kwargs": '{"token": "secret"}'},
        {"resume_from_checkpoint": "secret/checkpoint-3"},
        {"project": "secret"},
    ],
)
def test_no_place_address_or_token_is_recorded(tmp_path, keys):
    known = parse([*FLAGS, "--use_cpu"])
    keys = {key: value for key, value in keys.items() if hasattr(known.config, key)}
    found = recorded(sft_arguments("sets", tmp_path / "secret", **keys))
    assert "secret" not in json.dumps(found)
    assert str(tmp_path) not in json.dumps(found)


def test_of_grpo_our_own_arguments_are_told_and_no_address(tmp_path):
    keys = {"format_share": 0.05, "max_accuracy": 0.5, "preset": "dapo", "vllm_server_port": 1}
    keys |= {"vllm_server_base_url": "http://secret:8000"}
    known = recorded(grpo_arguments("sets", tmp_path, **keys))
    assert (known["format_share"], known["max_accuracy"]) == (0.05, 0.5)
    assert (known["preset"], known["epsilon_high"]) == ("dapo", 0.28)
    assert "secret" not in json.dumps(known) and "vllm_server_port" not in known
    assert "dataset_name" not in known and "mode" not in known


def value_of(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except (argparse.ArgumentTypeError, TypeError, ValueError):
        return "refused"


@pytest.mark.parametrize(
    ("options", "config"),
    [(SftOptions, SftConfig), (GrpoOptions, GrpoConfig), (DistillOptions, DistillConfig)],
)
def test_fields_read_from_source_are_those_of_the_dataclasses(options, config):
    model = ModelConfig if config is SftConfig else RolloutModelConfig
    known, counted = known_arguments(options), 0
    for action in TrlParser((config, model), add_help=False)._actions:
        if action.option_strings[0].startswith("--no_"):
            assert known[action.dest].default is True
            continue
        read, counted = known[action.dest], counted + 1
        kind = getattr(action.type, "__name__", "")
        number = read.number.__name__ if read.number else None
        assert number == (kind if kind in ("int", "float") and action.nargs != "+" else None)
        assert read.is_switch == (kind == "string_to_bool")
        # What is no literal in the source is checked when TRL is there.
        assert read.choices in (tuple(action.choices or ()), ())
        assert not read.default or read.default == action.default
        assert read.nargs == action.nargs or read.is_switch or "list[" in read.annotation
        assert read.help == (action.help or "").replace("%%", "%")
        is_other = action.nargs == "+" or action.dest == "parallelism_config"  # no flag sets it
        texts = () if is_other else read.choices or ("none", "3", "0.5", "no", "word")
        for text in texts[read.is_switch :]:
            assert value_of(read.read, text) == value_of(action.type, text), (read, text)
    assert counted == len(known)


MISTYPED = {
    "verb": ["sft", "--config", "micro", "--learning_rat", "1"],
    "script": ["scripts/sft.py", "--config", "micro", "--learning_rat", "1"],
    "launched": ["grpo", "--accelerate", "ddp", "--config", "micro/joint", "--learning-rat=1"],
    "file": ["grpo", "--config", "keys.yaml"],
}


@pytest.mark.parametrize("given", MISTYPED.values(), ids=MISTYPED)
def test_a_typo_is_named_before_torch_is_imported(given, tmp_path):
    (tmp_path / "keys.yaml").write_text("# A comment.\nlearning_rat: 1\n", "utf-8")
    code = (
        "import runpy, sys\n"
        "script = sys.argv[1] if sys.argv[1].endswith('.py') else 'heavydistill'\n"
        "run = runpy.run_path if script != 'heavydistill' else runpy.run_module\n"
        "sys.argv = sys.argv[1 if script != 'heavydistill' else 0 :]\n"
        "try:\n"
        "    run(script, run_name='__main__')\n"
        "except SystemExit as ended:\n"
        "    print(ended.code, *{'torch', 'transformers', 'trl', 'accelerate'} & {*sys.modules})\n"
    )
    words = [str(ROOT / word) if word.endswith(".py") else word for word in given]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=tmp_path, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.split() == ["2"], done.stderr
    assert "Did you mean " in done.stderr and "learning" in done.stderr.partition("Did you")[2]
    assert ("keys.yaml, line 2: there is no key" in done.stderr) == ("keys.yaml" in given)
    # Processor time, which a busy machine does not change.
    assert after.ru_utime - before.ru_utime < 1.5


@pytest.mark.parametrize("options", [SftOptions, GrpoOptions])
def test_help_shows_what_people_use_and_help_all_everything(options, capsys):
    script = ROOT / "scripts" / f"{options.script}.py"
    shown = []
    for flag in ("--help", "--help-all"):
        assert main([flag], script) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"Usage: heavydistill {options.script} [OPTIONS]")
        assert f"`heavydistill {options.script} --config " in said
        assert max(map(len, said.splitlines())) <= 80
        # click prints the two names of a help in any order.
        shown.append(re.findall(r"^  (?:-h, )?--([\w-]+)", said, re.MULTILINE))
    others = {"help", "help-all", "config", "accelerate"}
    assert 9 <= len({*shown[0]} - others) + 2 <= 10 and others <= {*shown[0]}
    assert {*shown[1]} == {*others, *LAUNCHER, *known_arguments(options)}
