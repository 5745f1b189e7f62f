"""The student, i.e. the model to be trained: its tokenizer, its chat template, its context.

A row is a prompt and a completion as messages, formatted for the student's template. Templates
accept the thinking of a completion in different forms:

    field    in ``reasoning_content`` of the message
    inline   in its ``content``, between think tags, before the answer

The form is found by rendering: it is the first form with which the guard finds no fault in a row
with thinking and in a row without. A template that accepts neither form is corrected by adding text
before and after it. The corrected template is stored with the sets, because the student must be
trained and used with it. A template that cannot be corrected is refused, and the message says what
it loses.

Turns before the prompt are rendered as they are. Not covered: tools, responses of several turns,
and the treatment of system messages.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from heavydistill.chat.guard import Fault, Inspection
from heavydistill.chat.template import (
    MENDED_BY_HAND,
    Chat,
    Tokens,
    lacks_template,
    own_template,
    read_template,
)
from heavydistill.config.models import Endpoint
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models.hub_files import has_chat_template
from heavydistill.models.local.adapter import adapter_of
from heavydistill.models.registry import profile_at
from heavydistill.models.request import conversation
from heavydistill.models.thinking import COMMON_TAGS
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.schema import Turn
from heavydistill.store.sets.set_rows import Message, SftRow, ThoughtfulMessage, ThoughtfulSftRow

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

Form = Literal["field", "inline"]
FORMS: tuple[Form, ...] = ("field", "inline")

_QUESTION = "How much is 6 times 7?\n\nGive the number alone."
_REASONING = "Six times seven: 6*7.\n\n    6 + 6 = 12\n\nSo it is forty-two."
_ANSWER = "The product is\n\n\\boxed{42}."
DATE = datetime.date(2025, 1, 1)
_DATE_CALL = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")

# The whitespace marks keep Jinja from removing line breaks and spaces of the template text.
_NAMED = (
    "{%+ if messages and messages[-1].reasoning_content +%}"
    "{%+ set messages = messages[:-1] + "
    "[dict(messages[-1], NAME=messages[-1].reasoning_content)] +%}"
    "{%+ endif +%}"
)
_WITHOUT_SYSTEM = (
    "{%+ if not messages or messages[0].role != 'system' +%}"
    "{%+ set messages = [{'role': 'system', 'content': ''}] + messages +%}{%+ endif +%}"
)
_SWITCHED_ON = (
    "{%+ if enable_thinking is not defined +%}{%+ set enable_thinking = true +%}{%+ endif +%}"
)
_ENDED = (
    "{%+ if messages and messages[-1].role == 'assistant' and not add_generation_prompt +%}"
    "{{ eos_token }}{%+ endif +%}"
)
_CONTINUED_BEFORE = (
    "{%+ set heavydistill_turn = none +%}"
    "{%+ if messages and messages[-1].role == 'assistant' and not add_generation_prompt CASE+%}"
    "{%+ set heavydistill_turn = messages[-1] +%}{%+ set messages = messages[:-1] +%}"
    "{%+ set add_generation_prompt = true +%}"
    "{%+ endif +%}"
)
_CONTINUED_BEHIND = (
    "{%+ if heavydistill_turn +%}"
    "{%+ if heavydistill_turn.reasoning_content +%}"
    "{{ OPENING + heavydistill_turn.reasoning_content + CLOSING }}"
    "{%+ else +%}{{ EMPTY }}{%+ endif +%}"
    "{{ heavydistill_turn.content + ENDING }}{%+ endif +%}"
)
_NO_THINKING = "and not messages[-1].reasoning_content and '</think>' not in messages[-1].content "


@dataclass(frozen=True, slots=True)
class FittedTemplate:
    """A chat template, and the message form with which it keeps the whole response.

    ``mended`` has one sentence for each correction of the template.
    """

    chat: Chat
    form: Form
    mended: tuple[str, ...]


class Student:
    """The model to be trained: its name, tokenizer and chat template, without weights.

    Attributes:
        aliases: Names of the student in the traces, which mark its attempts.
        context: Maximum number of tokens of prompt and response together.
        response_tokens: Maximum number of tokens of a response as a deliberator.
        domain: Domain that selects the wording of the student's prompts.
        reader: Tokenizer that counts tokens and cuts texts.
        form: Form of the thinking in a completion.
        row: Type of the student's rows.
        chat_template: Template in use if it differs from the tokenizer's template; else None.
        mended: Corrections of the template, one sentence each.
    """

    def __init__(
        self, name: str, chat_template: Path | None = None, has_system: bool = True
    ) -> None:
        """Load the tokenizer and find the form of the thinking.

        Without ``has_system``, the template writes no system prompt by itself.

        Raises:
            TeacherError: There is no such model; ``name`` is as in ``models.registry``.
            ConfigError: The tokenizer has no chat template, or its template loses a part of the
                response; or it has no system prompt to leave out.
        """
        profile = profile_at(name, Endpoint(), may_be_served=False)
        given = read_template(chat_template, "--chat-template") if chat_template else None
        folder = Path(profile.tokenizer)
        if not given and folder.is_dir() and not has_chat_template(folder):
            raise lacks_template(profile.tokenizer)
        self.name = name
        self.aliases = frozenset({name, profile.name, profile.model})
        self.context = profile.context
        self.response_tokens = profile.deliberator.max_tokens
        self.domain = profile.domain
        self.reader = ReaderTokenizer(profile.tokenizer)
        from transformers import AutoTokenizer  # slow to import, so only for a student that exists

        tokenizer = AutoTokenizer.from_pretrained(profile.tokenizer)
        adapter = adapter_of(profile.tokenizer)
        stops = stops_of(adapter.base if adapter else profile.tokenizer)
        if not has_system:
            given = without_system(tokenizer, given)
        fitted = fit(tokenizer, stops, given)
        if not has_system:
            note = "its own system prompt is left out"
            fitted = replace(fitted, mended=(note, *fitted.mended))
        self.chat, self.form, self.mended = fitted.chat, fitted.form, fitted.mended
        self.row: type[SftRow] = ThoughtfulSftRow if self.form == "field" else SftRow
        self.template_sha256 = self.chat.sha256
        is_own = own_template(tokenizer) == self.chat.template
        self.chat_template = None if is_own else self.chat.template

    def prompt(self, text: str, history: Sequence[Turn] = ()) -> list[Message]:
        """Return a prompt after the turns before it, which have text alone, as a conversation."""
        turns = conversation(text, history)
        return [Message(role=turn["role"], content=turn["content"]) for turn in turns]

    def completion(self, reasoning: str, answer_text: str) -> list[Message]:
        """Return the assistant turn, in the form that the template accepts.

        Whitespace around the texts is removed, because not all templates keep it.
        """
        return [_turn(self.form, reasoning, answer_text)]

    def tokens(
        self, prompt: str, reasoning: str, answer_text: str, history: Sequence[Turn] = ()
    ) -> Tokens:
        """Return a row's tokens, split where the loss begins; a row with a fault is unusable."""
        from heavydistill.schema import to_row

        asked = list(map(to_row, self.prompt(prompt, history)))
        answered = list(map(to_row, self.completion(reasoning, answer_text)))
        tokens = self.chat.tokens(asked, answered)
        text = f"{reasoning}\n{answer_text}"
        read = "\n".join(message["content"] for message in asked)
        fault = tokens.fault
        if not fault and any(tag in text for tag in COMMON_TAGS):
            fault = "its text holds a think tag, and would part in another place"
        elif not fault and (control := self.chat.control_token(f"{read}\n{text}")):
            fault = f"its text holds {control}, which the student takes for a control token"
        return replace(tokens, fault=fault)

    def prompt_tokens(self, text: str, history: Sequence[Turn] = ()) -> int:
        """Return the number of tokens of a prompt, with template and generation prompt."""
        return self.chat.prompt_tokens(conversation(text, history))


