"""The figures of a report: curves, tables and warnings, drawn from the rows of its runs."""

import dataclasses
import re

import messages
import pytest
from generations import altered, problem, trajectory

from heavydistill.errors import ConfigError
from heavydistill.metrics.summary import summarize
from heavydistill.report.grid import FEW_NOTE
from heavydistill.report.page import plots, runs, sections, writer
from heavydistill.schema import Trace
from heavydistill.store.atomic import Workplace
from heavydistill.store.traces import LEAF_FOLDER, TRACES_FOLDER, write_traces

RUN = runs.ReportedRun(name="run", files=[])


def recorded(told: dict) -> runs.ReportedRun:
    return dataclasses.replace(RUN, recorded=told)


def test_the_curve_is_drawn_from_the_summary_and_told_in_a_table(traces):
    told = runs.figures(RUN, traces)
    curve = told.summary.curve
    assert curve and curve.problems == 12
    page = sections.of_run(0, RUN, told)
    for point in curve.points:
        assert f"{point.tokens['completion'].mean:,.0f} tokens" in page
    on_front = [point for point in curve.points if point.pareto["completion"]]
    plot = page[page.index("<h3>Accuracy over tokens") :].partition("</svg>")[0]
    drawn = re.findall(r'class="mark (?:vote|deliberation) c\d( outdone)?"', plot)
    assert drawn.count("") == len(on_front) < len(drawn)
    assert 'class="mark pass"' in plot and "axis begins at" not in plot
    texts = re.findall(r"<text[^>]*>([^<]*)", plot)
    assert not [text for text in texts if text.startswith(("any of", "vote of", "delib"))]
    widths = [float(x) for x in re.findall(r'<text x="([\d.]+)"', plot)]
    assert max(widths) > 420, "the axes end at the right edge"
    legend = page[page.index("<h3>Accuracy over tokens") :].partition("</figcaption>")[0]
    for colour, meaning in (("vote c0", "vote of 1"), ("deliberation c1", "one delib")):
        assert re.search(rf'class="mark {colour}"[^<]*(</[a-z]+>)+{meaning}', legend), meaning
    marked = [point for point in curve.points for cost in point.tokens if point.pareto[cost]]
    assert page.count('class="front"') == len(marked) > 0
    # An attempt reads 30 tokens and writes 40; so does a deliberation: five of four attempts' size.
    assert "takes the tokens written of 5.0 votes; to compare, pools need 5 trajectories" in page
    unknown = [altered(trace, "pool", completion_tokens=-1) for trace in traces]
    told = runs.figures(RUN, unknown)
    page = sections.of_run(0, RUN, told)
    assert "No problem has all its tokens counted" in page


def test_the_parts_of_a_run_stand_in_tables_and_the_first_place_among_the_rates(traces):
    told = runs.figures(RUN, traces)
    page = sections.of_run(0, RUN, told)
    parts = page[page.index("Metrics by kind of problem") :].partition("</article>")[0]
    assert re.findall(r"<thead><tr>\s*<th[^>]*>([^<]*)", parts) == ["Stratum"]  # one kind is all
    rates = page[page.index("Rescue and regress") :].partition("</article>")[0]
    assert f"{told.summary.places[0].problems} (few)" in rates and FEW_NOTE in rates
    claims = page[page.index("Claims about attempts") :].partition("</article>")[0]
    assert "claims made" in claims and "<svg" in claims
    alone = [dataclasses.replace(trace, caches=[], deliberations=[]) for trace in traces]
    page = sections.of_run(0, RUN, runs.figures(RUN, alone))
    assert "HM@" not in page and "first place" not in page
    assert "Claims about attempts" not in page
    assert "The vote of 4 attempts: 41.7% right" in page
    assert messages.is_in(page, "no_deliberation") and "fewer than 30 problems are too" in page
    assert "HM - V" in parts and "HM - V" not in page
    assert "Rescue and regress" not in page and "0 of 0" not in page
    assert "deliberating" not in page and "deliberations</th>" not in page
    assert "thinks</small>" in page and "deliberator: " not in page


def test_an_import_without_tokens_shows_none_and_no_empty_plot(traces):
    unknown = [
        altered(
            dataclasses.replace(trace, caches=[], deliberations=[]),
            "pool",
            **dict.fromkeys(("prompt_tokens", "completion_tokens", "cached_tokens"), -1),
        )
        for trace in traces
    ]
    page = sections.of_run(0, RUN, runs.figures(RUN, unknown))
    assert "<h3>Accuracy over tokens" not in page and "Where the tokens go" not in page
    assert "so there is no plot of accuracy over tokens" in page
    assert "tokens not reported" in page and "0 tokens written" not in page
    usage = page[page.index(">Usage<") :].partition("</table>")[0]
    assert re.findall(r"<td>([^<]*)", usage) == ["48", "-", "-", "-", "-"]


