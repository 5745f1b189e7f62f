"""Whose the sets are, what may be done with them, and who is told no."""

from pathlib import Path

import messages
import pytest
from messages import message
from set_folders import ASKED, manifest, write_sets

from heavydistill.hub.options import PublishOptions
from heavydistill.hub.terms import authors_of, licence_of
from heavydistill.store.sets.folder import Manifest, RunUsed

REPO = "org/sets"
OWN = """
name: {name}
hub: me/{name}
tokenizer: null
context: 4096
licence: {licence}
terms: {{distillation: {terms}, because: we wrote it, source: our wiki}}
"""


def by(*models: str, source: str | None = "micro", deliberators: tuple[str, ...] = ()) -> Manifest:
    config = {"problems": {"source": source}} if source else {}
    return manifest(
        models={"thinker": list(models), "deliberator": list(deliberators or models)},
        runs=[RunUsed(name="run", traces=2, config=config, summary={})],
    )


def own(tmp_path: Path, name: str, terms: str = "allowed", licence: str = "MIT") -> Path:
    file = tmp_path / f"{name}.yaml"
    file.write_text(OWN.format(name=name, terms=terms, licence=licence), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "name", ["glm-4.6", "zai-org/GLM-4.6", "z-ai/glm-4.6", "zai-org/GLM-4.6-FP8"]
)
def test_a_model_is_known_by_all_its_names(name):
    (author,) = authors_of(by(name))
    assert (author.name, author.licence, author.terms.distillation) == (name, "MIT", "allowed")
    assert author.roles == ("deliberator", "thinker")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            by("micro", deliberators=("someone/else",)),
            [("micro", ("thinker",), "allowed"), ("someone/else", ("deliberator",), "unknown")],
        ),
        (by(), [("(not named)", ("deliberator", "thinker"), "unknown")]),
        (by(""), [("(not named)", ("deliberator", "thinker"), "unknown")]),
        (
            by("micro").model_copy(update={"models": {"thinker": ["micro"]}, "deliberations": {}}),
            [("micro", ("thinker",), "allowed")],
        ),
        (
            by("micro").model_copy(update={"asked": [ASKED]}),
            [
                ("gpt-5", ("deliberator",), "restricted"),
                ("micro", ("deliberator", "thinker"), "allowed"),
            ],
        ),
    ],
)
def test_authors_are_all_who_wrote_and_who_is_not_known_has_unknown_terms(told, expected):
    found = [(a.name, a.roles, a.terms.distillation) for a in authors_of(told)]
    assert found == expected


@pytest.mark.parametrize(
    ("models", "source", "licence", "because"),
    [
        (("glm-4.6", "deepseek-v3.2"), "micro", "mit", "every model"),
        (("qwen3-8b",), "gym:chain_sum", "apache-2.0", "every model"),
        (("qwen3-8b", "glm-4.6"), "micro", "other", "Apache-2.0, MIT"),
        (("kimi-k2-thinking",), "micro", "other", "Modified MIT"),
        (("gpt-5",), "micro", "other", "the terms of gpt-5"),
        (("someone/else",), "micro", "other", "the terms of someone/else"),
        (("glm-4.6",), "hub:org/problems", "other", "problems come from hub:org/problems"),
        (("glm-4.6",), "micro-olympiad.jsonl", "other", "problems come from micro-olympiad.jsonl"),
        (("glm-4.6",), None, "other", "problems come from the run run"),
    ],
)
def test_the_licence_is_one_only_where_everything_is_known(models, source, licence, because):
    told = by(*models, source=source)
    found = licence_of(told, authors_of(told))
    assert found.name == licence and because in found.because


