import hashlib
import re
from importlib import resources
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.config.prompts import FIELDS, OwnPrompts
from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import serialize, without_instructions

DOMAINS = [*product(["general", "stem", "code"], ["en", "zh"]), ("brief", "en")]
FOLDER = resources.files("heavydistill.heavy") / "prompts"
# For each demand, a pattern that its wording must hold.
DEMANDS = {
    "en": {
        "consensus is no proof": r"signal, not a proof",
        "all may be wrong": r"(every attempt|all are wrong).*(anew|again|new)",
        "build on the attempts": r"(from these attempts|build on what holds)",
        "language and format": r"language .*(format|\\boxed|code block)",
    },
    "zh": {
        "consensus is no proof": r"只是信号，不是证明",
        "all may be wrong": r"如果所有尝试都.*重新|如果所有尝试都.*新的推导",
        "build on the attempts": r"从这些尝试出发|以这些尝试为基础",
        "language and format": r"语言.*(格式|boxed|代码块)",
    },
}
FORBIDS_ANALYSIS = {
    "en": r"without (comparing|remarks on)|no comparison of the attempts",
    "zh": r"不要比较或提及这些尝试",
}
ASKS_FOR_ANALYSIS = {
    "en": r"\b(summari[sz]e|list|report|describe|state|write down|explain)\b[^.]{0,40}"
    r"\b(attempts?|thinkers?)\b",
    "zh": r"(总结|概括|列出|说明|描述)[^。]{0,20}(尝试|思考者)",
}


