from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import message

from heavydistill.config.models import Sampling, SamplingChoice
from heavydistill.config.run import (
    Language,
    Pruning,
    RunConfig,
    Selection,
    dump_config,
    load_config,
    parse_assignment,
)
from heavydistill.errors import ConfigError

words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1)


@pytest.fixture
def yaml_file(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "run.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def refusal(path: Path | None = None, overrides: dict[str, Any] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return caught.value


@pytest.mark.parametrize("text", [None, "", "# nothing but a comment\n"])
def test_nothing_set_is_the_micro_teacher_with_eight_trajectories_and_four_deliberations(
    yaml_file, text
):
    config = load_config(None if text is None else yaml_file(text))
    assert config == RunConfig()
    assert (config.teacher, config.problems.source) == ("micro", "micro")
    assert (config.think.k, config.deliberate.d, config.deliberate.rounds) == (8, 4, 1)
    assert config.cache.width is None and config.cache.budget_tokens is None
    assert config.think.sampling == SamplingChoice() and config.endpoint.base_url is None


def test_sampling_defaults_are_those_of_the_paper():
    assert Sampling().model_dump() == {
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 10,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": 32_768,
    }


def test_a_yaml_file_sets_nested_keys_and_the_command_line_wins_over_it(yaml_file):
    path = yaml_file("teacher: org/model\nthink:\n  k: 16\n  sampling: {temperature: 0.6}\n")
    config = load_config(path)
    assert (config.teacher, config.think.k) == ("org/model", 16)
    assert config.think.sampling == SamplingChoice(temperature=0.6)
    assert (config.think.min_k, config.deliberate.d) == (2, 4)
    config = load_config(path, {"think.k": 4, "think.sampling.top_p": 0.5, "out": "runs/a"})
    assert (config.teacher, config.think.k, config.out) == ("org/model", 4, "runs/a")
    assert config.think.sampling == SamplingChoice(temperature=0.6, top_p=0.5)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("teachr", "teacher"),
        ("cache.widht", "cache.width"),
        ("think.sampling.top", "think.sampling.top_p"),
        # Right names in the wrong place.
        ("temperature", "think.sampling.temperature"),
        ("k", "think.k"),
        ("widht", "cache.width"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_valid_one(key, nearest):
    error = refusal(overrides={key: 1})
    assert f"unknown key {key}." in str(error)
    assert error.fix == f"Did you mean {nearest}?"


def test_an_unknown_key_near_to_none_lists_the_keys_there_are():
    error = refusal(overrides={"zzz": 1})
    assert "unknown key zzz" in str(error)
    for key in RunConfig.model_fields:
        assert key in error.fix


def test_an_unknown_key_of_a_file_names_the_file(yaml_file):
    path = yaml_file("cache:\n  widht: 4\n")
    assert str(refusal(path)).startswith(f"{path}, line 2: unknown key cache.widht")


def test_all_faults_of_a_file_are_reported_with_their_lines(yaml_file):
    text = (
        "teachr: glm\nthink:\n  sampling: {top_p: 2}\n  k: 8.5\nseed: -1\nzzz: 1\nbudget: 1 euro\n"
    )
    path = yaml_file(text)
    error = refusal(path, {"seed": 3, "deliberate.d": "x"})
    assert error.what == f"6 keys in {path} are wrong"
    first, *lines = error.fix.splitlines()
    assert first == "Correct them:" and lines[0].startswith("  deliberate.d: must be a whole")
    assert [line.split(":")[0] for line in lines[1:]] == [f"  line {n}" for n in (1, 3, 4, 6, 7)]
    assert "unknown key teachr. Did you mean teacher?" in lines[1]
    assert str(refusal(yaml_file("seed: 1\nk: 3\nseed: 2\n"))).startswith(
        f"{path} is not YAML: line 3, column 1: the key seed occurs twice"
    )


@pytest.mark.parametrize("key", ["api_key", "endpoint.api_key"])
def test_no_secret_can_be_in_the_configuration(key):
    error = refusal(overrides={key: "sk-very-secret"})
    assert f"unknown key {key}" in str(error)
    assert error.fix == "Did you mean endpoint.api_key_env?"
    assert "sk-very-secret" not in str(error)


def test_a_section_given_a_value_is_refused_with_the_keys_of_the_section():
    error = refusal(overrides={"think": 8})
    assert "think takes keys, not 8" in str(error)
    for key in ("k", "min_k", "sampling"):
        assert key in error.fix


def test_a_value_given_keys_is_refused(yaml_file):
    assert "seed: " in str(refusal(overrides={"seed.a": 1}))
    assert "seed has a value in place of keys" in str(
        refusal(yaml_file("seed: 3\n"), overrides={"seed.a": 1})
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("think.k", "eight"), ("think.k", 1), ("deliberate.d", -1), ("cache.order", -1),
        ("cache.attempts", "wrong"), ("processes", 0), ("cache.budget_tokens", 0),
        ("endpoint.timeout_s", 0), ("deliberate.sampling.max_tokens", 0),
        ("deliberate.task", "vote"), ("deliberate.rounds", 0), ("cache.width", 1),
        ("cache.attempts", "best"), ("problems.seed", 10**9), ("endpoint.concurrency", 0),
        ("pools", ""), ("think.sampling.temperature", 2.5), ("think.sampling.top_p", 0.0),
        ("deliberate.sampling.min_p", 1.0), ("deliberate.sampling.repetition_penalty", 0.0),
    ],
)  # fmt: skip
def test_a_bad_value_names_key_and_value(key, value):
    message = str(refusal(overrides={key: value}))
    assert f"{key}: " in message
    assert f"(got {value!r})" in message


def test_a_bad_value_inside_a_mapping_names_the_inner_key():
    assert "problems.columns.id: " in str(refusal(overrides={"problems.columns": {"id": 3}}))


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        ({"cache.width": 9}, ["cache.width 9", "think.k 8"]),
        ({"cache.width": 3, "think.k": 2}, ["cache.width 3", "think.k 2"]),
        ({"think.min_k": 9}, ["think.min_k 9", "think.k 8"]),
        ({"pools": "runs/a", "thinker": "micro"}, ["thinker", "pools", "runs/a"]),
        ({"pools": "runs/a", "think.sampling.top_k": 5}, ["think.sampling", "pools"]),
        ({"pools": "runs/a", "problems.source": "p.jsonl"}, ["problems", "pools"]),
        ({"pools": "runs/a", "problems.size": 7}, ["problems", "pools"]),
        ({"pools_sha256": "abc"}, ["pools_sha256", "pools"]),
        ({"pools": "runs/a", "deliberate.d": 0}, ["deliberate.d", "pools"]),
        ({"deliberate.d": 0, "deliberate.rounds": 2}, ["deliberate.d", "deliberate.rounds is 2"]),
        (
            {"deliberate.task": "choose", "deliberate.rounds": 2},
            ["deliberate.task", "deliberate.rounds is 2"],
        ),
        ({"cache.attempts": "garbled"}, ["cache.attempts is garbled", "--pools RUN"]),
        ({"pools": "runs/a", "deliberate.task": "think"}, ["deliberate.task", "cache.attempts"]),
    ],
)
def test_contradictions_name_both_keys(overrides, named):
    message = str(refusal(overrides=overrides))
    for name in named:
        assert name in message