@pytest.mark.parametrize(
    ("licences", "licence"),
    [
        ([["cc-by-nc-sa-4.0"]], "cc-by-nc-sa-4.0"),
        ([["cc-by-4.0"], ["cc-by-4.0"]], "cc-by-4.0"),
        ([["cc-by-4.0"], ["cc-by-sa-4.0"]], "other"),
        ([["cc-by-4.0"], []], "other"),
        ([["my-own-licence"]], "other"),
    ],
)
def test_the_licence_of_imported_answers_is_that_of_the_sets(licences, licence):
    runs = [
        RunUsed(name=f"run{n}", traces=2, config={}, summary={"licences": names})
        for n, names in enumerate(licences)
    ]
    told = by("qwen3-8b").model_copy(update={"runs": runs})
    found = licence_of(told, authors_of(told))
    assert found.name == licence and licences[0][0] in found.because
    assert "licence of imported answers" in found.because
    unknown = by("someone/else").model_copy(update={"runs": runs})
    assert licence_of(unknown, authors_of(unknown)).name == "other"
    own = licence_of(told, authors_of(told), PublishOptions(repo_id="", licence="mit"))
    assert own.name == "mit" and licences[0][0] in own.because


@pytest.mark.parametrize(
    ("model", "flag", "other", "parts"),
    [
        ("someone/else", "unknown", "restricted", [message("terms_unknown", model="someone/else")]),
        (
            *("openai/gpt-5", "restricted", "unknown"),
            [message("terms_of_service", model="openai/gpt-5"), "(OpenAI, Terms of use"],
        ),
    ],
)
def test_terms_that_do_not_clearly_allow_it_need_their_flag(
    hub, publish, tmp_path, model, flag, other, parts
):
    folder = write_sets(tmp_path / "sets", models={"thinker": ["micro"], "deliberator": [model]})
    for flags in ((), (f"--allow-{other}-terms",)):
        code, said = publish(folder, "--to", REPO, *flags)
        assert code == 2 and all(part in said for part in (*parts, f"--allow-{flag}-terms"))
    assert hub.requests == []
    assert publish(folder, "--to", REPO, f"--allow-{flag}-terms")[0] == 0
    card = hub.card(REPO)
    assert "license: other" in card and model in card and f"| {flag} |" in card


def test_a_profile_given_to_the_verb_opens_the_gate_if_it_allows(hub, publish, tmp_path):
    models = {"thinker": ["house"], "deliberator": ["me/house"]}  # its name and its Hub id
    folder = write_sets(tmp_path / "sets", models=models)
    assert publish(folder, "--to", REPO)[0] == 2
    assert publish(folder, "--to", REPO, "--profile", tmp_path / "missing.yaml")[0] == 2
    forbids = own(tmp_path, "house", terms="restricted")
    assert publish(folder, "--to", REPO, "--profile", forbids)[0] == 2
    assert publish(folder, "--to", REPO, "--profile", own(tmp_path, "house"))[0] == 0
    card = hub.card(REPO)
    assert card.count("| MIT | allowed | we wrote it | our wiki |") == 2


def test_a_judge_is_an_author_of_the_verdicts(hub, publish, tmp_path):
    judging = {"asked": 4, "correct": 2, "incorrect": 2, "judges": {"openai/gpt-5@0a1b2c": 4}}
    run = RunUsed(name="run", traces=2, config={}, summary={"judging": judging})
    folder = write_sets(tmp_path / "sets", runs=[run])
    code, said = publish(folder, "--to", REPO)
    assert code == 2 and messages.is_in(said, "terms_of_service", model="openai/gpt-5")
    assert publish(folder, "--to", REPO, "--allow-restricted-terms")[0] == 0
    assert "| `openai/gpt-5` | judge |" in hub.card(REPO)


def test_problems_that_came_with_the_pools_of_another_run_are_not_said_to_be_generated():
    told = by("micro")
    run = told.runs[0]
    own = run.model_copy(update={"config": run.config | {"pools_sha256": None}})
    borrowed = run.model_copy(update={"config": run.config | {"pools_sha256": "0" * 64}})
    for one, licence in ((own, "apache-2.0"), (borrowed, "other")):
        told = told.model_copy(update={"runs": [one]})
        assert licence_of(told, authors_of(told)).name == licence
