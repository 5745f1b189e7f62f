"""The end of a card, which belongs to the user: what stands there is kept when it is made again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from heavydistill.errors import ConfigError

CARD = "README.md"

_NOTES = "\n## Notes\n"
_ABOUT_NOTES = (
    "\n<!-- What stands below this line is yours: it is kept when the card is written again. "
    "All above it is not. -->\n"
)


def joined(sections: Sequence[str], folder: Path) -> str:
    """A card of these sections, with the notes of the one that is in the folder.

    Raises:
        ConfigError: That one is no text.
    """
    return "\n\n".join(sections) + "\n" + _NOTES + _ABOUT_NOTES + _kept(folder)


def _kept(folder: Path) -> str:
    """What the user wrote at the end of the card that is in the folder."""
    file = folder / CARD
    if not file.is_file():
        return ""
    try:
        notes = file.read_text(encoding="utf-8").partition(_NOTES)[2]
    except ValueError as error:
        raise ConfigError(
            f"{file} is no text in UTF-8, and what stands under Notes in it goes with the card",
            "Save it as UTF-8, or remove it.",
        ) from error
    return re.sub(r"\A\s*<!--.*?-->\n?", "", notes, flags=re.DOTALL)
