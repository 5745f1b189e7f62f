"""What is written for each trainer works; ``tests/golden`` has all that each is given."""

import importlib.util
import json
import re
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import messages
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from command_line import run_command
from set_folders import PROMPT, manifest, rewrite, write_sets
from transformers import AutoTokenizer

from heavydistill.chat.student import Student
from heavydistill.curate.exports import reward as our_reward
from heavydistill.curate.exports.export import TRAINERS, export
from heavydistill.schema import from_row
from heavydistill.store.sets import folder as folders
from heavydistill.store.sets.set_rows import SftRow

MICRO = Path(__file__).parents[2] / "heavydistill" / "micro" / "student"
WITH_RL = [name for name, trainer in TRAINERS.items() if "rl" in trainer.sets]


@pytest.fixture
def sets(tmp_path):
    return write_sets(tmp_path / "sets")


def load(path: Path):
    spec = importlib.util.spec_from_file_location(f"exported_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_for(folder: Path, **student: Any) -> Path:
    """Sets for another student."""
    return write_sets(folder, student=manifest().student.model_copy(update=student))


def write_sft(folder: Path, reasoning: str, content: str, times: int = 1) -> Path:
    """Sets whose ``sft_deliberator`` is this row alone, so many times; thinking in the text."""
    sets = write_for(folder, form="inline")
    row = next(folders.read_rows(sets, "sft_deliberator"))
    turn = {"role": "assistant", "content": content}
    row = row | {"completion": [turn], "reasoning": reasoning, "answer_text": "6"}
    shutil.rmtree(sets / "sft_deliberator")
    writer = folders.Writer(folders.file_of(sets, "sft_deliberator", "train"), SftRow)
    for _ in range(times):
        writer.write(from_row(SftRow, row))
    writer.close()
    return sets


@pytest.mark.parametrize(
    ("to", "reasoning", "content"),
    [
        ("llamafactory", "2+2+2", "[THINK]2+2+2[/THINK]6"),
        ("ms-swift", "2+2+2", "[THINK]2+2+2[/THINK]6"),
        ("ms-swift", "", "6"),
    ],
)
def test_what_stands_in_the_text_keeps_the_marks_of_the_student(tmp_path, to, reasoning, content):
    export(write_sft(tmp_path / "sets", reasoning, content), to, tmp_path / "out")
    row = json.loads((tmp_path / "out" / "sft_deliberator" / "train.jsonl").read_text())
    assert row["messages"][-1]["content"] == content


@pytest.mark.parametrize("to", ["trl", "verl"])
def test_no_empty_field_for_thinking_is_added_where_a_template_takes_none(tmp_path, to):
    sets = write_sft(tmp_path / "sets", "2+2+2", "<think>2+2+2</think>6")
    export(sets, to, tmp_path / "out")
    schema = pq.read_schema(tmp_path / "out" / "sft_deliberator" / "train.parquet")
    assert "reasoning_content" not in str(schema)


@pytest.mark.parametrize(
    "to, key",
    [("trl", "chat_template_path"), ("axolotl", "chat_template_jinja"), ("verl", "chat_template")],
)
def test_a_chat_template_of_the_sets_goes_along_and_is_used(sets, tmp_path, to, key):
    (sets / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    export(sets, to, tmp_path / "out")
    config = (tmp_path / "out" / "sft_thinker.yaml").read_text(encoding="utf-8")
    value = "{{ messages }}" if to == "verl" else "chat_template.jinja"
    tree = yaml.safe_load(config)
    assert tree.get("data", {}).get("apply_chat_template_kwargs", tree)[key] == value
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == "{{ messages }}"


@pytest.mark.parametrize("to", ["llamafactory", "ms-swift"])
def test_a_trainer_that_takes_no_chat_template_says_so(sets, tmp_path, to):
    (sets / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    export(sets, to, tmp_path / "out")
    readme = (tmp_path / "out" / "README.md").read_text()
    assert re.search("not (read|train with) `chat_template.jinja`", readme)


def test_a_student_with_a_profile_is_named_as_the_hub_names_it(tmp_path):
    export(write_for(tmp_path / "sets", name="qwen3-8b"), "trl", tmp_path / "out")
    config = yaml.safe_load((tmp_path / "out" / "rl.yaml").read_text())
    assert config["model_name_or_path"] == "Qwen/Qwen3-8B"


def test_rows_that_fill_no_batch_of_verl_make_the_batch_smaller(tmp_path):
    export(write_sft(tmp_path / "sets", "", "6", times=100), "verl", tmp_path / "out")
    config = yaml.safe_load((tmp_path / "out" / "sft_deliberator.yaml").read_text())
    assert config["data"]["train_batch_size"] == 64
    assert config["data"]["val_files"] is None


@pytest.mark.parametrize("is_held_out", [True, False])
def test_verl_measures_nothing_on_the_rows_that_it_learns(tmp_path, is_held_out):
    without = None if is_held_out else ("rl", "validation")
    export(write_sets(tmp_path / "sets", without), "verl", tmp_path / "out")
    config = yaml.safe_load((tmp_path / "out" / "rl.yaml").read_text())
    split = "validation" if is_held_out else "train"
    assert config["data"]["val_files"] == f"rl/{split}.parquet"
    assert config["trainer"].get("val_before_train", True) == is_held_out
    readme = (tmp_path / "out" / "README.md").read_text()
    assert ("nothing is measured on them" in readme) != is_held_out


def test_sets_that_are_not_there_are_left_out_and_said(sets, tmp_path):
    shutil.rmtree(sets / "rl")
    written = export(sets, "verl", tmp_path / "out")
    assert list(written.rows) == ["sft_deliberator", "sft_thinker"]
    assert list(written.absent) == ["rl"]
    assert "`rl` is not here" in (tmp_path / "out" / "README.md").read_text()
    assert not (tmp_path / "out" / "rl.yaml").exists()
    assert not (tmp_path / "out" / "heavydistill_reward.py").exists()


def test_prompts_that_only_a_judge_decides_go_to_no_trainer_without_one(sets, tmp_path):
    rewrite(sets, "rl", lambda row: [{**row, "verifier": "judged"}])
    written = export(sets, "verl", tmp_path / "out")
    assert "rl" not in written.rows
    assert "heavydistill grpo --judge" in written.absent["rl"]


def test_nothing_is_left_of_an_export_that_fails(tmp_path):
    sets = write_for(tmp_path / "sets", max_tokens=40)
    with messages.raises("prompt_leaves_no_room", set="rl"):
        export(sets, "trl", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["sets"]


def test_sets_with_nothing_for_a_trainer_are_refused(sets, tmp_path):
    for name in ("sft_deliberator", "sft_thinker"):
        shutil.rmtree(sets / name)
    with messages.raises("no_rows_for_trainer", trainer="LLaMA-Factory"):
        export(sets, "llamafactory", tmp_path / "out")
    assert not (tmp_path / "out").exists()


RESPONSES = ["<think>2*3</think>\\boxed{6}", "\\boxed{5}", "<think>\\boxed{6}"]
COLUMNS = {
    "text": ["2 * 3?"] * 3,
    "reference": ["6"] * 3,
    "verifier": ["math"] * 3,
    "verifier_args": ["{}"] * 3,
}


@pytest.mark.parametrize("to", WITH_RL)
def test_the_reward_that_is_written_judges_with_the_verifier_of_the_row(sets, tmp_path, to):
    export(sets, to, tmp_path / "out")
    written = load(tmp_path / "out" / "heavydistill_reward.py")
    with written.POOL:
        assert written.reward(RESPONSES, **COLUMNS, prompts=["?"] * 3) == [1.0, 0.0, None]


@pytest.mark.parametrize("to", WITH_RL)
def test_thinking_that_the_prompt_opened_and_nothing_closed_is_undecided(tmp_path, to):
    export(write_for(tmp_path / "sets", opens_thinking=True), to, tmp_path / "out")
    written = load(tmp_path / "out" / "heavydistill_reward.py")
    responses = ["2*3</think>\\boxed{6}", "It may be \\boxed{6}", "</think>\\boxed{6}"]
    with written.POOL:
        assert written.reward(responses, **COLUMNS) == [1.0, None, 1.0]
        known = {"text": "2 * 3?", "verifier": "math", "verifier_args": "{}"}
        assert written.compute_score("", responses[1], "6", known)["undecided"] == 1.0


def test_the_reward_takes_the_messages_that_trl_hands_over():
    turns = [[{"role": "assistant", "content": text}] for text in RESPONSES]
    assert our_reward.reward(turns, **COLUMNS) == [1.0, 0.0, None]


def test_a_verifier_that_is_not_known_where_the_trainer_runs_is_an_error():
    with messages.raises("no_verifier_known", verifier="mine"):
        our_reward.reward(RESPONSES, **{**COLUMNS, "verifier": ["mine"] * 3})


def test_verl_gets_a_number_for_each_answer_and_counts_undecided_ones(sets, tmp_path):
    export(sets, "verl", tmp_path / "out")
    row = pq.read_table(tmp_path / "out" / "rl" / "train.parquet").to_pylist()[0]
    scores = [
        our_reward.compute_score(
            data_source=row["data_source"],
            solution_str=text,
            ground_truth=row["reward_model"]["ground_truth"],
            extra_info={**row["extra_info"], "num_turns": 1},
        )
        for text in RESPONSES
    ]
    assert [score["score"] for score in scores] == [1.0, 0.0, 0.0]
    assert [score["undecided"] for score in scores] == [0.0, 0.0, 1.0]


def test_swift_finds_the_reward_by_its_name(sets, tmp_path, monkeypatch):
    swift = types.ModuleType("swift.rewards")
    swift.ORM, swift.orms = object, {}
    monkeypatch.setitem(sys.modules, "swift", types.ModuleType("swift"))
    monkeypatch.setitem(sys.modules, "swift.rewards", swift)
    monkeypatch.delitem(sys.modules, "heavydistill_reward", raising=False)
    export(sets, "ms-swift", tmp_path / "out")
    monkeypatch.syspath_prepend(tmp_path / "out")
    load(tmp_path / "out" / "heavydistill_swift.py")
    config = yaml.safe_load((tmp_path / "out" / "rl.yaml").read_text())
    row = json.loads((tmp_path / "out" / "rl" / "train.jsonl").read_text())
    columns = {name: [value] for name, value in row.items()}
    reward = swift.orms[config["reward_funcs"][0]]()
    assert reward(["\\boxed{6}"], **columns, trainer_state=None) == [1.0]
    sys.modules.pop("heavydistill_reward").POOL.close()


@pytest.fixture
def verl(monkeypatch):
    """In place of verl, the part of its dataset that ours stands on."""

    class Dataset:
        def __init__(self, tokenizer) -> None:
            self.tokenizer, self.processor = tokenizer, None
            self.apply_chat_template_kwargs = {}

    names = ("verl", "verl.utils", "verl.utils.dataset")
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    module = types.ModuleType("verl.utils.dataset.multiturn_sft_dataset")
    module.MultiTurnSFTDataset = Dataset
    monkeypatch.setitem(sys.modules, module.__name__, module)


THINKS_LAST = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and messages[0].role == 'user' %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


@pytest.mark.parametrize("template", [None, THINKS_LAST])
def test_verl_learns_what_the_student_is_guarded_for(sets, tmp_path, verl, template):
    export(sets, "verl", tmp_path / "out")
    file = tmp_path / "student.jinja"
    file.write_text(template or "")
    student = Student("micro-student", file if template else None)
    assert student.chat.opens_thinking == bool(template)
    row = next(folders.read_rows(sets, "sft_deliberator"))
    expected = student.tokens(row["prompt"][0]["content"], row["reasoning"], row["answer_text"])
    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    tokenizer.chat_template = template or tokenizer.chat_template
    dataset = load(tmp_path / "out" / "heavydistill_sft.py").PromptAndCompletion(tokenizer)
    table = pq.read_table(tmp_path / "out" / "sft_deliberator" / "train.parquet")
    messages = table.to_pylist()[0]["messages"]
    parts = [
        dataset._process_single_message(index, turn, messages)
        for index, turn in enumerate(messages)
    ]
    ids = torch.cat([part[0] for part in parts]).tolist()
    learnt = torch.cat([part[1] for part in parts]).tolist()
    assert [one for one, is_learnt in zip(ids, learnt, strict=True) if is_learnt] == (
        expected.completion
    )
    assert ids == expected.prompt + expected.completion
    assert messages[0] == {"role": "user", "content": PROMPT, "reasoning_content": None}


def test_verl_refuses_a_template_that_rewrites_the_prompt(sets, tmp_path, verl):
    export(sets, "verl", tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    tokenizer.chat_template = (
        "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    dataset = load(tmp_path / "out" / "heavydistill_sft.py").PromptAndCompletion(tokenizer)
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    with pytest.raises(ValueError, match="changes the prompt"):
        dataset._process_single_message(1, turns[1], turns)


OWN = """
from pathlib import Path
from heavydistill.curate.exports.export import ExportTarget
from heavydistill.plugins import plugin

plugin("exporter", "mini")(
    ExportTarget(
        title="mini",
        version="0.1",
        templates=Path(__file__).parent,
        sft_row=lambda row: ROW,
        sft_command="mini {name}.yaml",
    )
)
"""


@pytest.mark.parametrize(
    ("row", "template", "told"),
    [
        ("{'messages': row['prompt'] + row['completion']}", "model: {{ export.model }}", ""),
        ("{'messages': row['absent']}", "", r"the exporter mini failed: KeyError: 'absent' \(mine"),
        ("{'messages': {1, 2}}", "", "the exporter mini failed: TypeError"),
        ("{}", "{{ absent }}", "the exporter mini failed: UndefinedError"),
        ("{}", None, "the exporter mini is not a .*ExportTarget with its templates"),
    ],
)
def test_an_exporter_of_a_file_writes_or_is_named(sets, tmp_path, row, template, told):
    (tmp_path / "mine.py").write_text(OWN.replace("ROW", row))
    (tmp_path / "README.md.jinja").write_text("Run {{ sft }}")
    if template is not None:
        (tmp_path / "sft.yaml.jinja").write_text(template)
    out = tmp_path / "mini"
    command = ["export", str(sets), "--to", "mini", "--out", str(out)]
    done = run_command(*command, "--plugin", str(tmp_path / "mine.py"))
    assert done.returncode == (2 if told else 0), done.stderr
    assert re.search(told, done.stderr) and "Traceback" not in done.stderr
    assert out.exists() is not bool(told)
    if not told:
        lines = (out / "sft_thinker" / "train.jsonl").read_text().splitlines()
        assert {"user", "assistant"} == {turn["role"] for turn in json.loads(lines[0])["messages"]}
        unknown = run_command(*command[:-1], str(tmp_path / "more"))
        assert unknown.returncode == 2
        assert "--to: there is no exporter 'mini'. Names: trl, verl, " in unknown.stderr
