"""Finds verifiers by name.

To add a verifier to the package, write its class in a new file and add an instance to ``_SHIPPED``.
Others are plug-ins, of Python files listed in ``verify.own`` (``load_own``) or installed packages.
"""

from __future__ import annotations

from collections.abc import Iterable

from heavydistill import plugins
from heavydistill.config.run import Verifying
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
plugins.ship("verifier", _known)
OWN = "verify.own"


def names() -> list[str]:
    """The valid names for ``Problem.verifier``, sorted."""
    return sorted(plugins.names("verifier"))


def get(name: str) -> Verifier:
    """The verifier with this name; raises ProblemsError with the list of names if there is none."""
    if name in _known:
        return _known[name]
    if own := plugins.find("verifier", name):
        verifier: Verifier = own.value
        return verifier
    fix = did_you_mean(name, names())
    fix += f"Verifiers: {', '.join(names())}; verify.own adds Python files with your own."
    raise ProblemsError(f"There is no verifier {name!r}", f"{fix}{plugins.absent()}")


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
    """Load the files of ``verify.own``; files that are already loaded are skipped.

    Raises:
        ConfigError: As ``plugins.load_files``; or a file defines no verifier.
    """
    for path in files:
        if not any(each.kind == "verifier" for each in plugins.load_files([path], OWN)):
            fix = "Correct the file; docs/guides/own-verifier.md has an example."
            raise ConfigError(f"{path} contains no complete subclass of Verifier", fix)
