"""Everything that the golden results hold, made by the command line in one folder.

Nothing inside of the program is relied on but its entry point and the folder of the bundled models.
What is made is read back as plain text (``contents``), so that results are compared line by line.

What is left out or put in another form, because no two runs agree in it:

- ``latency_s``, wherever it stands;
- the port of the server (``PORT`` stands for it);
- the hashes of files in the manifest of sets, since such files hold latencies (their names stay);
- ``config.yaml`` of runs and ``config`` in the manifest of sets: keys come and go, and
  tests/fixed_points opens the old ones;
- of what is printed all but the tables, since other tests pin the messages.

What stands in another result already is not recorded again, so that a change is seen once: a
paragraph of Markdown that an earlier file has (headings are always there), the rows of a table of
the page whose titles an earlier one has, the reward of exports (a file of the package).

Parquet files are read as their schema and their rows, since their bytes hold the latencies. A
folder to be published is its card and the names of its files; all else is a copy.
"""

import base64
import contextlib
import gzip
import hashlib
import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import answering
import bs4
import pyarrow.parquet
from command_line import run_command
from fake_server import serving

HERE = Path(__file__).parent
FIXED = HERE.parent / "fixed_points"
MICRO = HERE.parents[1] / "heavydistill" / "micro"
RESULTS, JOURNAL = HERE / "results", HERE / "journal"
PACKED = 4096  # larger ones are stored compressed, but for what a person reads

EXPORTS = ("trl", "verl", "llamafactory", "ms-swift", "axolotl")
EXPORTS += ("openrlhf", "nemo-rl", "tinker", "unsloth")
LEFT_OUT = ("config.yaml", "heavydistill_reward.py")
ON_PAGE = ("0", "2")  # the data of a run and of one of an evaluation: those of others are alike
SUMMARIES = ("before", "after", "frozen")  # controls.json has the figures of the controls
KEEP = "--set=filters.leaks_attempts=keep"  # the server's models speak of attempts in their answers
SIZES = ("--k=3", "--d=2", "--limit=6", "--seed=5")


@dataclass
class Stage:
    """A folder in which commands are given.

    Attributes:
        url: Of the server, once there is one.
        kept: Results by name: what is compared.
        failed: Scenes that broke, and why.
        printed: Everything that was printed, by command.
        paragraphs: Of the Markdown that was kept.
    """

    url: str
    kept: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    printed: dict[str, str] = field(default_factory=dict)
    paragraphs: set[str] = field(default_factory=set)

    def run(self, name: str, *words: str, code: int = 0) -> None:
        """Give a command and keep the tables that it prints as ``printed/NAME.txt``.

        Without a name nothing is kept.
        """
        full = ["--full"] if words[0] in ("generate", "build", "evaluate", "compare") else []
        done = run_command(*words, *full, COLUMNS="80")
        assert done.returncode == code, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
        self.printed[" ".join(words)] = done.stdout
        if name and (found := "\n\n".join(tables(done.stdout))):
            self.kept[f"printed/{name}.txt"] = self.still(found + "\n")

    def served(self, name: str, verb: str, *words: str, code: int = 0) -> None:
        """The same of a verb that asks the server."""
        asked = [f"--endpoint={self.url}", "--tokenizer=model", "--problems=problems.jsonl"]
        more = [
            "--journal=journals/served",
            "--set=endpoint.retries=0",
            "--set=endpoint.context=16384",
            "--set=think.min_k=2",
            "--set=think.sampling.max_tokens=512",
            "--set=deliberate.sampling.max_tokens=512",
        ]
        self.run(name, verb, *asked, *more, *words, code=code)

    def keep(self, folder: str) -> None:
        """Keep the files of a folder."""
        for path in sorted(Path(folder).rglob("*")):
            is_left_out = path.name in LEFT_OUT or "journal" in path.parts
            if path.is_file() and not is_left_out:
                self.keep_file(str(path), path)

    def keep_file(self, name: str, path: Path) -> None:
        text = self.still(contents(path))
        if path.suffix == ".md":
            parts = text.split("\n\n")
            new = [part for part in parts if part[:1] == "#" or part not in self.paragraphs]
            text = "\n\n".join(new).rstrip("\n") + "\n"
            self.paragraphs.update(parts)
        self.kept[name] = text

    def still(self, text: str) -> str:
        """A text without the port of the server."""
        return text.replace(self.url, "http://127.0.0.1:PORT/v1")


