"""Help in two lengths, what it imports, and what is said of verbs and flags that do not exist."""

import json
import re
import subprocess
import sys

import pytest
import typer
from messages import message

from heavydistill.cli.verbs import _PLACES, app
from heavydistill.config.shipped import shipped_file

SHOWS_ALL = """
import contextlib, io, json, sys
from heavydistill.cli.app import main

HEAVY = {"torch", "transformers", "trl", "distilabel", "datasets", "numpy", "pandas", "pyarrow"}
for words in json.loads(sys.argv[1]):
    sys.argv, said = ["heavydistill", *words], io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            main()
    except SystemExit as end:
        assert not end.code, end.code
    assert not HEAVY & sys.modules.keys(), (words, HEAVY & sys.modules.keys())
    if words == ["--help"]:  # a fresh process of its own would take no more
        assert not {"pydantic", "rich", "yaml"} & sys.modules.keys(), sys.modules.keys()
    print(json.dumps([words, said.getvalue()]))
"""
FLAG = re.compile(r"^  (?:-\w, )?(--[\w-]+)", re.MULTILINE)
ALWAYS = {"--set", "--full", "--help", "--help-all"}


@pytest.fixture(scope="module")
def helps() -> dict[tuple[str, ...], str]:
    """Words of the command line to what they print, with the imports asserted."""
    groups = {"journal": ["stats", "check"], "skill": ["export", "check"]}
    verbs = [[group, verb] for group, inner in groups.items() for verb in inner]
    verbs += [[verb] for verb in _PLACES]
    words = [["--help"], *([*verb, flag] for verb in verbs for flag in ("--help", "--help-all"))]
    for group in groups:  # which has --help alone
        words.remove([group, "--help-all"])
    done = subprocess.run(
        [sys.executable, "-c", SHOWS_ALL, json.dumps(words)],
        capture_output=True,
        text=True,
        env={"COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    return {tuple(given): said for given, said in map(json.loads, done.stdout.splitlines())}


def test_help_fits_80_columns_and_is_complete(helps):
    assert all(len(line) <= 80 for said in helps.values() for line in said.splitlines())
    assert all(f"  {verb} " in helps["--help",] for verb in _PLACES)
    for words, said in helps.items():
        rows = re.findall(r"^  (\S.*?)(?:  +(.*)|)$", said, re.MULTILINE)
        assert not [row for row in rows if row[0].startswith("-") and row[1] == "."], words


def test_help_lists_few_flags_and_help_all_every_flag(helps):
    group = typer.main.get_command(app)
    for verb in _PLACES.keys() - {"journal", "skill"}:
        command = group.get_command(None, verb)
        flags = {name for each in command.params for name in each.opts}
        if hasattr(command.callback, "reads_words"):
            flags |= {
                row[0].split()[0] for rows in command.callback.more_help().values() for row in rows
            }
        flags = {flag for flag in flags if flag.startswith("--")} | {"--help", "--help-all"}
        shown = set(FLAG.findall(helps[verb, "--help"]))
        assert len(shown - ALWAYS) <= 10, verb
        assert set(FLAG.findall(helps[verb, "--help-all"])) == flags
    assert "min_k" in helps["generate", "--help-all"]  # a key without a flag


@pytest.mark.parametrize("verb", ["sft", "grpo", "distill"])
def test_the_example_of_a_training_names_a_shipped_file(helps, verb):
    named = re.search(r"--config (\S+)", " ".join(helps[verb, "--help"].split()))
    assert named and f"{named[1]}.yaml" in str(shipped_file(verb, named[1]))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("genrate", "There is no verb genrate. Did you mean generate? `heavydistill --help`"),
        ("journal chek", "There is no verb chek. Did you mean check? `heavydistill journal --help"),
        ("generate --tacher=m", "NO FLAG Did you mean --teacher? `heavydistill"),
        ("--vrsion", "NO FLAG Did you mean --version? `heavydistill --help`"),
        ("generate --temperature 0.7", "NO FLAG Write --set think.sampling"),
        ("generate -k 8", "NO FLAG Did you mean --k? `heavydistill"),
        ("generate test.jsonl", "Unexpected argument: test.jsonl. Did you mean --problems test"),
        ("generate --k eight", "--k: must be a whole number (got 'eight'). Number of trajectories"),
        ("build --presett x", "NO FLAG Did you mean --preset? `heavydistill"),
    ],
)
def test_a_mistyped_verb_or_flag_is_named_with_the_nearest(words, told, call):
    code, printed, said = call(*words.split())
    flag = next((word.partition("=")[0] for word in words.split() if word[0] == "-"), "")
    told = told.replace("NO FLAG", message("no_flag", flag=flag))
    assert (code, printed) == (2, "") and said.startswith(f"Error: {told}")


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        ("-V", "heavydistill "),
        ("version", "heavydistill "),
        ("-h", "Usage: heavydistill [OPTIONS] COMMAND"),
        ("help", "Usage: heavydistill [OPTIONS] COMMAND"),
        ("generate -h", "Usage: heavydistill generate [OPTIONS]"),
        ("help generate", "Usage: heavydistill generate [OPTIONS]"),
        ("sft -h", "Usage: heavydistill sft [OPTIONS]"),
        ("journal --help-all", "Usage: heavydistill journal [OPTIONS]"),
    ],
)
def test_help_and_version_are_found_as_in_other_programs(words, begins, call):
    code, printed, said = call(*words.split())
    assert (code, said) == (0, "") and printed.startswith(begins)


def completed(line: str, shell: str) -> tuple[list[str], set[str]]:
    """What a shell is told to complete a line with, and the large packages imported for it."""
    code = (
        "import sys\nfrom heavydistill.cli.app import main\n"
        "try:\n    main([])\nfinally:\n    print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    words = line.split(" ")
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_HEAVYDISTILL_COMPLETE": shell}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**asked, **action}
    )
    return re.findall(r"[\w-]+", done.stdout), set(done.stderr.split())


@pytest.mark.parametrize("shell", ["complete_bash", "complete_zsh", "complete_fish"])
@pytest.mark.parametrize(
    ("line", "includes"),
    [
        ("heavydistill ge", "generate"),
        ("heavydistill generate --prob", "--problems"),
        ("heavydistill sft --learn", "--learning_rate"),
        ("heavydistill journal ch", "check"),
    ],
)
def test_a_shell_completes_verbs_and_flags_and_nothing_large_is_imported(shell, line, includes):
    words, imported = completed(line, shell)
    assert includes in words
    assert not {"torch", "transformers", "trl", "distilabel", "datasets", "numpy"} & imported
    if line == "heavydistill ge":
        assert "heavydistill.cli.runs" not in imported, "no verb is imported for their names"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell, call, monkeypatch):
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    monkeypatch.setattr("typer.completion._get_shell_name", lambda: shell)
    code, printed, said = call("--show-completion")
    assert (code, said) == (0, "") and f"_HEAVYDISTILL_COMPLETE=complete_{shell}" in printed
