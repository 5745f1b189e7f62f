"""What is in the file of a report: its chunks, their entries, and our markup."""

import base64
import dataclasses
import hashlib
import html
import io
import json
import re
import zlib
from pathlib import Path

import messages
import pytest
from generations import altered, deliberation, problem, trajectory, unboxed
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.report.page import writer
from heavydistill.report.page.html import tag
from heavydistill.report.page.runs import ReportedRun, figures, name_of
from heavydistill.report.page.sections import of_all, of_run
from heavydistill.report.page.writer import STATES, entry, whole
from heavydistill.schema import FAILED, Trace
from heavydistill.store.traces import TRACES_FOLDER, write_traces

WEB = Path(writer.__file__).parent / "web"
CHUNK = re.compile(
    r'<script type="application/octet-stream" id="chunk-(\d+)-(\d+)">([^<]*)</script>'
)


def unpacked(text: str) -> list[list[dict]]:
    """The traces of each chunk, as a browser unpacks them."""
    packed = (base64.b64decode(found[3]) for found in CHUNK.finditer(text))
    return [json.loads(zlib.decompress(one, wbits=-zlib.MAX_WBITS)) for one in packed]


# --- The file


def test_the_policy_allows_what_is_in_the_file_which_is_the_same_again(run, tmp_path):
    text = writer.write_report([run], tmp_path / "page.html").file.read_text(encoding="utf-8")
    again = writer.write_report([run], tmp_path / "again.html").file
    assert again.read_text(encoding="utf-8") == text
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = html.unescape(found[1])
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
    assert {f"{name}.js" for name in writer.SCRIPTS} == {path.name for path in WEB.glob("*.js")}
    ours = writer.script()
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "</"):
        assert way not in ours
    assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|import\(", ours)


def test_the_file_appears_whole_or_not_at_all(run, tmp_path, monkeypatch):
    out = tmp_path / "page.html"
    before = writer.write_report([run], out).file.read_bytes()
    real = writer.Chunks.add

    def breaking(self: writer.Chunks, row: dict) -> tuple[int, int]:
        if row["problem"]["id"] == "sum:7":
            raise KeyboardInterrupt
        return real(self, row)

    monkeypatch.setattr(writer.Chunks, "add", breaking)
    with pytest.raises(KeyboardInterrupt):
        writer.write_report([run], out)
    assert out.read_bytes() == before
    monkeypatch.setattr(writer.Chunks, "add", real)
    monkeypatch.setattr(writer, "_write", lambda *all: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(Exception, match="cannot be written"):
        writer.write_report([run], out)
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_file_that_is_no_report_is_not_replaced(run, tmp_path):
    thesis = tmp_path / "thesis.html"
    thesis.write_text("<h1>Ten years of work</h1>")
    for out in (thesis, tmp_path):
        with messages.raises("no_report"):
            writer.write_report([run], out)
    assert thesis.read_text() == "<h1>Ten years of work</h1>"


# --- Chunks, entries, markup


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=40)), max_size=12))
def test_chunks_hold_any_text_and_none_ends_its_element(rows):
    file = io.BytesIO()
    packing = writer.Chunks(file, 0)
    places = [packing.add(row) for row in rows]
    packing.close()
    text = file.getvalue().decode()
    parts = unpacked(text)
    assert [parts[chunk][place] for chunk, place in places] == rows
    assert packing.count == len(parts) == text.count("<script") == text.count("</script")


@given(st.text())
def test_no_text_leaves_its_json_element_or_its_tag(text):
    element = writer.json_element("index-0", {"text": text})
    assert element.count("<") == 2
    inside = element.partition(">")[2].rpartition("</script>")[0]
    assert json.loads(inside) == {"text": text}
    shown = tag("p", text, title=text)
    assert shown.count("<") == 2 and shown.count(">") == 2
    assert shown.count('"') == 2


def test_every_text_of_a_section_is_escaped(traces):
    evil = """<b>"'&{{ 7 * 7 }}"""
    source = ReportedRun(name=evil, files=[], unfinished=evil, config=evil)
    args = {"verifier": evil, "verifier_args": json.dumps({"family": evil})}
    hostile = [
        altered(trace, "pool", model=evil, judged={"verifier": evil}, asked=args)
        for trace in traces[:6]
    ]
    told = figures(source, [*hostile, *traces[6:]])
    other = dataclasses.replace(source, name=f"{evil} too")
    shown = [of_run(0, source, told), *of_all([source, other], [told, told])]
    for section, least in zip(shown, (6, 4), strict=True):
        assert "<b" not in section and "49" not in re.sub(r"[\d.]+", "", section)
        assert html.unescape(re.sub("<[^>]*>", "", section)).count(evil) >= least


