"""Files of small problems p0, p1 ..., whose numbers are in their texts."""

from pathlib import Path

from import_files import lines


def doubles(folder: Path, count: int, start: int = 1) -> Path:
    """What is twice the number?"""
    rows = (
        {"id": f"p{n}", "text": f"What is {n} + {n}?", "reference": f"{2 * n}"}
        for n in range(start, start + count)
    )
    return lines(folder / "problems.jsonl", *rows)


def remainders(folder: Path, count: int, modulus: int = 6) -> Path:
    """What remains of the number?"""
    rows = (
        {"id": f"p{n}", "text": f"{n} mod {modulus}?", "reference": f"{n % modulus}"}
        for n in range(count)
    )
    return lines(folder / "problems.jsonl", *rows)
