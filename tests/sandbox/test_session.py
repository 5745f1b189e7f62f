"""Interpreters that keep their state from cell to cell."""

from collections.abc import Iterator

import pytest

from heavydistill.sandbox.session import Session, SessionLimits, open_session

pytestmark = pytest.mark.usefixtures("works", "nothing_left")


@pytest.fixture
def session() -> Iterator[Session]:
    with open_session(SessionLimits()) as opened:
        yield opened


def test_state_lasts_and_the_last_expression_is_printed(session):
    cells = [
        "import math\nx = 3\ndef f(n): return math.comb(n, 2) + x",
        "f(4)",
        "x = 4; None",
        "f(4)",
    ]
    assert [session.run(cell).output for cell in cells] == ["", "9\n", "", "10\n"]
