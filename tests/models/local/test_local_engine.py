"""The in-process engine on a tiny Llama with random weights.

That a sample does not depend on its batch holds beyond rounding only: padding changes the order
of sums in the last bits, so two logits nearly equal could swap. With the weights and seeds here
none do, and the tests allow no difference.
"""

import dataclasses
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.errors import TeacherError
from heavydistill.models.journaled import JournaledEngine
from heavydistill.models.local import architecture
from heavydistill.models.local import engine as local
from heavydistill.models.local.engine import LocalEngine, _processors, _Sampler
from heavydistill.models.registry import profile_at, revision_of
from heavydistill.models.request import Request, Response, Sample, user_turn
from heavydistill.store.journal import Journal

CONTEXT = 128
PLAIN = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_tokens=12)
PROMPTS = ["1+1?", "What is 20+22?", "How many legs have 3 cows and 12 chickens in all?"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    import torch
    from micro_models.tokenizer import train_tokenizer
    from micro_models.training import Size, new_model

    tokenizer = train_tokenizer(PROMPTS, CONTEXT)
    model = new_model(Size(hidden=32, layers=2, heads=2, feed_forward=48), tokenizer, seed=1)
    with torch.no_grad():
        # Fresh weights repeat their input or are nearly uniform over the vocabulary. These are
        # peaked, as those of a trained model are.
        for name, weight in model.named_parameters():
            if "proj" in name:
                weight *= 10
        model.model.norm.weight *= 20
        # Parts of characters all decode to the same sign, so they are made rare.
        for token in range(len(tokenizer)):
            if "\ufffd" in tokenizer.decode([token]):
                model.get_input_embeddings().weight[token] = 0
    folder = tmp_path_factory.mktemp("checkpoint")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def engine(checkpoint) -> LocalEngine:
    return LocalEngine(str(checkpoint), think_tags=None)


def request(seed: int = 0, prompt: str = PROMPTS[0], **sampling: Any) -> Request:
    return Request(user_turn(prompt), PLAIN.model_copy(update=sampling), seed)


def sample(response: Response) -> Response:
    """All of it but the time it took."""
    return dataclasses.replace(response, latency_s=0.0)


def texts(engine: LocalEngine, requests: list[Request]) -> list[str]:
    responses = engine.generate(requests)
    assert all(response.error is None for response in responses)
    return [response.answer_text for response in responses]


def first_tokens(engine: LocalEngine, prompt: str) -> list[tuple[str, float]]:
    """The text of each token and its probability to come first, likeliest first."""
    import torch

    ids = engine.tokenizer.apply_chat_template(
        user_turn(prompt), add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    with torch.no_grad():
        probabilities = engine.model(ids).logits[0, -1].double().softmax(-1).tolist()
    written = [
        engine.tokenizer.decode([token], skip_special_tokens=True).strip()
        for token in range(len(probabilities))
    ]
    return sorted(zip(written, probabilities, strict=True), key=lambda one: -one[1])


def test_the_revision_is_known_without_loading_the_weights(engine, checkpoint):
    profile = profile_at(str(checkpoint), Endpoint())
    assert revision_of(profile, Endpoint()) == engine.revision != ""


def test_a_sample_does_not_depend_on_its_batch(engine, checkpoint):
    seeds = (0, 1, 2, 2**31 - 1)
    shapes = [(prompt, most) for prompt, most in zip(PROMPTS, (12, 10, 12), strict=True)]
    requests = [request(seed, prompt, max_tokens=most) for seed in seeds for prompt, most in shapes]
    together = [sample(one) for one in engine.generate(requests)]
    # The seed alone decides it.
    assert [sample(one) for one in engine.generate(requests)] == together
    assert len({one.answer_text for one in together}) == len(requests)
    assert together == [sample(engine.generate([one])[0]) for one in requests]
    # Two sequences a batch at most.
    narrow = LocalEngine(str(checkpoint), None, batch_tokens=2 * (60 + PLAIN.max_tokens))
    assert together == [sample(one) for one in narrow.generate(requests)]


def test_tokens_are_reported_before_a_batch_ends_and_are_those_of_the_responses(
    checkpoint, monkeypatch
):
    monkeypatch.setattr(local, "_REPORTED_EVERY_S", 0.0)
    events: list[tuple[str, int]] = []
    engine = LocalEngine(str(checkpoint), None, on_tokens=lambda n: events.append(("tokens", n)))

    def keep(samples: list[Sample]) -> None:
        events.extend(("ended", response.completion_tokens) for _, response in samples)

    engine.generate([request(seed, max_tokens=60) for seed in range(8)], keep)
    written, ended = ([n for kind, n in events if kind == which] for which in ("tokens", "ended"))
    assert sum(written) == sum(ended)
    assert sum(n for kind, n in events[: events.index(("ended", 60))] if kind == "tokens") >= 8 * 16


def test_a_batch_is_what_is_fast_and_has_room_in_memory(engine, monkeypatch):
    assert engine.batch_tokens == 131_072
    a_token = 2 * 2 * 32 * 4  # keys and values, two layers, all heads together, float32
    monkeypatch.setattr(local, "_BATCH_BYTES", 1000 * a_token)
    assert local._batch_tokens(engine.model) == 1000


def test_what_ended_before_a_batch_was_broken_off_is_in_the_journal(engine, tmp_path):
    requests = [request(seed, max_tokens=90) for seed in range(40)]
    whole = {
        one.seed: sample(it) for one, it in zip(requests, engine.generate(requests), strict=True)
    }
    lengths = sorted(one.completion_tokens for one in whole.values())
    assert lengths[1] < 40 and lengths[-1] == 90

    class Full(Exception):
        pass

    def interrupted(how: str) -> set[int]:
        """The seeds of what was asked now."""
        engine.is_drained = False
        journal, asked = Journal(tmp_path / "journal"), []

        def keep(samples: list[Sample]) -> None:
            ((request, response),) = samples
            asked.append(request.seed)
            assert sample(response) == whole[request.seed]
            if how == "drain":
                engine.drain()
            elif how == "raise" and len(asked) == 2:
                raise Full

        shared = SimpleNamespace(
            revision="", generate=engine.generate, close=lambda: None, is_drained=False
        )
        journaled = JournaledEngine(shared, journal, "tiny")
        try:
            responses = journaled.generate(requests, keep)
        except Full:
            assert how == "raise"
        else:
            given = [one.failure for one in responses if one.failure]
            assert (set(given) == {"interrupted"}) is (how == "drain")
        finally:
            journaled.close()
            engine.is_drained = False
        return set(asked)

    first, second, rest = interrupted("raise"), interrupted("drain"), interrupted("")
    assert len(first) == 2 and 0 < len(second) < 38
    assert len(first) + len(second) + len(rest) == 40 and first | second | rest == set(whole)


def test_an_ended_turn_stops_and_counts_its_last_token(engine):
    responses = engine.generate([request(seed, max_tokens=30) for seed in range(60)])
    ended = [(seed, one) for seed, one in enumerate(responses) if one.finish_reason == "stop"]
    assert ended and len(ended) < len(responses)
    for seed, response in ended[:5]:
        tokens = response.completion_tokens
        assert engine.tokenizer.eos_token not in response.answer_text
        # As many tokens are just enough, one fewer cuts the end of the turn off.
        assert sample(engine.generate([request(seed, max_tokens=tokens)])[0]) == sample(response)
        if tokens > 1:
            (cut,) = engine.generate([request(seed, max_tokens=tokens - 1)])
            assert (cut.finish_reason, cut.completion_tokens) == ("length", tokens - 1)
            assert cut.answer_text == response.answer_text


def test_a_response_ends_before_a_text_at_which_it_must_stop(engine):
    whole = engine.generate([request()])[0]
    text = whole.reasoning + whole.answer_text
    stop = text[len(text) // 2 :][:3]
    asked = dataclasses.replace(request(), more={"stop": [stop]})
    (stopped,) = engine.generate([asked])
    assert (stopped.reasoning + stopped.answer_text).strip() == text.partition(stop)[0].strip()
    assert stopped.finish_reason == "stop"


def test_prompt_tokens_are_those_of_the_chat_template(engine):
    for prompt, response in zip(
        PROMPTS, engine.generate([request(0, prompt) for prompt in PROMPTS]), strict=True
    ):
        text = f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"
        assert response.prompt_tokens == len(engine.tokenizer(text)["input_ids"])


def test_a_chat_template_reads_the_arguments_of_a_call_as_an_object(engine, monkeypatch):
    template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{% for name in c.function.arguments %}({{ name }}){% endfor %}{% endfor %}{% endfor %}"
    )
    monkeypatch.setattr(engine.tokenizer, "chat_template", template)
    calls = [
        {"id": id, "type": "function", "function": {"name": "python", "arguments": arguments}}
        for id, arguments in (("1", '{"code": "20+22"}'), ("2", "?"))
    ]
    asked = request()
    asked.messages.append({"role": "assistant", "content": "", "tool_calls": calls})
    asked.messages.append({"role": "tool", "content": "42", "tool_call_id": "1"})
    (response,) = engine.generate([asked])
    text = f"user:{PROMPTS[0]}assistant:(code)(?)tool:42"
    assert response.prompt_tokens == len(engine.tokenizer(text)["input_ids"])
    assert calls[0]["function"]["arguments"] == '{"code": "20+22"}'


def test_a_temperature_of_zero_or_near_it_is_greedy_whatever_the_seed(engine):
    likeliest, _ = first_tokens(engine, PROMPTS[0])[0]
    assert texts(engine, [request(0, temperature=0.0, max_tokens=1)]) == [likeliest]
    cold = [request(seed, temperature=of) for seed in range(8) for of in (0.0, 1e-3)]
    assert len(set(texts(engine, cold))) == 1


@pytest.mark.parametrize("sampling", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.3}])
def test_a_filter_keeps_the_tokens_that_it_should(engine, sampling):
    ranked = first_tokens(engine, PROMPTS[0])
    kept = {
        text
        for rank, (text, probability) in enumerate(ranked)
        if rank < sampling.get("top_k", len(ranked))
        and sum(before for _, before in ranked[:rank]) < sampling.get("top_p", 1.0)
        and probability >= sampling.get("min_p", 0.0) * ranked[0][1]
    }
    requests = [request(seed, max_tokens=1, **sampling) for seed in range(400)]
    assert 1 < len(kept) < 10
    assert set(texts(engine, requests)) == kept