def student_of_sets(template: Path, recorded: str, given: str | None) -> Student:
    """Return the student of sets: ``given``, or else the one of this name in their manifest.

    ``template`` is the place of the sets' chat template, which they may lack.

    Raises:
        ConfigError: The student that the manifest names cannot be found.
        TeacherError: The given student cannot be found.
    """
    try:
        return Student(given or recorded, template if template.is_file() else None)
    except TeacherError as error:
        if given:
            raise
        raise ConfigError(
            f"The student of the sets, {recorded}, cannot be used: {error.what}",
            "Give its folder or Hub id with --student.",
        ) from error


def generation_settings(name: str) -> dict[str, object]:
    """Return the content of a model's ``generation_config.json``; empty if there is none."""
    from transformers.utils import cached_file

    file = cached_file(
        name,
        "generation_config.json",
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return json.loads(Path(file).read_text(encoding="utf-8")) if file else {}


def stops_of(name: str) -> frozenset[int]:
    """Return the ids of the tokens that end generation in a model's ``generation_config.json``."""
    eos = generation_settings(name).get("eos_token_id")
    return frozenset(eos if isinstance(eos, list) else [eos]) - {None}


def fit(
    tokenizer: Tokenizer, stops: frozenset[int] = frozenset(), template: str | None = None
) -> FittedTemplate:
    """Return a tokenizer's chat template and message form, corrected if the template loses text.

    ``stops`` are ids that end a response in addition to the tokenizer's end of sequence;
    ``template`` replaces the tokenizer's template.

    Raises:
        ConfigError: There is no template, it is not Jinja, or every form loses some text.
    """
    given = template or own_template(tokenizer)
    dated = _with_fixed_date(given)
    chat = Chat(tokenizer, stops, dated)
    note = (f"the date in its prompts is always {DATE}",) if dated != given else ()
    for candidate in _candidates(chat):
        if not _faults(candidate):
            return replace(candidate, mended=note + candidate.mended)
    lost = "; ".join(
        f"{form}: {_faults(FittedTemplate(chat, form, ()))[0].detail}" for form in FORMS
    )
    raise ConfigError(
        f"The chat template of {tokenizer.name_or_path} drops or changes a part of the response, "
        f"with its thinking in a field of the turn and also with it in the text: {lost}",
        MENDED_BY_HAND,
    )


def without_system(tokenizer: Tokenizer, template: str | None = None) -> str:
    """Return a chat template without the system prompt that it writes where no message has one.

    Raises ConfigError if it writes none.
    """
    own = Chat(tokenizer, template=template)
    changed = Chat(tokenizer, template=_WITHOUT_SYSTEM + own.template)
    asked = [{"role": "user", "content": _QUESTION}]
    try:
        is_shorter = len(changed.render(asked)) < len(own.render(asked))
    except ValueError:  # as of a template that takes no system message
        is_shorter = False
    if not is_shorter:
        raise ConfigError(
            f"system is none, but the chat template of {tokenizer.name_or_path} writes no system "
            "prompt by itself",
            "Leave --system out.",
        )
    return changed.template


def _candidates(chat: Chat) -> Iterator[FittedTemplate]:
    """Yield templates and forms to try, those with the fewest corrections first."""
    own = FittedTemplate(chat, "field", ())
    named = [
        _changed(
            own,
            _NAMED.replace("NAME", name) + chat.template,
            f"thinking is handed to it as `{name}`",
        )
        for name in ("thinking", "reasoning")
        if re.search(rf"[.'\"]{name}\b", chat.template)
    ]
    switched = []
    if "enable_thinking" in chat.template:
        note = "thinking is switched on in it"
        switched = [_changed(own, _SWITCHED_ON + chat.template, note)]
    for start in (own, *named, replace(own, form="inline"), *switched):
        yield start
        note = "the end of sequence follows an answer"
        yield _changed(start, _before_the_end(start.chat.template) + _ENDED, note)
        note = "answers without thinking are written behind its prompt, which opens the thinking"
        yield from _continued(start, note, only_plain=True)
    for start in (own, *switched):
        note = "answers are written behind its prompt, because its own turns lose the thinking"
        yield from _continued(start, note, only_plain=False)


def _changed(start: FittedTemplate, template: str, note: str) -> FittedTemplate:
    chat = Chat(start.chat.tokenizer, start.chat.stops, template)
    return FittedTemplate(chat, start.form, (*start.mended, note))


def _continued(start: FittedTemplate, note: str, only_plain: bool) -> Iterator[FittedTemplate]:
    """Yield the template with answers appended to its prompt; nothing if it renders no prompt."""
    chat = start.chat
    try:
        thought = _rendered(chat, start.form, _REASONING)
        plain = _rendered(chat, start.form, "")
    except ValueError:
        return
    ending = plain.rpartition(_ANSWER)[2]
    if not chat.stops & set(chat.ids(ending)):
        ending += chat.tokenizer.eos_token or ""
    _, kept, behind = thought.rpartition(_REASONING)
    own = behind.partition(_ANSWER)[0]
    closing = own if kept and COMMON_TAGS[1] in own else f"\n{COMMON_TAGS[1]}\n\n"
    texts = {
        "OPENING": "" if chat.opens_thinking else f"{COMMON_TAGS[0]}\n",
        "CLOSING": closing,
        "EMPTY": closing.lstrip() if chat.opens_thinking else "",
        "ENDING": ending,
    }
    behind = re.sub(
        "|".join(texts),
        lambda name: json.dumps(texts[name[0]], ensure_ascii=False),
        _CONTINUED_BEHIND,
    )
    before = _CONTINUED_BEFORE.replace("CASE", _NO_THINKING if only_plain else "")
    yield _changed(start, before + _before_the_end(chat.template) + behind, note)


def _rendered(chat: Chat, form: Form, reasoning: str) -> str:
    row = _probe(form, reasoning)
    return chat.render([*row["prompt"], *row["completion"]])


def _faults(fitted: FittedTemplate) -> list[Fault]:
    """Return the faults of a row with thinking and of a row without, in this form."""
    probes = [_probe(fitted.form, reasoning) for reasoning in (_REASONING, "")]
    return [fault for probe in probes for fault in Inspection(fitted.chat, probe).faults()]


def _probe(form: Form, reasoning: str) -> dict[str, Any]:
    from heavydistill.schema import to_row

    return {
        "prompt": [{"role": "user", "content": _QUESTION}],
        "completion": [to_row(_turn(form, reasoning, _ANSWER))],
        "reasoning": reasoning,
        "answer_text": _ANSWER,
        "problem": "probe",
        "generation": "with thinking" if reasoning else "without thinking",
    }


def _turn(form: Form, reasoning: str, answer_text: str) -> Message:
    reasoning, answer_text = reasoning.strip(), answer_text.strip()
    if form == "field":
        return ThoughtfulMessage(role="assistant", content=answer_text, reasoning_content=reasoning)
    thinking = f"{COMMON_TAGS[0]}\n{reasoning}\n{COMMON_TAGS[1]}\n\n" if reasoning else ""
    return Message(role="assistant", content=thinking + answer_text)


def _with_fixed_date(template: str) -> str:
    fixed = _DATE_CALL.sub(lambda call: json.dumps(DATE.strftime(call[2])), template)
    if "strftime_now(" in fixed:
        raise ConfigError(
            "The chat template puts today's date into prompts, so that each day's build differs",
            "Give a template with a fixed date with --chat-template FILE.",
        )
    return fixed


def _before_the_end(template: str) -> str:
    """Return the template without the final line break, which Jinja removes only at the end."""
    return template.removesuffix("\n")
