from __future__ import annotations

from heavy_samples import deliberation

from heavydistill.heavy.iteration import carried


def test_a_round_reads_the_deliberations_of_the_round_before():
    written = [deliberation(i, round=round) for i, round in enumerate([1, 1, 2, 3])]
    assert carried(written, 1) == []
    assert carried(written, 2) == written[:2]
    assert carried(written, 3) == [written[2]]
