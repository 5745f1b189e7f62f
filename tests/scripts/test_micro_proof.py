"""The proof on the micro models: its stages, how they are run, and its page."""

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from marked import eventually

from heavydistill.errors import ConfigError

sys.path.append(str(Path(__file__).parents[2] / "scripts"))

import reproduce_micro
from micro_proof import stages as proof
from micro_proof.figures import FORMAT, reading
from micro_proof.page import over_seeds, page
from micro_proof.runner import Runner
from micro_proof.stages import Sizes, Stage, arms_of, stages

NEVER = float("inf")


def share(mean: float) -> dict[str, float]:
    return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}


def figures(seed: int, sft: float = 0.8, measured: int = 1000) -> dict:
    """Figures of a seed: every arm has a vote of .5 and a step vote of .6, and sft ``sft``."""

    def pools(right: float) -> dict:
        return {
            "heavy_mean": share(right),
            "vote": share(0.5),
            "heavy_minus_vote": share(right - 0.5),
            "step_vote": share(0.6),
            "heavy_minus_step_vote": share(right - 0.6),
            "unanimous_true": share(0.999),
            "parting_minus_plurality": share(0.2),
            "regress": share(0.05),
            "emergent": {"count": 3, "of": 20, "share": 0.15, "interval": share(0.15)},
            "temperature": 0.6,
        }

    arms = {}
    for arm in arms_of(seed):
        right = {"sft": sft, "distill": sft + 0.06, "base": 0.3}.get(arm, 0.7)
        arms[arm] = {
            **dict.fromkeys(("frozen", "own", "hot"), pools(right)),
            "controls": {"garbled": {"right": share(0.2), "heavy_minus": share(right - 0.2)}},
            "planted": {"1": {"follows": share(0.01)}, "3": {"follows": share(right / 2)}},
            "training": {"learnt_tokens": 480_000, "cpu_minutes": 7.0},
        }
    thinkers = {
        name: {figure: share(0.5) for figure in ("mean_at_k", "vote_at_k", "pass_at_k")}
        for name in ("base", "thinker")
    }
    sizes = {"traces": 2000, "measured": measured, "controlled": 300}
    return {"format": FORMAT, "seed": seed, "sizes": sizes, "thinkers": thinkers, "arms": arms}


def cells(text: str, label: str) -> list[str]:
    """The cells of the first row of figures with a label."""
    rows = [line for line in text.splitlines() if line.startswith(f"| {label} |")]
    found = [[cell.strip() for cell in row.strip("|").split("|")][1:] for row in rows]
    return next(row for row in found if len(row) > 1)


def all_of(seed: int, chosen: Mapping[str, float] | None = None) -> list[Stage]:
    return stages(Path("out"), seed, arms_of(seed), Sizes(), chosen or {})


def asked(stage: Stage) -> list[str]:
    """The command of a stage that generates; of another, nothing."""
    generates = stage.name.partition("/")[2].startswith(("traces", "more-traces", "solutions"))
    attempts = stage.name.partition("/")[2].startswith("attempts-")
    return stage.command() if generates or attempts or stage.name == "seed-1/choice" else []


