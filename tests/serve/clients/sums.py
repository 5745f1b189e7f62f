"""A task of inspect_ai: sums that the bundled models were trained on."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import pattern
from inspect_ai.solver import generate

QUESTION = "State the final answer to the following arithmetic problem: {} ="
SUMS = ("12 + 34 - 5", "7 + 8 - 3", "20 - 4 + 9")


@task
def sums() -> Task:
    samples = [Sample(input=QUESTION.format(each), target=str(eval(each))) for each in SUMS]
    return Task(dataset=samples, solver=generate(), scorer=pattern(r"boxed\{(-?\d+)\}"))
