"""What is in the file of a report: figures, entries, chunks, and where runs lie."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import re
import zlib
from pathlib import Path

import pytest
import runs
from generations import deliberation, problem, trajectory
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON
from heavydistill.metrics.summary import summarize
from heavydistill.report.page import chunks, entries, figures, overview, plots, sources, writing
from heavydistill.report.page.entries import SAID, entry, whole
from heavydistill.report.page.markup import joined, table, tag
from heavydistill.report.text import percent, points
from heavydistill.schema import FAILED, Trace
from heavydistill.storage import (
    LEAF_FOLDER,
    REJECTS_FOLDER,
    TRACES_FOLDER,
    read_traces,
    write_traces,
)
from heavydistill.workplace import Workplace

WEB = Path(writing.__file__).parent / "web"
CHUNK = re.compile(
    r'<script type="application/octet-stream" id="chunk-(\d+)-(\d+)">([^<]*)</script>'
)

RUN = sources.Source(name="run", files=[])


def recorded(told: dict) -> sources.Source:
    return dataclasses.replace(RUN, recorded=told)


def unpacked(text: str) -> list[list[dict]]:
    """The traces of each chunk, as a browser unpacks them."""
    packed = (base64.b64decode(found[3]) for found in CHUNK.finditer(text))
    return [json.loads(zlib.decompress(one, wbits=-zlib.MAX_WBITS)) for one in packed]


def index_of(text: str, run: int = 0) -> dict:
    found = re.search(rf'<script type="application/json" id="index-{run}">([^<]*)</script>', text)
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_run(tmp_path_factory.mktemp("runs") / "first", 12, k=4, d=2)


@pytest.fixture(scope="module")
def traces(run: Path) -> list[Trace]:
    return list(read_traces(run))


# --- The file


def test_every_trace_is_in_the_file_under_the_place_that_its_entry_names(run, traces, tmp_path):
    written = writing.write_report([run], tmp_path / "page.html")
    text = written.file.read_text(encoding="utf-8")
    index, parts = index_of(text), unpacked(text)
    assert [one["id"] for one in index["entries"]] == [trace.problem.id for trace in traces]
    assert index["chunks"] == len(parts)
    for one, trace in zip(index["entries"], traces, strict=True):
        chunk, place = one["at"]
        assert parts[chunk][place] == json.loads(json.dumps(whole(trace)))
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_the_policy_allows_what_is_in_the_file_and_nothing_else(run, tmp_path):
    text = writing.write_report([run], tmp_path / "page.html").file.read_text(encoding="utf-8")
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert found
    policy = found[1].replace("&#x27;", "'")
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    for inside in (*scripts, *styles):
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert (len(scripts), len(styles)) == (2, 1)
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    assert "http" not in policy and not re.search(r"\s(?:src|href)=\"?https?:", text)
    assert "Permission is hereby granted" in scripts[0]  # of KaTeX


def test_our_scripts_are_short_and_make_no_markup_of_text():
    for path in WEB.glob("*"):
        assert len(path.read_text(encoding="utf-8").splitlines()) < 400, path
    assert {f"{name}.js" for name in writing.SCRIPTS} == {path.name for path in WEB.glob("*.js")}
    ours = writing.script()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "</"):
        assert way not in ours
    assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|import\(", ours)


def test_the_file_appears_whole_or_not_at_all(run, tmp_path, monkeypatch):
    out = tmp_path / "page.html"
    before = writing.write_report([run], out).file.read_bytes()
    real = chunks.Chunks.add

    def breaking(self: chunks.Chunks, row: dict) -> tuple[int, int]:
        if row["problem"]["id"] == "sum:7":
            raise KeyboardInterrupt
        return real(self, row)

    monkeypatch.setattr(chunks.Chunks, "add", breaking)
    with pytest.raises(KeyboardInterrupt):
        writing.write_report([run], out)
    assert out.read_bytes() == before
    monkeypatch.setattr(chunks.Chunks, "add", real)
    monkeypatch.setattr(writing, "_write", lambda *all: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(Exception, match="cannot be written"):
        writing.write_report([run], out)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_file_that_is_no_report_is_not_replaced(run, tmp_path):
    thesis = tmp_path / "thesis.html"
    thesis.write_text("<h1>Ten years of work</h1>")
    for out in (thesis, tmp_path):
        with pytest.raises(ConfigError, match="is no report"):
            writing.write_report([run], out)
    assert thesis.read_text() == "<h1>Ten years of work</h1>"


def test_the_same_runs_give_the_same_bytes(run, tmp_path):
    files = [writing.write_report([run], tmp_path / name).file for name in ("a.html", "b.html")]
    assert files[0].read_bytes() == files[1].read_bytes()


# --- Chunks, entries, markup


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=40)), max_size=12))
def test_chunks_hold_any_text_and_none_ends_its_element(rows):
    file = io.BytesIO()
    packing = chunks.Chunks(file, 0)
    places = [packing.add(row) for row in rows]
    packing.close()
    text = file.getvalue().decode()
    parts = unpacked(text)
    assert [parts[chunk][place] for chunk, place in places] == rows
    assert packing.count == len(parts) == text.count("<script") == text.count("</script")


def test_a_chunk_ends_when_it_is_long_enough(monkeypatch):
    monkeypatch.setattr(chunks, "_ENOUGH", 50)
    file = io.BytesIO()
    packing = chunks.Chunks(file, 3)
    places = [packing.add({"text": "x" * length}) for length in (10, 100, 10, 10)]
    packing.close()
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert re.findall(r'id="([^"]+)"', file.getvalue().decode()) == ["chunk-3-0", "chunk-3-1"]


@given(st.text())
def test_no_text_leaves_its_json_element_or_its_tag(text):
    element = chunks.json_element("index-0", {"text": text})
    assert element.count("<") == 2
    inside = element.partition(">")[2].rpartition("</script>")[0]
    assert json.loads(inside) == {"text": text}
    shown = tag("p", text, title=text)
    assert shown.count("<") == 2 and shown.count(">") == 2
    assert shown.count('"') - str(joined([text])).count('"') == 2


def test_columns_of_words_are_told_from_those_of_numbers():
    shown = table(("Name", "Count", "Meaning"), [["a", "1,000", "so many"], ["b", "-", "none"]])
    assert shown.count('<td class="words">') == 2 and shown.count("<td>") == 2


def test_an_entry_counts_what_is_said_of_each_response():
    pool = [
        trajectory("5", id="a"),
        trajectory("6", id="b", label="incorrect"),
        trajectory("7", id="c", label=None, finish_reason="length"),
        trajectory("", id="d", label=None, finish_reason="error", error="x", failure="timeout"),
        trajectory("8", id="e", label="undecided", finish_reason="length"),
    ]
    told = entry(Trace(problem=problem("a  b\n" * 400), pool=pool, status=f"{FAILED}step: boom"))
    assert dict(zip(SAID, told["pool"], strict=True)) == {
        "correct": 1,
        "incorrect": 1,
        "undecided": 1,
        "unjudged": 1,
        "failed": 1,
        "truncated": 2,
    }
    assert told["deliberations"] == [0] * len(SAID)
    assert told["status"] == "failed" and len(told["text"]) <= 160
    assert (told["verifier"], told["family"]) == ("math", "")
    assert entry(Trace(problem=problem(args={"family": "sums"}), pool=pool))["family"] == "sums"


def test_the_whole_says_which_attempts_a_deliberation_uses(traces):
    for trace in traces:
        (cache,) = trace.caches
        shown = [item.generation for item in cache.items]
        answers = {one.id: one.extracted for one in trace.pool}
        row = whole(trace)
        assert "".join(row["caches"][0]["blocks"]) == cache.prompt
        assert "prompt" not in row["caches"][0]
        for one, told in zip(trace.deliberations, row["deliberations"], strict=True):
            assert told["uses"]["named"] == shown[:2]
            assert told["uses"]["same"] == [g for g in shown if answers[g] == one.extracted]


def test_a_deliberation_without_an_answer_or_a_cache_uses_nothing():
    lost = deliberation("no", label=None)
    (told,) = whole(Trace(problem=problem(), pool=[trajectory("5")], deliberations=[lost]))[
        "deliberations"
    ]
    assert told["uses"] == {"same": [], "named": [], "several": False}


def test_no_folder_of_a_machine_is_in_the_page(traces):
    model = "/home/ann/models/big"
    pool = [dataclasses.replace(one, model=model) for one in traces[0].pool]
    caches = [dataclasses.replace(traces[0].caches[0], reader=model)]
    row = whole(dataclasses.replace(traces[0], pool=pool, caches=caches))
    assert {one["model"] for one in row["pool"]} == {row["caches"][0]["reader"]} == {"big"}
    assert "/home/" not in json.dumps(row)
    assert entries.name_of("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"


def test_a_prompt_of_another_form_is_kept_as_it_is(traces):
    cache = dataclasses.replace(traces[0].caches[0], prompt="Other words.")
    (told,) = whole(dataclasses.replace(traces[0], caches=[cache]))["caches"]
    assert (told["blocks"], told["prompt"]) == (None, "Other words.")


# --- Figures


def test_the_curve_is_drawn_from_the_summary_and_told_in_a_table(traces):
    told = figures.figures(RUN, traces)
    curve = told.summary.curve
    assert curve and curve.problems == 12
    page = overview.of_run(0, RUN, told)
    for point in curve.points:
        assert f"{point.tokens['completion'].mean:,.0f} tokens" in page
    on_front = [point for point in curve.points if point.pareto["completion"]]
    drawn = re.findall(r'<(?:circle|path)[^>]* class="(vote|deliberation)( outdone)?"', page)
    assert [bool(outdone) for _, outdone in drawn].count(False) == len(on_front)
    marked = [point for point in curve.points for cost in point.tokens if point.pareto[cost]]
    assert page.count('class="front"') == len(marked) > 0
    # An attempt reads 30 tokens and writes 40; so does a deliberation: five of four attempts' size.
    assert "takes the written tokens of 5.0 votes: to compare, a pool needs 5 attempts" in page
    unknown = [
        dataclasses.replace(
            trace, pool=[dataclasses.replace(one, completion_tokens=-1) for one in trace.pool]
        )
        for trace in traces
    ]
    told = figures.figures(RUN, unknown)
    page = overview.of_run(0, RUN, told)
    assert "No problem has all its tokens counted" in page


def test_the_parts_of_a_run_stand_in_tables_and_the_first_place_among_the_rates(traces):
    told = figures.figures(RUN, traces)
    page = overview.of_run(0, RUN, told)
    parts = page[page.index("Parts of the run") :].partition("</article>")[0]
    assert re.findall(r"<thead><tr><th[^>]*>([^<]*)", parts) == ["Stratum"]  # one kind is all
    for name, metrics in told.summary.by_stratum.items():
        (row,) = re.findall(f'<th scope="row">{name}.*?</tr>', parts)
        assert metrics.heavy_minus_vote and percent(metrics.mean_at_k.mean) in row
        assert points(metrics.heavy_minus_vote.mean) in row
    first = told.summary.places[0].over_expected.mean
    assert re.search(rf'<th scope="row">first place</th><td>{re.escape(points(first))}<', page)
    alone = [dataclasses.replace(trace, caches=[], deliberations=[]) for trace in traces]
    page = overview.of_run(0, RUN, figures.figures(RUN, alone))
    assert "Parts of the run" in page and "HM@" not in page and "first place" not in page


def test_figures_come_from_the_rows_and_prices_from_the_record(traces):
    own = summarize(traces)
    paid = {"thinking": {**dataclasses.asdict(own.usage["thinking"]), "cost_usd": 1.5}}
    told = figures.figures(recorded({"usage": paid, "missing": 3}), traces)
    assert told.summary.usage["thinking"].cost_usd == 1.5
    assert dataclasses.replace(told.summary, usage=own.usage) == own
    assert told.missing == 3 and told.verifiers == ["math@2"]
    assert figures.figures(recorded({"usage": "old"}), traces).summary == own
    again = figures.figures(RUN, reversed(traces))
    assert again.problems == told.problems != figures.figures(RUN, traces[1:]).problems
    assert sum(told.lengths[name].total() for name in figures.LENGTHS) == 12 * 6


def test_runs_side_by_side_say_whether_they_were_asked_and_judged_alike(traces):
    def side_by_side(*runs: list[Trace]) -> str:
        return overview.of_all([RUN] * len(runs), [figures.figures(RUN, run) for run in runs])

    def asked(**changes: str) -> list[Trace]:
        first = dataclasses.replace(traces[0].problem, **changes)
        return [dataclasses.replace(traces[0], problem=first), *traces[1:]]

    def judged(verifier: str) -> list[Trace]:
        def by_it(one):
            return dataclasses.replace(
                one, verdict=dataclasses.replace(one.verdict, verifier=verifier)
            )

        return [
            dataclasses.replace(
                trace,
                pool=list(map(by_it, trace.pool)),
                deliberations=list(map(by_it, trace.deliberations)),
            )
            for trace in traces
        ]

    alike = side_by_side(traces, traces)
    assert "over the same problems" in alike and "warning" not in alike
    assert "math@2" in alike and "thinker.brief.en@" in alike
    for other in (asked(verifier="exact"), asked(verifier_args='{"units": true}')):
        shown = side_by_side(traces, other)
        assert "different problems" in shown and shown.count("warning") == 1
    shown = side_by_side(traces, judged("math@1"))
    assert "over the same problems" in shown and "note warning" in shown
    assert "judged by different verifiers or versions" in shown and "math@1" in shown


def test_a_run_without_verdicts_is_refused(tmp_path):
    trace = Trace(problem=problem(), pool=[trajectory("5", label=None)])
    write_traces([trace], tmp_path / TRACES_FOLDER)
    with pytest.raises(ConfigError, match="has no verdicts") as caught:
        writing.write_report([tmp_path], tmp_path / "page.html")
    assert "generate --pools" in caught.value.fix
    assert not (tmp_path / "page.html").exists()


def failed_trace() -> Trace:
    """One whose requests all failed."""
    lost = {"label": None, "finish_reason": "error", "error": "no answer", "failure": "timeout"}
    unknown = {"prompt_tokens": -1, "completion_tokens": -1}
    return Trace(problem=problem(), pool=[trajectory("", **lost, **unknown)])


@pytest.mark.parametrize("trace", [failed_trace(), Trace(problem=problem(), pool=[])])
def test_a_run_of_which_everything_failed_is_told_to_go_on(trace, tmp_path):
    place = Workplace(tmp_path / "run")
    write_traces([trace], place.rows / LEAF_FOLDER)
    text = writing.write_report([tmp_path / "run"], tmp_path / "p.html").file.read_text("utf-8")
    assert "Unfinished. " in text and "In this report: 1 problem." in text
    write_traces([trace], tmp_path / "run" / TRACES_FOLDER)
    with pytest.raises(ConfigError, match="its 1 problem got no response") as caught:
        writing.write_report([tmp_path / "run"], tmp_path / "page.html")
    assert "command again" in caught.value.fix
    assert ("(failed requests: 1 timeout)" in str(caught.value)) == bool(trace.pool)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_quartiles_are_values_with_a_quarter_beyond(lengths):
    from collections import Counter

    three = plots.quartiles(Counter(lengths))
    assert three and list(three) == sorted(three) and set(three) <= set(lengths)
    assert sum(one < three[0] for one in lengths) <= len(lengths) / 4 + 1
    assert sum(one <= three[1] for one in lengths) >= len(lengths) / 2


def test_a_run_without_deliberations_or_tokens_has_a_page(tmp_path):
    pool = [trajectory("5", prompt_tokens=-1, completion_tokens=-1)]
    write_traces([Trace(problem=problem(), pool=pool)], tmp_path / TRACES_FOLDER)
    text = writing.write_report([tmp_path], tmp_path / "page.html").file.read_text("utf-8")
    assert "No problem was deliberated." in text and "No problem has all its tokens" in text
    assert "No server counted the tokens" in text and "Fewer than 30 problems" in text


# --- Where runs lie


def test_the_rows_that_a_step_failed_on_are_reported_too(run, traces, tmp_path):
    broken = dataclasses.replace(traces[0], status=f"{FAILED}verify: boom")
    write_traces(traces[1:], tmp_path / TRACES_FOLDER)
    write_traces([broken], tmp_path / REJECTS_FOLDER)
    (source,) = sources.find(tmp_path)
    told = figures.figures(RUN, writing.read_files(source.files))
    assert told.summary.problems == 12 and source.unfinished == ""


def test_an_evaluation_is_its_runs(run, tmp_path):
    for side in ("before", "after"):
        (tmp_path / "e" / side).parent.mkdir(exist_ok=True)
        (tmp_path / "e" / side).symlink_to(run)
    (tmp_path / "e" / COMPARISON).write_text("{}")
    assert [source.name for source in sources.find(tmp_path / "e")] == ["e / before", "e / after"]
    told = writing.write_report([tmp_path / "e"], tmp_path / "page.html")
    text = told.file.read_text("utf-8")
    assert "All runs are over the same problems" in text and "index-1" in text
    assert "evaluation.json" in text and "evaluate again" in text  # it holds no comparison


def test_a_killed_run_and_one_in_progress_are_reported_as_far_as_they_got(traces, tmp_path):
    place = Workplace(tmp_path / "run")
    with place.claimed():
        with pytest.raises(ConfigError, match="is in progress and has no row"):
            sources.find(tmp_path / "run")
        write_traces(traces[:5], place.rows / LEAF_FOLDER)
        (source,) = sources.find(tmp_path / "run")
        assert "is in progress" in source.unfinished
        text = writing.write_report([tmp_path / "run"], tmp_path / "p.html").file.read_text("utf-8")
        assert "Unfinished. " in text and "In this report: 5 problems." in text
        leaf = [path.read_bytes() for path in (place.rows / LEAF_FOLDER).iterdir()]
    (place.rows / LEAF_FOLDER).mkdir(parents=True)  # as a kill would have left it
    (place.rows / LEAF_FOLDER / "00000.parquet").write_bytes(leaf[0])
    (source,) = sources.find(tmp_path / "run")
    assert "was killed" in source.unfinished


def test_an_evaluation_in_progress_shows_the_runs_that_have_rows(traces, tmp_path):
    place = Workplace(tmp_path / "e")
    with place.claimed():
        write_traces(traces, place.new / "before" / TRACES_FOLDER)
        write_traces(traces[:3], Workplace(place.new / "after").rows / LEAF_FOLDER)
        before, after = sources.find(tmp_path / "e")
    assert (before.name, after.name) == ("e / before", "e / after")
    assert "This run of it is finished" in before.unfinished
    assert "The whole of it is in progress" in after.unfinished


def test_a_run_that_was_stopped_says_what_is_missing(run, tmp_path):
    (tmp_path / TRACES_FOLDER).symlink_to(run / TRACES_FOLDER)
    (tmp_path / "summary.json").write_text(json.dumps({"missing": 7}))
    (source,) = sources.find(tmp_path)
    assert source.unfinished == "7 problems have no row: the run was stopped."


def test_what_is_no_run_is_refused_with_what_is_missing(tmp_path):
    with pytest.raises(ConfigError, match=r"no traces/\*\.parquet, and of an evaluation no"):
        sources.find(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        sources.find(tmp_path / "gone")
    (tmp_path / TRACES_FOLDER).mkdir()
    with pytest.raises(ConfigError, match=r"no traces/\*\.parquet"):
        sources.find(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    write_traces([], tmp_path / TRACES_FOLDER)
    with pytest.raises(ConfigError, match="is no JSON"):
        sources.find(tmp_path)


def test_runs_of_one_name_are_told_apart(run, tmp_path):
    written = writing.write_report([run, run], tmp_path / "page.html")
    assert [source.name for source in written.runs] == ["first", "first (2)"]
