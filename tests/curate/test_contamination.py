import json
from dataclasses import replace
from pathlib import Path

import messages
import pytest
from generations import problem
from hypothesis import given
from hypothesis import strategies as st
from import_files import lines, parquet

from heavydistill.config.run import Problems
from heavydistill.config.shipped import shipped
from heavydistill.curate.filters.contamination import BenchmarkHashes, ContaminationFilter, read
from heavydistill.errors import ProblemsError
from heavydistill.problems.procedural import gym_problems, micro_problems
from heavydistill.schema import Turn, turns_as_json
from heavydistill.text.words import masked, tokens_of

ROOT = Path(__file__).parents[2]
SHARED = ROOT / ".." / "shared" / "data"
# Which column of which file each of the shipped ones was made of.
MADE_OF = {
    "gsm8k-test-660-of-1319": ("gsm8k_solutions_k4.jsonl", "question", 660),
    "humaneval-20-of-164": ("humaneval_20.jsonl", "prompt", 20),
    "ifeval": ("ifeval_prompts.jsonl", "prompt", 541),
}
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the data is not there")

LONG = (
    "A farmer has 12 cows and 7 goats. He sells half of the cows and buys 3 more goats for his "
    "daughter, who keeps them on a small meadow behind the house. How many animals are there now?"
)
SHORT = "What is 12 times 7?"
CHINESE = "小明有12个苹果，他把其中的三分之一给了妹妹，又买了5个，现在他一共有多少个苹果？"
BENCHMARK = BenchmarkHashes.of("farm", [LONG, SHORT, CHINESE])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LONG, "13_words"),
        (LONG.upper().replace(".", " ;"), "13_words"),
        (LONG.replace("12", "1,250").replace("7", "33.5"), "13_words"),
        (LONG.replace("12", "3 + 4"), "13_words"),
        ("Consider this. " + " ".join(LONG.split()[5:25]) + " Explain.", "13_words"),
        (SHORT, "same_text"),
        ("what is １２ times 7", "same_text"),
        ("What is 12 times 9?", None),
        ("What is 12 times -7?", None),
        (CHINESE, "13_words"),
        (CHINESE.replace("12", "98"), "13_words"),
        # Every thirteenth word changed: no run of 13 is left, most runs of 8 are not either.
        (" ".join("but" if n % 13 == 12 else w for n, w in enumerate(LONG.split())), None),
        (" ".join(LONG.split()[:12]), "8_words"),
        ("How many animals are there now?", None),
        ("A farmer has 15 cows and 9 goats", "8_words"),
        ("farmer has 12 cows and 7 goats", None),
        ("What is 12 plus 7?", None),
        ("小明有12个苹果", None),
        ("", None),
        ("?!", None),
    ],
)
def test_a_problem_of_the_benchmark_is_found_by_its_words(text, reason):
    assert BENCHMARK.hit(text) == reason


def test_half_of_the_runs_of_eight_words_is_enough_and_less_is_not():
    own = [f"word{chr(97 + n)}" for n in range(20)]
    theirs = LONG.split()
    half = theirs[:12] + own[:5]
    assert BENCHMARK.hit(" ".join(half)) == "8_words"
    assert BENCHMARK.hit(" ".join(theirs[:12] + own[:6])) is None


def test_sums_and_lists_of_numbers_are_not_the_same_because_they_are_masked():
    sums = BenchmarkHashes.of("sums", ["Evaluate 12 + 34 - 5.", "Sort " + "3, 1, 4, 1, 5, " * 8])
    assert sums.hit("Evaluate 12 + 34 - 6.") is None
    assert sums.hit("Evaluate 12 + 34 + 5.") is None
    assert sums.hit("Here are the marks of a class: " + "2, 7, 1, 8, 2, " * 8) is None
    assert sums.hit("evaluate 12+34-5") is not None


def test_what_three_texts_have_in_common_is_their_manner_of_speaking():
    manner = "Write your entire answer in small letters and do not use any commas in the text."
    own = "Tell me a long story about the lighthouse keeper and his seven daughters in winter."
    subjects = ["a song for my cat", "a letter to the mayor of our town", "an ode to rain"]
    texts = [f"Please write {subject}. {manner}" for subject in subjects]
    two, three = (BenchmarkHashes.of("style", texts[:count]) for count in (2, 3))
    assert two.hit(f"{own} {manner}") is not None
    assert three.hit(f"{own} {manner}") is None
    assert all(three.hit(text) is not None for text in texts)
    again = BenchmarkHashes.of("style", [text for text in texts[:2] for _ in range(5)])
    assert again == two and again.size == 2


def test_hashes_survive_their_file_and_hold_no_text(tmp_path):
    path = tmp_path / "other.parquet"
    BENCHMARK.save(path)
    assert read(path) == BENCHMARK
    assert read(path).name == "farm"
    assert read(path).sha256 == BENCHMARK.sha256
    assert b"farmer" not in path.read_bytes()


def test_the_same_texts_in_any_order_give_the_same_bytes(tmp_path):
    BenchmarkHashes.of("farm", [LONG, SHORT, CHINESE]).save(tmp_path / "one.parquet")
    BenchmarkHashes.of("farm", [CHINESE, SHORT, LONG, SHORT]).save(tmp_path / "two.parquet")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "two.parquet").read_bytes()
    assert BENCHMARK.sha256 != BenchmarkHashes.of("farm", [LONG, SHORT]).sha256


