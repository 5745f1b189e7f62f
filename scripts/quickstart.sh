#!/usr/bin/env bash
# From a fresh checkout to a first result: makes .venv, installs heavydistill into it, then lets
# the bundled micro teacher think and deliberate on the bundled problems, on this machine's CPU.
#
#   bash scripts/quickstart.sh
#
# Needs Python 3.11 or newer (PYTHON=/path/to/python names one) and a package index. Run it again
# at any time: what is installed already is not installed twice.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment
cd "$root"
say "heavydistill generate"
exec "$venv/bin/heavydistill" generate
