#!/usr/bin/env bash
# Every check of the repository: format, lint, types, and the whole test suite.
#
#   bash scripts/test.sh                      all of it
#   bash scripts/test.sh tests/heavy -k vote  all checks, but of the tests only these
#
# Arguments go to pytest. A check that fails does not hide the later ones; the exit status is 1
# if any failed. No test reaches the network, and those that need an accelerator are left out.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

failed=""
check() {
  local name="$1"
  shift
  say "$name"
  "$venv/bin/python" -m "$@" || failed="$failed $name"
}

prepare_environment test
cd "$root"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# One thread a process: the models of the tests are too small to gain from more.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

# Without it the tests of the sandbox are skipped; where CI is set they fail.
bash scripts/install_sandbox.sh || true
# Likewise the tests of pages.
bash scripts/install_browser.sh || true
check ruff-format ruff format --check .
check ruff-check ruff check .
check mypy mypy heavydistill
# Two at a time: half of the suite waits for processes and servers. Files stay together, so that what a
# file's tests share is made once, and in their order, whose last ones are short: by the number of
# tests the longest would come last, alone. `-n 0` runs them one after the other.
check pytest pytest -rs -m "not gpu" -n 2 --dist loadfile --no-loadscope-reorder "$@"
[ -z "$failed" ] || fail "failed:$failed"
