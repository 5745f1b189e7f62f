# Shared by quickstart.sh, test.sh and install_engines.sh: an environment in the root of the repository.
#
# Source it, then call `prepare_environment [extra,...]`, with FAST=1 for an installation by uv where
# that can be had, four times as fast as pip. It leaves `root` (the repository) and `venv` (.venv) set.
# A stamp for each set of extras makes a second call cost a fraction of a second; it is void as soon
# as pyproject.toml, constraints.txt or the place of the repository changes.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"

say() { printf '==> %s\n' "$*" >&2; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Whether $1 runs at all (version managers leave commands that do not) and is new enough.
is_new_python() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  local candidate
  if [ -n "${PYTHON:-}" ]; then
    is_new_python "$PYTHON" || fail "PYTHON=$PYTHON is no Python 3.11 or newer. Name one that is, or unset PYTHON."
    echo "$PYTHON"
    return
  fi
  # Newer ones last: the pinned versions are not resolved for them.
  for candidate in python3.12 python3.11 python3 python3.13; do
    if is_new_python "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or newer found. Install one, or name it: PYTHON=/path/to/python bash $0"
}

create_venv() {
  local python
  python="$(find_python)" || exit 1
  say "creating $(basename "$venv") with $("$python" --version)"
  if ! "$python" -m venv "$venv"; then
    rm -rf "$venv"
    fail "$python cannot create an environment. On Debian and Ubuntu, install python3-venv."
  fi
}

pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

# What pip is configured with under a name, by its files or the environment; uv reads neither.
pip_setting() { pip config list | sed -n "s/^[^=]*\.$1='\(.*\)'\$/\1/p" | head -n 1; }

# install_by uv|"" ARGUMENTS...: by uv, and by pip where uv is not wanted, not to be had or fails.
install_by() {
  local links index
  if [ "$1" = uv ] && pip install --quiet uv; then
    links="$(pip_setting find-links)"
    index="$(pip_setting index-url)"
    UV_FIND_LINKS="${links// /,}" UV_DEFAULT_INDEX="$index" \
      "$venv/bin/uv" pip install --compile-bytecode --python "$venv/bin/python" "${@:2}" && return
    echo "uv failed; pip installs instead"
  fi
  pip install "${@:2}"
}

# install_once NAME "FILES" COMMAND...: runs the command on $venv, which it creates, unless it has done
# so with these files.
install_once() {
  local place stamp key log
  place="$(basename "$venv")"
  stamp="$venv/installed-$1"
  log="$venv/install.log"
  if [ ! -e "$venv" ]; then
    create_venv
  elif ! { is_new_python "$venv/bin/python" && "$venv/bin/python" -c 'import pip' 2>/dev/null; }; then
    fail "$place has no working Python 3.11 or newer with pip. Remove $venv and run this again."
  fi

  # shellcheck disable=SC2086
  key="$root $(cd "$root" && cat $2 | cksum)"
  [ "$(cat "$stamp" 2>/dev/null)" != "$key" ] || return 0
  say "installing $1 into $place: minutes the first time (log: $log)"
  rm -f "$stamp"
  if ! (cd "$root" && "${@:3}") >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    fail "the installation failed; the end of its log is above, all of it in $log"
  fi
  printf '%s' "$key" >"$stamp"
}

prepare_environment() {
  install_once "${1:-core}" "pyproject.toml constraints.txt" \
    install_by "${FAST:+uv}" -c constraints.txt -e ".${1:+[$1]}"
}
