"""The rules of the house that a parser can check: who imports whom, sizes, names, errors."""

import ast
import graphlib
import importlib.metadata
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "heavydistill"

# A part is a module or folder right under the package. It may import its own tier and those before
# it; within a tier files may know each other, but never in a circle.
TIERS = [
    {"schema", "errors", "plugins"},
    {"config", "heavy", "text", "metrics"},
    {"store", "sandbox", "models", "verifiers", "problems", "chat"},
    {"run", "experiments", "curate", "train", "report", "hub", "doctor", "skill", "serve"},
    {"cli", "contracts", "__main__"},
]
TIER_OF = {part: number for number, parts in enumerate(TIERS) for part in parts}
# What reads traces needs to know rows alone, so that anything may read them.
TRACES_KNOW = {"schema", "errors"}

ONLY_IMPORTER = {"distilabel": f"{PACKAGE}.run.recipe.distilabel", "trl": f"{PACKAGE}.train"}
MAX_LINES = 600
MAX_FILES = 15
TOO_VAGUE = {"Exception", "BaseException", "HeavydistillError", "UserError"}


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its dotted name, its part (empty for the package itself), its code."""

    name: str
    part: str
    package: str
    text: str
    tree: ast.Module

    def imports(self) -> Iterator[str]:
        """Dotted names of everything imported anywhere in it, in functions and for types too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                source = resolve_name("." * node.level + (node.module or ""), self.package)
                yield from (f"{source}.{alias.name}" for alias in node.names)

    def modules_imported(self) -> set[str]:
        """Dotted names of the package's own modules that it imports."""
        names = {name if name in NAMES else name.rpartition(".")[0] for name in self.imports()}
        return (names & NAMES) - {self.name}

    def parts_imported(self) -> set[str]:
        """The other parts of the package that it imports."""
        found = {name.split(".")[1] for name in self.modules_imported() - {PACKAGE}}
        return (found & TIER_OF.keys()) - {self.part}

    def errors_raised(self) -> set[str]:
        """Names of the classes of ``raise Class(...)``."""
        return {
            ast.unparse(node.exc.func).rpartition(".")[2]
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
        }


def _modules() -> list[Module]:
    modules = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        names = list(path.relative_to(ROOT).with_suffix("").parts)
        package = ".".join(names[:-1])
        if names[-1] == "__init__":
            names.pop()
        text = path.read_text(encoding="utf-8")
        part = names[1] if len(names) > 1 else ""
        modules.append(Module(".".join(names), part, package, text, ast.parse(text)))
    return modules


MODULES = _modules()
NAMES = {module.name for module in MODULES}


def test_every_part_has_its_tier():
    assert {module.part for module in MODULES} - {""} <= TIER_OF.keys()


def test_nothing_imports_upward():
    offenders = [
        f"{module.name} imports {part}"
        for module in MODULES
        for part in module.parts_imported()
        if module.part and TIER_OF[part] > TIER_OF[module.part]
    ]
    assert not offenders


def test_traces_know_only_the_rows():
    traces = next(module for module in MODULES if module.name == f"{PACKAGE}.store.traces")
    assert traces.parts_imported() <= TRACES_KNOW


def test_files_do_not_import_in_a_circle():
    graph = {module.name: module.modules_imported() for module in MODULES}
    del graph[PACKAGE]  # the public face loads on use, and others read its version alone
    graphlib.TopologicalSorter(graph).prepare()


