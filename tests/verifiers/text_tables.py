"""Tables of many short texts: ``¦`` parts them, ``‖`` parts what belongs together, ``□`` is a box
of 5 and ``⏎`` a new line."""

from fractions import Fraction


def texts(table: str) -> list[str]:
    cells = (cell.strip() for line in table.strip().splitlines() for cell in line.split("¦"))
    return [cell.replace("□", r"\boxed{5}").replace("⏎", "\n") for cell in cells]


def pairs(table: str) -> list[tuple[str, ...]]:
    return [tuple(part.strip(" ") for part in text.split("‖")) for text in texts(table)]


def spellings(value: Fraction) -> list[str]:
    """A number as references and models write it."""
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    ways = [
        f"{sign}{top}/{bottom}",
        f"{sign}\\frac{{{top}}}{{{bottom}}}",
        f"\\dfrac{{{sign}{3 * top}}}{{{3 * bottom}}}",
        f"$\u2212{top}/{bottom}$." if sign else f"+{top} / {bottom}.",
    ]
    if bottom == 1:
        ways += [f"{sign}{top}.00", f"{sign}{top:,}", f"{sign}{top:,}".replace(",", "{,}")]
    return ways
