"""``generate --dry-run`` says before a run what the run then does, over real HTTP."""

import json
import random
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import MICRO, run_command
from fake_server import FakeServer, completion, serving
from import_files import lines
from problem_files import doubles

from heavydistill.config.run import load_config
from heavydistill.models.tokenizer import ReaderTokenizer
from heavydistill.run.estimate import Estimate, estimate
from heavydistill.run.generate import check

PROBLEMS, K, D, MOST_TOKENS, TEMPLATE = 12, 4, 2, 400, 9
USD_IN, USD_OUT = 3.0, 15.0


class Bill:
    """A server that counts tokens as a real one does, and answers by the request alone."""

    def __init__(self) -> None:
        self.refuses: set[int] = set()  # problems whose first attempts and deliberations fail
        self._lock, self._reader = threading.Lock(), ReaderTokenizer(MICRO)
        self.clear()

    def clear(self) -> None:
        self.thinking = self.deliberating = self.refused = self.prompt = self.completion = 0

    def answer(self, body: dict[str, Any]) -> Any:
        text = body["messages"][0]["content"]
        draw = random.Random(json.dumps([text, body["seed"]]))
        deliberates = "Attempt 1" in text
        problem = next(n for n in range(PROBLEMS) if f"What is {n} + {n}?" in text)
        if problem in self.refuses and (deliberates or draw.random() < 0.25):
            with self._lock:
                self.refused += 1
            return 400, {"error": {"message": "no"}}
        status, payload = completion(f"\\boxed{{{draw.randrange(6)}}}", reasoning_content="so")
        read = self._reader.count(text) + TEMPLATE
        written = draw.randrange(100, 200) if deliberates else draw.randrange(30, 60)
        payload["usage"] = {"prompt_tokens": read, "completion_tokens": written}
        with self._lock:
            self.thinking += not deliberates
            self.deliberating += deliberates
            self.prompt += read
            self.completion += written
        return status, payload

    @property
    def usd(self) -> float:
        return (self.prompt * USD_IN + self.completion * USD_OUT) / 1e6


def keys(server: FakeServer, folder: Path, out: str, **more: object) -> dict[str, Any]:
    """Dotted keys of a configuration; those that are None are left out."""
    chosen = {
        "teacher": "served",
        "endpoint.base_url": server.base_url,
        "endpoint.tokenizer": MICRO,
        "endpoint.retries": 0,
        "endpoint.price_in": USD_IN,
        "endpoint.price_out": USD_OUT,
        "problems.source": doubles(folder, PROBLEMS, start=0),
        "think.k": K,
        "deliberate.d": D,
        "think.sampling.max_tokens": MOST_TOKENS,
        "deliberate.sampling.max_tokens": MOST_TOKENS,
        "out": folder / out,
        "journal": folder / "journal",
    } | {key.replace("__", "."): value for key, value in more.items()}
    return {
        key: str(value) if isinstance(value, Path) else value
        for key, value in chosen.items()
        if value is not None
    }


def flags(server: FakeServer, folder: Path, out: str, **more: object) -> list[str]:
    return [f"--set={key}={value}" for key, value in keys(server, folder, out, **more).items()]


def planned(server: FakeServer, folder: Path, out: str) -> Estimate:
    """The ranges behind what a dry run prints for the whole run."""
    return estimate(check(load_config(None, keys(server, folder, out))))


@pytest.fixture
def said(call: Any) -> Any:
    """Runs ``generate`` in this process; what it prints, without its line breaks."""

    def run(arguments: list[str], *codes: int) -> str:
        code, *printed = call("generate", *arguments)
        assert code in (codes or (0,)), printed
        return " ".join("".join(printed).split())

    return run


DRY = "--dry-run"


def test_without_a_tokenizer_it_says_what_counts_and_that_the_prompts_are_estimated(said, tmp_path):
    away: Any = SimpleNamespace(base_url="http://127.0.0.1:1/v1")
    printed = said([DRY, *flags(away, tmp_path, "run", endpoint__tokenizer=None)])
    assert "Tokens of caches: counted by the server if it answers /tokenize" in printed
    assert "counted with an estimate: one token for each UTF-8 byte" in printed
    # An estimate is no lower bound, so each prompt has at least one token.
    assert re.search(rf"thinking {K * PROBLEMS} {K * PROBLEMS} to", printed)
    assert "Tokens of caches" not in said([DRY, *flags(away, tmp_path, "run")])