class TestStages:
    def test_each_stage_comes_after_those_that_it_needs(self):
        seen = set()
        for stage in [*all_of(1), *all_of(2), *all_of(4)]:
            assert set(stage.needs) <= seen, stage.name
            seen.add(stage.name)

    def test_later_seeds_have_fewer_arms(self):
        assert arms_of(3) == proof.ARMS
        assert arms_of(4) == ("base", "sft", "distill", "teacher")
        names = {stage.name for stage in all_of(4, dict.fromkeys(proof.ARMS, 1.0))}
        assert {"seed-4/sft", "seed-4/controls-distill"} <= names
        assert not {"seed-4/grpo", "seed-4/plain", "seed-4/choice"} & names

    def test_no_problem_serves_two_purposes(self):
        """reasoning-gym seeds item i with seed + i, for each of the three families."""
        used: dict[int, str] = {}
        for stage in itertools.chain(*map(all_of, range(1, 6))):
            keys = dict(each.split("=") for each in asked(stage) if each.startswith("problems."))
            if keys:
                seed, _, name = stage.name.partition("/")
                use = f"{seed}, measured" if name.startswith("attempts-") else stage.name
                first, size = int(keys["problems.seed"]), int(keys["problems.size"])
                for each in range(first, first + size // 3 + 1):
                    assert used.setdefault(each, use) == use
        # Of each seed traces, solutions and what is measured; of three more traces, of one choice.
        assert len({*used.values()}) == 5 * 3 + 3 + 1

    def test_the_arms_read_the_same_attempts(self):
        of_seed = [s for s in all_of(2) if "/frozen-" in s.name]
        pools = {s.needs[0] for s in of_seed}
        assert len(of_seed) == len(proof.ARMS) and pools == {"seed-2/attempts-base-4"}


class TestRunner:
    def stage(self, out: Path, name: str, *needs: str, code: str = "") -> Stage:
        made = f"import pathlib; p = pathlib.Path({str(out / name)!r}); p.mkdir(parents=True)"
        return Stage(name, 1, needs, lambda: [sys.executable, "-c", f"{made}; {code}"])

    def runner(self, out: Path, jobs: int = 2) -> tuple[Runner, list[str]]:
        lines: list[str] = []
        return Runner(out, jobs, lines.append), lines

    def test_stages_run_once_and_after_what_they_need(self, tmp_path):
        read = f"assert pathlib.Path({str(tmp_path / 'a')!r}).is_dir()"
        planned = [self.stage(tmp_path, "a"), self.stage(tmp_path, "b", "a", code=read)]
        runner, lines = self.runner(tmp_path)
        assert runner.run(planned, NEVER) == []
        assert [line.split(":")[0] for line in lines] == ["a", "a", "b", "b"]
        assert runner.run(planned, NEVER) == []
        assert len(lines) == 4
        assert (done := runner.done("b")) and done.cpu_seconds > 0

    def test_two_run_at_once_and_no_more(self, tmp_path):
        count = (
            "import time; (p.parent / f'{p.name}.began').touch(); time.sleep(1); "
            "print(len(list(p.parent.glob('*.began'))) - len(list(p.parent.glob('*.ended')))); "
            "(p.parent / f'{p.name}.ended').touch()"
        )
        planned = [self.stage(tmp_path, name, code=count) for name in "abcd"]
        self.runner(tmp_path)[0].run(planned, NEVER)
        at_once = [int((tmp_path / "logs" / f"{name}.log").read_text()) for name in "abcd"]
        assert max(at_once) == 2

    def test_a_failure_stops_the_others_and_names_its_log(self, tmp_path):
        slow = self.stage(tmp_path, "slow", code="import time; time.sleep(60)")
        broken = self.stage(tmp_path, "broken", code="raise SystemExit('no such thing')")
        began = time.monotonic()
        with pytest.raises(ConfigError) as raised:
            self.runner(tmp_path)[0].run([slow, broken], NEVER)
        assert time.monotonic() - began < 30
        log = tmp_path / "logs" / "broken.log"
        assert str(log) in str(raised.value) and "no such thing" in log.read_text()
        assert not (tmp_path / "slow.done.json").exists()

    def test_a_run_is_done_though_some_problems_had_too_few_attempts(self, tmp_path):
        whole = "(p / 'summary.json').touch(); raise SystemExit(1)"
        runner = self.runner(tmp_path)[0]
        assert runner.run([self.stage(tmp_path, "run", code=whole)], NEVER) == []
        assert runner.done("run")

    def test_a_stage_of_another_command_is_not_taken_for_done(self, tmp_path):
        runner, _ = self.runner(tmp_path)
        runner.run([self.stage(tmp_path, "a")], NEVER)
        with pytest.raises(ConfigError, match="was made by another command"):
            runner.run([self.stage(tmp_path, "a", code="print(1)")], NEVER)

    def test_a_stage_that_is_older_than_what_it_is_made_from_is_refused(self, tmp_path):
        planned = [self.stage(tmp_path, "a"), self.stage(tmp_path, "b", "a")]
        runner, lines = self.runner(tmp_path)
        runner.run(planned, NEVER)
        (tmp_path / "a.done.json").unlink()
        (tmp_path / "a").rmdir()
        with pytest.raises(ConfigError, match="b was made before a, which it is made from"):
            runner.run(planned, NEVER)
        assert runner.run(planned[:1], NEVER) == [] and len(lines) == 6
        with pytest.raises(ConfigError, match="b was made before a, which it is made from"):
            runner.run(planned, NEVER)

    def test_no_stage_begins_when_the_time_is_over(self, tmp_path):
        runner, lines = self.runner(tmp_path)
        left = runner.run([self.stage(tmp_path, "a")], time.monotonic() - 1)
        assert [stage.name for stage in left] == ["a"] and lines == []

    def test_a_training_with_a_checkpoint_goes_on(self, tmp_path):
        (tmp_path / "t" / "checkpoint-4").mkdir(parents=True)
        (tmp_path / "t" / "checkpoint-4" / "whole.json").touch()
        show = [sys.executable, "-c", "import sys; print(sys.argv[1:])"]
        self.runner(tmp_path)[0].run([Stage("t", 1, (), lambda: show)], NEVER)
        log = (tmp_path / "logs" / "t.log").read_text()
        assert log.strip() == "['--resume_from_checkpoint', 'true']"


class TestPage:
    def test_figures_are_means_over_seeds_with_students_interval(self):
        text = page([figures(1, 0.7), figures(2, 0.8), figures(3, 0.9)])
        # The mean .8; 4.303 x .1 / sqrt(3) = .248
        assert cells(text, "sft")[:3] == ["3", "80.0% (55.2 to 104.8)", "+30.0 (+5.2 to +54.8)"]

    def test_one_seed_has_no_interval(self):
        assert cells(page([figures(1)]), "sft")[1] == "80.0%"
        assert over_seeds([0.5]) == over_seeds([0.5, 0.5])

    def test_goals_are_judged_seed_by_seed_and_on_the_mean(self):
        text = page([figures(1, 0.9), figures(2, 0.55)])
        name = "sft: {} above 0 in every seed, base's attempts"
        assert cells(text, name.format("HM - vote"))[0] == "yes"
        assert cells(text, name.format("HM - step vote"))[0] == "**no**"
        assert cells(text, name.format("HM - step vote"))[1].startswith("1 of 2")
        assert cells(text, "sft: HM - HM(garbled) above 0 in every seed")[0] == "yes"
        alone = cells(text, "sft: HM - HM(alone) above 0 in every seed")
        assert alone == ["not measured", "0 of 0; -"]
        gain = cells(text, "distill: HM - HM of sft, at least 5 points, base's attempts")
        assert gain[0] == "yes" and gain[1].startswith("+6.0")

    def test_an_arm_that_a_seed_lacks_counts_in_fewer_seeds(self):
        text = page([figures(seed) for seed in (3, 4)])
        assert cells(text, "sft")[0] == "2" and cells(text, "grpo")[0] == "1"

    def test_a_share_of_few_problems_is_not_shown(self):
        assert cells(page([figures(1)]), "sft, seed 1")[-1] == "-"

    def test_seeds_of_other_sizes_are_refused(self):
        with pytest.raises(ConfigError, match="other sizes"):
            page([figures(1), figures(2, measured=12)])

    def test_a_trial_says_that_it_is_one(self):
        assert "no evidence" in page([figures(1, measured=12)])
        assert "no evidence" not in page([figures(1)])

    def test_a_page_of_fewer_seeds_says_that_it_is_not_finished(self):
        assert "Not finished: 2 of 5 seeds" in page([figures(1), figures(2)])
        assert "Not finished" not in page([figures(seed) for seed in range(1, 6)])


def test_a_kill_ends_the_stages_too(tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    code = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); "
    slow = Stage("slow", 1, (), lambda: [sys.executable, "-c", f"{code}time.sleep(600)"])

    def killed() -> None:
        assert eventually(lambda: pid.exists() and pid.read_text(), 60)
        os.kill(os.getpid(), signal.SIGTERM)

    def run(_: object) -> None:
        threading.Thread(target=killed).start()
        Runner(tmp_path, 1, lambda _: None).run([slow], NEVER)

    monkeypatch.setattr(reproduce_micro, "run", run)
    monkeypatch.setattr(sys, "argv", ["-"])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            reproduce_micro.main()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert ended.value.code == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_no_figures_are_written_of_what_other_commands_made(tmp_path, monkeypatch):
    """E.g. of a trial, before a run with all problems into the same folder."""
    of_seed = proof.OfSeed(tmp_path / "out", 1, reproduce_micro.TRIAL, {})
    for stage in of_seed.measured("base"):
        mark = tmp_path / "out" / f"{stage.name}.done.json"
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text('{"command": "other", "seconds": 1, "cpu_seconds": 1}')
    for name in ("HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # what is set here is set back
    monkeypatch.setattr(reproduce_micro, "EVIDENCE", tmp_path / "evidence")
    monkeypatch.setattr(sys, "argv", ["-", "--seeds=1", "--arms=base", f"--out={of_seed.out}"])
    with pytest.raises(SystemExit) as ended:
        reproduce_micro.main()
    assert ended.value.code == 2 and not (tmp_path / "evidence").exists()


def test_a_summary_without_steps_gives_a_reading_without_them():
    summary = {
        "steps": None,
        "step_vote": None,
        "heavy_mean_at_d": share(0.5),
        "vote_at_k": share(0.5),
        "heavy_minus_vote": share(0.0),
        "regress": {"interval": None},
        "emergent": {"count": 0, "of": 0},
    }
    assert reading(summary)["step_vote"] is None
    assert "parting" not in reading(summary)
