"""A run against a server that cuts long prompts, as Ollama does with its default context."""

from command_line import run_command
from cutting_server import MODEL, cutting, tokenizer_in
from import_files import lines

from heavydistill.store.traces import read_traces


def write(read: str) -> str:
    """Long attempts that are right, and deliberations that are right if the problem is in sight."""
    if "it goes" not in read:
        return "so it goes, " * 200 + "\\boxed{4}"
    return "\\boxed{4}" if "What is 2 + 2" in read else "\\boxed{0}"


def test_cut_caches_stop_the_run_and_never_become_a_figure(tmp_path):
    problems = tmp_path / "problems.jsonl"
    lines(problems, *({"text": f"What is 2 + 2 + 0 * {n}?", "reference": "4"} for n in range(4)))
    with cutting(write=write) as server:
        words = [
            *("generate", "--teacher", MODEL, "--endpoint", server.base_url, "--k", 4, "--d", 2),
            *("--problems", problems, "--tokenizer", tokenizer_in(tmp_path / "tokenizer")),
            *("--set=think.sampling.max_tokens=2000", "--set=deliberate.sampling.max_tokens=500"),
            *("--out", tmp_path / "run"),
        ]
        stopped = run_command(*words)
        said = " ".join((stopped.stdout + stopped.stderr).split())
        assert stopped.returncode == 2
        assert "cuts long prompts to" in said and "OLLAMA_CONTEXT_LENGTH" in said
        assert "loses to the vote" not in said
        thought = len(server.asked)
        server.context = None  # started again with a larger one
        finished = run_command(*words)
        assert finished.returncode == 0, finished.stderr
        assert len(server.asked) - thought == 4 * 2  # attempts are not asked for again
    written = [d for trace in read_traces(tmp_path / "run") for d in trace.deliberations]
    assert len(written) == 8 and all(d.is_correct and d.prompt_tokens > 2050 for d in written)
