import pytest
from linear import assert_linear

from heavydistill.text.languages import other_language, script

TEXTS = {
    "LATIN": "How many integers below one hundred are divisible by three or five but not by both?",
    "CJK": "有多少个小于一百的正整数能被三或五整除，但不能同时被三和五整除？请写出推理过程。",
    "JAPANESE": "百より小さい正の整数のうち、三または五で割り切れるものはいくつありますか。",
    "HANGUL": "백보다 작은 양의 정수 중에서 삼 또는 오로 나누어지는 수는 모두 몇 개입니까?",
    "CYRILLIC": "Сколько положительных целых чисел меньше ста делятся на три или на пять?",
    "ARABIC": "كم عدد الأعداد الصحيحة الموجبة الأقل من مئة التي تقبل القسمة على ثلاثة أو خمسة؟",
    "THAI": "มีจำนวนเต็มบวกที่น้อยกว่าหนึ่งร้อยกี่จำนวนที่หารด้วยสามหรือห้าลงตัวแต่ไม่ใช่ทั้งสองจำนวนนั้น",
    "DEVANAGARI": "सौ से कम कितने धनात्मक पूर्णांक तीन या पाँच से विभाज्य हैं लेकिन दोनों से नहीं",
}
ENGLISH, CHINESE, RUSSIAN = TEXTS["LATIN"], TEXTS["CJK"], TEXTS["CYRILLIC"]


@pytest.mark.parametrize("name", TEXTS)
def test_the_script_of_a_text_is_told_and_no_other_passes_for_it(name):
    assert script(TEXTS[name]) == name
    passing = {other for other in TEXTS if not other_language(TEXTS[name], TEXTS[other])}
    assert passing == {name}


def test_thinking_and_answer_are_looked_at_apart():
    assert other_language(ENGLISH, CHINESE, ENGLISH * 9)
    assert other_language(ENGLISH, "", CHINESE)
    assert not other_language(ENGLISH, ENGLISH, "")


@pytest.mark.parametrize(
    "text",
    [
        "", "5", "So it is 5.", "答案是5。", "x + y = z; a = b\n" * 50,
        f"{ENGLISH} {CHINESE} {RUSSIAN}",
    ],
)  # fmt: skip
def test_texts_that_are_short_formulas_or_mixed_cannot_be_told_and_pass(text):
    assert script(text) is None
    assert not any(other_language(asked, text) for asked in (ENGLISH, CHINESE))
    assert not other_language(text, CHINESE, ENGLISH)


@pytest.mark.parametrize(
    "other",
    [
        "$\\text{the number of ways to choose}$",
        "$$\\operatorname{lcm}(a, b) \\text{ whatever is meant by this}$$",
        "\\[ \\text{whenever they are coprime} \\]",
        "\\( \\text{otherwise} \\)",
        "\\begin{aligned} x &= \\frac{1}{2} \\\\ \\end{aligned}",
        "```python\nfor number in range(100):\n    print(number, divisible(number))\n```",
        "https://example.org/a/long/path/with/many/english/words",
        "`some_function_of_two_variables(first, second)`",
        "f(x) = g(x) + h(x), x > 0, dx dt dy",
    ],
)
def test_formulas_code_and_links_are_of_no_language(other):
    assert script(CHINESE + f"\n{other}\n" * 20) == "CJK"


@pytest.mark.parametrize(
    "problem",
    [
        f"Answer in Chinese: {ENGLISH}",
        f"{ENGLISH} Respond only in the Russian language.",
        f"Translate this: {ENGLISH}",
        f"用英文回答：{CHINESE}",
        f"请把下面的话翻译出来：{CHINESE}",
        f"Переведите: {RUSSIAN}",
    ],
)
def test_a_problem_that_asks_for_another_language_may_get_it(problem):
    assert not other_language(problem, ENGLISH, CHINESE, RUSSIAN)


def test_a_word_in_the_problem_is_no_leave_for_another_language():
    assert other_language(f"In class, {ENGLISH}", CHINESE)
    assert other_language(f"{CHINESE}用代码验证。", ENGLISH)


def test_of_a_long_text_beginning_middle_and_end_are_read():
    assert script(ENGLISH * 2000) == "LATIN"
    assert script(ENGLISH * 200 + CHINESE * 2000 + ENGLISH * 200) is None
    assert other_language(ENGLISH, CHINESE * 30_000)


@pytest.mark.parametrize(
    "piece", ["$", "\\[", "\\(", "`", "\\", "```\n", "$a ", "https://a", "字", "a"]
)
def test_reading_takes_linear_time(piece):
    assert_linear(script, lambda size: piece * (size // len(piece)))
