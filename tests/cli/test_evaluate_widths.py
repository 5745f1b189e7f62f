"""``evaluate --widths``: caches of several sizes of the same attempts, from few calls."""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import MICRO, run_command
from fake_server import Answer, completion, serving
from problem_files import doubles

from heavydistill.metrics.experiments.widths import WIDTHS, WidthReport, read_widths
from heavydistill.report.page.sections import of_folder

PROBLEMS = 20
READS, WRITES = 2.0, 30.0  # US dollars for a million tokens


def reads(body: dict[str, Any]) -> Answer:
    """A thinker that is right by chance, and a deliberator that knows a right attempt."""
    prompt = body["messages"][0]["content"]
    number = int(prompt.partition("What is ")[2].partition(" ")[0])
    luck = random.Random(number).choice([0.1, 0.3, 0.6])
    draw, right = random.Random(f"{prompt}/{body['seed']}"), 2 * number
    if body["model"] == "thinker":
        value = right if draw.random() < luck else right + draw.choice([1, 2])
    else:
        shown = re.findall(r"boxed\{(\d+)\}", prompt.partition("Attempt 1")[2])
        value = right if str(right) in shown else right + 1
    return completion(f"{number} + {number} = {value}, so \\boxed{{{value}}}")


def command(url: str, folder: Path, *more: str) -> list[str]:
    flags = ["--thinker=thinker", "--deliberator=reader", f"--endpoint={url}"]
    flags += [f"--tokenizer={MICRO}", f"--problems={doubles(folder, PROBLEMS)}"]
    flags += ["--set=cache.budget_tokens=900", "--set=endpoint.context=2048"]
    flags += ["--set=think.sampling.max_tokens=64", "--set=deliberate.sampling.max_tokens=64"]
    flags += [f"--price-in={READS}", f"--price-out={WRITES}", f"--out={folder / 'x'}"]
    return ["evaluate", *flags, *more]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[WidthReport, list[Any], str, str]:
    """The figures, the requests, what is printed, and the page."""
    folder = tmp_path_factory.mktemp("widths")
    sizes = ["--widths=8,2,4", "--depths=1,3", "--selections=max_diversity"]
    with serving(reads) as server:
        done = run_command(*command(server.base_url, folder, *sizes))
    assert done.returncode == 0, done.stdout + done.stderr
    page = " ".join(re.sub(r"<[^>]*>", " ", "".join(of_folder(folder / "x"))).split())
    report = read_widths(folder / "x" / WIDTHS)
    return report, server.requests, " ".join(done.stdout.split()), page


def test_attempts_are_asked_for_once_and_each_cache_for_the_largest_depth(measured):
    report, requests, _, _ = measured
    asked = [request["model"] for request in requests]
    assert asked.count("thinker") == PROBLEMS * 8
    # 8; 4 and 2, each at random and by diversity, where some caches are equal.
    assert 3 * PROBLEMS * 3 < asked.count("reader") <= 5 * PROBLEMS * 3
    assert (report.k, report.d, report.rounds, report.problems) == (8, 3, 1, PROBLEMS)
    kinds = [(each.cache.width, each.cache.selection) for each in report.caches]
    assert kinds[0] == (8, "random") and len(kinds) == 5
    assert all([each.point.d for each in of.depths] == [1, 3] for of in report.caches)


def test_each_cache_has_its_accuracy_and_what_an_answer_takes(measured):
    report = measured[0]
    found = {(each.cache.width, each.cache.selection): each for each in report.caches}
    for (width, selection), each in found.items():
        assert each.shown.has_right
        for depth in each.depths:
            point = depth.point
            assert point.accuracy == depth.heavy_pass == each.shown.has_right, "it knows the right"
            written, all_tokens = (point.tokens[cost].mean for cost in ("completion", "all"))
            attempts = 8 if selection == "max_diversity" else width
            assert written == pytest.approx(7 * (attempts + point.d))
            usd = READS * (all_tokens - written) + WRITES * written
            assert depth.usd == pytest.approx(usd / 10**6)
            assert depth.seconds and depth.seconds > 0
    narrow, diverse = found[2, "random"], found[2, "max_diversity"]
    assert narrow.minus_widest and narrow.minus_widest.mean < 0
    own, other = (each.depths[0].point.accuracy.mean for each in (diverse, narrow))
    assert diverse.minus_selection and diverse.minus_selection.mean == pytest.approx(own - other)
    assert narrow.minus_selection is None and found[8, "random"].minus_widest is None
    assert diverse.shown.distinct_answers.mean > narrow.shown.distinct_answers.mean
    assert found[8, "random"].shown == report.pool
    assert report.pool.distinct_steps == report.pool.distinct_answers, "a step has its answer"


def test_the_tables_and_the_plot_are_printed(measured):
    report, _, printed, page = measured
    assert f"2 attempts (max_diversity): up to {3 * PROBLEMS} requests" in printed
    assert re.search(r"Caches of 8 attempts: \+\d+\.\d \(.*\) points over caches of 2", printed)
    for text in (printed, page):
        assert "Tokens written" in text
        right = report.caches[0].depths[0].point.accuracy.mean
        assert f"{100 * right:.1f}% D=3" in text
    assert "caches of 4 max_diversity" in page and "Distinct answers First steps" in page


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--depths=1"], "--depths is given without --widths"),
        (["--widths=1,4"], "--widths '1,4' is not a list of whole numbers of at least 2"),
        (["--widths=4,8", "--k=4"], "--widths: 8 is more than the 4 of --k"),
        (["--widths=4", "--depths=8", "--d=2"], "--depths: 8 is more than the 2 of --d"),
        (["--widths=4", "--d=0"], "--widths needs deliberations"),
        (["--widths=4", "--set=cache.width=2"], "cache.width 2 is set beside --widths"),
        (["--widths=4", "--selections=diverse"], "--selections: there is no selection 'diverse'"),
    ],
)
def test_sizes_that_cannot_be_compared_are_refused_before_a_request(flags, said, tmp_path):
    with serving(reads) as server:
        done = run_command(*command(server.base_url, tmp_path, *flags))
    assert done.returncode == 2 and said in " ".join(done.stderr.split()), done.stderr
    assert not server.requests