def play(stage: Stage) -> None:
    """Give all commands; the working directory is empty and keeps everything."""
    for model in ("teacher", "student"):  # under relative names, which stand in keys and rows
        shutil.copytree(MICRO / model, model)
    shutil.copytree(FIXED / "model", "model")
    shutil.copytree(FIXED / "trained", "trained")
    shutil.copytree(JOURNAL, "journals/micro")
    answering.write_problems(Path("problems.jsonl"))
    Path("known.jsonl").write_text(json.dumps({"text": answering.PROBLEMS[2].row["text"]}) + "\n")
    for scene in SCENES:
        try:
            scene(stage)
        except Exception as error:
            stage.failed[scene.__name__] = f"{type(error).__name__}: {error}"


def quickstart(stage: Stage) -> None:
    """The bundled teacher on bundled problems, as by ``heavydistill generate`` without flags.

    Everything that it says is in the journal. The key of a request has the model's path in it, so
    the teacher is named by a relative one, and what its profile says is given by flags.
    """
    held = _answers("journals/micro")
    stage.run(
        "", "generate", "--limit=6", "--teacher=./teacher", "--set=domain=brief",
        "--set=think.sampling={temperature: 1, top_p: 0.95, top_k: 10, max_tokens: 192}",
        "--set=deliberate.sampling={temperature: 1, top_p: 0.95, top_k: 10, max_tokens: 448}",
        "--set=cache.budget_tokens=1536", "--journal=journals/micro", "--out=runs/quickstart",
    )  # fmt: skip
    assert not held or _answers("journals/micro") == held, "the model was asked"
    stage.keep("runs/quickstart")
    student = ("--student=./student", "--preset=natural")
    stage.run("", "build", "runs/quickstart", *student, "--out=sets/micro")
    stage.keep("sets/micro")


def served(stage: Stage) -> None:
    """Two rounds with a judge, whose answers are right, wrong, open, cut off, refused, ..."""
    sizes = ("--k=8", "--d=4", "--seed=3")
    judge = (
        "--judge=critic",
        f"--set=judge.endpoint={{base_url: '{stage.url}', retries: 0}}",
        "--set=judge.sampling.max_tokens=200",
    )
    stage.served(
        "generate", "generate", "--teacher=served", *sizes, *judge, "--rounds=2",
        "--price-in=0.5", "--price-out=2", "--out=runs/served",
    )  # fmt: skip
    stage.keep("runs/served")
    stage.served(
        "", "generate", "--teacher=strong", *sizes, *judge, "--out=runs/strong",
        "--set=cache.pruning=head_tail", "--set=cache.selection=stratified", "--set=cache.width=4",
        "--set=cache.budget_tokens=2600",
    )  # fmt: skip
    stage.keep("runs/strong")
    compared = ("runs/served", "runs/strong", "--markdown=compared/both.md")
    Path("compared").mkdir()
    stage.run("", "compare", *compared, "--json=compared/both.json")
    stage.keep("compared")


def sets(stage: Stage) -> None:
    """Sets for both roles and for RL, of one run and of two, with a problem that is known."""
    built = ("--student=model", "--set=validation=0.3", "--seed=1", KEEP)
    stage.run(
        "build", "build", "runs/served", *built, "--preset=natural", "--against=known.jsonl",
        "--set=filters.length_quantile=0.9", "--set=sets.per_problem=3", "--out=sets/served",
    )  # fmt: skip
    stage.keep("sets/served")
    both = ("runs/served", "runs/strong", *built, "--against=known.jsonl", "--out=sets/both")
    stage.run("", "build", *both)
    stage.keep("sets/both")