def test_the_bounds_of_contradictions_are_allowed():
    config = load_config(overrides={"think.k": 4, "think.min_k": 4, "cache.width": 4})
    assert config.cache.width == config.think.min_k == config.think.k


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        *((text, "is not YAML") for text in ("think: [1\n", "a: b: c\n", b"teacher: \xff\xfe\n")),
        *((text, "holds no mapping") for text in ("- a\n- b\n", "8\n", "just words\n")),
    ],
)
def test_a_file_that_is_no_mapping_in_yaml_is_named(yaml_file, content, fault):
    path = yaml_file(content)
    assert f"{path} {fault}" in str(refusal(path))


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    missing = tmp_path / "missing.yaml"
    assert str(missing) in str(refusal(missing))
    assert str(tmp_path) in str(refusal(tmp_path))


def test_what_is_chosen_wins_over_the_base_and_null_leaves_it():
    base = Sampling(temperature=0.6, top_k=20, max_tokens=100)
    chosen = SamplingChoice(temperature=0.0, top_k=0).over(base)
    assert chosen == Sampling(temperature=0.0, top_k=0, max_tokens=100)
    assert SamplingChoice().over(base) == base


@settings(max_examples=30, deadline=None)
@given(
    values=st.fixed_dictionaries(
        {},
        optional={
            "teacher": words,
            "out": st.none() | words,
            "seed": st.integers(0, 2**40),
            "domain": st.none() | words,
            "language": st.sampled_from(get_args(Language)),
            "think.k": st.integers(8, 99),
            "think.sampling.temperature": st.none() | st.floats(0, 2),
            "think.sampling.min_p": st.none() | st.floats(0, 1, exclude_max=True),
            "cache.width": st.none() | st.integers(2, 8),
            "cache.selection": st.sampled_from(get_args(Selection)),
            "cache.pruning": st.sampled_from(get_args(Pruning)),
            "endpoint.timeout_s": st.floats(0, exclude_min=True, allow_infinity=False),
            "problems.columns": st.dictionaries(words, words, max_size=3),
            "problems.gym": st.dictionaries(
                words, st.dictionaries(words, st.integers() | st.booleans()), max_size=2
            ),
        },
    )
)
def test_a_dumped_configuration_reads_back_equal(values, tmp_path_factory):
    config = load_config(overrides=values)
    path = tmp_path_factory.mktemp("dump") / "config.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert load_config(path) == config


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("think.k=16", "think.k", 16),
        ("think.sampling.top_p=0.5", "think.sampling.top_p", 0.5),
        ("cache.width=null", "cache.width", None),
        ("out=runs/a=b", "out", "runs/a=b"),
        ("teacher= glm ", "teacher", "glm"),
        (
            "problems.gym={chain_sum: {max_terms: 4}}",
            "problems.gym",
            {"chain_sum": {"max_terms": 4}},
        ),
    ],
)
def test_an_assignment_is_a_key_and_a_yaml_value(text, key, value):
    assert parse_assignment(text) == (key, value)


