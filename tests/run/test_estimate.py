import dataclasses
import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import MICRO
from hypothesis import given, settings
from hypothesis import strategies as st
from problem_files import remainders
from rich.console import Console
from samples import cache_of, trajectory
from scripted_engine import ScriptedEngine

from heavydistill.cli.plan import print_plan
from heavydistill.config.models import Sampling
from heavydistill.config.run import RunConfig, load_config
from heavydistill.heavy import prompts
from heavydistill.models import registry
from heavydistill.models.journaled import JournaledEngine
from heavydistill.models.profiles import Price
from heavydistill.models.request import (
    THINK,
    Request,
    Response,
    deliberate_stage,
    samples,
    user_turn,
)
from heavydistill.run.estimate import Estimate, Range, estimate
from heavydistill.run.generate import Plan, check
from heavydistill.schema import Problem
from heavydistill.store.journal import Journal


def scripted(seed: int, counts: bool = True) -> ScriptedEngine:
    """Its responses have random lengths; it counts as a server does."""
    draw = random.Random(seed)

    def answer(request: Request, before: int) -> Response:
        return Response(
            answer_text="\\boxed{1}",
            finish_reason="stop",
            prompt_tokens=draw.randrange(20, 90) if counts else -1,
            completion_tokens=draw.randint(1, 500) if counts else -1,
            latency_s=draw.uniform(1, 9),
        )

    return ScriptedEngine(answer)


def plan_of(folder: Path, problems: int = 6, **keys: Any) -> Plan:
    served = {
        "teacher": "served",
        "endpoint.base_url": "http://localhost:1/v1",
        "endpoint.tokenizer": MICRO,
        "problems.source": str(remainders(folder, problems)),
        "think.sampling.max_tokens": 500,
        "deliberate.sampling.max_tokens": 500,
        "out": str(folder / "run"),
    }
    return check(load_config(None, served | {k.replace("__", "."): v for k, v in keys.items()}))


def thinker_requests(plan: Plan, problem: Problem) -> list[Request]:
    config = plan.config
    wording = prompts.load("thinker", problem.domain or config.domain or "general", "en")
    return samples(
        user_turn(prompts.thinker_prompt(problem.text, wording)),
        config.think.k,
        plan.run.in_stage(THINK).sampling,
        run_seed=config.seed,
        model="served",
        stage=THINK,
    )


def deliberator_requests(config: RunConfig, prompt: str, round: int) -> list[Request]:
    return samples(
        user_turn(prompt),
        config.deliberate.d,
        config.deliberate.sampling.over(Sampling()),
        run_seed=config.seed,
        model="served",
        stage=deliberate_stage(round),
    )


def fill(plan: Plan, requests: list[Request], seed: int = 0, counts: bool = True) -> list[Response]:
    engine = JournaledEngine(scripted(seed, counts), Journal(plan.journal), "served")
    responses = engine.generate(requests)
    engine.close()
    return responses


def test_nothing_known_gives_the_bounds(tmp_path):
    told = estimate(plan_of(tmp_path, think__k=4, deliberate__d=2))
    assert told.amounts.calls == Range(6 * 6, 6 * 6)
    assert told.amounts.completion_tokens == Range(36, 36 * 500)
    assert told.amounts.usd is None
    assert not (tmp_path / "journal").exists()


def test_records_that_cannot_be_read_are_shown_and_still_to_be_asked(tmp_path, capsys):
    plan = plan_of(tmp_path, think__k=4, deliberate__d=0)
    fill(plan, thinker_requests(plan, plan.problems[0]))
    (segment,) = plan.journal.glob("*.segment")
    segment.write_bytes(segment.read_bytes().replace(b"boxed", b"baxed", 1))
    told = estimate(plan)
    assert told.skipped == 1 and told.amounts.calls == Range(6 * 4 - 3, 6 * 4 - 3)
    for in_full in (False, True):
        print_plan(plan, Console(), in_full)
        shown = " ".join(capsys.readouterr().out.split())
        assert messages.is_in(shown, "records_unread", count=1, folder=plan.journal)


