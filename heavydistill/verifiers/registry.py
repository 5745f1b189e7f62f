"""Finds verifiers by name.

To add a verifier to the package, write its class in a new file and add an instance to ``_SHIPPED``.
A user's own verifier is a Python file listed in ``verify.own`` (``load_own``).
"""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from heavydistill.config.run import Domain, Verifying
from heavydistill.errors import ConfigError, ProblemsError, did_you_mean
from heavydistill.verifiers.base import Verifier
from heavydistill.verifiers.choice.verifier import Choice
from heavydistill.verifiers.code import Code
from heavydistill.verifiers.exact import Exact
from heavydistill.verifiers.free_form import FreeForm
from heavydistill.verifiers.instructions.verifier import Instructions
from heavydistill.verifiers.mathematics.verifier import Math
from heavydistill.verifiers.procedural.verifier import Procedural

_SHIPPED = (Choice(), Code(), Exact(), FreeForm(), Instructions(), Math(), Procedural())
_known: dict[str, Verifier] = {verifier.name: verifier for verifier in _SHIPPED}
_own: dict[str, Path] = {}


def names() -> list[str]:
    """The valid names for ``Problem.verifier``, sorted."""
    return sorted(_known)


def get(name: str) -> Verifier:
    """The verifier with this name; raises ProblemsError with the list of names if there is none."""
    if name not in _known:
        fix = did_you_mean(name, _known)
        fix += f"Verifiers: {', '.join(names())}; verify.own adds Python files with your own."
        raise ProblemsError(f"There is no verifier {name!r}", fix)
    return _known[name]


def unavailable(kinds: Iterable[str], config: Verifying) -> list[str]:
    """For each of these verifiers that cannot run on this machine, why, and what to install."""
    reasons = ((kind, get(kind).unavailable(config)) for kind in sorted(set(kinds)))
    return [f"The verifier {kind} cannot judge here: {why}" for kind, why in reasons if why]


def require_judge(kinds: Iterable[str], source: object) -> None:
    """Raise a ProblemsError that names ``source`` if one of these verifiers needs a judge."""
    if needing := sorted(kind for kind in set(kinds) if get(kind).needs_judge):
        raise ProblemsError(
            f"{source}: {needing[0]} leaves every answer that does not equal the reference to a "
            "judge, and there is none",
            "Name one with --judge MODEL, or give the rows another verifier.",
        )


def load_own(files: Iterable[str]) -> None:
    """Register the verifiers in Python files; files that are already registered are skipped.

    Raises:
        ConfigError: A file cannot be read or run, or defines no verifier; or the verifier's name is
            taken or its domain does not exist.
    """
    for path in (Path(file).resolve() for file in files):
        if path in _own.values():
            continue
        for verifier in _verifiers_in(path):
            if verifier.name in _known:
                raise ConfigError(
                    f"{path}: there is a verifier {verifier.name!r} already",
                    "Give yours another name.",
                )
            if verifier.domain not in ("", *get_args(Domain)):
                raise ConfigError(
                    f"{path}: the verifier {verifier.name} has the domain {verifier.domain!r}",
                    f"Name one of: {', '.join(get_args(Domain))}.",
                )
            _known[verifier.name] = verifier
            _own[verifier.name] = path


def _verifiers_in(path: Path) -> list[Verifier]:
    module = f"heavydistill_own_{path.stem}"
    fix = "Correct the file; docs/guides/own-verifier.md has an example."
    try:
        verifiers = [
            value()
            for value in runpy.run_path(str(path), run_name=module).values()
            if inspect.isclass(value) and issubclass(value, Verifier)
            if not inspect.isabstract(value) and value.__module__ == module
            if hasattr(value, "name") and hasattr(value, "version")
        ]
    except OSError as error:
        raise ConfigError(f"verify.own: {path}: {error.strerror}", "Correct the path.") from error
    except Exception as error:  # a user's code may raise anything
        raise ConfigError(f"{path}: {type(error).__name__}: {error}", fix) from error
    if not verifiers:
        raise ConfigError(f"{path} contains no complete subclass of Verifier", fix)
    return verifiers
