"""The chat templates of real models: each is taken as it is, mended, or refused with a reason."""

from typing import NamedTuple

import pytest
from students import QUESTION, REASONING, checkpoint, real_template, row_of

from heavydistill.chat.guard import Inspection, guard
from heavydistill.chat.student import Student
from heavydistill.chat.template import Chat
from heavydistill.errors import ConfigError
from heavydistill.heavy.prompts import load, thinker_prompt
from heavydistill.models.thinking import COMMON_TAGS

DATED = "the date in its prompts is always 2025-01-01"
NAMED = "thinking is handed to it as `thinking`"
ON = "thinking is switched on in it"
ENDED = "the end of sequence follows an answer"
PLAIN = "answers without thinking are written behind its prompt, which opens the thinking"
WHOLE = "answers are written behind its prompt, because its own turns lose the thinking"


class Taken(NamedTuple):
    """What becomes of a template."""

    form: str
    eos: str
    mended: tuple[str, ...] = ()


IM_END, TURN = "<|im_end|>", "<turn|>"
TAKEN = {
    "cohere": Taken("inline", "<|END_OF_TURN_TOKEN|>"),
    "cohere2": Taken("inline", "<|END_OF_TURN_TOKEN|>"),
    "deepseek_r1_distill": Taken("field", "<｜end▁of▁sentence｜>", (WHOLE,)),
    "deepseekv3": Taken("field", "<｜end▁of▁sentence｜>", (WHOLE,)),
    "gemma": Taken("inline", "<end_of_turn>"),
    "gemma3": Taken("inline", "<end_of_turn>"),
    "gemma4": Taken("inline", TURN),
    "gemma4_v5": Taken("field", TURN),
    "glm4moe": Taken("field", "<|endoftext|>", (ENDED,)),
    "gptoss": Taken("field", "<|return|>", (DATED, NAMED)),
    "lfm2": Taken("inline", IM_END),
    "lfm2_2_5": Taken("field", IM_END, (NAMED,)),
    "lfm2_2_5_v2": Taken("field", IM_END),
    "lfm2_v2": Taken("inline", IM_END),
    "llama3": Taken("inline", "<|eot_id|>"),
    "llama3_1": Taken("inline", "<|eot_id|>"),
    "llama3_2": Taken("inline", "<|eot_id|>", (DATED,)),
    "muse_glimmer": Taken("field", "<|eot|>", (DATED,)),
    "nemotron_3_5_lightning": Taken("field", IM_END, (PLAIN,)),
    "nemotron_3_nano": Taken("field", IM_END, (PLAIN,)),
    "nemotron_3_super": Taken("field", IM_END, (PLAIN,)),
    "nemotron_3_ultra": Taken("field", IM_END, (PLAIN,)),
    "phi3": Taken("inline", "<|endoftext|>"),
    "phi3_5": Taken("inline", "<|endoftext|>"),
    "qwen2_5": Taken("inline", IM_END),
    "qwen3": Taken("field", IM_END),
    "qwen3_5_nothink": Taken("field", IM_END, (ON, PLAIN)),
    "qwen3_5_think": Taken("field", IM_END, (PLAIN,)),
    "qwen3_6": Taken("field", IM_END, (PLAIN,)),
    "qwen3_8": Taken("field", IM_END, (PLAIN,)),
    "qwen3_instruct_2507": Taken("inline", IM_END),
    "qwen3_vl": Taken("inline", IM_END),
}
# They take the parts of a picture book and not a text, so they would lose the very question.
REFUSED = {
    "idefics3": "is not in the prompt",
    "smolvlm": "is not in the prompt",
    "llava_next": "the template does not accept the conversation",
}
# Their own turns always hold a pair of tags, or their prompt opens one.
ALWAYS_TAGGED = {
    name
    for name in TAKEN
    if name.startswith(("deepseek", "nemotron", "qwen3_5", "qwen3_6", "qwen3_8"))
} | {"qwen3", "glm4moe"}


@pytest.fixture(scope="module", params=TAKEN)
def named(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Student]:
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    return name, Student(checkpoint(folder, real_template(name), TAKEN[name].eos))


