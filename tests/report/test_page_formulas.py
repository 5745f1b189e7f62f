"""Formulas in the page of a report stand in their line, and are seen to their end."""

import pytest
from browsing import DESK, PHONE, visiting
from generations import problem, trajectory

from heavydistill.schema import Trace

_SUM = " + ".join(f"{i}\\cdot {i + 1}" for i in range(1, 30))
WIDE = f"So $S = {_SUM}$, or $$S = {_SUM}$$ or \\({_SUM}\\), and \\boxed{{{_SUM}}}."
SHORT = (
    "Let $x$ be $\\frac{1}{2}$, $x_i^2$ or $\\sqrt{\\frac{a}{b}}$, $\\smash{\\frac{a}{b}}$, "
    "$\\hat{y}$ and $\\sum_{i=1}^n i$, $\\int_0^1 f$, \\boxed{5}."
)
FROM_RIGHT_TO_LEFT = "\u05d0\u05d1"
# The nearest frame of a formula that scrolls sideways, or the formula itself.
FRAME = """const frameOf = (formula) => {
  const scrolls = (element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  for (let at = formula; !at.matches(".text"); at = at.parentElement) if (scrolls(at)) return at;
  return formula;
};"""
CUT_OFF = f"""formulas => {{
  {FRAME}
  const isSeen = (formula) => {{
    const text = formula.closest(".text").getBoundingClientRect();
    const frame = frameOf(formula);
    const {{ left, right }} = frame.getBoundingClientRect();
    if (left < text.left - 1 || text.right + 1 < right) return false;
    frame.scrollLeft = frame.scrollWidth;
    const isToTheEnd = frame.scrollLeft + frame.clientWidth >= frame.scrollWidth - 1;
    const isHidden = getComputedStyle(frame).overflowY === "hidden";
    return isToTheEnd && !(isHidden && frame.scrollHeight > frame.clientHeight + 1);
  }};
  return formulas.filter((formula) => !isSeen(formula)).map((formula) => formula.textContent);
}}"""
SCROLLED = f"""formulas => {{
  {FRAME}
  return formulas.map(frameOf).filter((frame) => frame.scrollWidth > frame.clientWidth).length;
}}"""
# How far each formula stands from where it would stand without its frame.
MOVED = f"""formulas => formulas.map((formula) => {{
  {FRAME}
  const before = formula.getBoundingClientRect();
  frameOf(formula).replaceWith(formula);
  const after = formula.getBoundingClientRect();
  return Math.max(Math.abs(after.top - before.top), Math.abs(after.left - before.left));
}})"""


def trace_of(text: str, reasoning: str = "") -> Trace:
    return Trace(problem=problem(text), pool=[trajectory(text, reasoning)])


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
def test_every_formula_is_inside_its_text_or_can_be_scrolled(browser, written, size):
    trace = trace_of(f"{SHORT} {WIDE}", f"{FROM_RIGHT_TO_LEFT} {SHORT} {WIDE}")
    with visiting(browser, written(trace), size=size) as visit:
        visit.opens("p")
        maths = visit.page.locator("#trace .text math")
        assert maths.count() == 3 * (9 + 4)
        assert maths.evaluate_all(CUT_OFF) == []
        assert maths.evaluate_all(SCROLLED) == 3 * 4 and visit.fits()


def test_a_short_formula_stands_on_the_line_of_its_text(browser, written):
    with visiting(browser, written(trace_of(SHORT))) as visit:
        visit.opens("p")
        maths = visit.page.locator("#trace .response .text math")
        assert maths.count() == 9
        assert max(maths.evaluate_all(MOVED)) < 0.5
