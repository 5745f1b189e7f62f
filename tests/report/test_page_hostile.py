"""Any text of a model is shown as text by the page of a report, in a real browser."""

import dataclasses

import pytest
from browsing import PHONE, visiting
from generations import deliberation, problem, trajectory

from heavydistill.heavy import voting
from heavydistill.report.page.writer import write_report
from heavydistill.schema import Trace
from heavydistill.store.traces import TRACES_FOLDER, write_traces

EVIL = """<script>alert('text')</script><img src=x onerror="alert('image')"></script>
<!--<script> javascript:alert(1) [click](javascript:alert(2)) {{chunks}} &lt;b&gt;
<svg onload=alert(1)> $\\href{javascript:alert(3)}{x}$ \\(\\pmb{z} + \\frac{1}{2}\\)
$\\htmlStyle{background:url(http://a.test)}{y}$ $\\includegraphics{http://b.test/c.png}$
$\\def\\a{\\a\\a}\\a$ $\\rule{9999em}{9999em}$ \\[\\undefined{\\]
\u202eright to left\u202c \u0000\u0007\u001b[31m \U0001f600 \u05d0\u05d1 ]]> --> "quotes" `ticks`
"""
# Whether what is seen in the middle of an element belongs to it.
UNCOVERED = """element => {
  element.scrollIntoView({ block: "center" });
  const { left, top, width, height } = element.getBoundingClientRect();
  const seen = document.elementFromPoint(left + Math.min(width, 40) / 2, top + height / 2);
  return element.contains(seen);
}"""


def evil_trace() -> Trace:
    pool = [
        trajectory(f"{EVIL} \\boxed{{5}}", EVIL, index=0, id="keys"),
        trajectory("x" * 300_000, EVIL * 50, index=1, id="index-1", label="incorrect"),
    ]
    told = [deliberation(EVIL, "Attempt 1 and attempt 2 differ.", id="chunk-1-0")]
    asked = problem(EVIL, id='p" onclick="alert(9)', reference=EVIL, source=EVIL)
    return Trace(
        problem=asked,
        pool=pool,
        deliberations=told,
        stratum=voting.stratum(pool),
        outcome=voting.outcome(pool, told),
    )


@pytest.mark.parametrize(
    "text", ['say "x\\y"', "back\\slash", "a/b (c) [d] $e ^f |g {h} i.j*", "ÄÖ ñ"]
)
def test_search_takes_any_text_as_it_is(browser, written, text):
    odd = dataclasses.replace(evil_trace(), problem=problem(f"They {text} twice"))
    other = dataclasses.replace(evil_trace(), problem=problem("Nothing", id="other"))
    with visiting(browser, written(odd, other)) as visit:
        visit.press("/")
        visit.page.fill("#query", text.swapcase())
        visit.press("Enter")
        visit.says("#searched", "1 found in 2 of 2 searched")
        assert visit.listed == ["p"]


def test_a_hostile_trace_stays_text(browser, written):
    file = written(evil_trace())
    with visiting(browser, file) as visit:
        page = visit.page
        visit.press("v", "j")
        page.wait_for_selector("#trace .problem")
        visit.press("e")
        page.wait_for_timeout(300)
        for name in ("script", "img", "svg", "iframe", "[onclick]", "[onerror]", "[style]"):
            assert page.locator(f"#trace {name}").count() == 0, name
        addresses = page.locator("#trace a").evaluate_all("all => all.map(a => a.href)")
        assert all(address.endswith("#") for address in addresses)
        assert page.locator("#trace math [href], #trace math [style]").count() == 0
        assert page.locator("#trace math mfrac").count() >= 1
        for part in ("#problem h2", ".response .verdict", ".response dd", "#problem dd"):
            assert page.locator(part).first.evaluate(UNCOVERED), part
        shown = page.inner_text("#problem")
        assert "<script>alert('text')</script>" in shown and "\\u202e" in shown
        assert "\\x1b" in shown and "\\undefined" in shown
        assert visit.fits()
    with visiting(browser, file, size=PHONE) as visit:
        visit.press("v", "j", "e")
        visit.page.wait_for_selector("#trace .problem")
        assert visit.fits()


def test_a_response_may_be_called_as_a_part_of_the_page_is(browser, run, tmp_path):
    write_traces([evil_trace()], tmp_path / "evil" / TRACES_FOLDER)
    file = write_report([tmp_path / "evil", run], tmp_path / "both.html").file
    with visiting(browser, file) as visit:
        page = visit.page
        visit.press("v", "j")
        page.wait_for_selector("#trace .problem")
        page.click(".glance a >> nth=1")
        assert page.evaluate("document.activeElement.textContent").startswith("Trajectory 2")
        visit.press("?")
        assert page.is_visible("dialog") and "next problem" in page.inner_text("dialog")
        visit.press("Escape", "r", "j")
        visit.shows("sum:0")
        assert "Ann has" in page.inner_text("#problem")


def test_formulas_are_mathml_and_prices_are_text(browser, written):
    text = "It costs $5 or $6, and $x^2$ is \\(\\frac{1}{2}\\). $$\\sum_{i=1}^n i$$ "
    text += "So \\boxed{\\sqrt{3}}."
    trace = dataclasses.replace(evil_trace(), problem=problem(text))
    with visiting(browser, written(trace)) as visit:
        visit.opens("p")
        maths = "#problem .text math"
        assert visit.page.locator(maths).count() == 4
        assert visit.page.locator(f"{maths} msup, {maths} mfrac, {maths} msqrt").count() == 3
        assert visit.page.locator(f"{maths}[display=block]").count() == 1
        assert "It costs $5 or $6, and" in visit.page.inner_text("#problem .text")
        visit.press("m")
        assert visit.page.locator(maths).count() == 0
        assert visit.page.inner_text("#problem .text") == text