def test_where_the_tokens_go_is_drawn_and_a_bar_alone_has_its_number_once(traces):
    told = runs.figures(RUN, traces)
    page = sections.of_run(0, RUN, told)
    plot = page[page.index("<h4>Where the tokens go") :].partition("</svg>")[0]
    for stage, used in told.summary.usage.items():
        assert f"{stage}, read: {used.prompt:,}" in plot
        assert f"{stage}, written: {used.completion:,}" in plot
        assert f">{used.prompt + used.completion:,}</text>" in plot
    drawn = plots.stacked_plot("t", [("one", {"kept": 61, "lost": 0}), ("two", {"kept": 7})])
    assert drawn.count(">61<") == 1 and drawn.count(">7<") == 1
    assert plots.stacked_plot("t", [("two", {"kept": 70, "lost": 30})]).count(">70<") == 1
    # Several runs: the share in the bar, the number behind it.
    assert ">100%<" in plots.stacked_plot("t", [("one", {"kept": 61})], shares=True)


def test_figures_come_from_the_rows_and_prices_from_the_record(traces):
    own = summarize(traces)
    paid = {"thinking": {**dataclasses.asdict(own.usage["thinking"]), "cost_usd": 1.5}}
    told = runs.figures(recorded({"usage": paid}), traces)
    assert told.summary.usage["thinking"].cost_usd == 1.5
    assert dataclasses.replace(told.summary, usage=own.usage) == own
    for count, said in ((1, "1 row of the source left out"), (1200, "1,200 rows of the source")):
        assert said in sections.of_run(0, recorded({"left_out": count}), told)
    assert "of the source" not in sections.of_run(0, RUN, told)
    assert told.summary.verifiers == ["math@2"]
    assert runs.figures(recorded({"usage": "old"}), traces).summary == own
    again = runs.figures(RUN, reversed(traces))
    assert again.problems == told.problems != runs.figures(RUN, traces[1:]).problems


@pytest.mark.parametrize("unfinished", ["", "It is in progress."])
def test_a_cost_that_only_the_rows_tell_says_that_another_run_may_have_paid(traces, unfinished):
    used = {stage: dataclasses.asdict(of) for stage, of in summarize(traces).usage.items()}
    for record, is_known in (({}, False), ({"usage": "old"}, False), ({"usage": used}, True)):
        source = dataclasses.replace(recorded(record), unfinished=unfinished)
        page = sections.of_run(0, source, runs.figures(source, traces))
        cost = page[page.index("<h3>Requests, cost and failures</h3>") :].partition("</article>")[0]
        assert ("the cost of that one is included" in cost) != is_known
        assert f"{used['thinking']['completion']:,}" in cost


def test_runs_side_by_side_say_whether_they_were_asked_and_judged_alike(traces):
    def side_by_side(*compared: list[Trace], names: tuple[str, str] = ("a", "b")) -> str:
        named = [runs.ReportedRun(name=name, files=[]) for name in names]
        return "".join(sections.of_all(named, [runs.figures(RUN, run) for run in compared]))

    def asked(**changes: str) -> list[Trace]:
        return [altered(traces[0], asked=changes), *traces[1:]]

    alike = side_by_side(traces, traces)
    assert "pairs two runs by problem" in alike and "warning" not in alike
    assert "math@2" in alike and "thinker.brief.en@" in alike
    assert alike.count("<td>12 (few)</td>") == 2 and FEW_NOTE in alike
    assert re.search(r"2 runs with [a-z ]+: a, b\.", alike)
    names = ("x / after", "x / garbled")  # the vote on garbled attempts is no measure
    assert re.search(r"1 run with [a-z ]+: after\.", side_by_side(traces, traces, names=names))
    for other in (asked(verifier="exact"), asked(verifier_args='{"units": true}')):
        shown = side_by_side(traces, other)
        assert "different problems" in shown and shown.count("warning") == 1
    older = [altered(trace, "pool", judged={"verifier": "math@1"}) for trace in traces]
    older = [dataclasses.replace(trace, deliberations=[]) for trace in older]
    shown = side_by_side(traces, older)
    assert "different problems" not in shown and shown.count("note warning") == 1
    assert "judged by different verifiers or versions" in shown and "math@1" in shown


LOST = {"label": None, "finish_reason": "error", "error": "no answer", "failure": "timeout"}


@pytest.mark.parametrize(
    ("pool", "fault"),
    [
        ([trajectory("5", label=None)], "has no verdicts: no response to its 1 problem was judged"),
        ([], "has no verdicts"),
        ([trajectory("", **LOST)], r"\(failed requests: 1 timeout\)"),
    ],
)
def test_a_whole_run_without_verdicts_is_refused_and_an_unfinished_one_reported(
    tmp_path, pool, fault
):
    trace = Trace(problem=problem(), pool=pool)
    write_traces([trace], Workplace(tmp_path / "run").rows / LEAF_FOLDER)
    assert writer.write_report([tmp_path / "run"], tmp_path / "unfinished.html").file.is_file()
    write_traces([trace], tmp_path / "run" / TRACES_FOLDER)
    with pytest.raises(ConfigError, match=fault) as caught:
        writer.write_report([tmp_path / "run"], tmp_path / "page.html")
    assert "Repeat its command" in caught.value.fix and "generate --pools" in caught.value.fix
    assert not (tmp_path / "page.html").exists()