def asked_again(stage: Stage) -> None:
    """Deliberations for sets that have none, and prompts chosen for a checkpoint."""
    stage.run(
        "", "build", "runs/strong", "--student=model", "--preset=natural",
        "--redeliberate", "--teacher=served", f"--endpoint={stage.url}", "--seed=2", KEEP,
        "--set=sets.widths=[3]", "--set=redeliberate.d=2", "--set=redeliberate.endpoint.retries=0",
        "--set=redeliberate.endpoint.tokenizer=model", "--set=redeliberate.journal=journals/again",
        "--set=redeliberate.sampling.max_tokens=512", "--out=sets/redeliberated",
    )  # fmt: skip
    stage.keep("sets/redeliberated")
    stage.run(
        "refilter", "refilter", "sets/served", "--checkpoint=weak", f"--endpoint={stage.url}",
        "--d=4", "--student=model", "--set=endpoint.retries=0", "--set=sampling.max_tokens=512",
        "--journal=journals/refilter", "--out=sets/refiltered",
    )  # fmt: skip
    stage.keep("sets/refiltered")


def exports(stage: Stage) -> None:
    """One of each trainer."""
    for trainer in EXPORTS:
        stage.run(f"export-{trainer}", "export", "sets/served", f"--to={trainer}",
                  f"--out=exports/{trainer}")  # fmt: skip
        stage.keep(f"exports/{trainer}")
        manifest = stage.kept.pop(f"exports/{trainer}/manifest.json")
        assert manifest == stage.kept["sets/served/manifest.json"]


def evaluation(stage: Stage) -> None:
    """Before and after, with all controls and a second order."""
    stage.served(
        "evaluate", "evaluate", "--k=4", "--d=2", "--limit=12", "--set=cache.width=2",
        "--seed=5", "--before=weak", "--thinker=served",
        "--deliberator=strong", "--controls=all", "--orders=2", "--out=runs/evaluation",
        code=1,  # some requests are refused
    )  # fmt: skip
    stage.keep("runs/evaluation")
    for path in Path("runs/evaluation").glob("*/summary.json"):
        if path.parent.name not in SUMMARIES:
            del stage.kept[str(path)]


def planted(stage: Stage) -> None:
    """Wrong steps planted in attempts whose products share their operands and values."""
    stage.served(
        "planted", "evaluate", "--problems=gym:leg_counting", "--set=problems.size=5",
        "--set=problems.seed=4", "--k=4", "--d=1", "--seed=6", "--thinker=served",
        "--deliberator=strong", "--controls=planted", "--out=runs/planted",
    )  # fmt: skip
    for name in ("controls.json", "planted-2/traces/train-00000-of-00001.parquet"):
        stage.keep_file(f"runs/planted/{name}", Path("runs/planted", name))


def crossing(stage: Stage) -> None:
    """Two thinkers with two deliberators."""
    stage.served(
        "cross", "cross", *SIZES, "--teacher=served", "--thinkers=served,strong",
        "--deliberators=weak,strong", "--out=runs/crossing", code=1,
    )  # fmt: skip
    stage.keep("runs/crossing")


def cards(stage: Stage) -> None:
    """What would be published of sets and of models."""
    terms = ("--dry-run", "--allow-unknown-terms", "--license=cc-by-4.0")
    shutil.copytree("runs/evaluation", "trained/full/evaluation")
    trained = ("trained/full", "trained/adapter", "trained/grpo")
    for folder in ("sets/refiltered", *trained):
        name = folder.replace("/", "-")
        stage.run(name, "publish", folder, f"--to=org/{name}", *terms)
        sent = Path(f"{folder}.dry-run")
        files = sorted(str(path.relative_to(sent)) for path in sent.rglob("*") if path.is_file())
        stage.kept[f"published/{name}/files.txt"] = "\n".join(files) + "\n"
        stage.keep_file(f"published/{name}/README.md", sent / "README.md")


def page(stage: Stage) -> None:
    """What the page of a report holds."""
    runs = ("runs/served", "runs/strong", "runs/evaluation", "runs/crossing")
    stage.run("report", "report", *runs, "--out=page.html")
    text = Path("page.html").read_text(encoding="utf-8")
    for name, data in embedded(text):
        if name.split("-")[1] in ON_PAGE:
            stage.kept[f"page/{name}.json"] = stage.still(data)
    stage.kept["page/cells.txt"] = stage.still("\n".join(cells(text)))