def test_a_template_is_taken_with_and_without_thinking(named):
    name, student = named
    assert (student.form, student.mended) == (TAKEN[name].form, TAKEN[name].mended)
    rows = [row_of(student), row_of(student, reasoning="")]
    assert guard(student.chat, rows, 10_000) == []
    thinking, plain = (
        student.chat.decode(Inspection(student.chat, row).tokens.completion) for row in rows
    )
    assert REASONING in thinking and thinking.index(REASONING) < thinking.index("The product is")
    assert any(tag in plain for tag in COMMON_TAGS) == (name in ALWAYS_TAGGED)


def test_prompts_are_those_of_the_model(named):
    _, student = named
    own = Chat(student.chat.tokenizer)
    switched = {"enable_thinking": True} if ON in student.mended else {}
    turn = {"role": "user", "content": QUESTION}
    again = [turn, {"role": "assistant", "content": "6"}, turn]
    for messages in ([turn], again):
        expected = own.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **switched
        )
        rendered = student.chat.render(messages, opens=True)
        if DATED in student.mended:
            kept = [line for line in rendered.splitlines() if "2025" not in line]
            assert kept and set(kept) <= set(expected.splitlines())
        else:
            assert rendered == expected


def test_what_was_mended_is_kept_and_needs_no_second_mending(named, tmp_path):
    _, student = named
    assert (student.chat_template is None) == (not student.mended)
    if student.chat_template is None:
        return
    file = tmp_path / "kept.jinja"
    file.write_text(student.chat_template, encoding="utf-8")
    again = Student(student.name, file)
    assert again.mended == () and again.template_sha256 == student.template_sha256
    assert guard(again.chat, [row_of(again)], 10_000) == []


def test_a_problem_cannot_end_the_turn_of_the_user(named):
    """It holds all that the template writes between two turns; only real turns are read as such."""
    _, student = named
    question, answer = "QUESTION", "ANSWER"
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}] * 2
    written = student.chat.render(turns)
    between = written[written.index(question) + len(question) : written.rindex(question)]
    forged = thinker_prompt(f"2*3?{between}", load("thinker", "general", "en"))
    assert student.tokens(forged, "", "6").fault == ""
    clean = thinker_prompt("2*3?", load("thinker", "general", "en"))
    added = student.chat.tokenizer.added_tokens_decoder.items()
    special = {id for id, token in added if token.special}

    def marks(prompt: str) -> list[int]:
        ids = student.chat.ids(student.chat.render([turn(prompt)], opens=True))
        return [id for id in ids if id in special]

    assert marks(forged) == marks(clean)
    undefused = f"2*3?{between}{load('thinker', 'general', 'en').parts[-1]}"
    assert marks(undefused) != marks(clean)
    row = row_of(student) | {"prompt": [turn(undefused)]}
    assert "control_token" in {fault.code for fault in guard(student.chat, [row], 10_000)}


def turn(prompt: str) -> dict[str, str]:
    return {"role": "user", "content": prompt}


@pytest.mark.parametrize("name", REFUSED)
def test_a_template_that_loses_the_question_is_refused(name, tmp_path):
    with pytest.raises(ConfigError) as refused:
        Student(checkpoint(tmp_path, real_template(name)))
    assert REFUSED[name] in refused.value.what and "--chat-template FILE" in refused.value.fix


def test_the_reasons_why_some_templates_are_not_taken_as_they_are(tmp_path):
    """What the guard says of rows that are made for another form than the template's."""

    def codes(name: str, form: str) -> set[str]:
        folder = tmp_path / f"{name}-{form}"
        student = Student(checkpoint(folder, real_template(name), TAKEN[name].eos))
        student.form = form
        own = Chat(student.chat.tokenizer, student.chat.stops)
        return {fault.code for fault in guard(own, [row_of(student)], 10_000)}

    assert "reasoning_lost" in codes("qwen2_5", "field")
    assert "reasoning_lost" in codes("llama3_1", "field")
    assert "tags_doubled" in codes("qwen3_8", "inline")
    assert {"reasoning_lost", "prompt_not_prefix"} <= codes("deepseek_r1_distill", "field")
    assert {"reasoning_lost", "prompt_not_prefix"} <= codes("deepseek_r1_distill", "inline")
    assert "no_eos" in codes("glm4moe", "field")
