"""Write the hashes of a benchmark's problems, so that builds leave these problems out.

    python scripts/hash_benchmark.py --from hub:ORG/NAME --split test --column question \
        --name aime25 --out data/benchmarks/aime25.parquet

``--from`` is a dataset of the Hub, or a .jsonl or .parquet file. Every build uses the files in
data/benchmarks, which are part of the wheel; the key ``against`` of a build names other files.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from heavydistill.curate.filters.contamination import COLUMNS, BenchmarkHashes, texts_of
from heavydistill.errors import ProblemsError, UserError
from heavydistill.problems.tables import Table, read, read_file

HUB = "hub:"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--from", dest="source", required=True, help="hub:ORG/NAME, or a .jsonl or .parquet file"
    )
    parser.add_argument("--subset", help="subset (configuration) of a Hub dataset")
    parser.add_argument("--split", default="test", help="split of a Hub dataset")
    parser.add_argument(
        "--column", help=f"column of the texts (default: the first of {', '.join(COLUMNS)})"
    )
    parser.add_argument(
        "--name", required=True, help="name of the benchmark for reports, with its part"
    )
    parser.add_argument("--out", type=Path, required=True, help="the .parquet file to write")
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
        return read(source, subset, split)
    except ProblemsError as error:
        fix = "Check --from, --subset, --split and the network; a gated dataset needs HF_TOKEN."
        raise ProblemsError(error.what, fix) from error


if __name__ == "__main__":
    main()