def test_many_responses_without_a_final_answer_are_told_above_the_figures(run, tmp_path):
    page = writer.write_report([run], tmp_path / "few.html").file.read_text(encoding="utf-8")
    assert not messages.is_in(page, "no_final_answer")
    trace = Trace(problem=problem(), pool=[trajectory("5"), unboxed()], stratum="tie")
    write_traces([trace], tmp_path / "run" / TRACES_FOLDER)
    page = writer.write_report([tmp_path / "run"], tmp_path / "many.html").file.read_text("utf-8")
    assert messages.is_in(page, "no_final_answer", share="50.0%", of="trajectories")
    assert "<td>1</td>" in page and "Unanswered trajectories: 1 no_answer" in page


def entry_of(trace: Trace) -> dict:
    return entry(trace, whole(trace))


def test_an_entry_counts_what_is_said_of_each_response():
    pool = [
        trajectory("5", id="a"),
        trajectory("6", id="b", label="incorrect"),
        trajectory("7", id="c", label=None, finish_reason="length"),
        trajectory("", id="d", label=None, finish_reason="error", error="x", failure="timeout"),
        trajectory("8", id="e", label="undecided", finish_reason="length"),
        unboxed(),
    ]
    trace = Trace(problem=problem("a  b\n" * 400), pool=pool, status=f"{FAILED}step: boom")
    told = entry_of(trace)
    named = ("correct", "incorrect", "unanswered", "undecided", "unjudged", "failed")
    said = dict(zip(STATES, told["pool"], strict=True))
    assert said == dict.fromkeys(named, 1)
    reasons = ["no_answer", "said", "timeout", "truncated"]
    assert told["reasons"] == {"pool": reasons, "deliberations": []}
    known = [max(one.completion_tokens, 0) for one in pool]
    assert told["written"] == sum(known) > 0
    unknown = [dataclasses.replace(one, completion_tokens=-1) for one in pool]
    assert entry_of(dataclasses.replace(trace, pool=unknown))["written"] == -1
    assert told["deliberations"] == [0] * len(STATES)
    assert told["status"] == "failed" and len(told["text"]) <= 640
    assert (told["verifier"], told["family"]) == ("math", "")
    assert entry_of(Trace(problem=problem(args={"family": "sums"}), pool=pool))["family"] == "sums"


def test_problems_are_listed_from_where_they_differ():
    task = "State the final answer to the following arithmetic problem: "
    sums, legs = [f"{task}{n} + 1 =" for n in range(20)], ["How many legs have two cats?"]
    assert writer.differing(sums + legs) == [f"\u2026 {n} + 1 =" for n in range(20)] + legs
    assert writer.differing(sums[:1]) == sums[:1] and writer.differing([]) == []
    # What is long in common with one other problem alone, of many, tells it from the others.
    assert writer.differing([task * 5, task * 5, *map(str, range(40))])[0] == (task * 5)[:160]


def test_a_deliberation_without_an_answer_or_a_cache_uses_nothing_and_other_prompts_stay(traces):
    cache = dataclasses.replace(traces[0].caches[0], prompt="Other words.")
    (told,) = whole(dataclasses.replace(traces[0], caches=[cache]))["caches"]
    assert (told["blocks"], told["prompt"]) == (None, "Other words.")
    lost = deliberation("no", label=None)
    (told,) = whole(Trace(problem=problem(), pool=[trajectory("5")], deliberations=[lost]))[
        "deliberations"
    ]
    assert told["uses"] == {"same": [], "named": [], "several": False}


@pytest.mark.parametrize(
    ("reference", "args", "compared"),
    [
        ("She sells 9 of 452 eggs.\n#### 443", {"marker": "####"}, "443"),
        ("So it is \\boxed{\\frac{1}{2}}.", {}, "\\frac{1}{2}"),
        ("443", {"marker": "####"}, ""),
        ("two\nlines", {}, ""),  # whose answer no marker names
        ("x", {"marker": 5}, ""),
    ],
)
def test_the_part_of_a_long_reference_that_is_compared_is_named(reference, args, compared):
    asked = problem(args=args, reference=reference)
    shown = whole(Trace(problem=asked, pool=[trajectory("443")]))["problem"]
    assert shown["compared"] == compared and shown["reference"] == reference
    other = dataclasses.replace(asked, verifier="code")
    assert whole(Trace(problem=other, pool=[]))["problem"]["compared"] == ""


def test_no_folder_of_a_machine_is_in_the_page(traces):
    model = "/home/ann/models/big"
    caches = [dataclasses.replace(traces[0].caches[0], reader=model)]
    row = whole(dataclasses.replace(altered(traces[0], "pool", model=model), caches=caches))
    assert {one["model"] for one in row["pool"]} == {row["caches"][0]["reader"]} == {"big"}
    assert "/home/" not in json.dumps(row)
    assert name_of("Qwen/Qwen3-4B") == "Qwen/Qwen3-4B"
