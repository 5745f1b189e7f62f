# Shared by install_sandbox.sh and install_browser.sh: one package of the system, installed where
# that needs no question.
#
# Source it, then call `system_package PACKAGE "what is missed without it"` with `is_there` defined.
# Installs with apt-get or dnf as root, or through sudo where that asks for no password; elsewhere it
# says what to do. The exit status is 1 if it is not there in the end.

say() { printf '==> %s\n' "$*" >&2; }

# How to become root: nothing, sudo, or not at all.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

may_be_root() { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }

with_manager() {
  if command -v apt-get >/dev/null; then
    # A fresh container has no lists of packages.
    as_root apt-get install -y -qq --no-install-recommends "$1" 2>/dev/null ||
      { as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends "$1"; }
  elif command -v dnf >/dev/null; then
    as_root dnf install -y -q "$1"
  else
    return 1
  fi
}

system_package() {
  ! is_there || return 0
  if may_be_root; then
    say "installing $1"
    with_manager "$1" >&2 || true
  fi
  ! is_there || return 0
  say "warning: $1 is not installed, so $2."
  say "As root: apt-get install $1, or dnf install $1."
  return 1
}