@pytest.mark.parametrize("size", [11, 5000])
@pytest.mark.parametrize(("top_k", "top_p", "min_p"), [(10, 0.95, 0.0), (20, 0.8, 0.05), (1, 1, 0)])
def test_samples_of_the_likeliest_tokens_are_those_of_all_tokens_with_a_filter(
    size, top_k, top_p, min_p
):
    sampling = Sampling(temperature=0.7, top_k=top_k, top_p=top_p, min_p=min_p)
    warpers = LogitsProcessorList([TemperatureLogitsWarper(0.7), TopKLogitsWarper(top_k)])
    warpers += [TopPLogitsWarper(top_p)] + ([MinPLogitsWarper(min_p)] if min_p else [])
    seeds, read = list(range(64)), torch.zeros(64, 9, dtype=torch.long)
    logits = 4 * torch.randn(64, size, generator=torch.Generator().manual_seed(1))
    sampled = _processors(sampling, seeds, 5)(read, logits.clone()).argmax(dim=1)
    whole = _Sampler(0, warpers, seeds, 5)(read, logits.clone()).argmax(dim=1)
    assert sampled.tolist() == whole.tolist()


def test_tokens_as_likely_as_the_last_one_of_top_k_may_be_sampled():
    logits = torch.tensor([[0.0, 1.0, 3.0, 1.0, 1.0]]).repeat(400, 1)
    scores = _processors(Sampling(temperature=1.0, top_k=2, top_p=1.0), list(range(400)), 0)(
        torch.zeros(400, 0, dtype=torch.long), logits
    )
    assert set(scores.argmax(dim=1).tolist()) == {1, 2, 3, 4}