@pytest.mark.parametrize("text", ["think.k", "", "=3", "problems.gym={a: [1"])
def test_what_is_no_assignment_is_quoted_in_the_error(text):
    with pytest.raises(ConfigError) as caught:
        parse_assignment(text)
    assert repr(text) in str(caught.value)


def test_files_of_one_s_own_are_found_from_wherever_a_step_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verify = load_config(None, {"verify.own": ["mine.py", "~/other.py"]}).verify
    assert verify.own == [str(tmp_path / "mine.py"), str(Path.home() / "other.py")]


def test_who_judges_where_makes_no_other_run_but_what_a_verdict_may_take_does():
    def identity(**verify: object) -> str:
        return load_config(None, {f"verify.{key}": each for key, each in verify.items()}).identity

    processes = {"processes": 2}
    assert identity() == identity(workers=7) == load_config(None, processes).identity
    assert identity(own=["a/mine.py"]) == identity(own=["b/mine.py"]) != identity()
    assert len({identity(), identity(timeout_s=9), identity(memory_mb=999)}) == 3


def test_new_keys_leave_the_identity_of_runs_that_do_not_set_them():
    """By it a run that another version began finds its account again."""
    assert RunConfig(teacher="micro").identity == "c98d4916a69a09fe"


def test_pools_are_told_apart_by_what_is_in_them_and_not_by_where_they_are():
    def identity(**keys: object) -> str:
        return load_config(None, dict(keys)).identity

    here = identity(pools="runs/a", pools_sha256="abc")
    assert here == identity(pools="elsewhere/a", pools_sha256="abc")
    assert len({here, identity(pools="runs/a", pools_sha256="def"), identity()}) == 3


def test_the_limit_of_problems_holds_for_pools_too():
    config = load_config(None, {"pools": "runs/a", "problems.limit": 3, "teacher": "glm-4.6"})
    assert config.problems.limit == 3
    assert config.roles == ("glm-4.6", "glm-4.6"), "who deliberates stands for both"


@pytest.mark.parametrize(
    ("key", "most", "said"),
    [
        ("think.k", 1024, "think.k is 100,000"),
        ("deliberate.d", 1024, message("above_most", key="deliberate.d", most=1024)),
        ("deliberate.rounds", 16, message("above_most", key="deliberate.rounds", most=16)),
    ],
)
def test_what_a_run_asks_for_has_a_bound_and_pools_of_another_have_none(key, most, said):
    load_config(None, {key: most})
    with pytest.raises(ConfigError) as refused:
        load_config(None, {key: 100_000})
    assert refused.value.what.startswith(said)
    load_config(None, {"pools": "runs/other", "pools_sha256": "0" * 64, "think.k": 10_000})
