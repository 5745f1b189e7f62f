"""Names that an earlier version had: keys of a configuration, flags and verbs.

On the command line an old name is an error that says the new one. A file keeps opening: what its
old keys say is carried over, with a warning unless they only repeat an old default, as the files
that runs save do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retired:
    """What became of a name."""

    instead: str
    """What to write now, as a sentence."""
    new: str | None = None
    """Key that took its place in the same section."""
    default: Any = None
    """Value that files of an earlier version hold where nothing was chosen."""


RETIRED = {
    "endpoint.serve": Retired("Write endpoint.start_vllm.", "start_vllm", False),
    "think.processes": Retired("Write processes, or give --processes N.", None, 1),
    "deliberate.processes": Retired("Write processes, or give --processes N.", None, 1),
    "--serve": Retired("Write --start-vllm."),
    "plan": Retired("Give generate the same flags and --dry-run."),
}
"""Keys as ``section.key``, flags with their dashes, verbs as they are typed."""


def retired_key(dotted: str) -> Retired | None:
    """What became of a key, whatever section its own section is in."""
    return RETIRED.get(".".join(dotted.split(".")[-2:]))


def carried_over(tree: dict[str, Any], where: str = "", section: str = "") -> dict[str, Any]:
    """A mapping of a file with today's names in place of those of earlier versions.

    ``where`` stands before a warning, ``section`` is the name of the section that the mapping is.
    """
    now: dict[str, Any] = {}
    for key, value in tree.items():
        known = RETIRED.get(f"{section}.{key}")
        if isinstance(value, dict):
            now[key] = carried_over(value, where, key)
        elif not known:
            now[key] = value
        elif value != known.default:
            _log.warning("%s%s.%s does not exist any more. %s", where, section, key, known.instead)
            if known.new:
                now[known.new] = value
    return now
