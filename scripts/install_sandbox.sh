#!/usr/bin/env bash
# What programs written by models run in: bubblewrap, from the system's packages.
#
#   bash scripts/install_sandbox.sh
#
# Does nothing where it is there. Whether it may make namespaces on this machine is told by
# `heavydistill doctor`.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/system_package.sh"

is_there() { command -v bwrap >/dev/null; }

system_package bubblewrap "no program of a model can be checked here"
