"""Tables of many short texts: ``¦`` parts them, ``‖`` parts what belongs together, ``□`` is a box
of 5 and ``⏎`` a new line."""

from __future__ import annotations


def texts(table: str) -> list[str]:
    cells = (cell.strip() for line in table.strip().splitlines() for cell in line.split("¦"))
    return [cell.replace("□", r"\boxed{5}").replace("⏎", "\n") for cell in cells]


def pairs(table: str) -> list[tuple[str, ...]]:
    return [tuple(part.strip(" ") for part in text.split("‖")) for text in texts(table)]
