"""A trajectory whose thinker runs code: what to ask next, and what the model reads of the results.

``ToolRounds`` holds one trajectory. It asks for a response of the model; runs of the cells that the
response calls, one after another; and for the next response, until one has no call. A call that
cannot be run is answered with an error, and so is each call that a limit ends:

    unknown_tool    the name is not ``python``
    bad_arguments   the arguments are no JSON object with a text ``code``
    rounds, time    the limit of turns with calls, or of the time of all cells, was reached

Several calls in one turn are run in their order, and text beside calls is kept. Results have the
errors of ``sandbox.session`` too, or ``nondeterministic`` where an interpreter that was started
again printed something else in an earlier cell.

A call is the server's (``calls: server``), or a fenced block of Python at the end of a response
(``calls: fence``), whose output the model reads in the next turn of the user. The rest of a
response that goes on after ``STOP`` is dropped, because the model invented it.

Not covered: code in the thinking, which is not run; programs as answers under ``fence``.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heavydistill.config.run import PythonTool
from heavydistill.heavy.executed_cells import PYTHON, code_of
from heavydistill.schema import Stopped, ToolCall, Turn, from_row, turns_as_json, words_of

STOP = "```output"
"""Begins the output of a block; the model is stopped before it writes one itself."""
SCHEMA: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": PYTHON,
        "description": "Runs Python code and returns what it prints and the value of its last "
        "expression. Names keep their values from call to call; numpy and sympy can be imported if "
        "they are installed.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "Code to run."}},
            "required": ["code"],
        },
    },
}
"""The tool, as a request in OpenAI's format names it."""
# (text before the last opening line, the rest up to the backticks at the end)
_BLOCK = re.compile(r"(.*\n|)```python[ \t]*\n(.*?)\n?```\s*", re.DOTALL)
_CLOSING = re.compile(r"^```[ \t]*$", re.MULTILINE)
# A prompt that does not fit is what remains of the limit of tokens.
_NO_ROOM = ("too_long", "context_overflow")

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tooling:
    """How the trajectories of a run may use tools."""

    python: PythonTool  # with ``calls``
    max_tokens: int  # maximum completion tokens of a trajectory
    context: int  # maximum tokens of a request and its response together


@dataclass(frozen=True, slots=True)
class CellAsk:
    """Ask for a run of a cell in the interpreter of a trajectory; the answer is its ``Turn``."""

    code: str
    call: str  # id of the call
    number: int  # number of turns so far
    index: int  # index of the trajectory
    round: int = 0


