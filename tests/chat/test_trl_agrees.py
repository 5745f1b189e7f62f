"""What the guard takes for learnt is what TRL's trainer learns, as TRL itself prepares rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from students import checkpoint, real_template, row_of

from heavydistill.chat.guard import Inspection, TokenizedRow, guard
from heavydistill.chat.student import Student

pytest.importorskip("trl", reason="TRL is not installed")

MICRO = Path(__file__).parents[2] / "heavydistill" / "micro" / "student"
TEMPLATES = {
    "qwen2_5": "<|im_end|>",  # in the text
    "qwen3": "<|im_end|>",  # as a field
    "qwen3_5_think": "<|im_end|>",  # mended for rows without thinking
    "deepseek_r1_distill": "<｜end▁of▁sentence｜>",  # mended for all
    "glm4moe": "<|endoftext|>",  # mended at the end
    "gptoss": "<|return|>",  # another name for thinking
}


def _prepared(student: Student, rows: list[dict[str, Any]], folder: Path, **config: Any) -> Any:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    tokenizer = student.chat.tokenizer
    tokenizer.chat_template = student.chat.template
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(MICRO),
        args=SFTConfig(
            output_dir=str(folder),
            report_to=[],
            use_cpu=True,
            bf16=False,
            **{"max_length": None, "shuffle_dataset": False, **config},
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
    )
    return trainer.train_dataset


def _student(name: str, folder: Path) -> Student:
    if name == "micro-student":
        return Student(name)
    return Student(checkpoint(folder / "student", real_template(name), TEMPLATES[name]))


@pytest.mark.parametrize("name", ["micro-student", *TEMPLATES])
def test_trl_learns_what_the_guard_takes_for_learnt(name: str, tmp_path: Path) -> None:
    student = _student(name, tmp_path)
    rows = [row_of(student), row_of(student, reasoning=""), row_of(student, "6", "6")]
    by_trl = [
        TokenizedRow(row["input_ids"], row["labels"]) for row in _prepared(student, rows, tmp_path)
    ]
    assert by_trl == [Inspection(student.chat, row).seen for row in rows]
    assert guard(student.chat, rows, 1000, by_trl) == []
    for row, seen in zip(rows, by_trl, strict=True):
        tokens = student.tokens(row["prompt"][0]["content"], row["reasoning"], row["answer_text"])
        assert [*tokens.prompt, *tokens.completion] == seen.ids and tokens.completion == seen.learnt


def test_what_trl_cuts_is_found(tmp_path: Path) -> None:
    student = Student("micro-student")
    rows = [row_of(student)]
    whole = Inspection(student.chat, rows[0]).seen
    [row] = _prepared(student, rows, tmp_path, max_length=len(whole.ids) - 4)
    faults = guard(student.chat, rows, 1000, [TokenizedRow(row["input_ids"], row["labels"])])
    assert {fault.code for fault in faults} == {"cut", "answer_lost", "no_eos"}


def test_a_trainer_that_learns_all_of_it_is_found(tmp_path: Path) -> None:
    student = Student("micro-student")
    rows = [row_of(student)]
    [row] = _prepared(student, rows, tmp_path, completion_only_loss=False)
    faults = guard(student.chat, rows, 1000, [TokenizedRow(row["input_ids"], row["labels"])])
    assert [fault.code for fault in faults] == ["starts_early"]
