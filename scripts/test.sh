#!/usr/bin/env bash
# Every check of the repository: format, lint, types and tests.
#
#   bash scripts/test.sh                      the default lane: fast tests, and a slow one for each claim
#   bash scripts/test.sh all                  every test, then the lane engines
#   bash scripts/test.sh engines              tests on real vLLM and llama.cpp, in .venv-engines; `engines all`: all of them
#   bash scripts/test.sh load                 the service under load, beside optillm in .venv-optillm: three times five minutes
#   bash scripts/test.sh tests/heavy -k vote  all checks, but of the tests only these
#
# Other arguments go to pytest. Lint and types are checked while the tests run. A check that fails
# does not hide the others; the exit status is 1 if any failed. No test reaches the network, and
# those that need an accelerator are left out.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# Where it is set, each of the many processes compiles what it imports anew.
unset PYTHONDONTWRITEBYTECODE
# One thread a process: the models of the tests are too small to gain from more.
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"

minutes() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }

# Two at a time: half of the suite waits for processes and servers. Files stay together, so that what a
# file's tests share is made once, and in their order, whose last ones are short: by the number of
# tests the longest would come last, alone. `-n 0` runs them one after the other.
run_pytest() {
  "$venv/bin/python" -m pytest -rs --durations=40 -n 2 --dist loadfile --no-loadscope-reorder "$@"
}

engines() {
  local began=$SECONDS status=0
  bash "$root/scripts/install_engines.sh" || status=$?
  [ $status -ne 3 ] || { say "the lane engines is skipped" && return 0; }
  [ $status -eq 0 ] || return 1
  (venv="$root/.venv-engines" && cd "$root" && run_pytest tests/engines "$@") || status=1
  say "engines $(minutes $((SECONDS - began)))"
  return $status
}

# Only the dependencies of optillm that it loads here; with all of them it takes gigabytes.
install_optillm() {
  pip install --no-deps optillm==0.4.0 &&
    pip install flask openai cerebras_cloud_sdk z3-solver==4.15.4.0 networkx numpy PyYAML sympy aiohttp math_verify
}

load() {
  local began=$SECONDS beside="$root/.venv-optillm"
  prepare_environment test
  (venv="$beside" && install_once optillm scripts/test.sh install_optillm)
  "$venv/bin/python" "$root/benchmarks/load.py" --optillm "$beside/bin/optillm" "$@"
  "$venv/bin/python" "$root/benchmarks/served_answers.py" --optillm "$beside/bin/optillm"
  say "load $(minutes $((SECONDS - began)))"
}

lane="not gpu and (not slow or claim)"
case "${1:-}" in
load)
  shift
  load "$@"
  exit
  ;;
engines)
  shift
  lane="not slow"
  [ "${1:-}" != all ] || { lane="" && shift; }
  engines -m "$lane" "$@"
  exit
  ;;
all)
  lane="not gpu"
  shift
  ;;
esac

began=$SECONDS
FAST=1 prepare_environment test
# Without it the tests of the sandbox are skipped; where CI is set they fail. Likewise of pages.
bash "$root/scripts/install_sandbox.sh" || true
bash "$root/scripts/install_browser.sh" || true
# Others' clients of a service, whose tests are slow and skipped without them.
[ "$lane" != "not gpu" ] || bash "$root/scripts/install_clients.sh" || true
installed=$SECONDS

cd "$root"
logs="$(mktemp -d)"
trap 'rm -rf "$logs"' EXIT

failed=""
check() { "$venv/bin/python" -m "${@:2}" >"$logs/$1" 2>&1 || echo failed >"$logs/$1.failed"; }
{
  check ruff-format ruff format --check .
  check ruff-check ruff check .
  check mypy mypy heavydistill scripts
} &
checks=$!
trap 'kill $checks 2>/dev/null || true; rm -rf "$logs"' EXIT

say "pytest, with ruff and mypy beside it"
run_pytest -m "$lane" "$@" || failed=" pytest"
if [ "$lane" = "not gpu" ] && [ $# -eq 0 ]; then
  say "the lane engines"
  engines -m "not slow" || failed="$failed engines"
fi

wait "$checks"
for name in ruff-format ruff-check mypy; do
  say "$name"
  cat "$logs/$name" >&2
  [ ! -e "$logs/$name.failed" ] || failed="$failed $name"
done

say "tests and checks $(minutes $((SECONDS - installed))); with the installation $(minutes $((SECONDS - began)))"
[ -z "$failed" ] || fail "failed:$failed"
