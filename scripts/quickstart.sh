#!/usr/bin/env bash
# From a fresh checkout to a first result: makes .venv, installs heavydistill into it, then lets
# the bundled micro teacher think and deliberate on the bundled problems, on this machine's CPU, and
# measures what its deliberations owe to the attempts.
#
#   bash scripts/quickstart.sh
#
# Needs Python 3.11 or newer (PYTHON=/path/to/python names one) and a package index. Run it again
# at any time: what is installed already is not installed twice.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment
cd "$root"
run="runs/quickstart-$(date +%Y%m%d-%H%M%S)"
say "heavydistill generate"
"$venv/bin/heavydistill" generate --out "$run"
say "heavydistill evaluate --controls garbled"
exec "$venv/bin/heavydistill" evaluate --pools "$run" --deliberator micro --controls garbled \
  --out "$run-controls"
