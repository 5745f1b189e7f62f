"""The station of a row where a judge is asked about the verdicts that rules left undecided.

It follows each ``Verify`` of a run whose configuration has a judge. Each answer is put to it once:
generations of a row with the same answer to judge share their votes, those of later rounds with
the earlier ones too. What was asked and failed is undecided, and asked again by the next run.

distilabel inspects the annotations of ``process`` as objects, so they are not postponed here.
"""

from collections.abc import Iterator
from typing import Any

from distilabel.steps import StepInput
from pydantic import Field, PrivateAttr

from heavydistill.config.run import Language
from heavydistill.heavy import prompts
from heavydistill.heavy.ballot import Ballot, Vote, ballot_of, said_in, shown, verdict_of
from heavydistill.models.request import user_turn
from heavydistill.models.tokenizer import reader_of
from heavydistill.run.steps import Row, advance
from heavydistill.run.tasks import FROM_JOURNAL, HeavyTask, fields_of, is_broken_off
from heavydistill.schema import (
    OK,
    Deliberation,
    Generation,
    Problem,
    Trajectory,
    Verdict,
    content_id,
    from_row,
    to_row,
)
from heavydistill.verifiers import registry
from heavydistill.verifiers.judge import answer_for_judge, question

# Position of a generation in its column, and what the judge reads about it.
_Questions = dict[int, str]


class JudgeUndecided(HeavyTask):
    """Asks a judge ``num_generations`` times about each answer that the rules left undecided.

    Its verdicts replace those in ``column`` that it was asked about.
    """

    column: str = "pool"
    """``pool`` or ``deliberations``."""
    reasons: list[str] | None = None
    """See ``config.models.Judge``."""
    language: Language = "en"
    """Of its prompt."""
    tokenizer: str = ""
    """Folder or Hub id of the judge's tokenizer, whose control tokens are made harmless; without
    one, or with ``models.tokenizer.SERVER``, the common control tokens are."""
    own: list[str] = Field(default_factory=list)
    """Python files with verifiers of one's own."""

    _control_tokens: tuple[str, ...] = PrivateAttr(default=())

    @property
    def inputs(self) -> list[str]:
        return ["problem", self.column]

    @property
    def outputs(self) -> list[str]:
        return [self.column, "status"]

    def load(self) -> None:
        super().load()
        registry.load_own(self.own)
        if self.tokenizer:
            self._control_tokens = reader_of(self.tokenizer).control_tokens

    def format_input(self, input: Row) -> list[dict[str, str]]:
        """Not used: a row has as many prompts as it has answers to judge."""
        return []

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Rows with the judge's verdicts; what it has judged already is not put to it again."""
        station = str(self.name)
        questions: dict[int, _Questions] = {}

        def read(row: Row) -> Row:
            questions[id(row)] = self._questions(row)
            return {}

        for row in inputs:
            row.pop(FROM_JOURNAL, None)
        rows = [row for row in advance(inputs, station, read) if row["status"] == OK]
        asked = (text for row in rows for text in self._open(row, questions[id(row)]))
        new = list(dict.fromkeys(asked))
        outputs = self.generate([user_turn(text) for text in new], rows, station) if new else []
        if outputs is not None:
            replies = dict(zip(new, outputs, strict=True))
            broken_off = {text for text, output in replies.items() if is_broken_off(output)}
            inputs[:] = [
                row for row in inputs if broken_off.isdisjoint(questions.get(id(row), {}).values())
            ]
            rows = [row for row in rows if broken_off.isdisjoint(questions[id(row)].values())]
            advance(rows, station, lambda row: self._judged(row, questions[id(row)], replies))
        yield inputs

    @property
    def _prompt(self) -> prompts.Prompt:
        return prompts.load("judge", "general", self.language)

    def _questions(self, row: Row) -> _Questions:
        problem = from_row(Problem, row["problem"])
        kind = Trajectory if self.column == "pool" else Deliberation
        found: _Questions = {}
        for position, item in enumerate(row[self.column]):
            generation: Generation = from_row(kind, item)
            if generation.verdict is None or ballot_of(generation.verdict):
                continue
            answer = answer_for_judge(problem, generation, self.reasons)
            if answer is not None:
                found[position] = question(problem, answer, self._prompt, self._control_tokens)
        return found

    def _judged(self, row: Row, questions: _Questions, replies: dict[str, dict[str, Any]]) -> Row:
        """The row with its verdicts, from the outputs of ``HeavyLLM.generate`` by question."""
        cast = self._cast(row) if questions else {}
        items, from_journal = list(row[self.column]), 0
        for position, text in questions.items():
            item, asked = items[position], _id(text)
            same_as = ""
            if asked in cast:
                same_as, votes = cast[asked]
            else:
                votes = [_vote(fields) for fields in fields_of(replies[text], self.llm)]
                cast[asked] = item["id"], votes
                from_journal += sum(replies[text]["from_journal"])
            rule = from_row(Verdict, item["verdict"])
            ballot = Ballot(
                by=rule.verifier,
                rule_reason=rule.reason,
                rule_evidence=rule.evidence,
                model=self.llm.model_name,
                prompt=self._prompt.version,
                asked=asked,
                same_as=same_as,
                votes=votes,
            )
            items[position] = {**item, "verdict": to_row(verdict_of(rule, ballot))}
        return {self.column: items, FROM_JOURNAL: from_journal}

    def _cast(self, row: Row) -> dict[str, tuple[str, list[Vote]]]:
        """What this judge was asked about the row: for which generation, and the votes."""
        found = {}
        for item in [*row["pool"], *row.get("deliberations", [])]:
            ballot = item["verdict"] and ballot_of(from_row(Verdict, item["verdict"]))
            if ballot and ballot.model == self.llm.model_name and not ballot.same_as:
                found[ballot.asked] = item["id"], ballot.votes
        return found

    def _open(self, row: Row, questions: _Questions) -> list[str]:
        """The questions that this judge was not asked about the row yet."""
        cast = self._cast(row) if questions else {}
        return [text for text in questions.values() if _id(text) not in cast]


def _id(text: str) -> str:
    return content_id("j", text)


def _vote(fields: dict[str, Any]) -> Vote:
    said = said_in(fields["answer_text"], fields["finish_reason"])
    return Vote(
        said=said,
        failure=fields["failure"],
        reply=shown(fields["answer_text"]) if said == "invalid" else "",
        prompt_tokens=fields["prompt_tokens"],
        cached_tokens=fields["cached_tokens"],
        completion_tokens=fields["completion_tokens"],
    )
