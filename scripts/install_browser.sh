#!/usr/bin/env bash
# What the pages of reports are tested in: chromium, from the system's packages.
#
#   bash scripts/install_browser.sh
#
# Does nothing where one is there. Installs it with apt-get or dnf as root, or through sudo where
# that asks for no password; elsewhere it says what to do. The exit status is 1 if it is not there
# in the end. heavydistill itself needs no browser.
set -euo pipefail

say() { printf '==> %s\n' "$*" >&2; }

is_there() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null; }

# How to become root: nothing, sudo, or not at all.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    sudo -n "$@"
  fi
}

may_be_root() { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }

install() {
  if command -v apt-get >/dev/null; then
    # A fresh container has no lists of packages.
    as_root apt-get install -y -qq --no-install-recommends chromium 2>/dev/null ||
      { as_root apt-get update -qq && as_root apt-get install -y -qq --no-install-recommends chromium; }
  elif command -v dnf >/dev/null; then
    as_root dnf install -y -q chromium
  else
    return 1
  fi
}

if is_there; then
  exit 0
fi
if may_be_root; then
  say "installing chromium"
  install >&2 || true
fi
if ! is_there; then
  say "warning: chromium is not installed, so the pages of reports cannot be tested here."
  say "As root: apt-get install chromium, or dnf install chromium."
  exit 1
fi
