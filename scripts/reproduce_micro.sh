#!/usr/bin/env bash
# The evidence of the micro models on CPU cores, from nothing downloaded: traces, sets, trainings of
# every arm and seed, measurements, and the page docs/evidence/results.md.
#
#   bash scripts/reproduce_micro.sh --dry-run      # the plan
#   bash scripts/reproduce_micro.sh                # all of it; stopped, the same command continues
#
# It makes the environment and leaves the rest to reproduce_micro.py, which has the flags.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

prepare_environment train
cd "$root"
exec "$venv/bin/python" scripts/reproduce_micro.py "$@"