def test_hours_of_a_first_run_are_those_of_the_assumed_speed(tmp_path):
    def told(**keys: Any) -> Estimate:
        return estimate(plan_of(tmp_path, problems=400, think__k=4, deliberate__d=2, **keys))

    slow = told(endpoint__tokens_per_second=10)
    thinking = slow.stages[0].amounts.hours
    in_turn = 400 * 4 * (500 / 10) / 3600
    assert thinking.high == pytest.approx(in_turn / 32)
    assert 0 < thinking.low == pytest.approx(400 * 4 * 0.1 / 3600 / 32)
    assert slow.amounts.hours.high == pytest.approx(sum(s.amounts.hours.high for s in slow.stages))
    fast = told(endpoint__tokens_per_second=40)
    assert fast.amounts.hours.high == pytest.approx(slow.amounts.hours.high / 4)
    shared = told(endpoint__base_url="http://localhost:1/v1,http://localhost:2/v1")
    assert shared.amounts.hours.high < told().amounts.hours.high / 1.9
    local = estimate(check(load_config(None, {"out": str(tmp_path / "local")})))
    assert local.amounts.hours == Range(0, math.inf)


def test_what_the_journal_answers_is_not_asked_again(tmp_path):
    plan = plan_of(tmp_path, think__k=4)
    fill(plan, thinker_requests(plan, plan.problems[0]))
    fill(plan, thinker_requests(plan, plan.problems[1])[:3])
    (thinking, _) = estimate(plan).stages
    assert thinking.in_journal == Range(7, 7)
    assert thinking.amounts.calls == Range(17, 17)
    # Another seed is another run.
    other = plan_of(tmp_path, think__k=4, seed=1)
    assert estimate(other).stages[0].in_journal == Range(0, 0)


def test_deliberations_may_be_in_the_journal_where_the_pools_are(tmp_path):
    plan = plan_of(tmp_path, think__k=4, deliberate__d=3)
    fill(plan, thinker_requests(plan, plan.problems[0]))
    fill(plan, deliberator_requests(plan.config, "a cache", 1))
    fill(plan, deliberator_requests(plan.config, "a cache of another run", 1))
    deliberating = estimate(plan).stages[1]
    assert deliberating.in_journal == Range(0, 3)
    assert deliberating.amounts.calls == Range(15, 18)


def test_problems_of_the_same_text_are_asked_once(tmp_path):
    plan = plan_of(tmp_path, think__k=4)
    twice = dataclasses.replace(plan, problems=[*plan.problems, plan.problems[0]])
    assert estimate(twice).stages[0].amounts.calls == Range(24, 24)


def test_stages_are_told_apart_and_sampling_must_be_the_same(tmp_path):
    plan = plan_of(tmp_path, think__k=4, deliberate__rounds=2)
    for number in range(3):
        fill(plan, deliberator_requests(plan.config, f"cache {number}", 2), seed=number)
    told = estimate(plan)
    assert [stage.is_measured for stage in told.stages] == [False, False, True]
    means = told.stages[2].means
    assert means and means.responses == 12
    assert told.stages[2].amounts.completion_tokens == Range(24, 24).times(
        means.completion_tokens or 0, means.completion_tokens or 0
    )
    hotter = plan_of(tmp_path, deliberate__rounds=2, deliberate__sampling__temperature=0.5)
    assert not any(stage.means for stage in estimate(hotter).stages)


def test_a_server_that_does_not_count_leaves_the_bounds(tmp_path):
    plan = plan_of(tmp_path)
    for problem in plan.problems[:3]:
        fill(plan, thinker_requests(plan, problem), counts=False)
    thinking = estimate(plan).stages[0]
    assert thinking.means and not thinking.is_measured
    assert thinking.amounts.completion_tokens == thinking.amounts.calls.times(1, 500)
    assert thinking.amounts.hours.high < 1


