"""Make a file of hashes of a benchmark, so that no build learns from its problems.

    python scripts/hash_benchmark.py --from hub:ORG/NAME --split test --column question \
        --name aime25 --out data/benchmarks/aime25.parquet

``--from`` is a dataset of the Hub, or a .jsonl or .parquet file. What lies in data/benchmarks is
used by every build and goes into the wheel; any other file is named in a build's ``against``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from heavydistill.curate.filters.contamination import COLUMNS, BenchmarkHashes, texts_of
from heavydistill.errors import ProblemsError, UserError
from heavydistill.problems.tables import Table, read_file, read_hub

HUB = "hub:"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--from", dest="source", required=True, help="hub:ORG/NAME or a file")
    parser.add_argument("--subset", help="of a Hub dataset that has several")
    parser.add_argument("--split", default="test", help="of a Hub dataset")
    parser.add_argument("--column", help=f"of the texts; else the first of {', '.join(COLUMNS)}")
    parser.add_argument("--name", required=True, help="for reports; say which part it is")
    parser.add_argument("--out", type=Path, required=True, help="a .parquet file")
    chosen = parser.parse_args()
    if chosen.out.suffix != ".parquet":
        parser.error(f"--out {chosen.out} must end in .parquet")
    try:
        texts = texts_of(table(chosen.source, chosen.subset, chosen.split), chosen.column)
        benchmark = BenchmarkHashes.of(chosen.name, texts)
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        benchmark.save(chosen.out)
    except (UserError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"{chosen.out}: {benchmark.size} different texts in {len(texts)} rows")


def table(source: str, subset: str | None, split: str) -> Table:
    """The rows of a source."""
    if not source.startswith(HUB):
        return read_file(Path(source))
    try:
        return read_hub(source.removeprefix(HUB), subset, split)
    except ProblemsError as error:
        fix = "Check --from, --subset, --split and the network; a gated dataset needs HF_TOKEN."
        raise ProblemsError(error.what, fix) from error


if __name__ == "__main__":
    main()