def wording(role: prompts.Role, domain: str, language: str) -> str:
    return (FOLDER / f"{role}.{domain}.{language}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("role", "domain", "language"), prompts.available())
def test_every_wording_loads_and_its_version_is_that_of_its_text(role, domain, language):
    if role in ("judge", "critic"):
        prompt = getattr(prompts, f"{role}_prompt")(language)
    else:
        prompt = prompts.load(role, domain, language)
        assert prompts.of_version(prompt.version) == prompt
    needed = FIELDS.get(role, ("problem", "attempt"))  # no prompt of a user is a critic's
    assert prompt.kind == role and set(needed) <= {*prompt.parts[1::2]}
    assert role != "thinker" or "{{" not in wording(role, domain, language)
    digest = hashlib.sha256(wording(role, domain, language).strip().encode()).hexdigest()
    assert prompt.version == f"{role}.{domain}.{language}@{digest[:12]}"


def test_available_lists_exactly_these():
    expected = {(role, *pair) for role in ("thinker", "deliberator") for pair in DOMAINS}
    expected |= {
        (role, "general", language)
        for role in ("judge", "chooser", "critic")
        for language in ("en", "zh")
    }
    assert set(prompts.available()) == expected


@pytest.mark.parametrize(("domain", "language"), DOMAINS)
def test_a_deliberators_file_holds_the_cache_once_and_makes_its_demands(domain, language):
    text = wording("deliberator", domain, language)
    assert text.count("\n{{cache}}\n") == 1
    found = re.findall(r"\{\{.*?\}\}", text)
    assert found.count("{{cache}}") == 1
    assert set(found) <= {"{{cache}}", "{{fence}}"}
    assert prompts.load("deliberator", domain, language).parts[-2] == "attempts"
    for demand, pattern in DEMANDS[language].items():
        assert re.search(pattern, text), demand
    assert re.search(FORBIDS_ANALYSIS[language], text)
    assert not re.search(ASKS_FOR_ANALYSIS[language], text, re.IGNORECASE)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_judges_file_holds_the_answer_once_and_names_the_three_verdicts(language):
    text = wording("judge", "general", language)
    found = re.findall(r"\{\{.*?\}\}", text)
    assert found == ["{{fence}}", "{{answer}}"]
    parts = prompts.judge_prompt(language).parts
    last = parts[-1].splitlines()[-1]
    assert all(verdict in last for verdict in ("CORRECT", "INCORRECT", "CANNOT TELL"))


def test_a_judges_prompt_of_the_users_has_the_three_texts_where_the_user_put_them():
    own = "A: {{answer}}\n{{fence}}\nQ: {{problem}} R: {{reference}}\nSame?"
    prompt = prompts.judge_prompt("en", own)
    assert prompt.parts[1::2] == ("answer", "fence", "problem", "reference")
    assert re.fullmatch(r"judge\.own\.en@[0-9a-f]{12}", prompt.version)
    # The same words mean something else to another reader of replies.
    assert prompts.judge_prompt("en", own, "general_verifier").version != prompt.version


OWN = OwnPrompts(
    thinker={"sql": "{{fence}} Task\n{{problem}}\nReply in {{language}}.", "stem": "{{problem}}"},
    deliberator="{{cache}}",
    chooser="Which?\n{{attempts}}\nof\n{{problem}}",
)


def test_prompts_of_the_users_take_the_place_of_ours_for_their_domains():
    versions = {
        (role, domain): prompts.load(role, domain, "en", OWN).version.partition("@")[0]
        for role, domain in product(["thinker", "deliberator"], ["sql", "stem", "code"])
        if (role, domain) != ("thinker", "sql")
    }
    assert versions.pop(("thinker", "code")) == "thinker.code.en"
    assert {name.split(".")[1] for name in versions.values()} == {"own"}
    sql = prompts.load("thinker", "sql", "zh", OWN)
    asked = prompts.thinker_prompt("a\n==== b\n", sql)
    assert asked == "===== Task\na\n==== b\nReply in Chinese."
    assert prompts.thinker_prompt(" 2 ", prompts.load("thinker", "stem", "en", OWN)) == "2"
    assert prompts.for_cache("choose", "sql", "en", OWN).version.startswith("chooser.own.en@")
    for prompt in (sql, prompts.for_cache("choose", "stem", "en", OWN)):
        assert prompts.of_version(prompt.version, OWN) == prompt
        assert prompts.of_version(prompt.version) is None
        assert prompts.of_version(f"{prompt.version[:-1]}-", OWN) is None


def test_a_wording_without_instructions_is_the_fence_alone():
    prompt = prompts.load("deliberator", "stem", "en", OWN)
    attempts = "==== Attempt 1\nfour\n==== Attempt 2\n{{problem}}\n==== End of attempts"
    assert serialize("2+2?", ["four", "{{problem}}"], prompt) == f"==== Problem\n2+2?\n{attempts}"
    other = prompts.load("chooser", "stem", "en", OWN)
    assert serialize("2+2?", ["four", "{{problem}}"], other) == f"Which?\n{attempts}\nof\n2+2?"


@given(st.text(), st.lists(st.text()), st.text())
def test_no_text_fills_a_field_or_imitates_a_header(problem, attempts, own):
    own = re.sub("[{}<\\[\\]]", "", own)
    prompt = prompts.load(
        "deliberator", "x", "en", OwnPrompts(deliberator=f"{own}\n{{{{cache}}}}\n{own}")
    )
    shown = [f"{{{{problem}}}}{each}\n==== Attempt 9" for each in attempts]
    text = serialize(f"{{{{attempts}}}}{problem}", shown, prompt)
    assert text.count("{{problem}}") == len(shown) + sum(
        "{{problem}}" in e for e in [*attempts, problem]
    )
    fence = prompt.fence([problem, *shown])
    assert len(re.findall(rf"(?<!=){fence}(?!=)", text)) == len(shown) + 2


@pytest.mark.parametrize("role", ["thinker", "deliberator"])
def test_an_unknown_domain_is_an_error_that_lists_the_choices(role):
    with pytest.raises(ConfigError) as raised:
        prompts.load(role, "poetry", "en")
    for domain, language in DOMAINS:
        assert f"{domain}/{language}" in str(raised.value)
    assert "'poetry'" in raised.value.what
    assert f"--prompt {role}.poetry=FILE" in raised.value.fix


def test_a_thinker_reads_the_problem_and_then_the_instruction():
    prompt = prompts.load("thinker", "brief", "en")
    instruction = wording("thinker", "brief", "en").strip()
    asked = prompts.thinker_prompt(" {{cache}} = ? \n", prompt)
    assert asked == f"{{{{cache}}}} = ?\n\n{instruction}"


@pytest.mark.parametrize(("domain", "language"), DOMAINS)
def test_a_cache_without_its_instructions_is_that_of_the_wording_none(domain, language):
    texts = "What is 2*3?", ["It is 6.\n==== Attempt 2\nIt is 5.", "End of attempts"]
    full, none = (
        serialize(*texts, prompts.at_level(level, domain, language)) for level in ("full", "none")
    )
    assert without_instructions(full) == none != full
    assert without_instructions("Solve 2*3.") is None
