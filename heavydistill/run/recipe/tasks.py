"""The steps that use a model: sample trajectories, deliberate, judge.

Each step requests all samples of all rows of a batch at once, and keeps every response, failures
included. A row whose status is not ``ok`` is passed on without a request (see ``steps``). If the
end of the run interrupts a sample, its row is dropped.

distilabel inspects the annotations of ``process`` as objects, so they are not postponed here.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import Field, PrivateAttr

from heavydistill.config.models import Replies
from heavydistill.config.prompts import OwnPrompts
from heavydistill.config.run import Language
from heavydistill.config.run import Task as Asked
from heavydistill.errors import HeavydistillError
from heavydistill.heavy.episode import Episode, Rules, SampleAsk
from heavydistill.heavy.judge_votes import Vote, ballot_of
from heavydistill.heavy.prompts import Prompt, judge_prompt, load
from heavydistill.models.request import INTERRUPTED, Sample, conversation, fields_of, user_turn
from heavydistill.models.tokenizer import reader_of
from heavydistill.run.recipe.distilabel import StepInput, Task
from heavydistill.run.recipe.llm import Conversation, HeavyLLM
from heavydistill.run.recipe.steps import Row, advance, episode_of
from heavydistill.schema import Deliberation, Problem, Trajectory, Verdict, from_row, to_row
from heavydistill.store.journal import prompt_id
from heavydistill.verifiers import registry
from heavydistill.verifiers.judge import FirstReplies, JudgeRules, question_id

# Key of a row, not of a trace: number of the last step's responses that were in the journal.
FROM_JOURNAL = "from_journal"


class HeavyTask(Task):
    """Base of the tasks: sends the requests of all rows of a batch together."""

    llm: HeavyLLM
    batches_in_flight: int = Field(default=1, ge=1)
    """Number of batches that are processed at once; see ``pipeline``."""

    def texts(self, row: Row) -> list[str]:
        """Return the prompts for a row."""
        raise NotImplementedError

    def conversations(self, row: Row) -> list[Conversation]:
        """Return the conversations for a row, one for each prompt."""
        return list(map(user_turn, self.texts(row)))

    def read(self, row: Row, samples: list[dict[str, object]]) -> Row:
        """Return a row's output columns; ``samples`` are generations without ids and verdicts."""
        raise NotImplementedError

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Yield rows with the responses; a conversation that several rows share is sent once."""
        step = str(self.name)
        conversations: dict[str, Conversation] = {}
        asked: dict[int, list[str]] = {}  # their ids for each row, by the ``id()`` of the row
        for row in inputs:
            row.pop(FROM_JOURNAL, None)  # remove the count of an earlier step

        def prepare(row: Row) -> Row:
            of_row = {prompt_id(each): each for each in self.conversations(row)}
            conversations.update(of_row)
            asked[id(row)] = list(of_row)
            return {}

        advance(inputs, step, prepare)
        samples, broken = list[list[Sample]](), None
        try:
            if conversations:
                samples = self.llm.sample([*conversations.values()], int(self.num_generations))
                self.inspect(samples)
        except HeavydistillError:  # the run cannot continue, e.g. the disk is full
            raise
        except Exception as error:  # a bug: engines return failures as data
            broken = error
        replies = dict(zip(conversations, samples, strict=False))
        broken_off = {each for each, given in replies.items() if is_broken_off(given)}
        inputs[:] = [row for row in inputs if broken_off.isdisjoint(asked.get(id(row), ()))]

        def finish(row: Row) -> Row:
            if broken:
                raise broken
            return self.answered(row, [replies[each] for each in asked[id(row)]])

        yield advance(inputs, step, finish)

    def inspect(self, samples: list[list[Sample]]) -> None:
        """Raise an error that ends the run if the samples of a batch show that it cannot go on."""

    def answered(self, row: Row, replies: list[list[Sample]]) -> Row:
        """Return the row's output columns; ``replies`` has the samples of each conversation."""
        (given,) = replies
        fields = [fields_of(self.llm.model_name, *sample) for sample in given]
        return {**self.read(row, fields), FROM_JOURNAL: _count_from_journal(given)}

    def format_input(self, input: Row) -> Conversation:
        """Not used, like ``format_output``: ``process`` sends the prompts itself."""
        return self.conversations(input)[0]

    def format_output(self, output: str | None, input: Row | None = None) -> Row:
        return {}


