"""What doctor finds out about an endpoint, over real HTTP."""

import dataclasses
from typing import Any

import fake_server
import messages
import pytest
from cutting_server import cutting
from fault_server import MODEL, FaultServer, faulty

from heavydistill.config.models import Capabilities, Endpoint, Sampling
from heavydistill.doctor.endpoint import Examination, ExaminedModel
from heavydistill.heavy.pruning import Reader
from heavydistill.models.capabilities import ASSUMED, Context, Source
from heavydistill.models.profiles import Profile
from heavydistill.models.tokenizer import ByteEstimate

PAPER = Sampling()
ESTIMATE = ByteEstimate()
SWITCH = {"chat_template_kwargs": {"thinking": True}}


def patient(**changes: Any) -> ExaminedModel:
    of_patient = {
        key: changes.pop(key) for key in ("hosted", "samplings", "cache_tokens") if key in changes
    }
    known = {"thinks": True, "extra_body": SWITCH, "context": 131_072} | changes
    profile = Profile(
        kind="endpoint", name="deepseek-v3.2", model=MODEL, tokenizer="unused", **known
    )
    asked = {
        "context": Context(profile.name, profile.context, Source.PROFILE),
        "samplings": [PAPER],
        "prompt": "What is 17 + 25 - 8?",
        "parser": "deepseek_v3",
    }
    return ExaminedModel(profile=profile, **asked | of_patient)


def habits(**settings: Any) -> dict[str, Any]:
    """Those of a good server, but for these."""
    return {"written": 9, **settings}


def visit(
    settings: dict[str, Any],
    who: ExaminedModel | None = None,
    reader: Reader = ESTIMATE,
    **endpoint: Any,
) -> tuple[Examination, FaultServer, dict[str, Any]]:
    with faulty(**settings) as served:
        asked = Endpoint(base_url=served.base_url, retries=0, **endpoint)
        seen = Examination(who or patient(), asked, reader)
    return seen, served, {finding.check: finding for finding in seen.findings}


def test_a_good_server_has_no_findings_but_good_ones():
    seen, served, by_check = visit(habits())
    assert {finding.result for finding in seen.findings} == {"ok"}
    checked = seen.capabilities.checked
    assert seen.capabilities == Capabilities(
        n=4, reasoning="reasoning_content", seed="honoured", checked=checked
    )
    assert f"{MODEL} at {served.base_url}" in checked
    assert "4 choices, all different" in by_check["n"].text
    # Few and small requests, and each is counted.
    assert seen.requests == len(served.asked) <= 10
    assert seen.prompt_tokens == 100 * len(served.asked)
    assert 0 < seen.completion_tokens < 200
    lengths = sorted(body["max_tokens"] for body in served.asked)
    assert lengths[-1] == PAPER.max_tokens and lengths[-2] <= 4096

    # The question about thinking is what the run would send.
    sent = [body for body in served.asked if "17 + 25" in body["messages"][0]["content"]]
    whole, streamed = sent
    wanted = {"temperature": 1.0, "top_p": 0.95, "top_k": 10, "seed": 1, **SWITCH}
    assert wanted.items() <= whole.items() and wanted.items() <= streamed.items()
    assert streamed["stream"] and streamed["stream_options"] == {"include_usage": True}
    assert not {"min_p", "repetition_penalty"} & whole.keys()  # off, so a run sends neither


@pytest.mark.parametrize("place", ["reasoning_content", "reasoning", "blocks", "tags"])
def test_the_thinking_is_found_where_it_is(place):
    seen, _, by_check = visit(habits(reasoning=place))
    assert seen.capabilities.reasoning == place
    assert by_check["thinking"].result == by_check["stream"].result == "ok"
    assert '"thinking": true' in by_check["thinking"].text


def test_a_teacher_that_thinks_and_shows_none_is_a_failure_with_the_fix():
    seen, _, by_check = visit(habits(reasoning="none"))
    assert seen.capabilities.reasoning == "none"
    assert by_check["thinking"].result == "failure"
    assert "--reasoning-parser deepseek_v3" in by_check["thinking"].fix
    hosted = visit(habits(reasoning="none"), patient(hosted=True))[2]["thinking"]
    assert hosted.result == "failure" and "extra_body" in hosted.fix
    optional = visit(habits(reasoning="none"), reasoning="optional")[2]["thinking"]
    assert optional.result == "warning"
    unknown = visit(habits(reasoning="none"), patient(thinks=False))[2]["thinking"]
    assert unknown.result == "ok"


