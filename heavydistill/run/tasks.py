"""The stations of a row that ask a model: sample trajectories, deliberate, judge.

Each asks for all samples of all rows of a batch at once and keeps every response whatever became of
it. A row that has left the way (see ``steps``) is not asked. A row of which the end of a run broke
a sample off is left out.

distilabel inspects the annotations of ``process`` as objects, so they are not postponed here.
"""

from collections.abc import Iterator
from typing import Any

from distilabel.steps import StepInput
from distilabel.steps.tasks import Task
from pydantic import Field, PrivateAttr

from heavydistill.config.run import Domain, Language
from heavydistill.config.run import Task as Asked
from heavydistill.errors import HeavydistillError
from heavydistill.heavy import prompts
from heavydistill.heavy.judge_votes import Ballot, Vote, ballot_of, said_in, shown, verdict_of
from heavydistill.heavy.voting import answered_by_choice
from heavydistill.models.request import (
    INTERRUPTED,
    Response,
    deliberation,
    fields_of,
    trajectory,
    user_turn,
)
from heavydistill.models.tokenizer import reader_of
from heavydistill.run.llm import Conversation, HeavyLLM, Sample
from heavydistill.run.steps import Row, advance
from heavydistill.schema import (
    OK,
    Deliberation,
    Problem,
    Trajectory,
    Verdict,
    content_id,
    from_row,
    to_row,
)
from heavydistill.verifiers import registry
from heavydistill.verifiers.judge import answer_for_judge, question

# How many responses of the last stage were in the journal: for progress, no column of a trace.
FROM_JOURNAL = "from_journal"


