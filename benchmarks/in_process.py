"""Tokens a second of a model in this process, beside transformers' own ``generate``.

    OMP_NUM_THREADS=2 python benchmarks/in_process.py
    OMP_NUM_THREADS=1 python benchmarks/in_process.py --vocabulary 49152 --prompt-tokens 450

The bundled micro teacher, or with ``--vocabulary`` a Llama of SmolLM2-135M's shape with random
weights and so many tokens, answers the same prompts in the same batches, with the same sampling,
end of turn and threads:

- bare: ``model.generate`` with ``do_sample``, and nothing else;
- engine: ``LocalEngine.generate``: prompts encoded, batches made, samples seeded one by one,
  responses decoded and split;
- step (``--step``): ``SampleTrajectories`` over a ``HeavyLLM`` in this process, without a journal.

They take turns, so that whatever else the machine does slows all of them, and each turn draws
anew. Prints the median of the ratio to the bare turn before, with its 95 % bootstrap interval; by
the time of the processor too, which a busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.config.run import Problems
from heavydistill.heavy import prompts
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Request, user_turn
from heavydistill.problems import load
from heavydistill.run.recipe.pipeline import LOCAL_BATCH
from heavydistill.schema import Problem, to_row

Turn = Callable[[int], int]  # from a seed to the tokens that were written


def requests_of(problems: list[Problem], k: int, sampling: Sampling, turn: int) -> list[Request]:
    """``k`` samples of each problem, with seeds of their own in each turn."""
    prompt = prompts.load("thinker", "brief", "en")
    return [
        Request(user_turn(prompts.thinker_prompt(problem.text, prompt)), sampling, seed, index)
        for number, problem in enumerate(problems)
        for index in range(k)
        for seed in [turn * 1_000_003 + number * k + index]
    ]


def bare(engine: LocalEngine, problems: list[Problem], k: int, sampling: Sampling) -> Turn:
    """``model.generate`` on the batches that the engine makes of the same requests."""
    import torch
    from transformers import GenerationConfig

    tokenizer, model = engine.tokenizer, engine.model
    config = GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_new_tokens=sampling.max_tokens,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    wanted = requests_of(problems, k, sampling, 0)
    encoded = [
        list(
            tokenizer.apply_chat_template(
                one.messages, add_generation_prompt=True, return_dict=False
            )
        )
        for one in wanted
    ]
    batches = [
        tokenizer.pad(
            {"input_ids": [encoded[i] for i in batch]}, padding_side="left", return_tensors="pt"
        ).to(model.device)
        for step in _steps(len(wanted), k)
        for batch in engine._batches([*range(len(wanted[step]))], encoded[step], wanted[step])
        for batch in [[step.start + i for i in batch]]
    ]

    def turn(seed: int) -> int:
        torch.manual_seed(seed)
        written = 0
        for batch in batches:
            rows = model.generate(**batch, generation_config=config)
            new = rows[:, batch["input_ids"].shape[1] :]
            ended = (new == tokenizer.eos_token_id).int()
            written += int((ended.cumsum(1) - ended == 0).sum())
        return written

    return turn


def engine_turn(engine: LocalEngine, problems: list[Problem], k: int, sampling: Sampling) -> Turn:
    """The engine alone, asked for as many rows at once as a step asks for."""

    def turn(seed: int) -> int:
        wanted = requests_of(problems, k, sampling, seed)
        steps = (engine.generate(wanted[step]) for step in _steps(len(wanted), k))
        return sum(response.completion_tokens for responses in steps for response in responses)

    return turn


def step_turn(problems: list[Problem], k: int, sampling: Sampling) -> Turn:
    """The step of a run, with its rows in and out."""
    from heavydistill.run.recipe.llm import HeavyLLM
    from heavydistill.run.recipe.tasks import SampleTrajectories

    def turn(seed: int) -> int:
        step.llm.seed = seed
        written = 0
        for start in range(0, len(problems), LOCAL_BATCH):
            rows = [{"problem": to_row(one)} for one in problems[start : start + LOCAL_BATCH]]
            for row in next(step.process(rows)):
                written += sum(trajectory["completion_tokens"] for trajectory in row["pool"])
        return written

    step = SampleTrajectories(
        name="sample",
        llm=HeavyLLM(teacher="micro", sampling=sampling),
        num_generations=k,
        domain="brief",
    )
    step.load()
    return turn


def _steps(requests: int, k: int) -> Iterator[slice]:
    """The requests of the rows that a step takes at once."""
    size = LOCAL_BATCH * k
    yield from (slice(start, min(start + size, requests)) for start in range(0, requests, size))


def interval(ratios: list[float]) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def random_llama(folder: Path, vocabulary: int) -> str:
    """Save a model of SmolLM2-135M's shape and precision that never ends a response; its folder."""
    import torch
    from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM

    micro = AutoTokenizer.from_pretrained(profile_at("micro", Endpoint()).model)
    micro.save_pretrained(folder)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=micro.eos_token_id,
        pad_token_id=micro.pad_token_id,
    )
    model = LlamaForCausalLM(shape).to(torch.bfloat16)
    model.generation_config = GenerationConfig(eos_token_id=micro.eos_token_id)
    model.save_pretrained(folder)
    return str(folder)


def lengthened(problem: Problem, engine: LocalEngine, tokens: int) -> Problem:
    """The problem, repeated until its text has so many tokens."""
    once = len(engine.tokenizer.encode(problem.text + " "))
    return replace(problem, text=" ".join([problem.text] * max(1, round(tokens / once))))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=32)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--step", action="store_true", help="through the step too")
    parser.add_argument("--vocabulary", type=int, help="of a random Llama of 135M's shape")
    parser.add_argument("--tokens", type=int, default=48, help="that the random Llama writes")
    parser.add_argument("--prompt-tokens", type=int, default=0, help="of each problem, about")
    chosen = parser.parse_args()
    import torch

    profile = profile_at("micro", Endpoint())
    sampling, model = profile.thinker, profile.model
    if chosen.vocabulary:
        model = random_llama(Path(tempfile.mkdtemp()), chosen.vocabulary)
        sampling = Sampling(temperature=0.6, top_p=0.95, top_k=20, max_tokens=chosen.tokens)
    engine = LocalEngine(model, profile.think_tags)
    problems = [
        lengthened(problem, engine, chosen.prompt_tokens)
        for problem in load(Problems(source="micro", size=chosen.problems))
    ]
    work = (problems, chosen.k, sampling)
    turns = {"bare": bare(engine, *work), "engine": engine_turn(engine, *work)}
    if chosen.step:
        turns["step"] = step_turn(*work)
    print(
        f"{torch.get_num_threads()} threads, {chosen.problems} problems x {chosen.k}, at most "
        f"{sampling.max_tokens} tokens"
    )
    for turn in turns.values():
        turn(0)  # warm
    clocks = {"wall": time.perf_counter, "CPU": time.process_time}
    speeds = {(name, clock): list[float]() for name in turns for clock in clocks}
    for number in range(1, chosen.turns + 1):
        for name, turn in turns.items():
            started = {clock: read() for clock, read in clocks.items()}
            written = turn(number)
            for clock, read in clocks.items():
                speeds[name, clock].append(written / (read() - started[clock]))
    for (name, clock), found in speeds.items():
        ratios = [one / base for one, base in zip(found, speeds["bare", clock], strict=True)]
        low, high = interval(ratios)
        print(
            f"{name:<8} {statistics.median(found):8.0f} tokens a second of {clock:<4}  "
            f"{statistics.median(ratios):.3f} of bare ({low:.3f} to {high:.3f})"
        )


if __name__ == "__main__":
    main()