@pytest.mark.parametrize(
    ("habit", "n", "said"),
    [
        ({}, 4, "up to 4"),
        ({"honours_n": 1}, 1, "ignored: 1 choice"),
        ({"refuses_n": "always"}, 1, "refused"),
        ({"refuses_n": "streamed"}, 1, "refused"),
        ({"seed": "alone"}, 1, "4 choices, 1 different"),
    ],
)
def test_n_is_used_only_where_different_samples_came(habit, n, said):
    seen, _, by_check = visit(habits(**habit))
    assert seen.capabilities.n == n
    assert said in by_check["n"].text


class OneAWord(ByteEstimate):
    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


@pytest.mark.parametrize("reader", [ESTIMATE, OneAWord()])
def test_n_is_not_used_where_the_tokens_of_one_sample_are_reported_for_all(reader):
    seen, _, by_check = visit(habits(counts_first=True), reader=reader)
    assert seen.capabilities.n == 1
    assert "usage says 9 completion tokens" in by_check["n"].text
    assert by_check["n"].result == "warning"
    assert seen.capabilities.n_because in by_check["n"].text
    assert by_check["usage"].result == "ok"  # of a single sample it is right
    assert visit(habits(), reader=reader)[0].capabilities.n_because == ""


def test_a_usage_far_below_the_tokenizers_count_is_a_warning():
    reader = OneAWord()
    reader.count = len  # type: ignore[method-assign]
    finding = visit(habits(), reader=reader)[2]["usage"]
    assert finding.result == "warning" and "usage says 9 completion tokens" in finding.text


@pytest.mark.parametrize("stream", ["pieces", "refused"])
def test_n_is_asked_for_as_the_run_would_ask(stream):
    _, served, by_check = visit(habits(stream=stream))
    (asked,) = (body for body in served.asked if "n" in body)
    assert {"seed", "top_p", *SWITCH} <= asked.keys()
    assert ({"stream", "stream_options"} & asked.keys() != set()) is (stream == "pieces")
    assert "4 choices, all different" in by_check["n"].text


@pytest.mark.parametrize(
    ("habit", "result", "said"),
    [
        ("honours", "ok", "the same text for the same seed"),
        ("ignores", "ok", "without effect"),
        ("fixed", "failure", "K samples would be one"),
    ],
)
def test_seeds_tell_whether_samples_differ_and_repeat(habit, result, said):
    seen, _, by_check = visit(habits(seed=habit, refuses_n="always"))
    finding = by_check["seed"]
    assert (finding.result, said in finding.text) == (result, True)
    recorded = {"honours": "honoured", "ignores": "ignored", "fixed": "forced"}
    assert seen.capabilities.seed == recorded[habit]


def test_refused_parameters_are_found_one_by_one():
    seen, served, by_check = visit(habits(refused=frozenset({"top_k", "seed"})))
    assert seen.capabilities.refused == ["seed", "top_k"]
    assert by_check["parameters"].result == "warning"
    assert "samples differ without it" in by_check["seed"].text
    assert seen.capabilities.seed == "refused"
    # Nothing refused is sent again once that is known.
    last = served.asked[-4:]
    assert not any({"top_k", "seed"} & body.keys() for body in last)
    assert seen.capabilities.reasoning == "reasoning_content"


@pytest.mark.parametrize(
    ("habit", "refused", "said"),
    [
        ({"clash": frozenset({"temperature", "top_p"})}, "top_p", "refuses top_p"),
        ({"refused": frozenset(SWITCH)}, "chat_template_kwargs", "extra_body in the profile"),
    ],
)
def test_parameters_that_do_not_go_together_or_switch_thinking_are_named(habit, refused, said):
    seen, _, by_check = visit(habits(**habit))
    assert seen.capabilities.refused == [refused]
    assert said in f"{by_check['parameters'].text} {by_check['parameters'].fix}"


def test_every_parameter_of_every_role_is_tried():
    samplings = [Sampling(min_p=0.1), Sampling(repetition_penalty=1.1, top_k=0)]
    _, served, by_check = visit(habits(), patient(samplings=samplings))
    assert "min_p" in by_check["parameters"].text
    assert any(body.get("repetition_penalty") == 1.1 for body in served.asked)


def test_the_other_name_of_the_length_is_found():
    seen, served, by_check = visit(habits(length_name="max_completion_tokens"))
    assert seen.capabilities == Capabilities(
        n=4,
        max_tokens_name="max_completion_tokens",
        reasoning="reasoning_content",
        seed="honoured",
        checked=seen.capabilities.checked,
    )
    assert sum("max_tokens" in body for body in served.asked) == 1
    assert "max_completion_tokens" in by_check["cut off"].text