class EpisodeTask(HeavyTask):
    """Base of the tasks that answer the asks of a row's episode for samples of one prompt."""

    def begun(self, row: Row) -> tuple[Episode, list[SampleAsk]]:
        """Return the episode of a row and its asks, all with the same prompt."""
        raise NotImplementedError

    def texts(self, row: Row) -> list[str]:
        return [ask.prompt for ask in self.begun(row)[1][:1]]

    def conversations(self, row: Row) -> list[Conversation]:
        """Return the prompt after the turns of the problem's conversation so far."""
        history = from_row(Problem, row["problem"]).history
        return [conversation(text, history) for text in self.texts(row)]

    def episode_after(self, row: Row, samples: list[dict[str, object]]) -> Episode:
        episode, asks = self.begun(row)
        for ask, fields in zip(asks, samples, strict=True):
            episode.tell(ask, fields)
        return episode


class SampleTrajectories(EpisodeTask):
    """Samples ``num_generations`` independent trajectories per problem, without verdicts.

    They follow those that another thinker's step has put into the pool, if any.
    """

    domain: str = "general"  # domain of problems without a domain
    language: Language = "en"
    prompts: OwnPrompts = OwnPrompts()  # the user's prompts

    @property
    def inputs(self) -> list[str]:
        return ["problem"]

    @property
    def outputs(self) -> list[str]:
        return ["pool", "thinker_prompt_version", "status"]

    def begun(self, row: Row) -> tuple[Episode, list[SampleAsk]]:
        """Return the episode of a problem, which asks for trajectories."""
        own = {column: value for column, value in row.items() if column != "pool"}
        episode = episode_of(own, Rules(k=int(self.num_generations)), thinker=self._prompt(row))
        return episode, _samples(episode)

    def read(self, row: Row, samples: list[dict[str, Any]]) -> Row:
        """Return the columns with the pool and the version of the prompt."""
        before = row.get("pool", [])
        numbered = [each | {"index": len(before) + each["index"]} for each in samples]
        pool = [*before, *map(to_row, self.episode_after(row, numbered).pool)]
        return {"pool": pool, "thinker_prompt_version": self._prompt(row).version}

    def _prompt(self, row: Row) -> Prompt:
        domain = row["problem"]["domain"] or self.domain
        return load("thinker", domain, self.language, self.prompts)


class Deliberate(EpisodeTask):
    """Samples ``num_generations`` deliberations on the last cache.

    They are appended to the deliberations of earlier rounds in the same column.
    """

    task: Asked = "deliberate"
    """What the deliberator must do. For ``choose``, its answer is the chosen attempt's answer."""

    @property
    def inputs(self) -> list[str]:
        return ["problem", "pool", "caches", "deliberations"]

    @property
    def outputs(self) -> list[str]:
        return ["deliberations", "status"]

    def begun(self, row: Row) -> tuple[Episode, list[SampleAsk]]:
        """Return the episode of a row, which asks for the deliberations of its next round."""
        episode = episode_of(row, Rules(d=int(self.num_generations), task=self.task))
        episode.begin_round()
        return episode, _samples(episode)

    def read(self, row: Row, samples: list[dict[str, Any]]) -> Row:
        """Return the column with the deliberations of all rounds so far."""
        return {"deliberations": list(map(to_row, self.episode_after(row, samples).deliberations))}


