"""Contract tests of plug-ins, for their authors: ``pytest --pyargs heavydistill.contracts``.

They run on the plug-ins of installed packages. A file of tests of your own runs them on others::

    from heavydistill.contracts import *
    from heavydistill.plugins import load_files

    load_files(["mine.py"])

Rows are those of a small run of the bundled models, and of sets that are built from it.
"""

from __future__ import annotations

import copy
import functools
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import heavydistill as hd
from heavydistill import plugins
from heavydistill.plugins import Plugin
from heavydistill.schema import Label, Trace, Trajectory

__all__ = ["pytest_generate_tests", "test_every_package_can_be_used"]
__all__ += [f"test_{kind}" for kind in plugins.TAKES]

_HOSTILE = (
    *("?", "\\boxed{", "\x00\x1b[2J", "\u202e\u2066", "<script>", "9**9**9**9", "\\frac{1}{0}"),
    *(part * 5000 for part in ("{", "1", "\n", "word ", "= ", "[]", "\\boxed{}", "\U0001f643")),
)


def pytest_generate_tests(metafunc: Any) -> None:
    """Run each test on all plug-ins of its kind."""
    plugins.load_installed()
    for kind in plugins.TAKES.keys() & {*metafunc.fixturenames}:
        registered = [each for each in plugins.loaded.values() if each.kind == kind]
        metafunc.parametrize(
            kind, registered, ids=[f"{each.name} of {each.place}" for each in registered]
        )


def test_every_package_can_be_used() -> None:
    assert not plugins.broken, plugins.absent()
    assert plugins.loaded, "no plug-in is installed or loaded"


def test_selection(selection: Plugin) -> None:
    """A selection gives attempts of the pool, the same for the same random generator."""
    from heavydistill.heavy.selection import select

    for pool in _pools():
        before = copy.deepcopy(pool)
        for width in (1, 2, len(pool), 99):
            for seed in range(3):
                once, again = (
                    select(selection.name, pool, width, random.Random(seed)) for _ in "12"
                )
                assert once == again, "another choice with the same random generator"
        assert pool == before, "the attempts were changed"


def test_pruning(pruning: Plugin) -> None:
    """A pruning method keeps to its share and keeps the answer, the same each time."""
    from heavydistill.heavy.pruning import prepare, prune
    from heavydistill.models.registry import profile_of
    from heavydistill.models.tokenizer import reader_of

    reader = reader_of(str(profile_of("micro").tokenizer))
    for pool in _pools():
        for budget in (0, 20, 100, 10_000):
            once, again = (
                prune([prepare(each, pruning.name, reader) for each in pool], budget, reader)
                for _ in "12"
            )
            assert once == again, "another text of the same attempts"


def test_filter(filter: Plugin) -> None:
    """A filter says whether a response passes, the same each time."""
    for trace in _run()[0]:
        shown, before = list(trace.pool), copy.deepcopy(trace)
        for generation, attempts in [(d, shown) for d in trace.deliberations] + [(shown[0], [])]:
            once, again = (filter(trace.problem, generation, attempts) for _ in "12")
            assert isinstance(once, bool) and once is again, f"{once!r} and then {again!r}"
        assert trace == before and shown == trace.pool, "rows were changed"


def test_source(source: Plugin) -> None:
    """A source gives problems that can be judged, the same each time."""
    from heavydistill.config.run import Problems
    from heavydistill.problems import load

    problems = Problems(source=f"{source.name}:{source.example}", limit=100)
    assert load(problems) == load(problems), "other problems when it is called again"


def test_rewrite(rewrite: Plugin) -> None:
    """A rewriting gives the problem or None, the same each time."""
    from heavydistill.config.run import Problems
    from heavydistill.problems.rewriting import rewrite_of

    apply = rewrite_of(Problems(rewrite=rewrite.name))
    assert apply
    for problem in (trace.problem for trace in _run()[0]):
        facts = {"text": problem.text, "answer": problem.reference, "template": ""}
        assert apply(problem, facts) == apply(problem, facts), "another problem when called again"


def test_exporter(exporter: Plugin, tmp_path: Path) -> None:
    """An exporter writes rows, configurations and a README, the same each time."""
    written = []
    for name in ("once", "again"):
        hd.export(_run()[1], exporter.name, tmp_path / name)
        files = (path for path in (tmp_path / name).rglob("*") if path.is_file())
        written.append({path.relative_to(tmp_path / name): path.read_bytes() for path in files})
    assert written[0] == written[1], "other files when it is called again"


def test_teacher(teacher: Plugin) -> None:
    """The file of a teacher is a profile."""
    from heavydistill.models.registry import profile_of

    profile_of(teacher.name)


def test_prompt(prompt: Plugin) -> None:
    """The file of a prompt can be that of a role."""
    from heavydistill.config.prompts import FIELDS, OwnPrompts

    faults = []
    for role in FIELDS:
        try:
            OwnPrompts(**{role: prompt.name})
        except hd.errors.ConfigError as error:
            faults.append(str(error))
    assert len(faults) < len(FIELDS), "\n".join(faults)


def test_verifier(verifier: Plugin) -> None:
    """A verifier accepts its example, and has a verdict on any text."""
    from heavydistill.config.run import Verifying

    example = verifier.value.example
    assert example, "set `example` of the class to (a problem, a right response to it)"
    problem = example[0]
    files = [verifier.place] if Path(verifier.place).is_file() else []
    with hd.VerdictPool(Verifying(own=files)) as pool:
        assert pool.check_references([problem]) == [None]
        right = pool.judge(problem, example[1]).verdict
        assert right.label == "correct", f"{right.label}: {right.reason}"
        for text in (*_HOSTILE, *(f"{example[1]}\n{text}" for text in _HOSTILE)):
            verdict = pool.judge(problem, text).verdict
            fault = verdict.reason.partition(":")[0]
            assert verdict.label in get_args(Label)
            assert fault not in ("verifier_error", "timeout", "memory", "worker_died"), (
                f"{verdict.reason} on {text[:80]!r}: {verdict.evidence}"
            )


@functools.cache
def _run() -> tuple[list[Trace], Path, TemporaryDirectory[str]]:
    """Return the traces of a run of the bundled models, and a folder of sets from it."""
    folder = TemporaryDirectory(prefix="heavydistill-contracts-")
    out, sets = Path(folder.name) / "run", Path(folder.name) / "sets"
    hd.generate({"problems.size": 8, "think.k": 4, "deliberate.d": 2, "out": str(out)})
    hd.build_sets({"runs": [str(out)], "out": str(sets), "against": []})
    return list(hd.load_traces(out)), sets, folder


def _pools() -> list[list[Trajectory]]:
    """Return pools of usable attempts: as they are, without answers, and of unknown length."""
    pools = [[each for each in trace.pool if not each.unusable_because] for trace in _run()[0]]
    unread = [[replace(each, verdict=None) for each in pool] for pool in pools[:3]]
    unknown = [[replace(each, completion_tokens=-1) for each in pool] for pool in pools[:3]]
    return [pool for pool in (*pools, *unread, *unknown, pools[0][:1]) if pool]
