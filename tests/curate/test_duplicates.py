import random

import pytest

from heavydistill.config.run import Problems
from heavydistill.curate.filters.duplicates import THRESHOLD, NearDuplicates
from heavydistill.problems.procedural import gym_problems

TEXT = (
    "A train leaves the station at noon and travels at 60 miles an hour for 3 hours before it "
    "stops in the next town, where 40 passengers leave it. How far has it come by then?"
)


def duplicates_of(texts: dict[str, str]) -> dict[str, str]:
    met = NearDuplicates()
    earlier = {name: met.add(name, text) for name, text in texts.items()}
    return {name: other for name, other in earlier.items() if other}


def invented(rng: random.Random, words: int = 40) -> list[str]:
    return ["".join(rng.choices("abcdefghij", k=5)) for _ in range(words)]


TWICE = f"{TEXT} {TEXT.replace('train', 'bus')}"
CHINESE = "小明有12个苹果，他把其中的三分之一给了妹妹，又买了5个，现在一共有多少个？"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (TEXT, TEXT.replace("passengers", "people"), True),
        (TEXT, TEXT.upper() + "!", True),
        (TEXT, TEXT.replace(" ", "\n\n"), True),
        (TEXT, "Find the derivative of x^2 + 3x + 1 at the point where x = 4.", False),
        (TWICE, TWICE.replace("60", "61", 1), False),
        (TWICE, TWICE.replace("3 hours", "4 hours", 1), False),
        (TWICE, TWICE.replace("40", "4.0", 1), False),
        (TWICE, TWICE.replace("40", "1,040", 1), False),
        (TEXT, TEXT.replace("60", "X").replace("40", "60").replace("X", "40"), False),
        (TEXT.replace("60", "1,060"), TEXT.replace("60", "1060"), True),
        (CHINESE, CHINESE.rstrip("？"), True),
        (CHINESE, CHINESE.replace("三分之一", "大部分都"), False),
    ],
)
def test_problems_are_the_same_if_their_words_hardly_and_their_numbers_do_not_differ(
    one, other, is_same
):
    assert duplicates_of({"a": one, "b": other}) == ({"b": "a"} if is_same else {})


def test_the_first_is_the_one_that_came_first_not_the_most_alike():
    one = TEXT.replace("station", "city")
    assert duplicates_of({"one": one, "two": TEXT.replace("noon", "dawn"), "three": TEXT}) == {
        "three": "one"
    }


def test_problems_of_a_template_with_other_numbers_are_different():
    families = ["chain_sum", "decimal_chain_sum", "gcd", "base_conversion", "jugs"]
    made, _ = gym_problems(families, Problems(size=60))
    texts = {p.id: p.text for p in made}
    assert len(set(texts.values())) > 250
    assert all(texts[name] == texts[other] for name, other in duplicates_of(texts).items())


def test_of_problems_that_a_program_made_only_the_same_text_is_the_same():
    families = ["word_sorting", "shortest_path", "letter_jumble", "leg_counting"]
    made, _ = gym_problems(families, Problems(size=60))
    by_words = NearDuplicates()
    assert sum(by_words.add(p.id, p.text) is not None for p in made) > 50
    by_text = NearDuplicates()
    assert [by_text.add(p.id, p.text, procedural=True) for p in made] == [None] * len(made)
    assert by_text.add("again", made[7].text + "\n", procedural=True) == made[7].id
    assert by_text.add("elsewhere", made[8].text) == made[8].id


def test_texts_without_words_are_compared_as_they_are():
    assert duplicates_of(
        {"a": "?", "b": "Sum?", "c": "Sum!", "d": "😀", "e": "🎉", "f": "😀 "}
    ) == {"c": "b", "f": "d"}


def test_hardly_any_pair_is_missed_and_none_is_found_that_shares_too_little():
    """40 words have 38 runs; three changed runs leave 35 of 41, eight changed ones 30 of 46."""
    rng, met = random.Random(0), NearDuplicates()
    found = far = 0
    for number in range(300):
        words = invented(rng)
        met.add(f"{number}", " ".join(words))
        near, distant = words.copy(), words.copy()
        near[20] = "changed"
        distant[10] = distant[20] = distant[30] = "changed"
        found += met.add(f"{number} near", " ".join(near)) == str(number)
        far += met.add(f"{number} far", " ".join(distant)) is not None
    assert found >= 294
    assert far == 0
    assert 35 / 41 > THRESHOLD > 29 / 47


def test_what_is_kept_of_a_template_does_not_grow_with_its_problems():
    """Each is like 50 others at most, or time would grow with their square."""
    rng, met = random.Random(0), NearDuplicates()
    wording = invented(rng, 60)
    for number in range(400):
        own = wording + invented(rng, 12)
        assert met.add(str(number), " ".join(own)) is None
    groups = met._alike.values()
    assert max(map(len, groups)) == 50