def test_a_conversation_is_searched_turn_by_turn(tmp_path):
    path = lines(tmp_path / "farm.jsonl", {"question": LONG})
    screen = ContaminationFilter([str(path)])
    earlier = turns_as_json([Turn(role="user", text=LONG), Turn(role="assistant", text="13")])
    asked = replace(problem(text="And without the goats?"), history_json=earlier)
    assert screen.look("a", asked) == ("contaminated", "farm: 13_words")
    answered = turns_as_json([Turn(role="user", text="?"), Turn(role="assistant", text=LONG)])
    assert screen.look("b", replace(asked, history_json=answered)) == ("", "")


def test_texts_of_a_users_own_file_are_a_benchmark(tmp_path):
    rows = [{"nr": 1, "question": text} for text in (LONG, SHORT, CHINESE)]
    path = lines(tmp_path / "farm.jsonl", *rows)
    assert read(path) == read(parquet(tmp_path / "farm.parquet", rows)) == BENCHMARK
    path.write_text('{"nr": 1, "task": "What is it?"}\n')
    with messages.raises("column_of_texts", columns="nr, task"):
        read(path)


@pytest.mark.parametrize("missing", [{}, {"question": None}, {"question": " ?"}, {"question": 3}])
def test_a_row_without_a_text_is_an_error_that_says_where(tmp_path, missing):
    with messages.raises("no_text_in_column"):
        read(lines(tmp_path / "farm.jsonl", {"question": LONG}, missing))


def test_files_that_hold_no_benchmark_are_refused(tmp_path):
    (tmp_path / "texts.csv").write_text("question\n")
    (tmp_path / "broken.parquet").write_text("question")
    for name, message in [
        ("texts.csv", "neither"),
        ("broken.parquet", "is not a parquet file"),
        ("absent.parquet", "No such file"),
        ("absent.jsonl", "No such file"),
    ]:
        with pytest.raises(ProblemsError, match=message):
            read(tmp_path / name)


def test_hashes_that_are_damaged_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "odd.parquet"
    for about, message in [
        ("{}", "version None"),
        ('{"rule": 0, "name": "x", "size": 1}', r"version 0.*hash_benchmark"),
        ('{"rule": 1, "name": "x", "size": 1}', "damaged"),
    ]:
        table = pa.table({"kind": ["odd"], "hash": [1]})
        pq.write_table(table.replace_schema_metadata({"heavydistill.benchmark": about}), path)
        with pytest.raises(ProblemsError, match=message):
            read(path)


@given(st.lists(st.text(alphabet="ab 1+.", max_size=60), max_size=6), st.text())
def test_any_text_of_words_is_found_in_a_benchmark_of_it(texts, text):
    benchmark = BenchmarkHashes.of("b", [*texts, text])
    for one in (*texts, text):
        if masked(tokens_of(one)):
            assert benchmark.hit(one) is not None


@pytest.fixture(scope="module")
def benchmarks() -> dict[str, BenchmarkHashes]:
    return {one.name: one for one in map(read, shipped("data/benchmarks", ".parquet").values())}


def test_what_is_shipped_says_how_much_of_a_benchmark_it_is(benchmarks):
    assert [path.stem for path in shipped("data/benchmarks", ".parquet").values()] == sorted(
        MADE_OF
    )
    assert {name: one.size for name, one in benchmarks.items()} == {
        name: size for name, (_, _, size) in MADE_OF.items()
    }
    told = (ROOT / "data" / "README.md").read_text()
    assert all(f"`{name}.parquet`" in told for name in MADE_OF)


@needs_shared
@pytest.mark.parametrize("name", MADE_OF)
def test_what_is_shipped_is_what_the_texts_give(benchmarks, name):
    file, column, _ = MADE_OF[name]
    lines = (SHARED / file).read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)[column] for line in lines]
    assert BenchmarkHashes.of(name, texts) == benchmarks[name]
    assert all(benchmarks[name].hit(text) for text in texts)


def hits_in(benchmarks, texts) -> list[str]:
    return [text for text in texts if any(one.hit(text) for one in benchmarks.values())]


def test_no_problem_of_ours_is_taken_for_one_of_a_benchmark(benchmarks):
    own = [
        json.loads(line)["text"]
        for file in sorted((ROOT / "data").glob("*.sample.jsonl"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    made = micro_problems(Problems(size=300))
    families = ["gcd", "lcm", "number_sequence", "number_sorting", "base_conversion"]
    made += gym_problems(families, Problems(size=20))[0]
    assert len(own) > 20
    assert hits_in(benchmarks, [*own, *(problem.text for problem in made)]) == []


@needs_shared
def test_of_the_training_problems_of_gsm8k_those_are_found_that_are_like_one_of_its_test(
    benchmarks,
):
    """The first is a problem of the test with another name and other numbers."""
    lines = (SHARED / "gsm8k_train_1000.jsonl").read_text(encoding="utf-8").splitlines()
    found = hits_in(benchmarks, [json.loads(line)["question"] for line in lines])
    assert [text[:30] for text in found] == [
        "Bella bought stamps at the pos",
        "Joseph and his friends watched",
    ]


def test_two_files_of_one_name_are_counted_apart(tmp_path):
    files = []
    for folder, text in (("one", CHINESE), ("other", SHORT)):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "exam.jsonl")
        files[-1].write_text(json.dumps({"text": text}))
    screen = ContaminationFilter([str(file) for file in files])
    assert screen.look("a", problem(SHORT)) == ("contaminated", "exam: same_text")
    assert screen.look("b", problem("How many hens are there?")) == ("", "")
    assert [(used.name, used.hits) for used in screen.used] == [
        ("exam", {}),
        ("exam", {"same_text": 1}),
    ]
    assert screen.used[0].texts_sha256 != screen.used[1].texts_sha256
