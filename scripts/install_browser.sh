#!/usr/bin/env bash
# What the pages of reports are tested in: chromium, from the system's packages.
#
#   bash scripts/install_browser.sh
#
# Does nothing where one is there. heavydistill itself needs no browser.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/system_package.sh"

is_there() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null; }

system_package chromium "the pages of reports cannot be tested here"