class HeavyTask(Task):
    """What the tasks share: the rows on their way are asked about together."""

    llm: HeavyLLM
    batches_in_flight: int = Field(default=1, ge=1)
    """Batches that are asked at once; see ``runner``."""

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Rows with the columns that ``read`` makes of the samples."""
        station = str(self.name)
        messages: dict[int, Conversation] = {}

        def prepare(row: Row) -> Row:
            row.pop(FROM_JOURNAL, None)
            messages[id(row)] = self.format_input(row)
            return {}

        asked = [row for row in advance(inputs, station, prepare) if row["status"] == OK]
        replies = self._ask([messages[id(row)] for row in asked], asked, station)
        samples = dict(zip(map(id, asked), replies, strict=False))  # none if the engine broke
        inputs[:] = [row for row in inputs if not is_broken_off(samples.get(id(row), []))]

        def finish(row: Row) -> Row:
            given = samples[id(row)]
            fields = [fields_of(self.llm.model_name, *sample) for sample in given]
            return {**self.read(row, fields), FROM_JOURNAL: _count_from_journal(given)}

        yield advance(inputs, station, finish)

    def read(self, row: Row, samples: list[dict[str, Any]]) -> Row:
        """The columns of a row, from the fields of its generations but ids and verdicts."""
        raise NotImplementedError

    def format_output(self, output: str | None, input: Row | None = None) -> Row:
        """Not used: ``process`` reads the whole response, not its text alone."""
        return {}

    def _ask(
        self, messages: list[Conversation], rows: list[Row], station: str
    ) -> list[list[Sample]]:
        """Samples of each conversation; if the engine broke none, and the rows have failed."""
        try:
            return self.llm.sample(messages, int(self.num_generations)) if messages else []
        except HeavydistillError:  # the run cannot go on, e.g. its disk is full
            raise
        except Exception as error:  # engines return failures as data; this one broke
            broken = error

        def fail(row: Row) -> Row:
            raise broken

        advance(rows, station, fail)
        return []


class SampleTrajectories(HeavyTask):
    """Samples ``num_generations`` independent trajectories a problem, not yet judged."""

    domain: Domain = "general"  # wording for problems that name none
    language: Language = "en"

    @property
    def inputs(self) -> list[str]:
        return ["problem"]

    @property
    def outputs(self) -> list[str]:
        return ["pool", "thinker_prompt_version", "status"]

    def format_input(self, input: Row) -> list[dict[str, str]]:
        """What the thinker reads."""
        text = from_row(Problem, input["problem"]).text
        return user_turn(prompts.thinker_prompt(text, self._prompt(input)))

    def read(self, row: Row, samples: list[dict[str, Any]]) -> Row:
        """The pool."""
        trajectories = [trajectory(row["problem"]["id"], fields) for fields in samples]
        return {
            "pool": list(map(to_row, trajectories)),
            "thinker_prompt_version": self._prompt(row).version,
        }

    def _prompt(self, row: Row) -> prompts.Prompt:
        return prompts.load("thinker", row["problem"]["domain"] or self.domain, self.language)


class Deliberate(HeavyTask):
    """Samples ``num_generations`` deliberations on the cache of one round.

    They stand in their column after those of earlier rounds.
    """

    round: int = Field(default=1, ge=1)
    task: Asked = "deliberate"
    """Of a reader that chooses, the answer is that of the attempt that it names."""

    @property
    def inputs(self) -> list[str]:
        return ["problem", "pool", "caches", "deliberations"]

    @property
    def outputs(self) -> list[str]:
        return ["deliberations", "status"]

    def format_input(self, input: Row) -> list[dict[str, str]]:
        """What the deliberator reads."""
        return user_turn(self._cache(input)["prompt"])

    def read(self, row: Row, samples: list[dict[str, Any]]) -> Row:
        """The deliberations of this round, after those of earlier ones."""
        cache = self._cache(row)
        if self.task == "choose":
            texts = {item["id"]: item["answer_text"] for item in row["pool"]}
            answers = [texts[item["generation"]] for item in cache["items"]]
            samples = [answered_by_choice(fields, answers) for fields in samples]
        problem = row["problem"]["id"]
        new = [deliberation(problem, cache["id"], self.round, fields) for fields in samples]
        return {"deliberations": [*row["deliberations"], *map(to_row, new)]}

    def _cache(self, row: Row) -> Row:
        return next(cache for cache in row["caches"] if cache["round"] == self.round)


class JudgeUndecided(HeavyTask):
    """Asks a judge ``num_generations`` times about each answer that the rules left undecided.

    Its verdicts replace those in ``column`` that it was asked about. Each answer is put to it once:
    generations of a row with the same answer to judge share their votes, those of later rounds with
    the earlier ones too. What was asked and failed is undecided, and asked again by the next run.
    """

    column: str = "pool"  # ``pool`` or ``deliberations``
    reasons: list[str] | None = None  # see ``config.models.Judge``
    language: Language = "en"  # of its prompt
    tokenizer: str = ""
    """Folder or Hub id of the judge's tokenizer, whose control tokens are made harmless; without
    one, or with ``models.tokenizer.SERVER``, the common control tokens are."""
    own: list[str] = Field(default_factory=list)  # Python files with verifiers of one's own

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
        # For each row by ``id()``: the position of a generation, and what the judge reads about it.
        questions: dict[int, dict[int, str]] = {}
        new: dict[str, None] = {}

        def read(row: Row) -> Row:
            texts = questions[id(row)] = self._questions(row)
            votes = self._votes(row) if texts else {}
            new.update(dict.fromkeys(text for text in texts.values() if _id(text) not in votes))
            return {}

        for row in inputs:
            row.pop(FROM_JOURNAL, None)
        rows = [row for row in advance(inputs, station, read) if row["status"] == OK]
        outputs = self._ask([user_turn(text) for text in new], rows, station)
        replies = dict(zip(new, outputs, strict=False))  # none if the engine broke
        broken_off = {text for text, output in replies.items() if is_broken_off(output)}

        def is_whole(row: Row) -> bool:
            return broken_off.isdisjoint(questions.get(id(row), {}).values())

        inputs[:] = filter(is_whole, inputs)
        rows = list(filter(is_whole, rows))
        advance(rows, station, lambda row: self._judged(row, questions[id(row)], replies))
        yield inputs

    @property
    def _prompt(self) -> prompts.Prompt:
        return prompts.load("judge", "general", self.language)

    def _questions(self, row: Row) -> dict[int, str]:
        problem = from_row(Problem, row["problem"])
        kind = Trajectory if self.column == "pool" else Deliberation
        questions = {}
        for position, item in enumerate(row[self.column]):
            generation = from_row(kind, item)
            if generation.verdict is None or ballot_of(generation.verdict):
                continue
            answer = answer_for_judge(problem, generation, self.reasons)
            if answer is not None:
                questions[position] = question(problem, answer, self._prompt, self._control_tokens)
        return questions

    def _judged(self, row: Row, questions: dict[int, str], replies: dict[str, list[Sample]]) -> Row:
        """The row with its verdicts, from the samples of each question."""
        known = self._votes(row) if questions else {}
        items, from_journal = list(row[self.column]), 0
        for position, text in questions.items():
            item, asked = items[position], _id(text)
            same_as = ""
            if asked in known:
                same_as, votes = known[asked]
            else:
                votes = [_vote(response) for _, response in replies[text]]
                known[asked] = item["id"], votes
                from_journal += _count_from_journal(replies[text])
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

    def _votes(self, row: Row) -> dict[str, tuple[str, list[Vote]]]:
        """What this judge was asked about the row: for which generation, and the votes."""
        known = {}
        for item in [*row["pool"], *row.get("deliberations", [])]:
            ballot = item["verdict"] and ballot_of(from_row(Verdict, item["verdict"]))
            if ballot and ballot.model == self.llm.model_name and not ballot.same_as:
                known[ballot.asked] = item["id"], ballot.votes
        return known


def _id(text: str) -> str:
    return content_id("j", text)


def _vote(response: Response) -> Vote:
    said = said_in(response.answer_text, response.finish_reason)
    return Vote(
        said=said,
        failure=response.failure,
        reply=shown(response.answer_text) if said == "invalid" else "",
        prompt_tokens=response.prompt_tokens,
        cached_tokens=response.cached_tokens,
        completion_tokens=response.completion_tokens,
    )


def is_broken_off(samples: list[Sample]) -> bool:
    """Whether one of the samples was not asked for any more, because the run ends."""
    return any(response.failure == INTERRUPTED.failure for _, response in samples)


def _count_from_journal(samples: list[Sample]) -> int:
    return sum(response.from_journal for _, response in samples)
