"""The stations of a row that ask a model: sample trajectories, deliberate.

Both ask for all samples of all rows of a batch at once, keep every response whatever became of
it, and give each the same columns. A row that has left the way (see ``steps``) is not asked. A row
that an end of the run broke off, so that a sample was not asked for, is left out.

distilabel inspects the annotations of ``process`` as objects, so they are not postponed here.
"""

from collections.abc import Callable, Iterator
from typing import Any

from distilabel.steps import StepInput
from distilabel.steps.tasks import Task
from pydantic import Field

from heavydistill.config.run import Domain, Language
from heavydistill.config.run import Task as Asked
from heavydistill.errors import HeavydistillError
from heavydistill.heavy import prompts
from heavydistill.heavy.voting import answered_by_choice
from heavydistill.models.request import INTERRUPTED, deliberation, trajectory, user_turn
from heavydistill.run.llm import EXTRAS, HeavyLLM
from heavydistill.run.steps import Row, advance
from heavydistill.schema import OK, Problem, from_row, to_row

# How many responses of the last stage were in the journal: for progress, no column of a trace.
FROM_JOURNAL = "from_journal"


class HeavyTask(Task):
    """What the tasks share: asking for rows on their way, and the fields of a generation."""

    llm: HeavyLLM
    batches_in_flight: int = Field(default=1, ge=1)
    """Batches that are asked at once; see ``worker``."""

    def format_output(self, output: str | None, input: Row | None = None) -> Row:
        """Not used: ``process`` reads the whole response, not its text alone."""
        return {}

    def _ask(self, rows: list[Row], station: str) -> dict[int, list[dict[str, Any]]]:
        """Fields of the generations of each row on its way, by the row's ``id()``.

        Rows that were broken off are removed from ``rows``.
        """
        messages: dict[int, list[dict[str, str]]] = {}

        def prepare(row: Row) -> Row:
            messages[id(row)] = self.format_input(row)
            return {}

        asked = [row for row in advance(rows, station, prepare) if row["status"] == OK]
        outputs = self.generate([messages[id(row)] for row in asked], asked, station)
        if outputs is None:
            return {}
        named = list(zip(asked, outputs, strict=True))
        broken_off = {id(row) for row, output in named if is_broken_off(output)}
        rows[:] = [row for row in rows if id(row) not in broken_off]
        for row in rows:
            row.pop(FROM_JOURNAL, None)
        for row, output in named:
            row[FROM_JOURNAL] = sum(output["from_journal"])
        return {id(row): fields_of(output, self.llm) for row, output in named}

    def generate(
        self, messages: list[list[dict[str, str]]], rows: list[Row], station: str
    ) -> list[dict[str, Any]] | None:
        """An output of ``HeavyLLM.generate`` for each; None if the engine broke.

        Then the rows have failed.
        """
        try:
            return self.llm.generate(messages, num_generations=int(self.num_generations))
        except HeavydistillError:  # the run cannot go on, e.g. its disk is full
            raise
        except Exception as error:  # engines return failures as data; this one broke
            advance(rows, station, _raiser(error))
            return None


def _raiser(error: Exception) -> Callable[[Row], Row]:
    def fail(row: Row) -> Row:
        raise error

    return fail


class SampleTrajectories(HeavyTask):
    """Samples ``num_generations`` independent trajectories a problem, not yet judged."""

    domain: Domain = "general"
    """Wording for problems that name none."""
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

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Rows with their pools."""
        station = str(self.name)
        samples = self._ask(inputs, station)

        def pool(row: Row) -> Row:
            trajectories = [trajectory(row["problem"]["id"], fields) for fields in samples[id(row)]]
            return {
                "pool": list(map(to_row, trajectories)),
                "thinker_prompt_version": self._prompt(row).version,
            }

        for row in inputs:
            row.setdefault("pool", [])
            row.setdefault("thinker_prompt_version", "")
        yield advance(inputs, station, pool)

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

    def process(self, inputs: StepInput) -> Iterator[list[Row]]:
        """Rows with the deliberations of this round."""
        station = str(self.name)
        samples = self._ask(inputs, station)

        def deliberations(row: Row) -> Row:
            cache, given = self._cache(row)["id"], samples[id(row)]
            if self.task == "choose":
                answers = self._answers(row)
                given = [answered_by_choice(fields, answers) for fields in given]
            new = [deliberation(row["problem"]["id"], cache, self.round, each) for each in given]
            return {"deliberations": [*row["deliberations"], *map(to_row, new)]}

        yield advance(inputs, station, deliberations)

    def _answers(self, row: Row) -> list[str]:
        """Of the attempts, in the order of the cache."""
        answers = {item["id"]: item["answer_text"] for item in row["pool"]}
        return [answers[item["generation"]] for item in self._cache(row)["items"]]

    def _cache(self, row: Row) -> Row:
        return next(cache for cache in row["caches"] if cache["round"] == self.round)


def is_broken_off(output: dict[str, Any]) -> bool:
    """Whether a sample in an output of ``HeavyLLM.generate`` was not asked for any more."""
    return INTERRUPTED.failure in output["failure"]


def fields_of(output: dict[str, Any], llm: HeavyLLM) -> list[dict[str, Any]]:
    """The fields of each generation but its id and verdict, from an output of ``llm.generate``."""
    tokens = output["statistics"]
    return [
        {
            "index": index,
            "model": llm.model_name,
            "answer_text": answer_text,
            "prompt_tokens": tokens["input_tokens"][index],
            "completion_tokens": tokens["output_tokens"][index],
            **{name: output[name][index] for name in EXTRAS},
        }
        for index, answer_text in enumerate(output["generations"])
    ]
