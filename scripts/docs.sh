#!/usr/bin/env bash
# Builds the documentation site into build/docs, with warnings as errors.
#
#   bash scripts/docs.sh
#
# Needs a package index the first time; every build works without a network. Open
# build/docs/index.html in a browser: no server is needed, not for the search either.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

# The extra `test`, where it is installed, has everything already.
"$venv/bin/python" -c 'import furo, myst_parser' 2>/dev/null || prepare_environment docs
cd "$root"
rm -rf build/docs
"$venv/bin/python" -m sphinx --quiet --builder html --fail-on-warning "$@" docs build/docs
say "build/docs/index.html"