def test_a_run_asks_reads_writes_and_costs_what_was_planned(tmp_path, said):
    bill = Bill()
    with serving(bill.answer) as server:
        whole = flags(server, tmp_path, "whole")
        first = said([DRY, *whole])
        assert "thinking 48 " in first and "deliberating 24 " in first and "all 72 " in first
        assert "length unknown, so 1 to 400 tokens each" in first
        assert "20 tokens a second for each response, 32 at once in each stage: assumed" in first
        assert "What is 0 + 0?" in first
        assert not server.requests and not (tmp_path / "journal").exists()
        before = planned(server, tmp_path, "whole")

        # A few problems first, as it says.
        printed = said(flags(server, tmp_path, "few", problems__limit=5))
        assert "To ask: 30 calls" in printed and "least to most" in printed
        narrowed = planned(server, tmp_path, "whole")
        thinking, deliberating = narrowed.stages
        assert thinking.in_journal.low == thinking.in_journal.high == 5 * K
        assert deliberating.in_journal.high == 5 * D
        assert all(stage.is_measured for stage in narrowed.stages)
        assert narrowed.amounts.usd and before.amounts.usd
        assert narrowed.amounts.usd.high < before.amounts.usd.high / 2
        again = said([DRY, *whole, "--budget=25usd"])
        assert f"In the journal: {5 * K} of {PROBLEMS * K} trajectories" in again
        assert "tokens each, the mean of 20 responses in the journal" in again
        assert "25usd is enough" in again
        assert (
            "USD per million prompt tokens, 15 per million completion tokens (as set for this run)"
            in again
        )
        short = f"{bill.usd / 100:.6f}usd"
        assert "is not enough" in said([DRY, *whole, f"--budget={short}"])

        # Then all, but something goes wrong.
        bill.clear()
        bill.refuses = {8, 9}
        printed = said(whole)
        assert "in thinking" in printed and f"{5 * K:,} of {PROBLEMS * K:,} in thinking" in printed
        assert bill.thinking + bill.deliberating + bill.refused == narrowed.amounts.calls.low
        usage = json.loads((tmp_path / "whole" / "summary.json").read_text())["usage"]
        known = sum(used["cost_usd"] for used in usage.values())
        first_five = json.loads((tmp_path / "few" / "summary.json").read_text())["usage"]
        paid_before = sum(used["cost_usd"] for used in first_five.values())
        assert known == pytest.approx(paid_before + bill.usd)
        assert usage["thinking"]["requests"] == PROBLEMS * K

        # What failed is still to be asked, and only that.
        rest = planned(server, tmp_path, "whole")
        failed = PROBLEMS * K - 5 * K - bill.thinking
        assert failed and rest.stages[0].amounts.calls.low == failed
        bill.clear()
        bill.refuses = set()
        said(whole)
        assert bill.thinking == failed
        assert bill.thinking + bill.deliberating in rest.amounts.calls

        # One whole run against both plans of it.
        everything = planned(server, tmp_path, "other")
        assert everything.amounts.calls.low == 0


def test_without_a_price_there_are_tokens_and_how_to_give_it(tmp_path, said):
    with serving(lambda body: completion("no")) as server:
        free = flags(server, tmp_path, "run", endpoint__price_in=None, endpoint__price_out=None)
        printed = said([DRY, *free])
        assert "--price-in and --price-out" in printed and "thinking 48 " in printed
        for dry_run in ([DRY], []):
            refused = said([*dry_run, *free, "--budget=25usd"], 2)
            assert "the price of served is unknown" in refused and "--price-in" in refused
        assert "40Mtok is enough" in said([DRY, *free, "--budget=40Mtok"])
        assert not server.requests


def test_a_model_in_this_process_costs_nothing(tmp_path, said):
    printed = said([DRY, "--limit=10", f"--out={tmp_path / 'run'}"])
    assert "thinking 80 " in printed and " 0.00 " in printed
    assert "Requests left" in printed
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "fix"),
    [
        (["--k=300"], "At most 35 attempts of 32 tokens fit: --set cache.width=35"),
        (["--set=cache.budget_tokens=20"], "Not even 2 attempts of 32 tokens fit"),
        (
            ["--set=deliberate.sampling.max_tokens=1980"],
            "Not even 2 attempts of 32 tokens fit: lower deliberate",
        ),
    ],
)
def test_a_context_too_small_says_how_many_attempts_fit(more, fix, tmp_path, said):
    for dry_run in ([], [DRY]):
        assert fix in said([f"--out={tmp_path / 'run'}", *more, *dry_run], 2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("own", "warns"), [(0, False), (2, True)])
def test_problems_that_the_bundled_models_cannot_solve_are_told_in_the_plan(own, warns, tmp_path):
    rows = [{"text": f"{SUM} 1{n} + 13 + 12 + 11 + 15 =", "reference": "9"} for n in "123"]
    rows += [{"text": f"Name {n}.", "reference": "2"} for n in range(own)]
    file = lines(tmp_path / "p.jsonl", *rows)
    done = run_command("generate", "--problems", file, "--dry-run", f"--out={tmp_path / 'run'}")
    printed = " ".join(done.stdout.split())
    told = "Warning: micro can only add 5 to 8 numbers and count the legs of animals, in the "
    told += "bundled problems; 2 of 5 problems are others. --teacher names a model that can"
    assert done.returncode == 0 and printed.count(told) == warns
    assert ("can only add" in printed) == warns


SUM = "State the final answer to the following arithmetic problem:"
