import json
import os
import signal
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest
from own_verifiers import DEEDS
from verdict_pools import LIMIT_S, SETTINGS, ends, is_alive, problem, said, worker

from heavydistill.config.run import Verifying
from heavydistill.verifiers import workers
from heavydistill.verifiers.base import Decision, stamped
from heavydistill.verifiers.exact import Exact
from heavydistill.verifiers.pool import VerdictPool

pytestmark = pytest.mark.usefixtures("known_here_alone")


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("hang", "timeout"), ("hang in C", "timeout"), ("crash", "worker_died"),
        ("abort", "worker_died"), ("be killed", "worker_died"), ("want much at once", "memory"),
        ("want ever more", "memory"), ("raise", "verifier_error:KeyError"),
        ("raise oddly", "verifier_error:OddlyMade"), ("leave", "verifier_error:SystemExit"),
        ("recurse", "verifier_error:RecursionError"),
        ("say nothing", "verifier_error:AttributeError"), ("say much", "verifier_error:ValueError"),
        ("say a number", "verifier_error:TypeError"), ("say perhaps", "verifier_error:TypeError"),
        ("say half", "verifier_error:UnicodeEncodeError"),
    ],
)  # fmt: skip
def test_what_a_response_does_to_its_worker_is_the_reason_of_its_verdict(shared, deed, reason):
    assert said(shared, deed) == ("undecided", reason)
    assert said(shared, "7") == ("correct", "told")


def test_an_odd_limit_or_a_decision_of_no_sense_is_a_fault_of_the_verifier(shared):
    assert said(shared, "hang", verifier_args="[]") == ("undecided", "verifier_error:ValueError")
    for answer in ("7", "8"):  # from each method, in the run's own process
        assert said(shared, answer, verifier="hasty") == ("undecided", "verifier_error:TypeError")


def test_a_worker_has_no_streams_and_one_thread_for_numerical_libraries(shared, capfd):
    assert said(shared, "flood") == said(shared, "read") == ("incorrect", "told")
    assert capfd.readouterr() == ("", "")
    assert shared.judge(problem(), "environment").verdict.extracted == "1"


def test_poison_costs_itself_alone(pool):
    poison = ["hang", "crash", "want much at once", "hang in C", "abort"]
    texts = [str(number) for number in range(500)]
    for position, deed in enumerate(poison):
        texts.insert(40 + 90 * position, deed)
    verdicts = [judged.verdict for judged in pool.judge_all((problem("77"), t) for t in texts)]
    assert len(verdicts) == 505
    for text, verdict in zip(texts, verdicts, strict=True):
        if text in DEEDS:
            assert verdict.label == "undecided"
        else:
            assert verdict.label == ("correct" if text == "77" else "incorrect"), verdict
            assert verdict.extracted == text


def test_a_worker_that_is_killed_from_outside_costs_nothing(pool):
    slow = [pool.submit(problem(text=str(n)), "sleep") for n in range(6)]
    for _ in range(3):
        os.kill(worker(pool), signal.SIGKILL)
    assert {future.result(LIMIT_S).verdict.label for future in slow} == {"incorrect"}
    idle = worker(pool)
    os.kill(idle, signal.SIGKILL)
    assert ends(idle)
    assert said(pool, "7") == ("correct", "told")


def test_the_same_response_is_judged_once(pool, monkeypatch):
    given: list[object] = []
    submit = pool._crew.submit
    monkeypatch.setattr(pool._crew, "submit", lambda *task: given.append(task) or submit(*task))
    for deed, verdict in (("hang", "timeout"), ("sleep", "told"), ("7", "told")):
        futures = [pool.submit(problem(), deed) for _ in range(20)]
        assert {future.result(LIMIT_S).verdict.reason for future in futures} == {verdict}
    assert pool.judge(problem(), "7") == futures[0].result()
    assert len(given) == 3


def test_another_problem_or_verifier_makes_another_response(pool):
    assert said(pool, "7") == ("correct", "told")
    assert said(pool, "7", reference="8") == said(pool, "8") == ("incorrect", "told")
    assert pool.judge(problem(verifier="slow"), "7").verdict.verifier == "slow@1"


def test_what_is_remembered_is_bounded(pool, monkeypatch):
    monkeypatch.setattr("heavydistill.verifiers.pool.MOST_KEPT", 10)
    pool.judge_all((problem(), str(n)) for n in range(50))
    assert len(pool._kept) == 10 and not pool._open


def test_a_timeout_is_tried_again_later(pool):
    first, second = pool.judge(problem(), "hang"), pool.judge(problem(), "hang")
    assert first == second and first is not second


def test_preparing_a_verifier_is_not_charged_to_its_first_verdict(pool):
    assert said(pool, "7") == ("correct", "told")
    texts = [str(n) for n in range(20)]
    judged = pool.judge_all((problem(verifier="slow"), text) for text in texts)
    assert [j.verdict.extracted for j in judged] == texts
    assert max(j.seconds for j in judged) < SETTINGS.timeout_s


def test_a_verifier_without_a_worker_leaves_the_others_theirs(pool):
    kinds = ("obedient", "slow", "unprepared", *["stillborn"] * 20) * 10
    judged = pool.judge_all(
        (problem(str(n), verifier=kind), str(n)) for n, kind in enumerate(kinds)
    )
    for kind, each in zip(kinds, judged, strict=True):
        reasons = {"stillborn": "worker_died", "unprepared": "verifier_error:ImportError"}
        assert each.verdict.reason == reasons.get(kind, "told")


