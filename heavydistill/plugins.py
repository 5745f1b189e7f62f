"""The registry of plug-ins: what others add to the kinds of things that are chosen by name.

Plug-ins come from Python files that a configuration names, and from installed packages whose entry
points in the group ``heavydistill.plugins`` name modules. Both define them with a decorator::

    @plugin("selection", "longest_two")
    def longest_two(pool, width, rng):
        return sorted(pool, key=lambda attempt: -len(attempt.answer_text))[:2]

A complete subclass of ``Verifier`` is one without it. A shipped name cannot be taken, nor can two
plug-ins of a kind have one name. Of a file or package that breaks these rules nothing is used.

Not covered: whether a plug-in does what its kind must do; ``contracts`` tests that.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import heavydistill
from heavydistill.errors import ConfigError, HeavydistillError, did_you_mean

GROUP = "heavydistill.plugins"
TAKES: dict[str, str] = {
    "verifier": "a subclass of verifiers.base.Verifier",
    "source": "(args)",
    "rewrite": "(problem, facts)",
    "filter": "(problem, generation, attempts)",
    "selection": "(pool, width, rng)",
    "pruning": "(attempt, tokens, reader)",
    "exporter": "a curate.exports.export.ExportTarget with its templates",
    "teacher": "the path of a profile",
    "prompt": "the path of a prompt",
}
"""What a plug-in of each kind is: a thing, or a function of these parameters."""
_NAME = re.compile(r"[A-Za-z][\w.-]{0,63}")
_FIX = "Correct it; docs/guides/plugins.md has an example of each kind."
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Plugin:
    """A plug-in, and where it is from."""

    kind: str
    name: str
    value: Any  # Function, verifier, exporter or path
    place: str  # Path of its file, or name and version of its package
    module: str = ""  # Module that defines it
    example: str = ""  # Arguments with which the contract of a source is tested

    def __call__(self, *args: Any) -> Any:
        """Call the function; raises ConfigError with the place of any error in it."""
        try:
            return self.value(*args)
        except HeavydistillError:
            raise
        except Exception as error:
            raise self.fault(f"failed: {_told(error)}") from error

    def fault(self, what: str) -> ConfigError:
        """Return the error of a plug-in that does not do what its kind must do."""
        fix = "Correct it; `pytest --pyargs heavydistill.contracts` tests installed plug-ins."
        return ConfigError(f"{self.place}: the {self.kind} {self.name} {what}", fix)


loaded: dict[tuple[str, str], Plugin] = {}
"""Plug-ins that were loaded, by kind and name."""
broken: dict[str, str] = {}
"""Installed packages whose plug-ins cannot be used, and why."""
shipped: dict[str, tuple[str, ...]] = {}
"""Names that the package ships, by kind, if the module with them was imported."""
_files: dict[str, list[Plugin]] = {}
_running: list[str] = []  # files that are being executed
_installed: list[str] = []  # packages that were tried
_defined: list[Plugin] = []  # by decorators, in any module
_lock = threading.RLock()


def plugin(kind: str, name: str, example: str = "") -> Callable[[_T], _T]:
    """Return a decorator that registers a plug-in of this kind (``TAKES``) and name.

    Not every kind is a function: ``plugin("teacher", "mine")(path)``. ``example`` is the arguments
    with which ``contracts`` tests a source. It can be chosen once its file or package is loaded.
    """
    module = sys._getframe(1).f_globals.get("__name__", "")

    def register(value: _T) -> _T:
        _defined.append(Plugin(kind, name, value, module, module, example))
        return value

    return register


def ship(kind: str, names: Iterable[str]) -> None:
    """Reserve the names of a kind that the package ships; raises ConfigError if one is taken."""
    shipped[kind] = tuple(names)
    for each in loaded.values():
        _refuse_taken(each)


def names(kind: str) -> list[str]:
    """Return the names that can be chosen: shipped ones, then those of loaded plug-ins."""
    chosen = shipped.get(kind, ()) if kind != "filter" else ()  # shipped filters always apply
    return [*chosen, *(name for of, name in loaded if of == kind)]


def find(kind: str, name: str) -> Plugin | None:
    """Return a plug-in by name, those of installed packages included; None if there is none."""
    if (kind, name) not in loaded:
        load_installed()
    return loaded.get((kind, name))


def get(kind: str, name: str, key: str = "") -> Plugin:
    """Return a plug-in by name; ``key`` is the key or flag that names it.

    Raises:
        ConfigError: There is none; lists the names that there are.
    """
    if known := find(kind, name):
        return known
    what = f"{key and f'{key}: '}there is no {kind} {name!r}"
    listed = f"Names: {', '.join(names(kind))}; --plugin FILE (key `plugins`) adds your own."
    raise ConfigError(what, f"{did_you_mean(name, names(kind))}{listed}{absent()}")


def require(kind: str, name: str, key: str) -> None:
    """Raise ConfigError unless the name is shipped or of a plug-in; ``key`` as for ``get``."""
    if name not in names(kind):
        get(kind, name, key)


def absent() -> str:
    """Return why installed plug-ins cannot be used, as sentences with a blank before them."""
    return "".join(f" The plug-ins of {place} cannot be used: {broken[place]}" for place in broken)


def load(files: Iterable[str], verifiers: Iterable[str] = ()) -> None:
    """Load all plug-ins of a configuration; warns of installed ones that cannot be used.

    Args:
        files: Files of the key ``plugins``.
        verifiers: Files of the key ``verify.own``, which the processes that judge load too.

    Raises:
        ConfigError: As ``load_files``; or a verifier is in a file of ``plugins`` alone.
    """
    load_installed()
    if broken:
        logging.getLogger(__name__).warning("%s", absent().strip())
    own = {each.place for each in load_files(verifiers, "verify.own")}
    for each in load_files(files):
        if each.kind == "verifier" and each.place not in own:
            raise ConfigError(
                f"plugins: {each.place} has the verifier {each.name}, and verifiers judge in "
                "processes of their own, which load only the files of verify.own",
                f"Name the file there: --set 'verify.own=[{each.place}]'.",
            )


def load_files(files: Iterable[str], key: str = "plugins") -> list[Plugin]:
    """Load Python files, each once, and return their plug-ins; ``key`` is the key that names them.

    Raises:
        ConfigError: A file cannot be read or run, has no plug-in, or has one that cannot be used.
    """
    found: list[Plugin] = []
    with _lock:
        for path in (str(Path(file).resolve()) for file in files):
            if path in _running:
                what = "it uses its own plug-ins while it is executed to find them"
                raise ConfigError(what, "Write the use below `if __name__ == '__main__':`.")
            if path not in _files:
                _files[path] = _commit(_in_file(path, key), path)
            found += _files[path]
    return found


def load_installed() -> None:
    """Load the plug-ins of installed packages, once; ``broken`` has those that cannot be used."""
    with _lock:
        packages: dict[str, list[EntryPoint]] = {}
        for entry in () if _installed else entry_points(group=GROUP):
            place = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
            packages.setdefault(place, []).append(entry)
        _installed.extend(packages or ["none"])
        for place, entries in sorted(packages.items()):
            try:
                _commit(_in_package(entries, place), place)
            except ConfigError as error:
                broken[place] = str(error).removeprefix(f"{place}: ")


def files_of(given: Any) -> Any:
    """Return absolute paths for a list of paths, functions and classes, given as a key.

    Raises:
        ValueError: A function or class is not from a file.
    """
    return [_file_of(each) for each in given] if isinstance(given, list | tuple) else given


def _file_of(given: Any) -> Any:
    file = given
    if callable(given):
        try:
            file = Path(inspect.getsourcefile(given) or "")
        except TypeError:  # a class of a notebook
            file = Path()
        if not file.is_file():
            name = getattr(given, "__name__", given)
            raise ValueError(
                f"other processes cannot find {name}. Write it to a file, and give that."
            )
    # Absolute, because steps run in other folders.
    return str(Path(file).expanduser().absolute()) if isinstance(file, str | Path) else file


def _in_file(path: str, key: str) -> list[Plugin]:
    """Execute a file, and return its plug-ins."""
    if not Path(path).is_file():
        raise ConfigError(f"{key}: {path}: No such file", "Correct the path.")
    name = f"heavydistill_{Path(path).stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}"
    sys.modules[name] = module = ModuleType(name)  # as dataclasses and pickle expect
    module.__file__ = path
    _defined[:] = [each for each in _defined if each.module != name]  # of an execution that failed

    def run() -> list[ModuleType]:
        exec(compile(Path(path).read_bytes(), path, "exec"), module.__dict__)
        return [module]

    _running.append(path)
    try:
        return _run(run, path, name)
    finally:
        _running.remove(path)


def _in_package(entries: list[EntryPoint], place: str) -> list[Plugin]:
    """Import the modules of a package's entry points, and return their plug-ins."""
    from packaging.requirements import Requirement

    def run() -> list[ModuleType]:
        for needed in map(Requirement, (entries[0].dist and entries[0].dist.requires) or ()):
            fits = needed.specifier.contains(heavydistill.__version__, prereleases=True)
            if needed.name == "heavydistill" and not fits:
                what = f"it needs {needed}, and this is {heavydistill.__version__}"
                raise ConfigError(what, "Install a version of either that fits the other.")
        return [import_module(entry.module) for entry in entries]

    return _run(run, place, *{entry.module.partition(".")[0] for entry in entries})