@dataclass(slots=True)
class ToolRounds:
    """One trajectory on its way; ``turns`` are those after the prompt."""

    tooling: Tooling
    turns: list[Turn] = field(default_factory=list)
    _responses: list[Fields] = field(default_factory=list)
    _unread: int = 0  # bytes of results after the last response, each a token at most

    @property
    def cell(self) -> tuple[str, str] | None:
        """(id of a call, code) of the cell to run next; None if a response is due."""
        return next(((call.id, code_of(call)[0]) for call in self._due), None)

    @property
    def _due(self) -> list[ToolCall]:
        """The calls of the last response that have no result yet."""
        for results, turn in enumerate(reversed(self.turns)):
            if turn.role != "tool":
                return turn.calls[results:]
        return []

    @property
    def max_tokens(self) -> int:
        """Maximum tokens of the next response; 0 or less if there is no room for it."""
        left = self.tooling.max_tokens - sum(map(_written, self._responses))
        if not self._responses:
            return left
        last = self._responses[-1]
        read = last["prompt_tokens"] if last["prompt_tokens"] >= 0 else 0
        return min(left, self.tooling.context - read - _written(last) - self._unread)

    def tell_result(self, result: Turn) -> Fields | None:
        """Record the result of a cell; returns the fields of the trajectory if it is over."""
        self._add_result(result)
        return self._goes_on()

    def tell_response(self, fields: Fields) -> Fields | None:
        """Record a response; returns the fields of the trajectory if it is over."""
        text, calls = self._read(fields)
        if not self.turns and not calls:
            return fields
        if fields.get("failure") in _NO_ROOM:
            return self._over("tokens")
        self._responses.append(fields)
        self._unread = 0
        if fields["finish_reason"] == "error":
            return self._over()
        turn = Turn(
            role="assistant",
            text=text,
            thinking=fields["reasoning"],
            calls=calls,
            seconds=fields["latency_s"],
        )
        self.turns.append(turn)
        if not calls:
            return self._over()
        if sum(bool(each.calls) for each in self.turns) > self.tooling.python.rounds:
            return self._over("rounds")
        return self._goes_on()

    def _goes_on(self) -> Fields | None:
        """Answer calls that cannot be run; the trajectory's fields if a limit is reached."""
        while (due := self._due) and (error := code_of(due[0])[1]):
            self._add_result(_refusal(due[0], error))
        if due:
            return None
        spent = sum(turn.seconds for turn in self.turns if turn.role == "tool")
        if spent >= self.tooling.python.total_seconds:
            return self._over("time")
        return self._over("tokens") if self.max_tokens < 1 else None

    def _add_result(self, result: Turn) -> None:
        self.turns.append(result)
        self._unread += len(result.text.encode("utf-8", "replace"))

    def _read(self, fields: Fields) -> tuple[str, list[ToolCall]]:
        """(text, calls) of a response; a call that was cut off is none."""
        text: str = fields["answer_text"]
        if self.tooling.python.calls == "fence" and fields["finish_reason"] == "stop":
            return fenced(text, f"call_{len(self.turns)}")
        if not (stored := fields["turns_json"]):
            return text, []
        turn = from_row(Turn, json.loads(stored)[-1])
        return turn.text, turn.calls

    def _over(self, stopped: Stopped | None = None) -> Fields:
        """The fields of the whole trajectory; ``stopped`` is the limit that ended it."""
        if stopped in ("rounds", "time"):
            self._note_limit(stopped)
        fields = {**self._responses[-1], "seed": self._responses[0]["seed"]}
        whole = [each for each in self._responses if each["finish_reason"] != "error"]
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            counts = [each[name] for each in whole]
            fields[name] = sum(counts) if min(counts) >= 0 else -1
        fields["latency_s"] = sum(each["latency_s"] for each in self._responses)
        fields["turns_json"] = turns_as_json(self.turns)
        return fields | words_of(self.turns) | ({"finish_reason": "length"} if stopped else {})

    def _note_limit(self, limit: Stopped) -> None:
        """Answer the calls without a result, or replace the last result's error, by the limit."""
        if not self._due:
            self.turns[-1] = dataclasses.replace(self.turns[-1], error=limit)
        for call in self._due:
            text = f"Not run: the limit of {limit} was reached."
            self.turns.append(Turn(role="tool", text=text, result_of=call.id, error=limit))


def _written(fields: Fields) -> int:
    """Completion tokens of a response; an upper bound if the server did not count."""
    if (tokens := fields["completion_tokens"]) >= 0:
        return int(tokens)
    return len(f"{fields['reasoning']}{fields['answer_text']}".encode("utf-8", "replace"))


def _refusal(call: ToolCall, error: str) -> Turn:
    text = 'The arguments must be a JSON object with a text: {"code": "print(1 + 1)"}'
    if error == "unknown_tool":
        text = f"There is no such tool. The only tool is {PYTHON}."
    return Turn(role="tool", text=f"Error: {text}", result_of=call.id, error=error)


def fenced(text: str, id: str) -> tuple[str, list[ToolCall]]:
    """(text before the block, the call) of a response that ends with a block of Python, or is
    stopped after one; (the text, no call) otherwise."""
    before_output = text.partition(f"\n{STOP}")[0]
    block = _BLOCK.fullmatch(before_output)
    if not block or _CLOSING.search(block[2]):  # the backticks at the end are another block's
        return text, []
    arguments = json.dumps({"code": block[2]}, ensure_ascii=False)
    return block[1], [ToolCall(id=id, name=PYTHON, arguments=arguments)]


def parameters_of(tool: PythonTool | None) -> dict[str, Any]:
    """The parameters of a thinker's requests because of its tool."""
    if not tool:
        return {}
    return {"stop": [f"\n{STOP}"]} if tool.calls == "fence" else {"tools": [SCHEMA]}


def messages_of(turns: Sequence[Turn], calls: str | None) -> list[dict[str, Any]]:
    """The turns as messages in OpenAI's format; ``calls`` as in ``PythonTool``."""
    if calls != "fence":
        return [turn.message for turn in turns]
    messages: list[dict[str, Any]] = []
    for turn in turns:
        if turn.role == "tool":
            messages.append({"role": "user", "content": f"{STOP}\n{turn.text}\n```"})
        else:
            blocks = "".join(f"```python\n{code_of(call)[0]}\n```\n" for call in turn.calls)
            plain = dataclasses.replace(turn, text=f"{turn.text}{blocks}".rstrip(), calls=[])
            messages.append(plain.message)
    return messages
