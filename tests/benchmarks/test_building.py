"""The benchmark runs, on runs in which everything occurs that a build sorts out."""

import pytest
from command_line import benchmark

from heavydistill.store.traces import read_traces

STRATA = ("all-right", "all-wrong", "majority-right", "minority-right", "tie")


def test_the_runs_are_as_long_as_real_ones_mixed_and_always_the_same(tmp_path):
    code = "import sys; from pathlib import Path; from invented import write_run; "
    code += "print(*(dict(write_run(Path(folder), 60, 8, 4)) for folder in sys.argv[1:]))"
    folders = [tmp_path / "one", tmp_path / "two"]
    printed = benchmark("-c", code, *folders)
    assert all(stratum in printed for stratum in STRATA)
    first, second = (next(folder.glob("traces/*.parquet")).read_bytes() for folder in folders)
    assert first == second
    traces = list(read_traces(folders[0]))
    assert len({trace.problem.text for trace in traces}) == 60
    written = [one for trace in traces for one in (*trace.pool, *trace.deliberations)]
    assert len(written) == len({one.id for one in written}) == 60 * (8 + 4)
    characters = [len(one.reasoning) + len(one.answer_text) for one in written]
    assert 750 < sum(characters) / len(characters) < 1100
    right = [one.is_correct for trace in traces for one in trace.deliberations]
    assert 0.2 < sum(right) / len(right) < 0.8


@pytest.mark.slow
def test_time_memory_and_bytes_are_compared():
    printed = benchmark("building.py", "--traces", "40", "80", "--k", "6", "--d", "2")
    small, large = (line.split() for line in printed.splitlines()[1:3])
    assert (small[0], large[0]) == ("40", "80")
    assert all(100 < float(row[4]) < 2048 for row in (small, large))
    assert "A trace of 80 against one of 40: wall time " in printed
    assert "The same run built twice: the same bytes" in printed
