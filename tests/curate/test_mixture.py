from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.curate.candidates import CandidateSet
from heavydistill.curate.mixture import PRESETS, mix
from heavydistill.schema import Stratum

STRATA: tuple[Stratum, ...] = ("all-right", "majority-right", "tie", "minority-right", "all-wrong")


def sets_of(counts: dict[Stratum, int], a_problem: int = 2) -> list[CandidateSet]:
    """So many sets of each stratum, some of each problem."""
    sets = []
    for stratum in STRATA:
        right = {"all-right": 8, "majority-right": 6, "tie": 4, "minority-right": 2, "all-wrong": 0}
        for number in range(counts.get(stratum, 0)):
            problem = f"{stratum}-{number // a_problem}"
            members = tuple(f"{problem}-{number}-{m}" for m in range(8))
            sets.append(CandidateSet(problem, members, right[stratum], stratum, str(number)))
    return sets


def kept_of(name: str, sets: list[CandidateSet], seed: int = 0) -> list[CandidateSet]:
    labels = mix(sets, PRESETS[name], {one.problem: "" for one in sets}, seed)
    return [one for one, label in labels.items() if not label]


def mixed(name: str, sets: list[CandidateSet]) -> Counter[str]:
    return Counter(one.stratum for one in kept_of(name, sets))


numbers = st.fixed_dictionaries({stratum: st.integers(0, 200) for stratum in STRATA})


@settings(max_examples=60, deadline=None)
@given(there=numbers)
def test_balanced_keeps_all_that_is_hard_and_bounds_the_rest(there):
    kept = mixed("balanced", sets_of(there))
    hard, total = there["minority-right"] + there["tie"], kept.total()
    assert kept["minority-right"] + kept["tie"] == hard
    assert kept["majority-right"] == min(there["majority-right"], hard // 2)
    assert kept["all-right"] <= 0.05 * total
    assert kept["all-wrong"] <= 0.10 * total
    # One more of either would break its bound, or there is none.
    for stratum, share in (("all-right", 0.05), ("all-wrong", 0.10)):
        assert kept[stratum] == there[stratum] or kept[stratum] + 1 > share * (total + 1)


@settings(max_examples=60, deadline=None)
@given(there=numbers)
def test_agglm_keeps_every_wrong_vote_and_half_as_many_right_ones(there):
    kept = mixed("agglm", sets_of(there))
    hard = there["minority-right"] + there["tie"] + there["all-wrong"]
    assert kept["minority-right"] + kept["tie"] + kept["all-wrong"] == hard
    easy = there["majority-right"] + there["all-right"]
    assert kept["majority-right"] + kept["all-right"] == min(easy, hard // 2)


@settings(max_examples=20, deadline=None)
@given(there=numbers)
def test_natural_keeps_all_that_there_is(there):
    assert mixed("natural", sets_of(there)) == Counter({k: n for k, n in there.items() if n})


def sets_by_right(width: int) -> list[CandidateSet]:
    return [
        CandidateSet(f"p{right}", tuple(str(m) for m in range(width)), right, "tie", "")
        for right in range(width + 1)
    ]


@pytest.mark.parametrize(
    ("name", "domain", "width", "rights"),
    [
        ("pacore", "stem", 24, range(1, 9)),
        ("pacore", "code", 24, range(1, 15)),
        ("pacore", "", 16, range(1, 6)),
        ("genselect", "", 8, range(1, 5)),
        ("genselect", "", 7, range(1, 4)),
        ("heavyskill", "", 8, range(0, 6)),
        ("heavyskill", "", 16, range(0, 11)),
    ],
)
def test_a_preset_admits_what_its_source_does(name, domain, width, rights):
    sets = sets_by_right(width)
    labels = mix(sets, PRESETS[name], {one.problem: domain for one in sets}, seed=0)
    assert [one.right for one, label in labels.items() if not label] == list(rights)
    assert Counter(labels.values())["not_admitted"] == len(sets) - len(rights)


def test_what_is_too_much_of_a_stratum_goes_second_sets_first():
    there = sets_of({"minority-right": 20, "majority-right": 20})
    labels = mix(there, PRESETS["balanced"], {one.problem: "" for one in there}, seed=0)
    kept = [one.problem for one in there if one.stratum == "majority-right" and not labels[one]]
    assert len(kept) == len(set(kept)) == 10
    over = Counter(one.stratum for one, label in labels.items() if label == "over_bound")
    assert over == {"majority-right": 10}


def test_the_same_seed_keeps_the_same_sets_and_another_one_others():
    there = sets_of({"minority-right": 20, "majority-right": 200})
    first, again, other = (kept_of("balanced", there, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
