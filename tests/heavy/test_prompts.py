import hashlib
import re
from importlib import resources
from itertools import product

import pytest

from heavydistill.errors import ConfigError
from heavydistill.heavy import prompts

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
    if role == "judge":
        prompt = prompts.judge_prompt(language)
    else:
        prompt = prompts.load(role, domain, language)
        assert prompt.closing
        assert bool(prompt.opening) == (role != "thinker")
    assert role != "thinker" or "{{" not in wording(role, domain, language)
    digest = hashlib.sha256(wording(role, domain, language).strip().encode()).hexdigest()
    assert prompt.version == f"{role}.{domain}.{language}@{digest[:12]}"


def test_available_lists_exactly_these():
    expected = {(role, *pair) for role in ("thinker", "deliberator") for pair in DOMAINS}
    expected |= {
        (role, "general", language) for role in ("judge", "chooser") for language in ("en", "zh")
    }
    assert set(prompts.available()) == expected


@pytest.mark.parametrize(("domain", "language"), DOMAINS)
def test_a_deliberators_file_holds_the_cache_once_and_makes_its_demands(domain, language):
    text = wording("deliberator", domain, language)
    assert text.count(f"\n{prompts.CACHE_SLOT}\n") == 1
    found = re.findall(r"\{\{.*?\}\}", text)
    assert found.count(prompts.CACHE_SLOT) == 1
    assert set(found) <= {prompts.CACHE_SLOT, prompts.FENCE_SLOT}
    assert prompts.FENCE_SLOT not in prompts.load("deliberator", domain, language).closing
    for demand, pattern in DEMANDS[language].items():
        assert re.search(pattern, text), demand
    assert re.search(FORBIDS_ANALYSIS[language], text)
    assert not re.search(ASKS_FOR_ANALYSIS[language], text, re.IGNORECASE)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_judges_file_holds_the_answer_once_and_names_the_three_verdicts(language):
    text = wording("judge", "general", language)
    found = re.findall(r"\{\{.*?\}\}", text)
    assert sorted(found) == sorted([prompts.ANSWER_SLOT, prompts.FENCE_SLOT])
    parts = prompts.judge_prompt(language).parts
    assert prompts.FENCE_SLOT in parts[0]
    last = parts[-1].splitlines()[-1]
    assert all(verdict in last for verdict in ("CORRECT", "INCORRECT", "CANNOT TELL"))


def test_a_prompt_of_the_users_has_the_three_texts_where_the_user_put_them():
    own = "A: {{answer}}\n{{fence}}\nQ: {{problem}} R: {{reference}}\nSame?"
    prompt = prompts.judge_prompt("en", own)
    assert prompt.parts[1::2] == ("answer", "problem", "reference")
    assert re.fullmatch(r"judge\.own\.en@[0-9a-f]{12}", prompt.version)
    assert prompts.of_version(prompt.version) is None
    # The same words mean something else to another reader of replies.
    assert prompts.judge_prompt("en", own, "general_verifier").version != prompt.version
    blocks = prompts.judge_prompt("en", "Compare.\n{{answer}}\nSame?").parts
    assert blocks[1::2] == ("problem", "reference", "answer")
    assert [part.count(prompts.FENCE_SLOT) for part in blocks[::2]] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("own", "told"),
    [
        ("{{answer}} {{problem}}", "{{reference}} 0 times"),
        ("{{answer}} {{problem}} {{reference}} {{answer}}", "{{answer}} 2 times"),
        ("{{answer}} {{answer}}", "{{answer}} 2 times"),
    ],
)
def test_a_prompt_of_the_users_without_its_places_is_refused(own, told):
    with pytest.raises(ConfigError) as refused:
        prompts.judge_prompt("en", own)
    assert told in refused.value.what and "{{answer}} alone" in refused.value.fix


@pytest.mark.parametrize("role", ["thinker", "deliberator"])
def test_an_unknown_domain_is_an_error_that_lists_the_choices(role):
    with pytest.raises(ConfigError) as raised:
        prompts.load(role, "poetry", "en")
    for domain, language in DOMAINS:
        assert f"{domain}/{language}" in str(raised.value)
    assert "'poetry'" in raised.value.what


def test_a_thinker_reads_the_problem_and_then_the_instruction():
    prompt = prompts.load("thinker", "brief", "en")
    assert (
        prompts.thinker_prompt(" {{cache}} = ? \n", prompt)
        == f"{{{{cache}}}} = ?\n\n{prompt.closing}"
    )
