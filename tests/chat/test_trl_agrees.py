"""What the guard takes for learnt is what TRL's trainer learns, as TRL itself prepares rows."""

from pathlib import Path
from typing import Any

import pytest
from students import checkpoint, real_template, row_of

from heavydistill.chat.guard import Inspection
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


def _prepared(student: Student, rows: list[dict[str, Any]], folder: Path) -> Any:
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
            max_length=None,
            shuffle_dataset=False,
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
def test_trl_learns_what_the_guard_takes_for_learnt(name, tmp_path):
    student = _student(name, tmp_path)
    rows = [row_of(student), row_of(student, reasoning=""), row_of(student, "6", "6")]
    for row, prepared in zip(rows, _prepared(student, rows, tmp_path), strict=True):
        tokens = Inspection(student.chat, row).tokens
        assert prepared["input_ids"] == [*tokens.prompt, *tokens.completion]
        assert prepared["labels"] == [-100] * len(tokens.prompt) + tokens.completion
        assert tokens == student.tokens(
            row["prompt"][0]["content"], row["reasoning"], row["answer_text"]
        )