@pytest.mark.parametrize(
    "said",
    [
        "Invalid max_tokens value, the valid range of max_tokens is [1, {most}]",
        "max_tokens is too large: 32768. This model supports at most {most} completion tokens",
        "integer above maximum value, expected a value <= {most}, but got 32768 instead. id 021775",
        "Range of max_tokens should be [1, {most}]",
        "`max_tokens` must be less than or equal to `{most}`, the maximum value for `max_tokens` "
        "is less than the `context_window` for this model",
    ],
)
def test_the_largest_output_is_read_from_the_refusal_and_tried(said):
    seen, served, by_check = visit(habits(max_output=8192, refusal_of_length=said))
    assert seen.capabilities.max_output == 8192
    assert any(body["max_tokens"] == 8192 for body in served.asked)
    assert by_check["maximum output"].result == "warning"


# The client puts the status before it, and that is a number, too.
@pytest.mark.parametrize("said", ["32768 is too much, error 77", "at most 9000 tokens"])
def test_a_largest_output_that_is_not_named_or_not_taken_is_not_guessed(said):
    seen, _, by_check = visit(habits(max_output=8192, refusal_of_length=said))
    assert seen.capabilities.max_output is None
    assert by_check["maximum output"].result == "failure"


@pytest.mark.parametrize(("tokens", "context"), [(16_384, 16_384), (131_072, None)])
def test_a_small_context_that_the_server_lists_is_obeyed(tokens, context):
    seen = visit(habits(listed={"max_model_len": tokens}))[0]
    assert seen.capabilities.context == context


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens=32768 cannot be greater than max_model_len={most}. Please request fewer output "
        "tokens. (parameter=max_tokens, value=32768)",
        "This model's maximum context length is {most} tokens. However, you requested 32768 output "
        "tokens and your prompt contains at least 12 input tokens",
    ],
)
def test_a_small_context_that_a_refusal_tells_is_obeyed(said):
    seen = visit(habits(max_output=16_384, refusal_of_length=said))[0].capabilities
    assert (seen.context, seen.max_output) == (16_384, None)


@pytest.mark.parametrize("habit", ["whole", "refused", "thoughtless"])
def test_a_stream_that_is_none_or_loses_the_thinking_is_not_used(habit):
    seen, _, by_check = visit(habits(stream=habit))
    assert not seen.capabilities.stream and seen.is_counted
    assert by_check["stream"].result == "warning" and "timeout_s" in by_check["stream"].fix


def test_stream_options_that_are_refused_cost_the_counts():
    seen, _, by_check = visit(habits(refused=frozenset({"stream_options"})))
    assert seen.capabilities.stream and not seen.is_counted
    assert seen.capabilities.refused == ["stream_options"]
    assert "stream: false" in by_check["usage"].fix


@pytest.mark.parametrize("usage", ["never", "whole"])
def test_missing_counts_are_said(usage):
    seen, _, by_check = visit(habits(usage=usage))
    assert not seen.is_counted
    assert by_check["usage"].result == "warning"


def replying(reply: fake_server.Answer, **endpoint: Any) -> dict[str, Any]:
    """Findings about a server that always says the same."""
    with fake_server.serving(lambda body: reply) as server:
        asked = Endpoint(base_url=server.base_url, retries=0, **endpoint)
        return {each.check: each for each in Examination(patient(), asked, ESTIMATE).findings}


def test_a_reply_that_ended_before_the_limit_is_not_taken_for_a_cut_off_one():
    findings = replying(fake_server.completion("34"))
    assert findings["cut off"].result == "ok"
    assert findings["cut off"].text.endswith("ended by itself after 7 tokens")


def test_a_cut_off_response_that_looks_finished_is_a_failure():
    assert visit(habits(cut_reason="stop", written=16))[2]["cut off"].result == "failure"
    seen, _, by_check = visit(habits(end_reason="odd", cut_reason="odd"))
    assert by_check["cut off"].result == by_check["finish reason"].result == "failure"
    assert "'odd'" in by_check["finish reason"].text and not seen.capabilities.finish_reasons


def test_an_answer_in_the_field_of_the_thinking_is_the_parsers_fault():
    reply = fake_server.completion("", reasoning_content="17 + 25 - 8 is \\boxed{34}.")
    findings = replying(reply)
    assert findings["thinking"].result == "failure"
    assert "reasoning parser" in findings["thinking"].text
    assert "--reasoning-parser" in findings["thinking"].fix
    assert findings["finish reason"].result == "ok"