def _run(run: Callable[[], list[ModuleType]], place: str, *roots: str) -> list[Plugin]:
    """Return the plug-ins that modules below ``roots`` define; ``run`` executes the modules."""
    try:
        modules = run()
    except HeavydistillError as error:
        raise ConfigError(f"{place}: {error.what}", error.fix) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{place}: {_told(error)}", _FIX) from error
    within = tuple(f"{root}." for root in roots)
    own = [each for each in _defined if f"{each.module}.".startswith(within)]
    for module in modules:
        for value in list(vars(module).values()):
            kind = getattr(value, "plugin_kind", "") if inspect.isclass(value) else ""
            if not kind or inspect.isabstract(value) or not hasattr(value, "name"):
                continue
            is_theirs = value.__module__.partition(".")[0] == module.__name__.partition(".")[0]
            if is_theirs and all(value is not each.value for each in own):
                own.append(Plugin(kind, value.name, value, place))
    return own


def _commit(found: list[Plugin], place: str) -> list[Plugin]:
    """Register the plug-ins of a place, all or none."""
    placed: dict[tuple[str, str], Plugin] = {}
    for each in (replace(each, place=place) for each in found):
        if wrong := _misfit(each):
            raise ConfigError(f"{place}: {wrong}", _FIX)
        _refuse_taken(each)
        key = each.kind, each.name
        before = loaded.get(key)
        if key in placed or before:
            at = f", in {before.place}" if before else ""
            what = f"{place}: there is a {each.kind} {each.name!r} already{at}"
            raise ConfigError(what, "Give yours another name.")
        if inspect.isclass(each.value):
            try:
                each = replace(each, value=each.value())
            except Exception as error:
                raise ConfigError(f"{place}: {each.name}: {_told(error)}", _FIX) from error
        placed[key] = each
    if not placed:
        raise ConfigError(f"{place} contains no plug-in", _FIX)
    loaded.update(placed)
    return list(placed.values())