def test_hours_follow_the_concurrency_and_the_limits(tmp_path):
    plan = plan_of(tmp_path, problems=400)
    for problem in plan.problems[:12]:
        fill(plan, thinker_requests(plan, problem), seed=int(problem.id[1:]))

    def hours(**keys: Any) -> Range:
        return estimate(plan_of(tmp_path, problems=400, **keys)).stages[0].amounts.hours

    calls = 388 * 8  # of 5 s on average
    alone = hours(endpoint__concurrency=1)
    assert alone.low == alone.high == pytest.approx(calls * 5 / 3600, rel=0.1)
    assert hours(endpoint__concurrency=10).low == pytest.approx(alone.low / 10)
    slow = hours(endpoint__requests_per_minute=6)
    assert slow.low == slow.high == pytest.approx(calls / 6 / 60)
    assert hours(endpoint__tokens_per_minute=100_000).low > hours().low


def test_shared_prompts_are_read_once_at_the_least(tmp_path):
    one = estimate(plan_of(tmp_path, think__k=8)).amounts
    shared = estimate(plan_of(tmp_path, think__k=8, endpoint__capabilities={"n": 4})).amounts
    assert shared.prompt_tokens.low * 4 == one.prompt_tokens.low
    assert shared.prompt_tokens.high == one.prompt_tokens.high


def test_a_price_makes_the_cost_of_both_ends(tmp_path):
    told = estimate(plan_of(tmp_path, endpoint__price_in=2, endpoint__price_out=10)).amounts
    read, written = told.prompt_tokens, told.completion_tokens
    assert told.usd and told.usd.low == pytest.approx((read.low * 2 + written.low * 10) / 1e6)
    assert told.usd.high == pytest.approx((read.high * 2 + written.high * 10) / 1e6)


def test_at_best_all_deliberations_on_a_cache_but_one_find_it_in_the_providers_cache(
    tmp_path, monkeypatch
):
    cached = partial(Price, usd_per_mtok_cached=0.2)
    priced = {"endpoint__price_in": 2, "endpoint__price_out": 10, "deliberate__d": 4}
    full = estimate(plan_of(tmp_path, **priced)).amounts
    monkeypatch.setattr(registry, "Price", cached)
    told = estimate(plan_of(tmp_path, **priced))
    (read,) = (s.amounts.prompt_tokens for s in told.stages if s.stage != THINK)
    saved = 3 / 4 * read.low * (2 - 0.2) / 1e6
    assert saved > 0 and told.amounts.usd.low == pytest.approx(full.usd.low - saved)
    assert told.amounts.usd.high == full.usd.high


def used(plan: Plan, draw: random.Random) -> tuple[int, int, int]:
    """(calls, prompt tokens, completion tokens) of a run whose models write anything."""
    from heavydistill.models.tokenizer import ReaderTokenizer

    config, reader = plan.config, ReaderTokenizer(MICRO)
    calls = read = written = 0
    for problem in plan.problems:
        requests = thinker_requests(plan, problem)
        pool = []
        for request in requests:
            words = " ".join(draw.choices(["so", "12", "half of it", "="], k=draw.randrange(300)))
            text = f"{words}\\boxed{{{draw.randrange(99)}}}"
            tokens = min(500, reader.count(text) + 1)
            pool.append(trajectory(id=f"t_{request.seed}", index=request.index, answer_text=text))
            calls, written = calls + 1, written + tokens
            read += reader.count(request.messages[0]["content"]) + draw.randrange(64)
        cache = cache_of(
            problem,
            pool,
            width=config.cache.width,
            budget_tokens=config.cache.budget_tokens or 0,
            prompt=prompts.load("deliberator", config.domain or "general", "en"),
            reader=reader,
        )
        for _ in range(config.deliberate.d):
            calls, written = calls + 1, written + draw.randint(1, 500)
            read += cache.prompt_tokens + draw.randrange(64)
    return calls, read, written


@given(k=st.integers(2, 8), width=st.integers(2, 8) | st.none(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_the_bounds_hold_whatever_the_models_write(tmp_path_factory, k, width, seed):
    chosen = {"think__k": k, "cache__width": width and min(width, k), "cache__budget_tokens": 900}
    plan = plan_of(tmp_path_factory.mktemp("plan"), problems=2, **chosen)
    told: Estimate = estimate(plan)
    calls, read, written = used(plan, random.Random(seed))
    assert calls in told.amounts.calls
    assert read in told.amounts.prompt_tokens
    assert written in told.amounts.completion_tokens
