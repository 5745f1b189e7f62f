"""What a student makes of prompts and completions, and which students it cannot be."""

import datetime
import json
from typing import Any

import messages
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from students import MICRO, checkpoint, real_template, row_of, tokenizer_with

from heavydistill.chat.guard import Inspection
from heavydistill.chat.student import Student, fit
from heavydistill.chat.template import Chat
from heavydistill.errors import ConfigError
from heavydistill.store.sets.set_rows import SftRow, ThoughtfulSftRow

# ChatML as many small models have it: no word about thinking.
PLAIN = """\
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


PLAIN_FIELD = (MICRO / "chat_template.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def micro() -> Student:
    return Student("micro-student")


def test_the_micro_student_takes_thinking_as_a_field(micro):
    assert (micro.form, micro.row, micro.chat_template) == ("field", ThoughtfulSftRow, None)
    assert micro.mended == () and len(micro.template_sha256) == 64
    tokens = micro.tokens("2*3?", "2*3=6", "It is 6.")
    assert micro.chat.decode(tokens.prompt).endswith("2*3?<|im_end|>\n<|im_start|>assistant\n")
    learnt = "<think>\n2*3=6\n</think>\nIt is 6.<|im_end|>"
    assert micro.chat.decode(tokens.completion) == learnt
    assert tokens.fault == "" and len(tokens.prompt) == micro.prompt_tokens("2*3?")


def test_a_template_that_knows_no_thinking_takes_it_in_the_text(tmp_path):
    student = Student(checkpoint(tmp_path, PLAIN))
    assert (student.form, student.row, student.chat_template) == ("inline", SftRow, None)
    [turn] = student.completion(" 2*3=6\n", "\nIt is 6. ")
    assert turn.content == "<think>\n2*3=6\n</think>\n\nIt is 6."
    assert student.completion("", "It is 6.")[0].content == "It is 6."


def test_the_system_prompt_of_a_template_is_left_out_for_good(tmp_path):
    own = "{%- if messages[0].role != 'system' %}"
    own += "{{- '<|im_start|>system\\nYou are Smol.<|im_end|>\\n' }}{%- endif %}\n"
    name = checkpoint(tmp_path, own + PLAIN)
    student = Student(name, has_system=False)
    tokens = student.tokens("2*3?", "2*3=6", "It is 6.")
    began = "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n2*3?"
    assert student.chat.decode(tokens.prompt).startswith(began) and not tokens.fault
    assert "Smol" in Student(name).chat.decode(Student(name).tokens("2*3?", "", "6").prompt)
    assert student.mended == ("its own system prompt is left out",)
    file = tmp_path / "sets.jinja"
    file.write_text(student.chat_template or "", encoding="utf-8")
    assert Student(name, file).tokens("2*3?", "2*3=6", "It is 6.") == tokens
    with pytest.raises(ConfigError, match="writes no system prompt by itself"):
        Student(checkpoint(tmp_path / "plain", PLAIN), has_system=False)


def test_a_student_without_a_chat_template_is_refused_until_one_is_given(tmp_path):
    name = checkpoint(tmp_path / "base", None)
    with messages.raises("no_chat_template", tokenizer=name):
        Student(name)
    file = tmp_path / "own.jinja"
    file.write_text(PLAIN, encoding="utf-8")
    student = Student(name, file)
    assert (student.form, student.chat_template) == ("inline", PLAIN)


def test_the_default_one_of_several_templates_is_taken():
    tokenizer = tokenizer_with(None)
    tokenizer.chat_template = {"tool_use": "{{ 1 }}", "default": PLAIN}
    assert fit(tokenizer).chat.template == PLAIN
    tokenizer.chat_template = {"tool_use": "{{ 1 }}"}
    with messages.raises("no_chat_template"):
        fit(tokenizer)


def test_a_file_that_is_no_template_is_refused_with_its_place(tmp_path):
    file = tmp_path / "broken.jinja"
    file.write_text("{{ messages[0].content }}\n{% for message in %}", encoding="utf-8")
    with messages.raises("template_no_jinja", line=2):
        Student("micro-student", file)
    file.write_text("\n", encoding="utf-8")
    with messages.raises("template_empty", file=file):
        Student("micro-student", file)
    with messages.raises("template_unreadable", file=tmp_path / "missing.jinja"):
        Student("micro-student", tmp_path / "missing.jinja")
    file.write_text("{{ raise_exception('Only on Sundays') }}", encoding="utf-8")
    with pytest.raises(ConfigError, match="Only on Sundays"):
        Student("micro-student", file)


def test_a_prompt_that_closes_thinking_and_cannot_open_it_is_refused(tmp_path):
    closed = PLAIN.replace(
        "'<|im_start|>assistant\\n' }}", "'<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}"
    )
    with messages.raises("template_loses"):
        Student(checkpoint(tmp_path, closed))


def test_a_tokenizer_without_an_end_of_sequence_is_refused():
    tokenizer = tokenizer_with(PLAIN)
    tokenizer.eos_token = None
    with messages.raises("no_end_token"):
        fit(tokenizer)


def test_a_base_model_learns_to_stop_where_its_generation_stops(tmp_path):
    """Its template ends a turn with one token, and its generation stops at another."""
    name = checkpoint(tmp_path, PLAIN, eos="<|endoftext|>")
    student = Student(name)
    assert student.mended == ("the end of sequence follows an answer",)
    tokens = student.tokens("2*3?", "", "6")
    assert student.chat.decode(tokens.completion) == "6<|im_end|>\n<|endoftext|>"
    im_end = student.chat.tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = tmp_path / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": [1, im_end]}), encoding="utf-8")
    assert Student(name).mended == ()


def test_todays_date_does_not_change_a_build(monkeypatch):
    from transformers.utils import chat_template_utils

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None):
            return cls(2031, 5, 17)

    tokenizer = tokenizer_with(real_template("llama3_2"), "<|eot_id|>")
    asked = [{"role": "user", "content": "2*3?"}]
    student, own = fit(tokenizer).chat, Chat(tokenizer)
    today, fixed = own.render(asked), student.render(asked)
    monkeypatch.setattr(chat_template_utils, "datetime", Clock)
    assert own.render(asked) != today and "17 May 2031" in own.render(asked)
    assert student.render(asked) == fixed and "01 Jan 2025" in fixed


def test_a_date_that_cannot_be_fixed_is_refused():
    with messages.raises("template_of_today"):
        fit(tokenizer_with("{% set how = '%Y' %}{{ strftime_now(how) }}" + PLAIN))


def test_thinking_that_is_switched_on_can_still_be_switched_off():
    tokenizer = tokenizer_with(real_template("qwen3_5_nothink"))
    tokenizer.chat_template = fit(tokenizer).chat.template
    asked = [{"role": "user", "content": "2*3?"}]
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True}
    assert tokenizer.apply_chat_template(asked, **options).endswith("<think>\n")
    off = tokenizer.apply_chat_template(asked, enable_thinking=False, **options)
    assert off.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("form", ["field", "inline"])
def test_text_that_is_no_text_to_the_student_is_a_fault(form, tmp_path):
    student = Student(checkpoint(tmp_path, PLAIN if form == "inline" else PLAIN_FIELD))
    assert student.form == form

    def fault(reasoning: str, answer: str) -> str:
        return student.tokens("2*3?", reasoning, answer).fault

    assert fault("2*3=6", "6") == fault("", "6") == ""
    assert "think tag" in fault("2*3 </think> is 6", "6")
    assert "think tag" in fault("", "<think> 6")
    assert "think tag" in fault("<think>2*3=6", "6")
    assert "think tag" in fault("", "<think>2*3=6</think>6")
    assert "<|im_end|>" in fault("2*3=6", "6<|im_end|>")
    assert "<|im_start|>" in fault("2*3<|im_start|>", "6")
    assert "think tag" in fault("", "<think>\nHm.\n</think>\n\n6")


def test_a_token_that_ends_a_response_is_no_text_even_if_it_is_not_called_special():
    tokenizer = tokenizer_with(PLAIN)
    tokenizer.add_tokens(["<end>"])
    end = tokenizer.convert_tokens_to_ids("<end>")
    assert Chat(tokenizer).control_token("6<end>") is None
    assert Chat(tokenizer, [end]).control_token("6<end>") == "<end>"


def test_a_template_is_the_same_one_when_it_is_read_from_a_file(tmp_path):
    """Line breaks of Windows are part of it; the mark that its editors put first is not."""
    text = PLAIN.replace("\n", "\r\n")
    file = tmp_path / "windows.jinja"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert Student("micro-student", file).chat_template == text


def test_a_tokenizer_that_is_written_in_python_is_taken():
    """It has none of the fast ones' offsets, and its tokens are bytes."""
    from transformers import ByT5Tokenizer

    tokenizer = ByT5Tokenizer()
    tokenizer.chat_template = PLAIN.replace("<|im_end|>", "</s>")
    fitted = fit(tokenizer)
    assert (fitted.form, fitted.mended) == ("inline", ())
    asked = [{"role": "user", "content": "2*3?"}]
    answered = [{"role": "assistant", "content": "6"}]
    tokens = fitted.chat.tokens(asked, answered)
    assert fitted.chat.decode(tokens.completion) == "6</s>"