def test_programs_outside_of_the_package_import_names_that_exist():
    # Types and the suite do not see them: benchmarks that nobody runs, code in strings of tests.
    texts = {module.name: module.text for module in MODULES}
    line = re.compile(
        rf"^[ \"]*from ({PACKAGE}(?:\.\w+)*) import (\w[\w, ]*|\([^)]*\))", re.MULTILINE
    )
    wrong = []
    for folder in ("benchmarks", "pipelines", "scripts", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "fixed_points" in path.parts:  # made by an old commit
                continue
            for module, imported in line.findall(path.read_text(encoding="utf-8")):
                for name in re.findall(r"(\w+)(?: as \w+)?", imported):
                    is_there = re.search(rf"\b{name}\b", texts.get(module, ""))
                    if not is_there and f"{module}.{name}" not in texts:
                        wrong.append(f"{path.relative_to(ROOT)}: {module}.{name}")
    assert not wrong


def test_distilabel_and_trl_have_one_importer_each():
    offenders = [
        f"{module.name} imports {name}"
        for module in MODULES
        for name in module.imports()
        if not f"{module.name}.".startswith(f"{ONLY_IMPORTER.get(name.split('.')[0], PACKAGE)}.")
    ]
    assert not offenders


def test_every_package_imported_is_declared():
    known = sys.stdlib_module_names | {PACKAGE}
    providers = importlib.metadata.packages_distributions()
    declared = _declared()
    offenders = [
        f"{module.name} imports {package}"
        for module in MODULES
        for package in sorted({name.split(".")[0] for name in module.imports()} - known)
        if not declared & {_normal(name) for name in providers.get(package, [package])}
    ]
    assert not offenders


def _declared() -> set[str]:
    """Names of the distributions that the package depends on, those of the tests left out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    entries: list[str] = project["dependencies"]
    for extra, more in project["optional-dependencies"].items():
        entries += more if extra != "test" else []
    return {_normal(re.split(r"[^\w.-]", entry, maxsplit=1)[0]) for entry in entries}


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_no_two_public_classes_have_one_name():
    homes: dict[str, list[str]] = {}
    for module in MODULES:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module.name)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


def test_modules_are_short_and_say_what_they_are():
    lengths = {module.name: len(module.text.splitlines()) for module in MODULES}
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}
    assert not [module.name for module in MODULES if not ast.get_docstring(module.tree)]


def test_modules_that_a_docstring_names_exist():
    # Rooms whose names are no sections of a configuration, so that ``room.name`` is a module.
    rooms = "heavy|text|run|curate|models|verifiers|experiments|train|store|metrics|report|hub|chat"
    named = re.compile(rf"``((?:{rooms})(?:\.\w+)+)``")
    wrong = [
        f"{module.name}: {name}"
        for module in MODULES
        for name in named.findall(module.text)
        if not _is_there(f"{PACKAGE}.{name}") and not name.endswith(".jsonl")
    ]
    assert not wrong


def _is_there(name: str) -> bool:
    """Whether a dotted name is a module, or its last part stands in a module."""
    above, _, last = name.rpartition(".")
    texts = [module.text for module in MODULES if module.name == above]
    return name in NAMES or any(re.search(rf"\b{last}\b", text) for text in texts)


def test_no_folder_has_too_many_files_side_by_side():
    folders = Counter(path.parent for path in (ROOT / PACKAGE).rglob("*.py"))
    assert not {str(folder): count for folder, count in folders.items() if count > MAX_FILES}


def test_no_module_is_a_drawer_for_everything():
    assert not [module.name for module in MODULES if "utils" in module.name.split(".")]


def test_raised_errors_name_their_kind():
    offenders = {module.name: module.errors_raised() & TOO_VAGUE for module in MODULES}
    assert not {name: errors for name, errors in offenders.items() if errors}


def test_every_kind_of_error_is_raised_somewhere():
    errors = next(module for module in MODULES if module.part == "errors")
    kinds = {node.name for node in errors.tree.body if isinstance(node, ast.ClassDef)} - TOO_VAGUE
    raised = set().union(*(module.errors_raised() for module in MODULES))
    assert kinds <= raised


def test_no_two_files_of_tests_share_a_name():
    """Pytest imports them by their names alone, so the second would not be collected."""
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert not [name for name in names if names.count(name) > 1]


DANGLES = re.compile(r"(?:Of|As of|As for|Likewise|It|Its|That)\b")
DESCRIPTION = re.compile(r"^ +[*\w, ]+: +(\S.*)$", re.MULTILINE)


def test_descriptions_name_what_they_describe():
    """Descriptions of flags, keys, attributes, arguments and errors begin with a noun or verb."""
    offenders = [
        f"{module.name}: {text.splitlines()[0]}"
        for module in MODULES
        for text in _descriptions(module.tree)
        if DANGLES.match(text)
    ]
    assert not offenders, "\n".join(offenders)


def _descriptions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(ast.Constant(str(text))):  # docstrings, and those of attributes
                yield text.strip()
                yield from DESCRIPTION.findall(text)
            case ast.keyword("help", ast.Constant(str(text))):
                yield text