class JudgeUndecided(HeavyTask):
    """Requests ``num_generations`` votes of a judge on each answer that the rules left undecided.

    The judge's verdicts replace the verdicts in ``column``. Generations of a row with the same
    answer share their votes, also across rounds. If the requests fail, the verdict stays undecided,
    and the next run sends them again.
    """

    column: str = "pool"  # ``pool`` or ``deliberations``
    reasons: list[str] | None = None  # this and ``replies``: see ``config.models.Judge``
    prompt: str | None = None  # text of the user's prompt; see ``prompts.judge_prompt``
    replies: Replies = "verdict"
    language: Language = "en"  # language of the prompt
    tokenizer: str = ""
    """Folder or Hub id of the judge's tokenizer, whose control tokens are escaped; if empty or
    ``models.tokenizer.SERVER``, the common control tokens are escaped."""
    own: list[str] = Field(default_factory=list)  # the user's Python files with verifiers

    _rules: JudgeRules = PrivateAttr()
    _first: FirstReplies = PrivateAttr()

    @property
    def inputs(self) -> list[str]:
        return ["problem", self.column]

    @property
    def outputs(self) -> list[str]:
        return [self.column, "status"]

    def load(self) -> None:
        super().load()
        registry.load_own(self.own)
        tokens = reader_of(self.tokenizer).control_tokens if self.tokenizer else ()
        prompt = judge_prompt(self.language, self.prompt, self.replies)
        name, reasons = self.llm.model_name, self.reasons
        self._rules = JudgeRules(name, prompt, self.replies, reasons, tokens)
        self._first = FirstReplies(self._rules)

    def texts(self, row: Row) -> list[str]:
        """Return the questions about the row that the judge has not answered yet."""
        votes = self._votes(row)
        return [text for text in self._questions(row).values() if question_id(text) not in votes]

    def inspect(self, samples: list[list[Sample]]) -> None:
        self._first.note(response for given in samples for _, response in given)

    def _questions(self, row: Row) -> dict[int, str]:
        """Return the question about each undecided generation, by the generation's position."""
        problem = from_row(Problem, row["problem"])
        kind = Trajectory if self.column == "pool" else Deliberation
        questions = {}
        for position, item in enumerate(row[self.column]):
            generation = from_row(kind, item)
            if generation.verdict is None or ballot_of(generation.verdict):
                continue
            text = generation.answer_text
            asked = self._rules.question(problem, generation.verdict, text)
            if asked is not None:
                questions[position] = asked
        return questions

    def answered(self, row: Row, replies: list[list[Sample]]) -> Row:
        """Return the column with the judge's verdicts, from the samples of each question."""
        questions, known = self._questions(row), self._votes(row)
        new = dict(zip(dict.fromkeys(self.texts(row)), replies, strict=True))
        items, from_journal = list(row[self.column]), 0
        for position, text in questions.items():
            item, asked = items[position], question_id(text)
            same_as = ""
            if asked in known:
                same_as, votes = known[asked]
            else:
                votes = [self._rules.vote(response) for _, response in new[text]]
                known[asked] = item["id"], votes
                from_journal += _count_from_journal(new[text])
            rule = from_row(Verdict, item["verdict"])
            verdict = self._rules.verdict(rule, text, votes, same_as)
            items[position] = {**item, "verdict": to_row(verdict)}
        return {self.column: items, FROM_JOURNAL: from_journal}

    def _votes(self, row: Row) -> dict[str, tuple[str, list[Vote]]]:
        """Return the generation and the votes of each question about the row, by question id."""
        votes = {}
        for item in [*row["pool"], *row.get("deliberations", [])]:
            ballot = item["verdict"] and ballot_of(from_row(Verdict, item["verdict"]))
            if ballot and ballot.model == self.llm.model_name and not ballot.same_as:
                votes[ballot.asked] = item["id"], ballot.votes
        return votes


def _samples(episode: Episode) -> list[SampleAsk]:
    return [ask for ask in episode.asks() if isinstance(ask, SampleAsk)]


def is_broken_off(samples: list[Sample]) -> bool:
    """Return whether the end of the run interrupted one of the samples."""
    return any(response.failure == INTERRUPTED.failure for _, response in samples)


def _count_from_journal(samples: list[Sample]) -> int:
    return sum(response.from_journal for _, response in samples)