def test_a_repetition_penalty_changes_greedy_output(engine):
    greedy = {"temperature": 0.0, "max_tokens": 24}
    plain, penalised = texts(engine, [request(**greedy), request(**greedy, repetition_penalty=5.0)])
    assert plain != penalised


def test_first_tokens_are_distributed_as_the_model_says(engine):
    count = 4000
    ranked = first_tokens(engine, PROMPTS[0])
    # The model is neither sure nor uniform, or the distance would say little.
    assert 0.05 < ranked[0][1] < 0.6
    drawn = Counter(texts(engine, [request(seed, max_tokens=1) for seed in range(count)]))
    expected: Counter[str] = Counter()
    for text, probability in ranked:
        expected[text] += probability
    assert set(drawn) <= set(expected)
    distance = sum(abs(expected[text] - drawn[text] / count) for text in expected) / 2
    assert distance < 0.05


def test_a_checkpoints_own_generation_settings_do_not_leak_in(engine, checkpoint, tmp_path):
    from transformers import GenerationConfig

    opinionated = Path(shutil.copytree(checkpoint, tmp_path / "opinionated"))
    GenerationConfig(
        do_sample=True,
        temperature=0.1,
        top_k=2,
        repetition_penalty=5.0,
        no_repeat_ngram_size=1,
        eos_token_id=engine.tokenizer.eos_token_id,
    ).save_pretrained(opinionated)
    requests = [request(seed, max_tokens=24) for seed in range(4)]
    requests.append(request(temperature=0.0, max_tokens=24))
    written = texts(LocalEngine(str(opinionated), think_tags=None), requests)
    assert written == texts(engine, requests)


