"""The page of a report in a real browser, as a person uses it."""

import dataclasses
import functools
import json
import shutil
from pathlib import Path

import pytest
import runs
from browsing import PHONE, visiting
from generations import altered, problem, trajectory, unboxed, with_tool
from marked import eventually

from heavydistill.config.versioned import write_versioned
from heavydistill.experiments.comparison import side_of
from heavydistill.metrics.comparison import COMPARISON, compare_sides
from heavydistill.report.page import writer as chunks
from heavydistill.report.page.writer import whole, write_report
from heavydistill.schema import Claim, Trace
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces

PROBLEMS = 60


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_run(tmp_path_factory.mktemp("runs") / "first", PROBLEMS, k=4, d=2)


@pytest.fixture(scope="module")
def report(run: Path) -> Path:
    """Of the run, in chunks of a few traces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "_CHUNK_CHARACTERS", 20_000)
        return write_report([run], run.with_suffix(".html")).file


def test_the_figures_are_there_before_any_trace_is_unpacked(browser, report, traces):
    with visiting(browser, report) as visit:
        assert f"{PROBLEMS} problems" in visit.page.inner_text("#summary-0")
        right = sum(t.is_correct for trace in traces for t in trace.pool) / (4 * PROBLEMS)
        row = visit.page.locator("tr", has_text="share of trajectories that are right")
        assert f"{100 * right:.1f}%" in row.inner_text()
        assert visit.page.locator("svg.plot title").count() >= 6
        assert visit.page.evaluate("window.unpacked") == 0


def test_filters_show_what_fits_all_of_them(browser, report, traces):
    with visiting(browser, report) as visit:
        page = visit.page
        page.click("#show-traces")
        assert visit.counted == f"{PROBLEMS} problems"
        ties = [trace for trace in traces if trace.stratum == "tie"]
        page.select_option("#filter-stratum", "tie")
        assert visit.counted == f"{len(ties)} of {PROBLEMS} problems"
        assert visit.listed[0] == ties[0].problem.id
        rescued = [trace for trace in ties if trace.outcome == "rescued"]
        page.select_option("#filter-outcome", "rescued")
        assert visit.counted == f"{len(rescued)} of {PROBLEMS} problems"
        page.click("#clear")
        assert visit.counted == f"{PROBLEMS} problems"
        wrong = [t for t in traces if any(not d.is_correct for d in t.deliberations)]
        page.select_option("#filter-verdict", "deliberations incorrect")
        assert visit.counted == f"{len(wrong)} of {PROBLEMS} problems"
        assert page.locator("#filter-verifier option").all_inner_texts() == ["any", "math (60)"]
        assert page.is_hidden("#filter-family")


def test_problems_are_sorted_and_filtered_by_reason_and_claims(browser, written, traces):
    claim = Claim(attempt=1, says="wrong", quote="Number 1 is wrong.")
    told = [
        dataclasses.replace(trace, deliberations=[dataclasses.replace(one, claims=[claim])])
        for trace, one in ((trace, trace.deliberations[0]) for trace in traces[:12])
    ]
    rights = [{t.id: t.is_correct for t in e.pool}[e.caches[0].items[0].generation] for e in told]
    pool = [dataclasses.replace(one, completion_tokens=9_000) for one in told[5].pool]
    cut = dataclasses.replace(pool[0], finish_reason="length")
    told[5] = dataclasses.replace(told[5], pool=[cut, *pool[1:]])
    with visiting(browser, written(*told)) as visit:
        page = visit.page
        page.click("#show-traces")
        page.select_option("#filter-claims", "false")
        assert visit.counted == f"{sum(rights)} of 12 problems" and 0 < sum(rights) < 12
        page.select_option("#filter-claims", "")
        page.select_option("#filter-reason", "pool truncated")
        assert visit.listed == [told[5].problem.id]
        chosen = page.locator("#filter-reason option:checked").inner_text()
        assert chosen == "a trajectory: cut off at the token limit (1)"
        page.click("#clear")
        page.select_option("#sort", "written")
        assert visit.listed[0] == told[5].problem.id
        assert "36,040 tokens" in page.inner_text("#row-0")
        page.select_option("#sort", "pool")
        right = [sum(one.is_correct for one in trace.pool) for trace in told]
        page.click("#row-0")
        visit.shows(told[right.index(min(right))].problem.id)
        page.select_option("#sort", "")
        assert visit.listed[0] == told[0].problem.id


def test_kinds_of_problems_have_a_filter_and_a_table_that_scrolls(browser, written, traces):
    of_kinds = []
    for number, trace in enumerate(traces):
        args = json.dumps({"family": "chain_sum" if number % 3 else "leg_counting"})
        of_kinds.append(altered(trace, asked={"verifier_args": args}))
    with visiting(browser, written(*of_kinds), size=PHONE) as visit:
        page = visit.page
        table = page.locator("table", has_text="chain_sum")
        table.wait_for()
        assert visit.fits()
        frame = page.locator(".scroll.wide.more", has=table)
        assert frame.get_attribute("tabindex") == "0"  # keys scroll it
        frame.evaluate("frame => frame.scrollTo(frame.scrollWidth, 0)")
        page.locator(".scroll.wide:not(.more)", has=table).wait_for()
        page.click("#show-traces")
        choices = page.locator("#filter-family option").all_inner_texts()
        assert choices == ["any", "chain_sum (40)", "leg_counting (20)"]
        page.select_option("#filter-family", "leg_counting")
        assert visit.counted == f"20 of {PROBLEMS} problems"
        assert visit.listed[:2] == ["sum:0", "sum:3"] and visit.fits()


def test_the_keys_walk_through_problems_and_the_address_keeps_the_place(browser, report, traces):
    ids = [trace.problem.id for trace in traces]
    with visiting(browser, report) as visit:
        visit.press("v", "j", "j")
        visit.shows(ids[1])
        visit.press("k")
        visit.shows(ids[0])
        visit.page.focus("#list")
        visit.press("End")
        visit.shows(ids[-1])
        assert visit.page.locator('.row[aria-selected="true"]').inner_text().startswith(ids[-1])
        assert visit.page.evaluate("location.hash") == f"#traces/0/{PROBLEMS - 1}"
        visit.page.go_back()
        visit.shows(ids[0])
        visit.press("c")
        assert visit.page.evaluate("document.activeElement.id") == "cache-1"
        visit.press("?")
        visit.says("#keys", "next problem")
        visit.press("Escape", "s")
        visit.page.wait_for_selector("#summary-0")
        visit.press("/")
        assert visit.page.evaluate("document.activeElement.id") == "query"


def test_a_trace_shows_attempts_cache_and_what_deliberations_use(browser, report, traces):
    trace = traces[1]
    (cache,) = trace.caches
    with visiting(browser, report) as visit:
        page = visit.page
        page.click("#show-traces")
        page.click("#row-1")
        visit.shows(trace.problem.id)
        # What is out of sight has no layout, and so no text as it is seen.
        cards = page.locator("#trajectories .response")
        assert cards.count() == 4
        for number, one in enumerate(trace.pool):
            text = cards.nth(number).text_content()
            place = [item.generation for item in cache.items].index(one.id)
            item = cache.items[place]
            assert one.verdict and one.verdict.label in text and str(one.extracted) in text
            assert f"attempt {place + 1}" in text and f"{item.tokens_after} tokens" in text
        blocks = page.locator("#cache-1 .exact").evaluate_all("all => all.map(b => b.textContent)")
        assert "".join(blocks) == cache.prompt
        names = {one.id: f"T{one.index + 1}" for one in trace.pool}
        order = page.locator("#cache-1 .attempt h5 a").all_text_contents()
        assert order == [names[item.generation] for item in cache.items]
        used = whole(trace)["deliberations"][0]["uses"]
        same, named = (", ".join(names[id] for id in used[how]) for how in ("same", "named"))
        uses = page.locator("#deliberations-1 .response dd").nth(3).text_content()
        assert uses.startswith(f"same answer as {same}" if same else "no attempt")
        assert uses.endswith(f"names {named}")


def test_claims_are_marked_beside_their_attempts(browser, written, traces):
    trace = next(each for each in traces if each.stratum == "minority-right")
    (cache,) = trace.caches
    answer = trace.deliberations[0]
    made = [Claim(attempt=n, says="wrong", quote=f"Number {n} is wrong.") for n in (1, 2, 3, 4)]
    claiming = dataclasses.replace(answer, claims=made)
    rights = [{t.id: t.is_correct for t in trace.pool}[each.generation] for each in cache.items]
    with visiting(browser, written(dataclasses.replace(trace, deliberations=[claiming]))) as visit:
        page = visit.page
        page.click("#show-traces")
        page.click("#row-0")
        words = ["false" if is_right else "true" for is_right in rights]
        facts = page.locator("#deliberations-1 dd", has_text="wrong:").first
        assert [f"wrong: {word}" in facts.text_content() for word in words] == [True] * 4
        assert facts.locator("span[title='Number 2 is wrong.']").count() == 1
        notes = page.locator("#cache-1 .attempt p.note").all_text_contents()
        assert notes == [f"D1 wrong: {word}" for word in words]
        same = {t.id: t.extracted == answer.extracted for t in trace.pool}
        denied = sum(same[each.generation] for each in cache.items)
        contradicts = page.locator("#deliberations-1 dd", has_text="its own answer").locator("a")
        assert contradicts.count() == denied > 0


def test_a_response_without_a_final_answer_is_not_shown_as_a_wrong_one(browser, written):
    wrong = trajectory(r"\boxed{6}", id="wrong", label="incorrect")
    page = written(Trace(problem=problem(), pool=[wrong, unboxed(id="none")], stratum="all-wrong"))
    with visiting(browser, page) as visit:
        visit.page.click("#show-traces")
        visit.page.select_option("#filter-verdict", "pool unanswered")
        assert visit.counted == "1 problem"
        visit.page.click("#row-0")
        visit.shows("p")
        chips = visit.page.locator("#trajectories .response header .verdict").all_inner_texts()
        assert [chip.split(" ", 1)[1] for chip in chips] == ["incorrect", "no final answer"]


@pytest.mark.parametrize("opened", [False, True], ids=["beginnings", "whole texts"])
def test_keys_lead_to_their_part_of_a_long_trace(browser, written, opened):
    """Also where the heights of what stands above it were guesses until then."""
    from_top = """(part) => document.querySelector(`#${part} h3`).getBoundingClientRect().top
      - document.getElementById("trace").getBoundingClientRect().top"""
    with visiting(browser, written(*runs.traces(1, k=16, d=16, words=2000))) as visit:
        visit.opens("sum:0")
        visit.press(*["e"] * opened)
        for key, part in (("a", "deliberations-1"), ("t", "trajectories"), ("c", "cache-1")):
            visit.press(key)
            visit.page.wait_for_timeout(300)  # until the layout of what came in sight stands
            there = functools.partial(visit.page.evaluate, from_top, part)
            assert eventually(lambda at=there: abs(at()) < 40, 60), key
            visit.press("p")


def test_chunks_are_unpacked_when_they_are_looked_at_and_few_are_kept(browser, report):
    with visiting(browser, report) as visit:
        visit.opens("sum:0")
        assert visit.page.evaluate("window.unpacked") == 1
        visit.press("j")
        visit.shows("sum:1")  # beside it
        assert visit.page.evaluate("window.unpacked") == 1
        places = visit.page.evaluate(
            "JSON.parse(document.getElementById('index-0').textContent).entries.map(e => e.at[0])"
        )
        assert places[-1] >= 5
        for chunk in range(1, 6):
            visit.page.evaluate(f"location.hash = 'traces/0/{places.index(chunk)}'")
            visit.shows(f"sum:{places.index(chunk)}")
        visit.page.evaluate("location.hash = 'traces/0/0'")
        visit.shows("sum:0")
        assert visit.page.evaluate("window.unpacked") == 7  # the first one was let go


def test_search_finds_what_stands_deep_in_a_text(browser, report, traces):
    wanted = traces[41]
    needle = wanted.deliberations[1].reasoning.rpartition("differ. ")[2][:40]
    fits = [t.problem.id for t in traces if needle in repr(t.pool) + repr(t.deliberations)]
    with visiting(browser, report) as visit:
        visit.press("/")
        visit.page.keyboard.type(needle.upper())
        visit.press("Enter")
        visit.says("#searched", "60 of 60 searched")
        assert visit.listed == fits == [wanted.problem.id]
        visit.press("Escape", "j")
        visit.shows(wanted.problem.id)
        assert visit.page.evaluate("CSS.highlights.get('found').size") >= 1
        visit.page.click("#clear")
        assert visit.counted == f"{PROBLEMS} problems"


def test_the_turns_of_a_response_are_shown_in_their_order_and_searched(browser, written):
    result = "The tool returned\t\\frac12"
    other = Trace(problem=problem(id="q"), pool=[trajectory("It is 5.", "Easy.")])
    shown = Trace(problem=problem(), pool=[with_tool(result)])
    with visiting(browser, written(other, shown)) as visit:
        visit.press("/")
        visit.page.keyboard.type("\\frac12")
        visit.press("Enter")
        visit.says("#searched", "2 of 2 searched")
        assert visit.listed == ["p"]
        visit.press("Escape", "j")
        visit.shows("p")
        blocks = visit.page.locator("article.response .block")
        assert blocks.locator("h5").all_text_contents() == [
            *("reasoning", "text", "call of python"),
            *("result of python", "reasoning", "answer"),
        ]
        assert "2 + 3" in blocks.nth(2).inner_text()


@pytest.mark.parametrize("button", ["stop", "clear"])
def test_a_search_can_be_stopped_or_cleared_before_its_end(browser, report, button):
    with visiting(browser, report) as visit:
        visit.press("/")
        visit.page.evaluate(
            """(button) => {
              const query = document.getElementById("query");
              query.value = "carry";
              query.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
              document.getElementById(button).click();
            }""",
            button,
        )
        if button == "stop":
            visit.says("#searched", "Stopped. ")
            searched = visit.page.inner_text("#searched")
            assert " of 60 searched" in searched and "60 of 60" not in searched
            assert visit.page.is_hidden("#stop")
        else:
            visit.page.wait_for_timeout(500)  # longer than the chunk that was unpacked takes
            assert visit.page.is_hidden("#searched") and visit.counted == f"{PROBLEMS} problems"


def test_a_trace_that_was_left_does_not_come_back(browser, report):
    with visiting(browser, report) as visit:
        visit.page.evaluate("location.hash = 'traces/0/3'")
        visit.shows("sum:3")
        visit.page.evaluate(
            """() => {
              location.hash = "traces/0/40";
              setTimeout(() => { location.hash = "traces/0"; }, 0);
            }"""
        )
        visit.says("#trace", "Choose a problem")
        visit.page.wait_for_timeout(500)
        assert "Choose a problem" in visit.page.inner_text("#trace")


def test_a_phone_shows_list_or_trace_and_nothing_is_too_wide(browser, report):
    with visiting(browser, report, size=PHONE) as visit:
        page = visit.page
        for button, hidden in (
            ("#show-traces", "#trace"),
            ("#row-2", "#list"),
            (".back", "#trace"),
        ):
            assert visit.fits()
            page.click(button)
            page.wait_for_selector(hidden, state="hidden")
        assert visit.fits() and page.is_visible("#list")


def test_dark_and_light_are_the_systems_until_they_are_chosen(browser, report):
    back = "getComputedStyle(document.body).backgroundColor"
    with visiting(browser, report) as visit:
        light = visit.page.evaluate(back)
        visit.press("d")
        dark = visit.page.evaluate(back)
        assert light != dark and visit.page.inner_text("#theme") == "Theme: dark"
    with visiting(browser, report, scheme="dark") as visit:
        assert visit.page.evaluate(back) == dark
        visit.press("d", "d")
        assert visit.page.evaluate(back) == light


def test_several_runs_are_chosen_and_lead_to_the_same_problem(browser, run, tmp_path):
    second = runs.write_run(tmp_path / "second", 5, k=4, d=0)
    file = write_report([run, second], tmp_path / "both.html").file
    with visiting(browser, file) as visit:
        page = visit.page
        assert "different problems" in page.inner_text(".runs")
        page.select_option("#run", "1")
        page.wait_for_selector("#summary-1")
        assert page.is_hidden("#summary-0")
        visit.opens("sum:0")
        assert visit.counted == "5 problems"
        page.click("#problem .links a")
        visit.says("#counted", f"{PROBLEMS} problems")
        assert page.input_value("#run") == "0"


@pytest.fixture
def evaluated(run: Path, tmp_path: Path) -> Path:
    """The page of an evaluation whose runs have other orders of the problems."""
    traces = list(read_traces(run))[:6]
    after = [altered(trace, "deliberations", judged={"label": "correct"}) for trace in traces]
    for name, rows in (("before", traces), ("after", after[::-1])):
        write_traces(rows, tmp_path / "ev" / name / TRACES_FOLDER)
        shutil.copy(run / "summary.json", tmp_path / "ev" / name)
    sides = [side_of(tmp_path / "ev" / name, name) for name in ("after", "before")]
    write_versioned(compare_sides(*sides, {}), tmp_path / "ev" / COMPARISON)
    return write_report([tmp_path / "ev"], tmp_path / "ev.html").file


def test_an_evaluation_opens_after_and_a_problem_is_seen_in_both_runs(browser, evaluated):
    with visiting(browser, evaluated) as visit:
        page = visit.page
        assert page.is_visible("#summary-1") and page.is_hidden("#summary-0")
        assert page.locator(".each [aria-current]").inner_text() == "ev / after"
        page.click(".each a >> nth=0")
        page.wait_for_selector("#summary-0")
        assert page.is_hidden("#summary-1")
        visit.press("r")
        visit.opens("sum:5")
        visit.press("r")
        visit.says("#trace .links a", "ev / after")
        visit.shows("sum:5")  # the same problem, and not the list
        assert page.evaluate("location.hash") == "#traces/0/5"
        visit.press("b")
        page.wait_for_selector(".sides")
        assert page.locator(".side h3 >> visible=true").all_inner_texts()[0].startswith("ev / bef")
        ids = page.locator("#trace [id]").evaluate_all("all => all.map((each) => each.id)")
        assert len(ids) == len(set(ids)) and "deliberations-1-2" in ids
        left, right = (
            page.locator(f"#deliberations-1{side}").bounding_box() for side in ("", "-2")
        )
        assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"]
        chips = page.locator("#deliberations-1-2 header .verdict").all_text_contents()
        assert [chip.split()[-1] for chip in chips] == ["correct"] * 2
        page.locator(".glance a.jump >> nth=-1").click()  # of the right side
        assert page.evaluate("document.activeElement.id").startswith("r-2:")
        visit.press("k")  # the previous problem keeps the other run beside it
        visit.shows("sum:4")
        page.wait_for_selector(".sides")
        assert page.evaluate("location.hash") == "#traces/0/4/1" and visit.fits()
        visit.press("b")
        page.wait_for_selector(".sides", state="detached")
        page.click("a.beside")
        page.wait_for_selector(".sides")


def test_no_column_of_a_glance_is_cut_on_a_phone(browser, evaluated):
    with visiting(browser, evaluated, size=PHONE) as visit:
        visit.opens("sum:5")
        assert visit.page.locator(".glance .scroll").count() == 2
        assert visit.page.locator(".glance .scroll.wide").count() == 0
        heads = visit.page.locator(".glance thead th:last-child").all_inner_texts()
        assert heads == ["Place in the cache", "Attempts it uses"]
        visit.press("b")
        visit.page.wait_for_selector(".sides")
        assert visit.fits()


def test_a_file_that_is_cut_off_says_so(browser, report, tmp_path):
    cut = tmp_path / "cut.html"
    text = report.read_text(encoding="utf-8")
    cut.write_text(text[: text.index('id="chunk-0-2"')], encoding="utf-8")
    with visiting(browser, cut) as visit:
        visit.opens("sum:0")
        visit.page.focus("#list")
        visit.press("End")
        visit.shows(f"sum:{PROBLEMS - 1}")
        assert "incomplete" in visit.page.inner_text("#trace .banner")


# The longest run of a text in which no line can be broken, over the elements of a page.
LONGEST_RUN = """root => {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const runs = [];
  while (walker.nextNode()) runs.push(...walker.currentNode.data.split(/[ \\t\\n]/));
  return runs.reduce((longest, run) => Math.max(longest, run.length), 0);
}"""
COPIED = """element => {
  getSelection().selectAllChildren(element);
  return getSelection().toString();
}"""


def test_an_unbroken_text_can_be_broken_now_and_then_and_is_copied_as_it_is(browser, written):
    letters = "".join(map(chr, range(33, 127)))
    texts = {
        "one character": "x" * 1_000_000,
        "base64": (letters.replace("$", "").replace("\\", "") * 12_000)[:1_000_000],
        "after words": "so it is\n" + "é\U0001f600" * 100_000,
    }
    pool = [
        trajectory("It is 5.", text, index=index, id=f"t{index}")
        for index, text in enumerate(texts.values())
    ]
    trace = Trace(problem=problem("$" * 1_000_000), pool=pool, stratum="all-right")
    with visiting(browser, written(trace)) as visit:
        visit.press("v", "j")
        visit.page.wait_for_selector("#trace .problem")
        assert visit.page.locator("#trace").evaluate(LONGEST_RUN) < 4000  # the beginnings
        for index, text in enumerate(texts.values()):
            block = visit.page.locator(f'[id="r:t{index}"] .block').first
            block.get_by_role("button", name="Show all").click()
            body = block.locator(".text")
            assert body.evaluate("element => element.textContent") == text
            assert body.evaluate(COPIED) == text
        visit.page.locator("#problem").get_by_role("button", name="Show all").click()
        assert visit.page.locator("#trace").evaluate(LONGEST_RUN) <= 4000 * 2  # code units
