"""A verifier; it has a module of its own, because the processes that judge import it too."""

from heavydistill.schema import Problem
from heavydistill.text.extraction import boxed
from heavydistill.verifiers.base import Decision, Verifier


class Parity(Verifier):
    """Accepts any number that is even or odd like the reference."""

    name = "acme_parity"
    version = "1"
    example = (
        Problem(id="p", text="Name an even number.", reference="2", verifier="acme_parity"),
        r"\boxed{8}",
    )

    def extract(self, problem, text):
        return boxed(text) or Decision("incorrect", "no_answer")

    def decide(self, problem, candidate):
        digits = candidate.strip()
        if not (digits.isascii() and digits.isdecimal()):
            return Decision("undecided", "no_number", digits)
        is_even = digits[-1] in "02468"
        label = "correct" if is_even == (problem.reference.strip()[-1] in "02468") else "incorrect"
        return Decision(label, "parity", digits)