@pytest.mark.parametrize(
    ("reasons", "learnt"),
    [
        ({"end_reason": "eos", "cut_reason": "max_tokens"}, {}),
        ({"end_reason": "odd"}, {"odd": "stop"}),
        ({"cut_reason": "cut"}, {"cut": "length"}),
        ({"end_reason": "odd", "cut_reason": "cut"}, {"odd": "stop", "cut": "length"}),
    ],
)
def test_finish_reasons_are_known_or_told_apart_by_what_they_follow(reasons, learnt):
    seen, _, by_check = visit(habits(**reasons))
    assert by_check["cut off"].result == by_check["finish reason"].result == "ok"
    assert seen.capabilities.finish_reasons == learnt
    assert all(f"reads as {meaning}" in str(by_check) for meaning in learnt.values())


def test_a_server_that_refuses_everything_is_an_error_without_the_key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    with messages.raises("plain_request_refused") as raised:
        visit(habits(refused=frozenset({"messages"})), api_key_env="SOME_KEY")
    assert "sk-secret" not in str(raised.value) and "***" in str(raised.value)


@pytest.mark.parametrize("status", [200, 400])
def test_a_refusal_shows_neither_the_key_nor_control_characters(monkeypatch, status):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    message = "\x1b]0;title\x07" + "x" * 470 + "sk-secret"
    with messages.raises("plain_request_refused") as raised:
        replying((status, {"error": {"message": message}}), api_key_env="SOME_KEY")
    assert "sk-" not in str(raised.value) and str(raised.value).isprintable()


def test_a_wrong_key_is_an_error_that_names_its_variable(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-wrong")
    with messages.raises("key_refused", variable="SOME_KEY") as raised:
        visit(habits(key="sk-right"), api_key_env="SOME_KEY")
    assert "sk-wrong" not in str(raised.value)


def test_findings_never_show_the_key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    refusing = habits(max_output=8192, refusal_of_length="no", stream="refused")
    seen, _, _ = visit(refusing, api_key_env="SOME_KEY")
    assert "***" in str(seen.findings) and "sk-secret" not in str(seen)


@pytest.mark.parametrize(
    ("listed", "result", "told"),
    [
        ({}, "warning", "the server does not say it; 8,192 tokens, assumed"),
        ({"meta": {"n_ctx": 4096}}, "ok", "4,096 tokens by its list of models, which the run"),
        ({"context_length": 32_768}, "ok", "32,768 tokens by its list of models, which the run"),
    ],
)
def test_a_context_that_no_profile_knows_is_the_server_s_or_assumed(listed, result, told):
    unknown = dataclasses.replace(patient(), context=Context("m", ASSUMED, Source.ASSUMED))
    seen, _, by_check = visit(habits(listed=listed), unknown)
    finding = by_check["context"]
    assert finding.result == result and told in finding.text
    assert ("--set endpoint.context=N" in finding.fix) == (result == "warning")
    assert (seen.capabilities.context is None) == (result == "warning")


@pytest.mark.parametrize(
    ("habit", "result", "said"),
    [
        ({"context": None}, "ok", "reads a plain prompt of 6,000 words"),
        ({}, "failure", "it read 2,050 tokens"),
        ({"counts": False}, "warning", "does not say how much of it was read"),
        ({"of_plain": (400, {"error": {"message": "too many"}})}, "failure", "too many"),
        ({"of_plain": (500, {"error": {"message": "no memory"}})}, "failure", "no memory"),
    ],
)
def test_one_prompt_is_as_long_as_the_planned_cache(habit, result, said):
    with cutting(**habit) as server:
        asked = Endpoint(base_url=server.base_url, retries=0)
        seen = Examination(patient(cache_tokens=6000), asked, ESTIMATE)
    *others, found = seen.findings
    assert "long prompt" not in {finding.check for finding in others}
    assert (found.check, found.result) == ("long prompt", result)
    assert said in found.text and len(server.plain) == 1
    if habit == {}:
        assert "OLLAMA_CONTEXT_LENGTH" in found.fix and "LM Studio" in found.fix


def test_a_model_that_reads_no_caches_gets_no_long_prompt():
    with cutting() as server:
        seen = Examination(patient(), Endpoint(base_url=server.base_url), ESTIMATE)
    assert not server.plain and seen.findings[-1].check == "seed"


@pytest.mark.parametrize(
    ("most", "told"),
    [
        (None, "none, so it cannot be the teacher of `heavydistill distill --teacher_endpoint`"),
        (20, "of the 20 likeliest in each place, so it can be the teacher of `heavydistill"),
    ],
)
def test_it_says_whether_a_server_can_be_the_teacher_of_a_distillation(most, told):
    found = visit(habits(max_logprobs=most))[2]["prompt scores"]
    assert found.result == "ok" and told in found.text
