"""Heavy thinking in one file: problems, attempts, caches, deliberations, rows.

    python docs/learn/loop.py --problems 24

Everything that `heavydistill generate` does to a problem is here, with the bundled micro teacher in
this process, and without distilabel, journal, retries and limits. The file that it writes is an
ordinary traces file. Read it from the top; each import names the module that does the work.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from heavydistill.config.models import Endpoint
from heavydistill.config.run import CacheChoice, Problems
from heavydistill.heavy import prompts
from heavydistill.heavy.episode import Ask, Episode, Rules, SampleAsk, VerdictAsk
from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.estimators import share_right
from heavydistill.models.registry import open_engine, profile_at
from heavydistill.models.request import Engine, Request, discard, fields_of, sample_seed, user_turn
from heavydistill.models.tokenizer import reader_of
from heavydistill.problems.procedural import micro_problems
from heavydistill.schema import Problem, Trace
from heavydistill.store.traces import read_traces, write_traces
from heavydistill.verifiers.pool import VerdictPool

K, D, SEED = 8, 4, 0
OUT = Path("runs/loop")
TEACHER = profile_at("micro", Endpoint())  # how the model is asked: sampling, tokenizer, context
DOMAIN = TEACHER.domain  # the wording of the prompts that this model was trained on


def episode_of(problem: Problem) -> Episode:
    """One problem on its way from the first ask to the finished trace.

    An episode knows the protocol and nothing else: it says what may be asked now, and it is told
    what came back. K attempts are asked at once; when all are judged, the cache is built from them,
    and D deliberations on it are asked.
    """
    return Episode(
        problem,
        Rules(k=K, min_k=2, d=D, cache=CacheChoice(budget_tokens=1200), seed=SEED),
        thinker=prompts.load("thinker", DOMAIN, "en"),
        deliberator=prompts.load("deliberator", DOMAIN, "en"),
        reader=reader_of(TEACHER.tokenizer),  # the cache is measured in the deliberator's tokens
    )


def sampled(engine: Engine, asks: list[SampleAsk]) -> list[dict[str, object]]:
    """Ask the model for one sample each; all are answered together.

    The seed follows from what is asked, so the same loop gives the same rows again.
    """
    requests = []
    for ask in asks:
        messages = user_turn(ask.prompt)
        sampling = TEACHER.deliberator if ask.round else TEACHER.thinker
        seed = sample_seed(SEED, TEACHER.name, messages, ask.index)
        requests.append(Request(messages, sampling, seed, ask.index))
    responses = engine.generate(requests, discard)
    # A response that failed is data too: the episode goes on with the others.
    return [fields_of(TEACHER.name, *pair) for pair in zip(requests, responses, strict=True)]


def step(episodes: list[Episode], engine: Engine, verdicts: VerdictPool) -> bool:
    """Answer all that the episodes ask now; returns False if they are done."""
    asks: list[tuple[Episode, Ask]] = [(each, ask) for each in episodes for ask in each.asks()]
    samples = [(episode, ask) for episode, ask in asks if isinstance(ask, SampleAsk)]
    answers = sampled(engine, [ask for _, ask in samples])
    for (episode, asked), fields in zip(samples, answers, strict=True):
        episode.tell(asked, fields)
    to_judge = [
        # The verifier reads the final answer; the problem has the reference.
        (episode, ask, verdicts.submit_generation(episode.problem, ask.generation))
        for episode, ask in asks
        if isinstance(ask, VerdictAsk)
    ]
    for episode, ask, verdict in to_judge:
        episode.tell(ask, verdict.result().verdict)
    return bool(asks)


def main(size: int) -> list[Trace]:
    """Run the loop on ``size`` problems, write the rows, and print what deliberating was worth."""
    episodes = [episode_of(problem) for problem in micro_problems(Problems(size=size, seed=SEED))]
    engine = open_engine(TEACHER, Endpoint())
    with VerdictPool() as verdicts:
        while step(episodes, engine, verdicts):
            print(f"{sum(len(each.pool) + len(each.deliberations) for each in episodes)} samples")
    engine.close()
    write_traces((each.trace for each in episodes), OUT / "traces")
    traces = list(read_traces(OUT))

    first = next((each for each in traces if each.stratum == "minority-right"), traces[0])
    print(f"\n{first.problem.text}\n")
    for attempt in first.pool:
        print(f"  attempt: {attempt.extracted}  {'right' if attempt.is_correct else 'wrong'}")
    for one in first.deliberations:
        print(f"  deliberation: {one.extracted}  {'right' if one.is_correct else 'wrong'}")
    print(f"\n{len(traces)} problems, written to {OUT}:")
    print(f"  M@{K}   one attempt is right    {fmean(share_right(t.pool) for t in traces):.1%}")
    print(f"  V@{K}   their vote is right     {fmean(vote_value(t.pool) for t in traces):.1%}")
    deliberated = fmean(share_right(trace.deliberations) for trace in traces)
    print(f"  HM@{D}  a deliberation is right {deliberated:.1%}")
    return traces


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Heavy thinking in one file.")
    parser.add_argument("--problems", type=int, default=24, help="Number of problems.")
    main(parser.parse_args().problems)