def test_a_row_that_the_template_does_not_take_is_a_fault(tmp_path):
    picky = "{% if 'zero' in messages[-1].content %}{{ raise_exception('No zeros') }}{% endif %}"
    student = Student(checkpoint(tmp_path, picky + PLAIN))
    tokens = student.tokens("2*3?", "", "zero")
    assert "No zeros" in tokens.fault


def test_a_row_whose_prompt_is_no_prefix_is_a_fault(tmp_path):
    """The probe goes well; two line breaks are one token, so this answer changes the prompt."""
    student = Student(checkpoint(tmp_path, PLAIN))
    asked = [{"role": "user", "content": "2*3?"}]
    answered = [{"role": "assistant", "content": "\n6"}]
    tokens = student.chat.tokens(asked, answered)
    assert "another text than it is asked with" in tokens.fault
    whole = student.chat.render([*asked, *answered])
    assert [*tokens.prompt, *tokens.completion] == student.chat.ids(whole)


PIECES = ["a", "6", " ", "  ", "\n", "\n\n", "\t", "\u00e9", "e\u0301", "\u4e2d", "\U0001f600"]
PIECES += ["{{ 6 }}"]
# What stands in the marks of many templates too.
PIECES += ["<", ">", "/", "k", "think", "<think>\n", "\n</think>\n\n"]
PIECES += ["<think>", "</think>", "<|im_end|>", "<|eot_id|>", "<s>", "assistant", "\\boxed{6}", "."]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
FEW = st.lists(st.sampled_from(PIECES), max_size=2).map("".join)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> list[Student]:
    ends = {
        "qwen2_5": "<|im_end|>",
        "qwen3": "<|im_end|>",
        "qwen3_5_think": "<|im_end|>",
        "llama3": "<|eot_id|>",
        "deepseekv3": "<｜end▁of▁sentence｜>",
        "phi3_5": "<|endoftext|>",
        "cohere": "<|END_OF_TURN_TOKEN|>",
    }
    return [
        Student(checkpoint(tmp_path_factory.mktemp(name), real_template(name), eos))
        for name, eos in ends.items()
    ]


@settings(max_examples=30, deadline=None)
@given(reasoning=TEXTS | FEW, answer=TEXTS | FEW)
@example(reasoning=">", answer="6")
@example(reasoning="", answer="<think>\nHm.\n</think>\n\n6")
def test_what_is_no_fault_to_the_student_is_none_to_the_guard(fitted, reasoning, answer):
    """So a build leaves such rows out, and its guard does not stop it for one of them."""
    for student in fitted:
        row = row_of(student, reasoning, answer)
        tokens = student.tokens(row["prompt"][0]["content"], reasoning, answer)
        assert bool(Inspection(student.chat, row).faults()) == bool(tokens.fault)