@pytest.mark.parametrize("needed", ["Pipe", "_new_process"])
def test_a_system_that_lets_us_have_no_process_is_not_waited_for_for_ever(
    pool, monkeypatch, needed
):
    def refuse(*_: object) -> None:
        raise OSError("Resource temporarily unavailable")

    monkeypatch.setattr(workers, "_MOST_REFUSED_STARTS", 2)
    monkeypatch.setattr(workers, "_LOOK_S", 0.01)
    monkeypatch.setattr(workers, needed, refuse)
    assert said(pool, "7") == ("undecided", "worker_died")
    monkeypatch.undo()
    assert said(pool, "8") == ("incorrect", "told")


def test_a_worker_that_never_takes_its_task_is_replaced(pool, monkeypatch):
    monkeypatch.setattr(workers, "_MOST_START_S", 0.5)
    monkeypatch.setattr(workers, "_LOOK_S", 0.1)
    posed = problem(verifier="endless")
    assert pool.submit(posed, "7").result(LIMIT_S).verdict.reason == "worker_died"


@pytest.mark.parametrize("score", [float("nan"), -0.1, 1.5, float("inf")])
def test_a_score_that_is_no_share_is_a_fault_of_the_verifier(score):
    with pytest.raises(ValueError, match="not between 0 and 1"):
        stamped(Exact(), Decision("correct", "r", score=score))


def test_cheap_verdicts_start_no_worker():
    with VerdictPool(SETTINGS) as pool:
        exact = problem(verifier="exact")
        assert pool.judge(exact, "\\boxed{7}").verdict.is_correct
        assert pool.judge(problem(), "  ").verdict.reason == "empty"
        assert pool.judge(problem(verifier="none"), "7").verdict.reason == "unknown_verifier"
        assert pool.judge(problem(), "\ud800").verdict.reason == "not_text"
        assert not pool._crew._started


def test_plain_references_start_no_worker_and_others_do():
    plain = problem("5 apples, so\n#### 5", "math", verifier_args='{"marker": "####"}')
    with VerdictPool(Verifying(workers=1)) as pool:
        assert pool.check_references([plain] * 3) == [None] * 3
        assert not pool._crew._started
        assert pool.check_references([problem("\\sqrt{2}", "math")]) == [None]
        assert pool._crew._started


def test_many_threads_ask_at_once(shared):
    answers = [*(str(n % 50) for n in range(400)), "hang"]
    with ThreadPoolExecutor(8) as threads:
        *verdicts, stuck = threads.map(lambda answer: said(shared, answer, text="many"), answers)
    assert [v == ("correct", "told") for v in verdicts] == [n % 50 == 7 for n in range(400)]
    assert stuck == ("undecided", "timeout")


def test_a_future_that_is_cancelled_leaves_its_fellows_their_verdict(pool):
    posed = problem(text=str(time.monotonic_ns()))
    dropped, kept = (pool.submit(posed, "hang") for _ in range(2))
    assert dropped.cancel()
    assert kept.result(LIMIT_S).verdict.reason == "timeout"


def test_progress_is_told_in_order(shared):
    told = []
    shared.check_references([problem(str(n)) for n in range(30)], lambda: told.append(len(told)))
    assert told == list(range(30))


def test_close_ends_workers_and_cancels_what_is_open():
    pool = VerdictPool(SETTINGS)
    pid = worker(pool)
    stuck = [pool.submit(problem(text=str(n)), "hang in C") for n in range(5)]
    pool.close()
    pool.close()
    assert ends(pid)
    for future in stuck:
        with pytest.raises(CancelledError):
            future.result(LIMIT_S)
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(problem(), "7")


def test_a_forked_process_has_workers_of_its_own(shared):
    mine = worker(shared)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(write, json.dumps([worker(shared), said(shared, "7")]).encode())
            shared.close()
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as answers:
        theirs, verdict = json.loads(answers.read())
    assert os.waitpid(child, 0)[1] == 0
    assert verdict == ["correct", "told"]
    assert theirs != mine and ends(theirs)
    assert is_alive(mine) and said(shared, "7", text="after") == ("correct", "told")


def test_the_ranks_of_a_trainer_share_the_cores(monkeypatch):
    monkeypatch.setattr(workers, "available_cores", lambda: 8)
    for ranks, size in [("", 8), ("2", 4), ("3", 2), ("100", 1), ("0", 8), ("many", 8)]:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert workers.default_size() == size, ranks


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2), ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu.max": "9900000 100000\n"}, 8), ({}, 8),
    ],
)  # fmt: skip
def test_a_control_group_s_quota_bounds_the_cores(tmp_path, monkeypatch, quota, cores):
    for name, text in quota.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(workers, "_CONTROL_GROUP", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert workers.available_cores() == cores


def test_references_are_checked_in_workers(pool):
    told = [
        (problem("7"), None),
        (problem("odd"), "it is odd; leave it out"),
        (problem("7", verifier_args="[]"), "raised ValueError: limit_s of the verifier"),
        # What makes it unfit leaves it without a limit too.
        (problem("odd", verifier_args="[]"), "it is odd; leave it out"),
        (problem("hang"), "took more than 3 s"),
        (problem("crash"), "ended its process"),
        (problem("7", verifier="exact"), None),
    ]
    faults = pool.check_references([posed for posed, _ in told])
    for fault, (_, says) in zip(faults, told, strict=True):
        assert fault is None if says is None else says in (fault or "")
