import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from heavydistill.config.run import Problems, Verifying
from heavydistill.errors import ProblemsError
from heavydistill.problems import load
from heavydistill.problems.procedural import MICRO_LEVELS
from heavydistill.verifiers.pool import VerdictPool

pytest.importorskip("reasoning_gym")


def family(problem) -> str:
    return json.loads(problem.verifier_args)["family"]


@pytest.mark.parametrize(("size", "shares"), [(100, [34, 33, 33]), (2, [1, 1]), (6, [2, 2, 2])])
def test_micro_gives_exactly_size_problems_of_its_families_in_turn(size, shares):
    problems = load(Problems(size=size))
    assert len({p.id for p in problems}) == len(problems) == size
    assert list(Counter(map(family, problems)).values()) == shares
    assert [family(p) for p in problems[:3]] == list(MICRO_LEVELS)[:size]
    assert problems == load(Problems(size=size))
    assert not {p.text for p in problems} & {p.text for p in load(Problems(size=9, seed=500))}


def test_a_family_is_made_with_its_settings():
    (problem,) = load(
        Problems(source="gym:chain_sum", size=1, seed=7, gym={"chain_sum": {"min_terms": 6}})
    )
    assert problem.id == "chain_sum:7:0"
    assert problem.source == "gym:chain_sum:7:0"
    assert problem.domain == ""
    assert problem.text.count("+") + problem.text.count("-") >= 5
    assert problem.text == problem.text.strip()


def test_families_have_size_problems_each_and_take_turns_up_to_the_limit():
    assert len(load(Problems(source="gym:gcd, lcm", size=4))) == 8
    problems = load(Problems(source="gym:gcd,lcm", size=4, limit=3))
    assert [p.id for p in problems] == ["gcd:0:0", "lcm:0:0", "gcd:0:1"]


def test_templates_are_chosen_and_each_problem_names_its_own():
    config = Problems(source="gym:gsm_symbolic", templates=[43, "10"], size=12)
    problems = load(config)
    assert len(problems) == 12 and {p.template for p in problems} == {"43", "10"}
    assert problems[0].source == f"{problems[0].origin}:0:8:43"
    assert load(config.model_copy(update={"limit": 3})) == problems[:3]
    with VerdictPool(Verifying(workers=1)) as pool:
        assert pool.check_references(problems) == [None] * 12
    kinds = {p.template for p in load(Problems(source="gym:calendar_arithmetic", size=40))}
    assert {"weekday_offset", "is_leap_year"} < kinds
    (plain,) = load(Problems(source="gym:gcd", size=1))
    assert (plain.template, plain.source) == ("", "gym:gcd:0:0")


@pytest.mark.parametrize(
    ("source", "templates", "says"),
    [
        ("gym:gsm_symbolic", [43, 35], "has no template '35'. Templates: 0, 1, 2, 3, "),
        ("gym:time_intervals", ["times"], "Templates: date, time, "),
        ("gym:gcd", [1], "The family gcd has no templates"),
        ("gym:gcd,gsm_symbolic", [1], "a source of 2 families"),
        ("micro", [1], "problems.templates has no effect"),
    ],
)
def test_templates_that_do_not_exist_are_refused(source, templates, says):
    with pytest.raises(ProblemsError) as refused:
        load(Problems(source=source, templates=templates))
    assert says in str(refused.value)


def test_problems_are_the_same_in_another_process():
    source = (
        "gym:gcd,spell_backward,binary_matrix,countdown,decimal_arithmetic,intermediate_integration,"
        "n_queens,puzzle24,simple_integration,spiral_matrix,string_insertion,coin_flip,"
        "complex_arithmetic,game_of_life_halting,gsm_symbolic"
    )
    script = (
        "from heavydistill.config.run import Problems\n"
        "from heavydistill.problems import load\n"
        f"print([(p.text, p.reference) for p in load(Problems(source={source!r}, size=4))])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONHASHSEED": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    made = [(p.text, p.reference) for p in load(Problems(source=source, size=4))]
    assert finished.stdout.strip() == str(made)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rush_hour", "no reference to compare with"),
        ("codeio", "another process"),
        ("polynomial_multiplication", "another process"),
        ("composite", "mixes families"),
    ],
)
def test_families_that_cannot_be_judged_are_refused_with_the_reason(name, why):
    with pytest.raises(ProblemsError, match=why):
        load(Problems(source=f"gym:{name}"))


@pytest.mark.parametrize(
    ("source", "gym", "says"),
    [
        ("gym:chain_sums", {}, r"no family 'chain_sums'. Did you mean chain_sum\?"),
        ("gym:", {}, "There is no family ''"),
        ("gym:gcd,gcd", {}, "names gcd twice"),
        ("gym:chain_sum", {"chain_sum": {"max_trems": 3}}, r"max_trems.*Did you mean max_terms\?"),
        ("gym:chain_sum", {"chain_sum": {"seed": 3}}, "Set problems.seed"),
        ("gym:chain_sum", {"chain_sum": {"max_terms": 1}}, "max_terms must be >= min_terms"),
        ("gym:chain_sum", {"chain_sum": {"max_terms": "x"}}, "problems.gym.chain_sum: TypeError"),
        ("gym:chain_sum", {"gcd": {}}, "problems.gym.gcd has no effect"),
        (
            "gym:game_of_life_halting",
            {"game_of_life_halting": {"max_simulation_steps": 1}},
            "max_simulation_steps must be 3 or more",
        ),
        (
            "gym:game_of_life_halting",
            {"game_of_life_halting": {"grid_size_x": 50, "grid_size_y": 50}},
            "choose a smaller one",
        ),
        ("micro", {"chain_sum": {}}, "problems.gym has no effect"),
    ],
)
def test_bad_families_and_settings_are_errors(source, gym, says):
    with pytest.raises(ProblemsError, match=says):
        load(Problems(source=source, gym=gym))
