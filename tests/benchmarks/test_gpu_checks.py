"""The checks for a GPU run without one, on tiny models, and their rows say so."""

import pytest
from command_line import benchmark

pytest.importorskip("trl", reason="TRL is not installed")
# Their bounds hold on a CPU too; what is missing here has a reason.
SKIPPED = {
    "FlashAttention": "skipped: no FlashAttention here",
    "with kernels": "skipped: needs a GPU",
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("checks", [("G1", "G2", "G3"), ("G4", "G5", "G6"), ("G7", "G8", "G9")])
def test_every_check_passes_on_tiny_models_or_says_what_is_missing(checks):
    printed = benchmark("gpu/run.py", "--tiny", *checks)
    head, _, *lines = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table(printed))
    assert head == ["check", "what", "where", "bound", "measured", "verdict"]
    assert {line[0] for line in lines} == set(checks)
    for _, what, where, bound, measured, verdict in lines:
        assert where == "cpu, tiny" and bound
        expected = next((said for words, said in SKIPPED.items() if words in what), "passed")
        assert verdict.startswith(expected), what
        assert bool(measured) == (verdict == "passed")


def table(printed: str) -> list[str]:
    return [line for line in printed.splitlines() if line.startswith("|")]
