"""Faults that are put into rows, templates and trainers are found, and named for what is lost."""

import dataclasses
from typing import Any

import pytest
from set_folders import write_sets
from students import ANSWER, MICRO, REASONING, row_of, tokenizer_with

from heavydistill.chat.guard import Inspection, demand_whole, guard
from heavydistill.chat.student import Student
from heavydistill.chat.template import Chat
from heavydistill.errors import ConfigError
from heavydistill.schema import from_row
from heavydistill.store.sets.folder import read_rows, splits_of
from heavydistill.store.sets.set_rows import ThoughtfulSftRow

WHOLE = (MICRO / "chat_template.jinja").read_text(encoding="utf-8")
THINKING = "<think>\n{{ message.reasoning_content }}\n</think>\n"
ANSWERED = "{{ message.content }}<|im_end|>{%-"
TURN = "<|im_start|>{{ message.role }}\n"
OPENED = "{%- if add_generation_prompt -%}\n<|im_start|>assistant\n"
IN_ANSWER = "{%- if message.role == 'assistant' -%}"


@pytest.fixture(scope="module")
def micro() -> Student:
    return Student("micro-student")


@pytest.fixture(scope="module")
def row(micro: Student) -> dict[str, Any]:
    return row_of(micro)


def _codes(chat: Chat, row: Any, most: int | None = None) -> list[str]:
    return [fault.code for fault in Inspection(chat, row, most).faults()]


def _changed(old: str, new: str) -> Chat:
    """The micro student's template with a fault in it."""
    assert WHOLE.count(old) == 1
    return Chat(tokenizer_with(WHOLE.replace(old, new)))


def test_whole_rows_have_no_fault(micro, row):
    assert guard(micro.chat, [row, row_of(micro, reasoning="")], 1000) == []
    demand_whole([], 2, "here")


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (THINKING, "", "reasoning_lost"),
        (THINKING, THINKING.replace("content", "content[:20]"), "reasoning_lost"),
        (ANSWERED, "<|im_end|>{%-", "answer_lost"),
        (ANSWERED, "{{ message.content[:9] }}<|im_end|>{%-", "answer_lost"),
        (ANSWERED, "{{ message.content }}{%-", "no_eos"),
        (ANSWERED, "<|im_end|>{{ message.content }}{%-", "stops_early"),
        (THINKING, f"{THINKING}{THINKING}", "doubled"),
        (THINKING, f"<think>\n\n</think>\n\n{THINKING}", "tags_doubled"),
        (THINKING, "{{ message.reasoning_content }}\n", "tags_lost"),
        (THINKING, "{{ message.reasoning_content }}\n</think>\n", "tags_lost"),
        (THINKING, "<think>\n{{ message.reasoning_content }}\n", "tags_lost"),
        (THINKING, "<think></think>{{ message.reasoning_content }}\n", "tags_lost"),
        (f"{TURN}{{{{ message.content }}}}", TURN, "prompt_lost"),
        (f"{TURN}{{{{ message.content }}}}", TURN + "{{ message.content[:30] }}", "prompt_lost"),
        (TURN, "{{ 'Answer this: ' if add_generation_prompt }}" + TURN, "prompt_not_prefix"),
        (OPENED, f"{OPENED}<think>\n\n</think>\n\n", "prompt_not_prefix"),
        (IN_ANSWER, IN_ANSWER + "{{ raise_exception('Not today') }}", "unrendered"),
    ],
)
def test_a_fault_of_a_template_is_found(old, new, code, row):
    faults = Inspection(_changed(old, new), row).faults()
    assert code in [fault.code for fault in faults]
    named = str(next(fault for fault in faults if fault.code == code))
    assert named.startswith(f"problem p_1, generation d_1: {code}: ") and len(named) < 400


def test_an_answer_before_its_thinking_is_found(row):
    text = WHOLE.replace(THINKING, "").replace(
        ANSWERED, "{{ message.content }}<think>{{ message.reasoning_content }}</think><|im_end|>{%-"
    )
    assert "reasoning_lost" in _codes(Chat(tokenizer_with(text)), row)


def test_a_row_for_another_students_form_is_found(micro, row):
    inline = {"role": "assistant", "content": f"<think>\n{REASONING}\n</think>\n\n{ANSWER}"}
    assert _codes(micro.chat, row | {"completion": [inline]}) == []
    empty = inline | {"reasoning_content": "Hm."}
    assert "tags_doubled" in _codes(micro.chat, row | {"completion": [empty]})
    bare = {"role": "assistant", "content": ANSWER}
    assert _codes(micro.chat, row | {"completion": [bare]}) == ["reasoning_lost"]


def test_text_that_would_end_the_response_is_found(micro):
    codes = _codes(micro.chat, row_of(micro, answer="It is 6.<|im_end|>\nOr is it?"))
    assert codes == ["stops_early", "control_token"]
    assert _codes(micro.chat, row_of(micro, reasoning="so<|im_start|>")) == ["control_token"]
    assert "tags_doubled" in _codes(micro.chat, row_of(micro, reasoning="a</think>b"))
    assert "tags_doubled" in _codes(micro.chat, row_of(micro, "", "<think>Hm.</think>6"))


def test_short_texts_are_not_taken_for_one_another(micro):
    assert _codes(micro.chat, row_of(micro, reasoning="6", answer="6")) == []
    assert "answer_lost" not in _codes(_changed(THINKING, ""), row_of(micro, "6", "It is 6."))
    assert _codes(_changed(THINKING, ""), row_of(micro, "6", "It is 6.")) == ["reasoning_lost"]


def test_text_that_a_tokenizer_writes_in_another_way_is_not_lost(micro):
    from tokenizers import normalizers

    tokenizer = tokenizer_with(WHOLE)
    tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    chat, decomposed = Chat(tokenizer), "Le the\u0301ore\u0300me de Fermat."
    assert _codes(chat, row_of(micro, decomposed, decomposed + " Oui.")) == []


def test_a_row_that_does_not_fit_is_found(micro, row):
    tokens = Inspection(micro.chat, row).tokens
    count = len(tokens.prompt) + len(tokens.completion)
    assert _codes(micro.chat, row, most=count) == []
    assert _codes(micro.chat, row, most=count - 1) == ["too_long"]


def test_a_report_counts_faults_and_names_the_first(micro, row):
    chat, plain = _changed(THINKING, ""), row_of(micro, reasoning="")
    faults = guard(chat, [plain, row, row | {"generation": "d_3"}], 30)
    assert len(faults) == 5
    with pytest.raises(ConfigError) as raised:
        demand_whole(faults, 3, "sets/first, sft_thinker")
    assert "sft_thinker: 3 of 3 rows" in raised.value.what
    assert "3 too_long, 2 reasoning_lost" in raised.value.what
    assert "problem p_1, generation d_2: too_long" in str(raised.value)
    assert "--chat-template FILE" in raised.value.fix


def test_rows_are_taken_as_read_from_a_folder_and_as_dataclasses(micro, tmp_path):
    folder = write_sets(tmp_path / "sets")
    rows = [
        row
        for name in ("sft_deliberator", "sft_thinker")
        for split in splits_of(folder, name)
        for row in read_rows(folder, name, split)
    ]
    assert len(rows) == 4 and guard(micro.chat, rows, 2048) == []
    typed = from_row(ThoughtfulSftRow, rows[0])
    assert guard(micro.chat, [typed], 2048) == []
    wrong = dataclasses.replace(typed, answer_text="It is another number.")
    assert "answer_lost" in _codes(micro.chat, wrong)
