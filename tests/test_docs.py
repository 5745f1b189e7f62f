"""The documentation: the site builds, and every command and program that it shows works.

The blocks of a page run one after the other in a folder that looks like a checkout. A program
whose first line is ``# NAME.py`` is saved under that name instead, and text that follows a program
is what it prints.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml
from browsing import browsing
from documentation import PAGES, ROOT, Block, blocks_of, check_command, check_prose, commands_in
from forking import forking

LANGUAGES = {"bash", "python", "text", "yaml", "json", "jinja"}
REASONS = {"gpu", "key", "network", "long"}
SLOW = {"docs/guides/train", "docs/recipes/micro", "docs/reference/python"} | {
    f"docs/learn/{lesson}" for lesson in ("1-first-trace", "5-train", "6-measure")
}
"""Pages whose blocks take more than about ten seconds."""
SIZE = 20
"""Number of problems of the given run, of which pages say that it has 100."""
PROBLEMS = """\
{"text": "What is 12 + 7?", "reference": "19"}
{"text": "What is 8 * 6?", "reference": "48"}
{"text": "What is 90 - 35?", "reference": "55"}
"""


def is_run(block: Block) -> bool:
    return block.language in ("bash", "python") and not block.not_run


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT).with_suffix(""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as scripts/docs.sh does."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    built = subprocess.run(
        [*command, "docs", str(out)], cwd=ROOT, capture_output=True, text=True, timeout=800
    )
    assert built.returncode == 0 and not built.stderr, built.stderr
    return out


def test_each_page_has_its_markdown_and_a_line_of_llms_txt(site):
    listed = re.findall(r"\((\S+\.md)\)", (site / "llms.txt").read_text(encoding="utf-8"))
    docs = ROOT / "docs"
    pages = [page.relative_to(docs) for page in PAGES if page.is_relative_to(docs)]
    assert {*listed, "index.md"} == {str(page) for page in pages}
    for page in pages:
        text = (site / page).read_text(encoding="utf-8")
        assert (site / page).with_suffix(".html").is_file()
        assert not re.search(r"<!-- (given|not run|generated):|\{eval-rst\}", text), page
    commands = (site / "reference" / "cli.md").read_text(encoding="utf-8")
    assert "| `--teacher` | string | Model for both roles" in commands


def test_each_row_of_the_reference_has_a_meaning(site):
    for page in (site / "reference").glob("*.md"):
        assert not re.findall(r"^\| .* \|  \|$", page.read_text(encoding="utf-8"), re.MULTILINE)


def test_the_search_works_without_a_server(site):
    with browsing() as browser:
        page = browser.new_page()
        page.goto(f"{(site / 'search.html').as_uri()}?q=minority-right")
        page.wait_for_selector("ul.search li a")
        titles = page.locator("ul.search li a").all_inner_texts()
    assert any(title.startswith("Strata") for title in titles)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of the blocks: no keys, no Hub, and our programs first in PATH."""
    home = tmp_path_factory.mktemp("home")
    kept = {
        name: text for name, text in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))
    }
    usual = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    variables = {**kept, **usual, "HOME": str(home), "HF_HOME": str(home / "hf"), "COLUMNS": "80"}
    with forking(tmp_path_factory.mktemp("bin"), variables) as programs:
        yield variables | {"PATH": os.pathsep.join([str(programs), os.environ["PATH"]])}


@pytest.fixture(scope="module")
def given(
    tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]
) -> Callable[[str, Path], None]:
    """Called with the name of something and a folder: puts it there; it is made once."""
    made = tmp_path_factory.mktemp("given")
    commands = {
        "runs/micro": f"heavydistill generate --set problems.size={SIZE} --out runs/micro",
        "sets/micro": "heavydistill build runs/micro --preset natural --out sets/micro",
    }

    def make(name: str) -> None:
        if name == "my.jsonl":
            (made / name).write_text(PROBLEMS, encoding="utf-8")
        elif not (made / name).exists():
            if name == "sets/micro":
                make("runs/micro")
            done = run(["bash", "-c", commands[name]], made, environment)
            assert done.returncode == 0, done.stderr

    def put(name: str, folder: Path) -> None:
        make(name)
        for part in [name, "runs/journal"] if name.startswith("runs/") else [name]:
            if (made / part).is_dir():
                shutil.copytree(made / part, folder / part, dirs_exist_ok=True)
            else:
                shutil.copy(made / part, folder / part)

    return put


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] * (name_of(page) in SLOW))
        for page in PAGES
        if any(is_run(block) for block in blocks_of(page))
    ],
)
def test_the_blocks_of_a_page_run(page, tmp_path, given, environment):
    for name in ("benchmarks", "configs", "data", "docs", "pipelines", "scripts"):
        (tmp_path / name).symlink_to(ROOT / name)
    printed = None
    for block in blocks_of(page):
        if block.language == "text" and block.follows and printed is not None:
            assert block.text.splitlines() == printed.splitlines(), block.place
        printed = None
        if block.saved_as:
            (tmp_path / block.saved_as).write_text(block.text, encoding="utf-8")
        elif is_run(block):
            for name in block.given:
                given(name, tmp_path)
            printed = ran(block, tmp_path, environment)
            printed = printed if block.language == "python" else None


def ran(block: Block, folder: Path, environment: dict[str, str]) -> str:
    """What a block printed, which must end well."""
    file = folder / f"block.{block.language}"
    file.write_text(block.text, encoding="utf-8")
    program = ["bash", "-euo", "pipefail"] if block.language == "bash" else ["python"]
    done = run([*program, str(file)], folder, environment)
    assert done.returncode == 0, f"{block.place}\n{done.stdout}\n{done.stderr}"
    assert block.language == "bash" or not done.stderr, f"{block.place}\n{done.stderr}"
    return done.stdout


def run(words: list[str], folder: Path, environment: dict[str, str]) -> CompletedProcess[str]:
    where = {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL, "timeout": 800}
    return subprocess.run(words, capture_output=True, text=True, **where)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_of_a_page_exist_with_their_flags_keys_and_files(page):
    for block in blocks_of(page):
        try:
            check_block(block)
        except Exception as error:
            raise AssertionError(f"{block.place}: {error}") from error
    check_prose(re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL))


def check_block(block: Block) -> None:
    assert block.language in LANGUAGES, f"{block.language} is no language that is checked here"
    assert {*block.not_run} <= REASONS, f"{block.not_run} are not among {REASONS}"
    if block.language == "bash":
        for command in commands_in(block.text):
            check_command(command)
    elif block.language == "python":
        compile(block.text, block.place, "exec")
    elif block.language == "yaml":
        yaml.safe_load(block.text)


VALUE = re.compile(r"https?://\S+|'[^']*'|\b[A-Z]{2,}\S*|\S*\d\S*|[.:;,]\s")


def test_messages_that_troubleshooting_quotes_are_printed_by_the_code():
    """Some part of each message, of three words or more, stands in the package."""
    sources = "".join(file.read_text("utf-8") for file in ROOT.glob("heavydistill/**/*.py"))
    printed = re.sub(r'"\n +f?"', "", sources)  # messages go over several lines
    blocks = blocks_of(ROOT / "docs" / "troubleshooting.md")
    quoted = "".join(block.text for block in blocks if block.language == "text").splitlines()
    assert quoted
    for line in quoted:
        parts = [part.strip(" .") for part in VALUE.split(line) if len(part.split()) > 2]
        assert any(part in printed for part in parts), line