def _refuse_taken(each: Plugin) -> None:
    if each.name in shipped.get(each.kind, ()):
        what = f"{each.place}: there is a {each.kind} {each.name!r} already, which is shipped"
        raise ConfigError(what, "Give yours another name.")


def _misfit(each: Plugin) -> str:
    """Return why a plug-in cannot be one of its kind; empty if it can."""
    kind, value, takes = each.kind, each.value, TAKES.get(each.kind)
    if not takes:
        return f"there is no kind {kind!r} of plug-ins, only {', '.join(TAKES)}"
    if not isinstance(each.name, str) or not _NAME.fullmatch(each.name):
        return f"{each.name!r} is not a name, which has letters, digits, dots and dashes"
    fits: dict[str, Callable[[], bool]] = {
        "verifier": lambda: value.plugin_kind == kind and value.name == each.name and value.version,
        "exporter": lambda: (
            callable(value.sft_row)
            and all(
                (Path(value.templates) / f"{name}.jinja").is_file()
                for name in ("README.md", "sft.yaml", *(["rl.yaml"] if value.rl_row else []))
            )
        ),
        "teacher": lambda: Path(value).is_file(),
        "prompt": lambda: Path(value).is_file(),
    }
    try:
        if kind not in fits:
            inspect.signature(value).bind(*takes[1:-1].split(", "))
        is_fit = kind not in fits or fits[kind]()
    except (AttributeError, TypeError, ValueError):
        is_fit = False
    return "" if is_fit else f"the {kind} {each.name} is not {takes}"


def _told(error: BaseException) -> str:
    """Return the type, message and place of an error in a plug-in."""
    message = f"{type(error).__name__}: {error}".rstrip(": ")
    last = traceback.extract_tb(error.__traceback__)[-1]
    is_placed = last.filename != __file__ and not isinstance(error, SyntaxError)
    return f"{message} ({Path(last.filename).name}:{last.lineno})" if is_placed else message