def others(stage: Stage) -> None:
    """Verbs whose output other tests check."""
    stage.served("", "doctor", "--teacher=served")
    for words in (
        *("show runs/served", "show runs/evaluation", "show runs/crossing", "show sets/served"),
        *("show runs/served --problem=river", "show sets/served --tokens"),
        *("watch runs/served", "watch runs/evaluation", "journal stats journals/served"),
        *("journal check journals/served", "teachers", "benchmarks"),
        *("replay runs/served --out=runs/again", "compare runs/served runs/strong"),
        *("evaluate --before=./teacher --thinker=./student --limit=2 --out=runs/dry --dry-run",),
        *(
            "build runs/served --student=model --out=sets/new --dry-run",
            "generate --dry-run --limit=3 --problems=problems.jsonl",  # prints a prompt as it is
        ),
    ):
        stage.run("", *words.split())


SCENES: tuple[Callable[[Stage], None], ...] = (
    *(quickstart, served, sets, asked_again, exports, evaluation, crossing, cards, page, planted),
    others,
)


def _answers(journal: str) -> int:
    """Lines of a journal, but for the head of each of its files."""
    return sum(max(0, path.read_bytes().count(b"\n") - 1) for path in Path(journal).iterdir())


def tables(printed: str) -> Iterator[str]:
    """The tables in what is printed: blocks with a rule below one or two lines of titles."""
    for block in re.split(r"\n\s*\n", printed):
        lines = [line.rstrip() for line in block.splitlines()]
        rules = [n for n, line in enumerate(lines) if re.fullmatch(r"-{8,}", line)]
        if rules:
            yield "\n".join(lines[max(0, rules[0] - 2) :]).lstrip("\n")


def contents(path: Path) -> str:
    """A file as text whose lines can be compared."""
    if path.suffix == ".parquet":
        table = pyarrow.parquet.read_table(path)
        types = [f"{field.name}: {field.type}" for field in table.schema]
        return "\n".join([*types, *map(canonical, table.to_pylist())]) + "\n"
    data = path.read_bytes()
    if path.suffix == ".json":
        return pretty(json.loads(data))
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}"


def timeless(value: Any) -> Any:
    """A value without latencies, hashes of files, versions, and configurations of runs."""
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in ("latency_s", "config")}
        for name in ("files", "versions"):
            if isinstance(kept.get(name), dict):
                kept[name] = list(kept[name])
        return {key: timeless(each) for key, each in kept.items()}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def canonical(value: Any) -> str:
    return json.dumps(timeless(value), ensure_ascii=False, sort_keys=True)


def pretty(value: Any) -> str:
    return json.dumps(timeless(value), ensure_ascii=False, indent=1) + "\n"


def embedded(page: str) -> Iterator[tuple[str, str]]:
    """The data in a page: name and text."""
    pattern = r'<script type="application/([\w-]+)" id="([\w-]+)">(.*?)</script>'
    for kind, name, data in re.findall(pattern, page, re.DOTALL):
        if kind == "octet-stream":
            data = zlib.decompress(base64.b64decode(data), -15).decode()
        yield name, pretty(json.loads(data))


def cells(page: str) -> Iterator[str]:
    """The rows of all tables, each a line; of tables with the same titles, those of the first."""
    titles = set()
    for table in bs4.BeautifulSoup(page, "html.parser").find_all("table"):
        rows = [
            " | ".join(" ".join(cell.text.split()) for cell in row.find_all(("td", "th")))
            for row in table.find_all("tr")
        ]
        yield from rows[:1] if titles.intersection(rows[:1]) else rows
        titles.update(rows[:1])


def stored(name: str) -> Path:
    """Where a result lies; one of the two is there."""
    plain = RESULTS / name
    return plain if plain.exists() else RESULTS / f"{name}.gz"


def read(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def write(name: str, text: str) -> None:
    """Store a result."""
    for path in (RESULTS / name, RESULTS / f"{name}.gz"):
        path.unlink(missing_ok=True)
    data = text.encode()
    is_packed = len(data) > PACKED and not name.endswith((".md", ".txt"))
    path = RESULTS / (f"{name}.gz" if is_packed else name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def names() -> list[str]:
    """All results that are stored."""
    files = (path for path in RESULTS.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(RESULTS)).removesuffix(".gz") for path in files)


def performed(folder: Path) -> Stage:
    """Everything, made in an empty folder."""
    with contextlib.chdir(folder), serving(answering.answer) as server:
        stage = Stage(server.base_url)
        play(stage)
        return stage