@pytest.mark.parametrize(
    ("abilities", "stored", "width", "computed"),
    [
        ({"avx512_bf16": True}, "bfloat16", 576, "bfloat16"),
        ({"avx512_bf16": False, "avx2": True}, "bfloat16", 576, "float32"),
        ({"avx512_bf16": True}, "float32", 576, "float32"),
        ({"avx512_bf16": True}, "float16", 576, "float32"),
        ({"avx512_bf16": True}, "bfloat16", 128, "float32"),
    ],
    ids=["able", "unable", "other weights", "half precision", "narrow"],
)
def test_bfloat16_is_computed_where_it_is_faster(monkeypatch, abilities, stored, width, computed):
    import torch
    from transformers import LlamaConfig

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: abilities)
    config = LlamaConfig(dtype=stored, hidden_size=width)
    assert architecture.fast_dtype(config) == getattr(torch, computed)


def test_in_bfloat16_it_writes_what_transformers_writes(checkpoint, tmp_path, monkeypatch):
    import torch
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True})
    monkeypatch.setattr(architecture, "_NARROW", 32)
    folder = Path(shutil.copytree(checkpoint, tmp_path / "half"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    engine = LocalEngine(str(folder), think_tags=None)
    assert engine.model.dtype == torch.bfloat16
    ids = engine.tokenizer.apply_chat_template(
        user_turn(PROMPTS[1]), add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    whole = model.generate(**ids, do_sample=False, max_new_tokens=12)[0]
    wanted = engine.tokenizer.decode(whole[ids["input_ids"].shape[1] :], skip_special_tokens=True)
    assert texts(engine, [request(prompt=PROMPTS[1], temperature=0.0)]) == [wanted]


def test_a_prompt_that_does_not_fit_is_an_error_that_names_the_tokens(engine):
    fits, too_long, also_fits = engine.generate([request(), request(0, "7" * 200), request(1)])
    assert too_long.finish_reason == "error" and too_long.prompt_tokens > 200
    for number in (too_long.prompt_tokens, PLAIN.max_tokens, CONTEXT):
        assert str(number) in too_long.error
    assert too_long.answer_text == "" and too_long.completion_tokens == 0
    assert fits.error is None and also_fits.error is None and engine.generate([]) == []
    room = CONTEXT - fits.prompt_tokens  # which it holds to the last token
    assert engine.generate([request(max_tokens=room)])[0].error is None
    assert engine.generate([request(max_tokens=room + 1)])[0].finish_reason == "error"


def _cut_off(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "config.json").unlink(), "cannot be loaded"),
        (_cut_off, "cannot be loaded"),
        (lambda folder: (folder / "chat_template.jinja").unlink(), "no chat template"),
    ],
    ids=["no checkpoint", "cut off", "no template"],
)
def test_what_is_no_whole_checkpoint_is_refused(checkpoint, tmp_path, harm, said):
    folder = Path(shutil.copytree(checkpoint, tmp_path / "broken"))
    harm(folder)
    with pytest.raises(TeacherError, match=said) as caught:
        LocalEngine(str(folder))
    assert repr(str(folder)) in str(caught.value)
