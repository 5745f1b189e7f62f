"""A plug-in of each kind but a verifier."""

from pathlib import Path

from heavydistill.curate.exports.export import ExportTarget
from heavydistill.plugins import plugin

HERE = Path(__file__).parent


@plugin("selection", "acme_shortest")
def shortest(pool, width, rng):
    """The shortest attempts; the pool is in random order, which breaks ties."""
    return sorted(pool, key=lambda attempt: len(attempt.answer_text))[:width]


@plugin("pruning", "acme_final")
def final(attempt, tokens, reader):
    """The final answer, and as much of the thinking before it as there is room for."""
    answer = attempt.answer_text[slice(*attempt.final)]
    room = tokens - reader.count(answer) - 2
    text = f"{reader.tail(attempt.reasoning, max(0, room))}\n{answer}".strip()
    return text if reader.count(text) <= tokens and answer in text else answer


@plugin("filter", "acme_brief")
def brief(problem, generation, attempts):
    """Responses that are not much longer than the problem."""
    return len(generation.answer_text) <= 20 * len(problem.text)


@plugin("source", "acme_sums", example="5")
def sums(args):
    """As many sums as the arguments say."""
    for number in range(int(args or 3)):
        yield {"text": f"What is {number} + {number + 1}?", "reference": str(2 * number + 1)}


@plugin("rewrite", "acme_short")
def short(problem, facts):
    """Problems of a few words."""
    return problem if len(problem.text) < 500 else None


plugin("prompt", "acme_terse")(HERE / "terse.md")
plugin("teacher", "acme-small")(HERE / "small.yaml")
plugin("exporter", "acme_minitrain")(
    ExportTarget(
        title="Acme's minitrain",
        version="0.1",
        templates=HERE / "minitrain",
        sft_row=lambda row: {"messages": row["prompt"] + row["completion"], "learn": "last"},
        sft_command="minitrain {name}.yaml",
    )
)
